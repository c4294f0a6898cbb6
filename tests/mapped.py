"""Maps that test graphs are made of, and counting what they called and scheduled."""

from __future__ import annotations

from collections import Counter
from typing import Any

from temporalio.client import WorkflowHistory

from graph.values import JSON
from runs import Runs

RUN = "${run.id}"


def mapping(function: str, input: dict[str, JSON], **more: JSON) -> dict[str, Any]:
    """A map over the run's input ``items`` that calls a function for each, telling it run and item number."""
    call = {"run": RUN, "key": "item ${index}", **input}
    return {"over": "${input.items}", "function": f"functions_for_tests:{function}", "input": call, **more}


def count(**more: JSON) -> dict[str, Any]:
    """A map that gives back each item, noting the call."""
    return mapping("count", {"value": "${item}"}, **more)


def replies(**more: JSON) -> dict[str, Any]:
    """A map whose items are lists of replies: the first at the first call, and so on."""
    return mapping("script", {"replies": "${item}"}, **more)


BAD: JSON = [{"fail": "BAD"}]


def alone(node: dict[str, Any]) -> dict[str, Any]:
    """A graph of one node, `work`."""
    return {"nodes": {"work": node}}


def calls(runs: Runs, run: str, name: str = "count") -> Counter[str]:
    """How often each item of a run was called."""
    return Counter(entry["key"] for entry in runs.calls(name, run))


async def execution(runs: Runs, run: str) -> dict[str, Any]:
    """The only execution of `work`."""
    (found,) = (await runs.query(run, "state"))["nodes"]["work"]["executions"]
    return dict(found)


async def history_of(runs: Runs, run: str) -> WorkflowHistory:
    """A run's history."""
    return await runs.client.get_workflow_handle(run).fetch_history()


def scheduled(history: WorkflowHistory) -> Counter[str]:
    """How often each activity was scheduled."""
    return Counter(
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    )
