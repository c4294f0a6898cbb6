"""One attempt of a node, by kind. Most kinds are one activity; a called activity is bind, call, check; a graph
is bind, child run, check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError, TimeoutError
from temporalio.workflow import ChildWorkflowHandle

from graph.durations import format_duration
from graph.errors import FAILURE_CLASSES
from graph.plan import NodePlan
from graph.state import Attempt, Error, Loop, Progress, Usage
from graph.values import ARGUMENTS_LIMIT, JSON, Value, encode, trim
from graph.wire import (
    ATTEMPT,
    BIND,
    CHECK,
    REROUTE,
    RUN_GRAPH,
    AttemptRequest,
    AttemptResult,
    Bound,
    CheckRequest,
    LoadRequest,
)
from workflows.calls import AttemptFailed, call, call_foreign, check_cancelled

T = TypeVar("T")

LONGEST_ID = 1000
"""Bytes of a workflow's id."""


class Interruptible(Protocol):
    """Awaits what a failing run breaks off."""

    async def __call__(self, node: NodePlan, waiting: Callable[[], Awaitable[T]]) -> T: ...


@dataclass
class Below:
    """What an attempt's child runs came to, over all rounds of a loop. A failed attempt's counts too."""

    usage: Usage = field(default_factory=Usage)
    escalations: int = 0
    failures: int = 0
    """Of child runs that completed all the same."""

    def add(self, envelope: dict[str, Any]) -> None:
        """Count one child run, by its result or its failure's details."""
        self.usage.add(Usage.from_json(envelope.get("usage")))
        self.escalations += envelope.get("escalations", 0)
        if envelope["status"] == "completed":
            self.failures += envelope["failures"]

    def to_json(self) -> dict[str, JSON]:
        """As a snapshot has it."""
        return {"usage": self.usage.to_json(), "escalations": self.escalations, "failures": self.failures}

    def restore(self, data: dict[str, Any]) -> None:
        """Take over what `to_json` gave."""
        self.usage = Usage.from_json(data["usage"])
        self.escalations, self.failures = data["escalations"], data["failures"]


@dataclass(frozen=True)
class Child:
    """The workflow id of an attempt's child run, and of those that it may go on from, if its parent was restored: the
    first that there is."""

    id: str
    previous: tuple[str, ...] = ()

    def of_round(self, number: int) -> Child:
        """The child of a loop's round."""
        return Child(f"{self.id}.{number}", tuple(f"{run}.{number}" for run in self.previous))


async def make_attempt(
    node: NodePlan,
    request: AttemptRequest,
    attempt: Attempt,
    child: Child,
    below: Below,
    progress: Progress,
    *,
    interruptible: Interruptible,
    rest: Callable[[NodePlan], Awaitable[None]],
) -> AttemptResult:
    """Make one attempt of ``node`` with ``request.implementation``, or go on with it where ``progress.loop`` says.
    ``attempt`` learns its input once that is bound; ``below`` takes what child runs come to; ``rest`` is awaited
    between the rounds of a loop.

    Raises:
        AttemptFailed: it failed.
        Stopped: the run is failing, and this was a child run.
        asyncio.CancelledError: it was cancelled.
    """
    kind = node.kinds[request.implementation]
    rerouted = request.implementation > 0
    summary = f"{node.name}: {node.implementations[request.implementation]}" if rerouted else node.name
    if kind not in ("activity", "graph"):
        name = REROUTE if rerouted else ATTEMPT
        return await call(name, request, AttemptResult, summary=summary, timeout=node.timeout)
    if progress.loop is None:
        bound = await call(BIND, request, Bound, summary=f"{summary}: bind", timeout=node.timeout)
        if bound.skipped:
            return AttemptResult(skipped=True)
        round_number = 1
    else:
        value = Value.model_validate(progress.loop.value)
        bound, round_number = Bound(args=[value], value=value, input=progress.loop.input), progress.loop.round
        below.restore(progress.loop.below)
    attempt.learn(input=bound.input)
    while True:
        if kind == "activity":
            output = await call_activity(node, bound, summary)
        else:
            run = child.of_round(round_number) if node.max_rounds else child
            output = await interruptible(node, partial(run_child, node, bound, run, below))
        usage = below.usage.to_json() or None
        check = CheckRequest(**dict(request), output=output, input=bound.input, usage=usage, round=round_number)
        result = await call(CHECK, check, AttemptResult, summary=f"{summary}: check", timeout=node.timeout)
        if result.done:
            return result
        if result.output is None:
            raise RuntimeError("a loop that goes on has an output")
        bound = Bound(args=[result.output], value=result.output, input=bound.input)
        round_number += 1
        progress.loop = Loop(round_number, result.output.model_dump(), bound.input, below.to_json())
        await rest(node)


