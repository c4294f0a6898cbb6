"""One attempt at one input, whole: guard, binding, work (looped if it repeats), checks. Nodes and items alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from activities.checks import run_checks
from activities.evaluate import Environment
from activities.implement import ALONE, Feedback, Means, Meter, Work
from activities.places import clock
from activities.store import StoreError
from activities.tools import Tools
from graph.compiled import CompiledNode
from graph.durations import format_duration
from graph.errors import Failure
from graph.limits import MAX_TIMEOUT_MS
from graph.values import JSON, Ref, Value, check_depth, digest, encode, trim, within_limit
from graph.wire import AttemptResult, FailureRecord


@dataclass(frozen=True)
class Try:
    """Which implementation to try, with which factors on fuel and memory, and what the try before it gave."""

    implementation: int = 0
    feedback: Feedback | None = None
    fuel: float = 1.0
    memory: float = 1.0


@dataclass
class Outcome:
    """What one attempt gave. Either ``skipped``, or ``failure``, or ``output``.

    ``rejected`` is the output that a check refused, kept only if some rung shows it to somebody.
    """

    meter: Meter
    skipped: bool = False
    output: JSON = None
    data: bytes = b""
    """The output's JSON text."""
    input: str | None = None
    failure: Failure | None = None
    rejected: Ref | None = None

    def record(self) -> FailureRecord:
        """The failure as history keeps it."""
        if self.failure is None:
            raise ValueError("only a failed attempt has a record")
        check = self.failure.details.get("check")
        return FailureRecord(
            failure_class=self.failure.failure_class,
            message=trim(self.failure.message),
            details=within_limit(self.failure.details),
            usage=self.meter.usage.to_json() or None,
            fuel=self.meter.fuel or None,
            ran=self.meter.ran,
            input=self.input,
            check=check if isinstance(check, str) else None,
            rejected=self.rejected,
        )


async def perform(
    node: CompiledNode, env: Environment, attempt: Try, *, guard: bool, default: str, means: Means = ALONE
) -> Outcome:
    """Make one attempt. Failures come back in the outcome; only cancellation, a store that is down and what ``means``
    raise beside failures are raised.

    ``guard``: evaluate `when` too. ``default`` names the value that is the input when none is written.
    """
    outcome = Outcome(Meter())
    rejected: list[JSON] = []
    try:
        async with in_time(node):
            if guard and node.when is not None and not await env.condition(node.when, "the guard"):
                outcome.skipped = True
                return outcome
            await _work(node, env, attempt, default, outcome, rejected, means)
    except Failure as failure:
        outcome.failure = failure
    except StoreError as error:
        if error.transient:
            raise
        outcome.failure = Failure("invalid_input", error.message, code=error.code)
    if outcome.failure is not None and rejected and node.keeps_rejected:
        outcome.rejected = await env.tools.store.put_json(rejected[-1])
    return outcome


async def accepted(tools: Tools, node: CompiledNode, outcome: Outcome, value: Value | None = None) -> AttemptResult:
    """What an attempt gives that didn't fail; ``value`` is its output, if that is stored already. Raises StoreError."""
    if outcome.skipped:
        return AttemptResult(skipped=True)
    return AttemptResult(
        output=value or await tools.store.as_value(outcome.output, node.inline, data=outcome.data),
        usage=outcome.meter.usage.to_json() or None,
        fuel=outcome.meter.fuel or None,
        ran=outcome.meter.ran,
        input=outcome.input,
        digest=digest(outcome.data),
    )


@asynccontextmanager
async def in_time(node: CompiledNode) -> AsyncIterator[None]:
    """Bound what is inside by the node's timeout. Raises Failure ``timeout``."""
    limit = min(node.limits.timeout, MAX_TIMEOUT_MS)  # a wait's timeout may be longer, but not that of work
    try:
        async with asyncio.timeout(limit / 1000) as timeout:
            token = clock.set(timeout)
            try:
                yield
            finally:
                clock.reset(token)
    except TimeoutError:
        message = f"the attempt took longer than its timeout of {format_duration(limit)}"
        raise Failure("timeout", message, details={"timeout": limit}) from None


async def _work(
    node: CompiledNode,
    env: Environment,
    attempt: Try,
    default: str,
    outcome: Outcome,
    rejected: list[JSON],
    means: Means,
) -> None:
    implementation = node.implementations[attempt.implementation]
    # A value node has bindings, no input: its checks see what stands for it.
    original = await bind_input(node, env, default) if implementation.kind != "value" else None
    outcome.input = digest(encode(original))
    work = Work(
        node, implementation, env, attempt.feedback, attempt.fuel, attempt.memory, outcome.meter, rejected, means
    )
    output, rounds = await work.run(original), 1
    if node.repeat is not None:
        while check_size(node, output) and not await loop_ends(node.repeat.until, env, output):
            rejected[:] = [output]
            if rounds >= node.repeat.max_rounds:
                raise loop_exhausted(node.repeat.until, rounds)
            output, rounds = await work.run(output, output), rounds + 1
    data = check_size(node, output)
    rejected[:] = [output]
    await run_checks(node, env, original, output, outcome.meter.usage)
    rejected.clear()
    outcome.output, outcome.data = output, data


async def bind_input(node: CompiledNode, env: Environment, default: str) -> JSON:
    """The node's input: its bindings filled in, or the run's input (in a map, the item)."""
    if node.has_input:
        return await env.bind(node.input)
    return (await env.values([default]))[default]


async def loop_ends(until: str, env: Environment, output: JSON) -> bool:
    """Whether a loop's condition holds for this output. Raises Failure."""
    return await env.within(output=output).condition(until, "`until`")


def loop_exhausted(until: str, rounds: int) -> Failure:
    """The failure of a loop that reached its last round."""
    message = f"after {rounds} rounds `{until}` still did not hold"
    return Failure("loop_exhausted", message, details={"rounds": rounds, "until": until})


def check_size(node: CompiledNode, output: JSON) -> bytes:
    """The JSON text of ``output``. Raises Failure ``too_large`` or ``invalid_output``."""
    data = encode(output)
    size = len(data)
    check_depth(output)
    if size > node.limits.output_bytes:
        message = f"the output is {size} bytes; `output_bytes` allows {node.limits.output_bytes}"
        raise Failure("too_large", message, details={"size": size, "limit": node.limits.output_bytes})
    return data
