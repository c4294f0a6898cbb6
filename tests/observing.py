"""What tests read off a run: its attempts, its history, its entries in a queue, its store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from activities.store import Store
from activities.stored import load_value
from graph.values import JSON, Ref, Value
from runs import Runs


async def attempts(runs: Runs, run: str, node: str = "work") -> list[dict[str, Any]]:
    """The attempts of the node's last execution, as `state` shows them."""
    state = await runs.query(run, "state")
    found: list[dict[str, Any]] = state["nodes"][node]["executions"][-1]["attempts"]
    return found


async def history(runs: Runs, run: str) -> WorkflowHistory:
    """The history of a run so far."""
    return await runs.client.get_workflow_handle(run).fetch_history()


def scheduled(history: WorkflowHistory) -> list[str]:
    """The names of the activities that a run scheduled, in order."""
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


def timers(history: WorkflowHistory) -> list[int]:
    """The milliseconds of the timers that a run started, in order."""
    return [
        round(event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds() * 1000)
        for event in history.events
        if event.HasField("timer_started_event_attributes")
    ]


def mentions(history: WorkflowHistory, text: str) -> bool:
    """Whether ``text`` stands anywhere in a history, payloads included."""
    return any(text.encode() in event.SerializeToString() for event in history.events)


async def queued(runs: Runs, run: str, queue: str = "escalations") -> list[dict[str, Any]]:
    """The entries of ``run`` in a queue; none if nobody ever started the queue."""
    try:
        answer = await runs.query(queue, "all")
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return []
        raise
    return [entry for entry in answer["entries"] if entry["run"] == run]


async def stored(runs: Runs, ref: dict[str, Any]) -> JSON:
    """The JSON value that a reference names in the store of the shared worker."""
    return await load_value(Store.open(str(runs.log / "store")), Value(ref=Ref(**ref)))


def blobs(runs: Runs) -> dict[str, bytes]:
    """Everything in the store of the shared worker, by path."""
    folder = runs.log / "store"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def until(holds: Callable[[], Awaitable[Any]], seconds: float = 20) -> Any:
    """Wait until ``holds`` answers something true; returns that. AssertionError after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (answer := await holds()):
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(0.05)
    return answer


async def node_status(runs: Runs, handle: WorkflowHandle[Any, Any], node: str = "work") -> str | None:
    """The node's status; None while the graph is still being loaded."""
    state = await runs.query(handle.id, "state")
    found: str | None = state["nodes"][node]["status"] if "nodes" in state else None
    return found


def without_times_and_ids(state: JSON) -> JSON:
    """A state but for what differs between two runs of one graph: when things happened, and in which order they
    began."""
    if isinstance(state, dict):
        told = {key: value for key, value in state.items() if key not in ("id", "execution", "created", "finished")}
        return {key: without_times_and_ids(value) for key, value in told.items()}
    return [without_times_and_ids(value) for value in state] if isinstance(state, list) else state
