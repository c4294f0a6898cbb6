"""Running graphs in tests: start, wait, read the counters of what was really called, and replay the history."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.exceptions import ApplicationError

from graph.values import JSON
from workflows import replayer

HARMLESS = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,  # a signal came while the run ended
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,  # more signals at once than are buffered
)


def assert_no_task_failed(history: WorkflowHistory) -> None:
    """No workflow task failed: Temporal would repeat it for ever, and only luck or a new worker ends that."""
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            assert failed.cause in HARMLESS, (failed.cause, failed.failure.message)


@dataclass
class Failed:
    """How a run failed: the type of its ApplicationError (the code), its message, and the envelope in its details."""

    code: str
    message: str
    envelope: dict[str, Any]


class Runs:
    """Runs graphs on one worker's task queue. ``log`` is the folder where test functions and stub models note calls."""

    def __init__(self, client: Client, task_queue: str, log: Path) -> None:
        self.client = client
        self.task_queue = task_queue
        self.log = log

    async def start(self, graph: JSON, input: JSON = None, *, id: str | None = None) -> WorkflowHandle[Any, Any]:
        """Start a run of ``graph`` (a name, a path, an object, or YAML text of an object)."""
        return await self.start_raw({"graph": graph, "input": input}, id=id)

    async def start_raw(self, request: JSON, *, id: str | None = None) -> WorkflowHandle[Any, Any]:
        """Start a run with any input."""
        return await self.client.start_workflow(
            "RunGraph", request, id=id or f"run-{uuid.uuid4().hex[:12]}", task_queue=self.task_queue
        )

    async def complete(self, graph: JSON, input: JSON = None, *, id: str | None = None) -> dict[str, Any]:
        """Run to the end and replay; the result's envelope with ``id`` of the run added."""
        handle = await self.start(graph, input, id=id)
        envelope: dict[str, Any] = await handle.result()
        await self.replays(handle)
        return {**envelope, "id": handle.id}

    async def fail(self, graph: JSON, input: JSON = None, *, id: str | None = None) -> Failed:
        """Run to its failure and replay. AssertionError if it completes."""
        handle = await self.start(graph, input, id=id)
        failed = await self.failure(handle)
        failed.envelope["id"] = handle.id
        return failed

    async def failure(self, handle: WorkflowHandle[Any, Any]) -> Failed:
        """Wait for a run that fails, and replay it."""
        try:
            result = await handle.result()
        except WorkflowFailureError as error:
            cause = error.cause
            assert isinstance(cause, ApplicationError), cause
            await self.replays(handle)
            return Failed(cause.type or "", cause.message, dict(cause.details[0]))
        raise AssertionError(f"the run completed: {result}")

    async def replays(self, handle: WorkflowHandle[Any, Any]) -> WorkflowHistory:
        """Replay the run's history; returns it. No workflow task may have failed on the way."""
        history = await handle.fetch_history()
        assert_no_task_failed(history)
        await replayer().replay_workflow(history)
        return history

    async def query(self, id: str, name: str, *args: Any) -> Any:
        """The answer of a query to the run ``id``."""
        return await self.client.get_workflow_handle(id).query(name, args=list(args))

    def calls(self, name: str, run: str | None = None) -> list[dict[str, Any]]:
        """What the function or stub model ``name`` noted of its calls, in order; only those that mention ``run``."""
        path = self.log / f"{name}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if run is None or run in line]
