"""The activities of one attempt: `attempt` and `reroute` do it whole; `bind` and `check` stand before and after a
called activity or a child run."""

from __future__ import annotations

from temporalio import activity

from activities.boundary import as_application_error
from activities.checks import run_checks
from activities.evaluate import Environment
from activities.implement import Feedback, Meter
from activities.perform import (
    Outcome,
    Try,
    accepted,
    bind_input,
    check_size,
    in_time,
    loop_ends,
    loop_exhausted,
    perform,
)
from activities.stored import load_value
from activities.tools import Tools
from activities.waits import bind_wait, only_schemas
from graph.compiled import ActivityCall, CompiledNode
from graph.errors import Failure
from graph.values import ARGUMENTS_LIMIT, JSON, Value, digest, encode
from graph.wire import (
    ATTEMPT,
    BIND,
    CHECK,
    REROUTE,
    AttemptRequest,
    AttemptResult,
    Bound,
    CheckRequest,
)


class AttemptActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=ATTEMPT)
    async def attempt(self, request: AttemptRequest) -> AttemptResult:
        """One attempt with the node's own implementation. Raises ApplicationError: type = code."""
        return await self._attempt(request)

    @activity.defn(name=REROUTE)
    async def reroute(self, request: AttemptRequest) -> AttemptResult:
        """One attempt with another implementation. Raises ApplicationError: type = code."""
        return await self._attempt(request)

    async def _attempt(self, request: AttemptRequest) -> AttemptResult:
        node, env = await self._environment(request)
        first = request.implementation == 0
        outcome = await perform(node, env, await self._try(request), guard=first, default=env.default)
        if outcome.failure is not None:
            raise as_application_error(outcome.failure.code, outcome.record())
        return await accepted(self._tools, node, outcome)

    async def _environment(self, request: AttemptRequest) -> tuple[CompiledNode, Environment]:
        node = await self._tools.node(request.scope.graph, request.node)
        return node, Environment(self._tools, request.scope, node.limits)

    async def _try(self, request: AttemptRequest) -> Try:
        feedback = None
        if request.feedback is not None:
            rejected: JSON = None
            if request.feedback.rejected is not None:
                rejected = await self._tools.store.get_json(request.feedback.rejected)
            feedback = Feedback(request.feedback.code, request.feedback.reason, rejected)
        return Try(request.implementation, feedback, request.fuel, request.memory)

    @activity.defn(name=BIND)
    async def bind(self, request: AttemptRequest) -> Bound:
        """What a called activity or a child run is given. Raises ApplicationError: type = code."""
        node, env = await self._environment(request)
        outcome = Outcome(Meter())
        try:
            async with in_time(node):
                return await self._bind(node, env, node.implementations[request.implementation].activity, outcome)
        except Failure as failure:
            outcome.failure = failure
            raise as_application_error(failure.code, outcome.record()) from None

    async def _bind(self, node: CompiledNode, env: Environment, call: ActivityCall | None, outcome: Outcome) -> Bound:
        """``outcome`` takes the digest of the input, even if that turns out too large."""
        if node.when is not None and not await env.condition(node.when, "the guard"):
            return Bound(skipped=True)
        wait = node.implementations[0].wait
        if wait is not None:
            return await bind_wait(wait, env)
        if call is None:
            input = await bind_input(node, env, env.default)
            outcome.input = digest(encode(input))
            return Bound(value=await self._tools.store.as_value(input), input=outcome.input)
        args = [await bind_input(node, env, env.default)] if call.args is None else await env.bind(call.args)
        data = encode(args[0] if call.args is None else args)
        outcome.input = digest(data)
        if len(data) > ARGUMENTS_LIMIT:
            message = f"the arguments of activity `{call.name}` are {len(data)} bytes; at most {ARGUMENTS_LIMIT} fit"
            raise Failure("too_large", message, details={"size": len(data), "limit": ARGUMENTS_LIMIT})
        return Bound(args=[Value(inline=arg, size=len(encode(arg))) for arg in args], input=outcome.input)

    @activity.defn(name=CHECK)
    async def check(self, request: CheckRequest) -> AttemptResult:
        """Check what came back; in a loop, say whether it ends. Raises ApplicationError: type = code."""
        node, env = await self._environment(request)
        output = await load_value(self._tools.store, request.output)
        outcome = Outcome(Meter(), input=request.input)
        if request.usage:
            outcome.meter.usage.add(outcome.meter.usage.from_json(request.usage))
        try:
            async with in_time(node):
                outcome.data = check_size(node, output)
                if request.early:
                    node = only_schemas(node)
                if node.repeat is not None and not await loop_ends(node.repeat.until, env, output):
                    if request.round >= node.repeat.max_rounds:
                        raise loop_exhausted(node.repeat.until, request.round)
                    return AttemptResult(output=request.output, done=False)
                if node.checks:
                    input = await bind_input(node, env, env.default) if node.has_input else None
                    await run_checks(node, env, input, output, outcome.meter.usage)
        except Failure as failure:
            outcome.failure = failure
            if node.keeps_rejected:
                outcome.rejected = await self._tools.store.put_json(output)
            raise as_application_error(failure.code, outcome.record()) from None
        outcome.output = output
        in_pages = request.output.ref is not None and request.output.ref.form is not None
        return await accepted(self._tools, node, outcome, request.output if in_pages else None)
