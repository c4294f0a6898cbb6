"""The form of a node in a snapshot, and what must hold between a snapshot's parts.

Snapshots come from people, too. The workflow relies on what it restores, and an exception there would make Temporal
repeat the workflow task for ever; so all that it relies on is checked before, and said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from graph.compiled import CompiledNode, Reroute, Retry
from graph.ladder import LONGEST_DELAY
from graph.state import AttemptStatus, NodeStatus
from graph.values import JSON, Ref, Value

LARGEST: Final = 2**53
SLACK: Final = 24 * 3600 * 1000
"""Milliseconds by which clocks may differ."""

Number = Annotated[int, Field(ge=0, le=LARGEST)]
Factor = Annotated[float, Field(ge=0, le=LARGEST)]


class Strict(BaseModel):
    """Nothing is converted and nothing unknown passes: the JSON itself is used further on."""

    model_config = ConfigDict(strict=True, extra="forbid")


class SavedUsage(Strict):
    """`Usage.to_json`."""

    input_tokens: Number = 0
    output_tokens: Number = 0
    total_tokens: Number = 0
    cost: Annotated[float, Field(allow_inf_nan=False)] = 0.0


class SavedError(Strict):
    """`Error.to_json`."""

    code: str
    failure_class: str = Field(alias="class")
    message: str
    details: dict[str, JSON]


class SavedAttempt(Strict):
    """`Attempt.to_json`."""

    index: Number
    implementation: str
    status: AttemptStatus
    created: Number
    finished: Number | None
    error: SavedError | None
    usage: SavedUsage
    fuel: Number | None
    input: str | None
    output: str | None
    ran: str | None = None


class SavedStep(Strict):
    """The fields of `ladder.Attempt`."""

    rung: str
    implementation: Number
    delay: Number
    feedback: bool
    fuel: Factor
    memory: Factor


class SavedFeedback(Strict):
    """`wire.Feedback`."""

    code: str
    reason: str
    rejected: Ref | None = None


class SavedEnding(Strict):
    """`state.Ending`."""

    error: SavedError
    queue: str
    rejected: Ref | None


class SavedBelow(Strict):
    """`Below.to_json`."""

    usage: SavedUsage
    escalations: Number
    failures: Number


class SavedLoop(Strict):
    """`state.Loop`."""

    round: Annotated[int, Field(ge=2, le=LARGEST)]
    value: Value
    input: str | None
    below: SavedBelow


class SavedIgnored(Strict):
    """`workflows.ignored.Ignored.to_json`, or nothing."""

    ignored: dict[str, Number] = {}
    last_ignored: list[dict[str, JSON]] = []


class SavedProgress(Strict):
    """`state.Progress`."""

    standing: Annotated[list[Number], Field(min_length=3, max_length=3)]
    step: SavedStep
    index: Number
    feedback: SavedFeedback | None
    due: Number | None
    deadline: Number | None
    ending: SavedEnding | None
    until: Number | None = None
    loop: SavedLoop | None = None


class SavedExecution(Strict):
    """`Execution.to_snapshot`."""

    id: Number
    sources: list[dict[str, JSON]] = Field(alias="from")
    status: NodeStatus
    attempts: list[SavedAttempt]
    error: SavedError | None
    usage: SavedUsage
    items: dict[str, Number] | None = None
    passed: Ref | None = None
    progress: SavedProgress | None = None


class SavedNode(Strict):
    """`NodeState.to_snapshot`."""

    status: NodeStatus
    executions: list[SavedExecution]
    reason: str | None = None


def faults(
    saved: Mapping[str, SavedNode], nodes: list[CompiledNode], values: Mapping[str, Any], failures: list[str], now: int
) -> Iterator[str]:
    """What doesn't fit together in a snapshot's nodes (the graph's, by name), values and failures. ``now`` in
    milliseconds since the epoch."""
    statuses = {name: node.status for name, node in saved.items()}
    if set(values) != {name for name, status in statuses.items() if status == "succeeded"}:
        yield "the nodes that have a value aren't those that succeeded"
    failed = {node.name for node in nodes if statuses[node.name] == "failed" and not node.optional}
    if set(failures) != failed or len(failures) != len(failed):
        yield "`failures` aren't the nodes that failed"
    ids = [execution.id for node in saved.values() for execution in node.executions]
    if len(ids) != len(set(ids)):
        yield "two executions have the same id"
    for node in nodes:
        for fault in node_faults(saved[node.name], node, now):
            yield f"node `{node.name}`: {fault}"


def node_faults(saved: SavedNode, node: CompiledNode, now: int) -> Iterator[str]:
    if saved.status in ("active", "waiting", "succeeded", "failed") and not saved.executions:
        yield f"it is {saved.status} without an execution"
        return
    for execution in saved.executions:
        if [attempt.index for attempt in execution.attempts] != list(range(len(execution.attempts))):
            yield "its attempts aren't numbered from 0"
        if execution.progress is None and execution.status in ("active", "waiting"):
            yield "an execution that is under way doesn't say how far it is"
    if saved.status not in ("active", "waiting", "failed"):
        return
    last = saved.executions[-1]
    if saved.status == "failed":
        if last.error is None:
            yield "it failed without an error"
    elif last.progress is None or last.status != "active":
        yield f"it is {saved.status}, but its last execution isn't under way"
    else:
        yield from progress_faults(last, last.progress, node, now)


def progress_faults(execution: SavedExecution, progress: SavedProgress, node: CompiledNode, now: int) -> Iterator[str]:
    position, retries, implementation = progress.standing
    if position > len(node.ladder) or implementation >= len(node.implementations) or retries > LARGEST:
        yield "it stands where its ladder has no rung"
    if not possible(progress.step, node):
        yield "its step is none of its ladder's"
    made = len(execution.attempts)
    running = [attempt.index for attempt in execution.attempts if attempt.status == "running"]
    if progress.ending is None:
        if (progress.index, running) not in [(made, []), (made - 1, [made - 1])]:
            yield "its attempts don't fit to how far it is"
    elif running:
        yield "an attempt is running, but the ladder has ended"
    if progress.due is not None and progress.due > now + LONGEST_DELAY + SLACK:
        yield "its delay is too long"
    if any(attempt.created > now + SLACK for attempt in execution.attempts):
        yield "an attempt began in the future"
    if progress.loop is not None and (node.repeat is None or progress.loop.round > node.repeat.max_rounds):
        yield "its loop has no such round"
    limit = node.limits.deadline
    if (progress.deadline is None) != (limit is None):
        yield "its deadline isn't its graph's"
    elif progress.deadline is not None and progress.deadline > now + (limit or 0) + SLACK:
        yield "its deadline is too far off"


def possible(step: SavedStep, node: CompiledNode) -> bool:
    """Whether the node's ladder could have given this step."""
    factors = (step.feedback, step.fuel, step.memory)
    if step.rung == "first":
        return step.implementation == 0 and factors == (False, 1.0, 1.0)
    if step.rung == "reroute":
        return any(
            isinstance(rung, Reroute)
            and rung.implementation == step.implementation
            and factors == (rung.feedback, 1.0, 1.0)
            for rung in node.ladder
        )
    return (
        step.rung == "retry"
        and step.implementation < len(node.implementations)
        and any(isinstance(rung, Retry) and factors == (rung.feedback, rung.fuel, rung.memory) for rung in node.ladder)
    )