async def call_activity(node: NodePlan, bound: Bound, summary: str) -> Value:
    """Call a user's Temporal activity. Its output passes through history, so it is limited."""
    name = node.implementations[0].removeprefix("activity:")
    args: list[JSON] = [value.inline for value in bound.args]
    output = await call_foreign(name, args, task_queue=node.task_queue, summary=summary, timeout=node.timeout)
    size = len(encode(output))
    if size > ARGUMENTS_LIMIT:
        message = f"activity `{name}` returned {size} bytes; at most {ARGUMENTS_LIMIT} pass through history"
        raise AttemptFailed(Error("too_large", "too_large", message, {"size": size, "limit": ARGUMENTS_LIMIT}))
    return Value(inline=output, size=size)


async def run_child(node: NodePlan, bound: Bound, child: Child, below: Below) -> Value:
    """Run a child graph as a workflow of its own, ended with its parent."""
    request = LoadRequest(
        compiled=node.child, value=bound.value, resume={"runs": list(child.previous)} if child.previous else None
    )
    try:
        running = await start_child(RUN_GRAPH, request, child.id, summary=node.name, timeout=node.timeout)
        envelope: dict[str, Any] = await running
    except ChildWorkflowError as error:
        if isinstance(error.cause, CancelledError):
            check_cancelled()
        raise child_failure(node, error, below) from error
    below.add(envelope)
    return Value.model_validate(envelope["output"])


async def start_child(
    name: str, request: BaseModel, id: str, *, summary: str, timeout: int | None, result: type | None = None
) -> ChildWorkflowHandle[Any, Any]:
    """Start a workflow that ends with this one; ``timeout`` in milliseconds (None: as long as it takes).

    Raises:
        AttemptFailed: the server would refuse its id, and the workflow task would be repeated for ever.
    """
    size = len(id.encode())
    if size > LONGEST_ID:
        message = f"the child run's id would have {size} bytes; at most {LONGEST_ID} are possible"
        raise AttemptFailed(Error("too_large", "too_large", f"{message}; give the run a shorter id"))
    return await workflow.start_child_workflow(
        name,
        request,
        result_type=result,
        id=id,
        # The same id again after a reset: the older child is of a history that no longer counts.
        id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
        parent_close_policy=workflow.ParentClosePolicy.TERMINATE,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        execution_timeout=None if timeout is None else timedelta(milliseconds=timeout),
        static_summary=f"{summary} of {workflow.info().workflow_id}",
    )


def child_failure(node: NodePlan, error: ChildWorkflowError, below: Below) -> AttemptFailed:
    """A child's failure as the parent's attempt shows it: class `child_failed`, the author's code kept."""
    cause = error.cause
    if isinstance(cause, TimeoutError):
        message = f"the child run took longer than its timeout of {format_duration(node.timeout)}"
        return AttemptFailed(Error("timeout", "timeout", message, {"timeout": node.timeout}))
    if not isinstance(cause, ApplicationError):
        return AttemptFailed(Error("child_failed", "child_failed", trim(f"the child run ended: {cause or error}")))
    envelope = cause.details[0] if cause.details else None
    failed = AttemptFailed(
        Error(
            cause.type if cause.type and cause.type not in FAILURE_CLASSES else "child_failed",
            "child_failed",
            trim(f"the child run failed: {cause.message}"),
            {"run": error.workflow_id, "error": envelope["error"]} if isinstance(envelope, dict) else {},
        )
    )
    if isinstance(envelope, dict):
        below.add(envelope)
    failed.usage = below.usage
    return failed
