"""Histories recorded once are replayed by the workflows as they are now: a change that would break runs in flight fails
here. `record_histories.py` makes them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from graph.values import JSON
from record_histories import BELOW, HISTORIES, KEPT, PREFIX, RECORDINGS
from runs import assert_no_task_failed
from workflows import replayer

NAMES = sorted([*RECORDINGS, *KEPT])


def recorded(name: str, text: str | None = None) -> WorkflowHistory:
    """The recorded history of this name, or ``text`` in its place."""
    text = (HISTORIES / f"{name}.json").read_text() if text is None else text
    return WorkflowHistory.from_json(PREFIX + name + BELOW.get(name, ""), text)


def test_what_is_recorded_is_what_the_recorder_makes() -> None:
    assert sorted(path.stem for path in HISTORIES.glob("*.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_history_replays(name: str) -> None:
    history = recorded(name)
    assert_no_task_failed(history)
    await replayer().replay_workflow(history)


@workflow.defn(name="RunGraph", sandboxed=False)
class AnotherRunGraph:
    """Does something else than any recorded run."""

    @workflow.run
    async def run(self, request: Any = None) -> None:
        await workflow.sleep(1)


async def test_a_history_of_another_workflow_does_not_replay() -> None:
    other = Replayer(
        workflows=[AnotherRunGraph],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=pydantic_data_converter,
    )
    with pytest.raises(workflow.NondeterminismError):
        await other.replay_workflow(recorded("linear"))


@pytest.mark.parametrize(("name", "old", "new"), [("linear", "attempt", "endeavour"), ("ladder", "reroute", "attempt")])
async def test_a_history_with_another_activity_does_not_replay(name: str, old: str, new: str) -> None:
    text = (HISTORIES / f"{name}.json").read_text()
    changed = re.sub(rf'("activityType": {{\s*"name": )"{old}"', rf'\1"{new}"', text)
    assert changed != text
    with pytest.raises(workflow.NondeterminismError):
        await replayer().replay_workflow(recorded(name, changed))


MACHINE = re.compile(r"\d@\w|(?<![\w:.+-])/(?:[\w.-]+/)+[\w.-]+|[A-Z]:\\\\|\.py:\d")
"""An identity (a process at a host), an absolute path, a place in a source file."""


def texts(part: JSON) -> Iterator[str]:
    """Every text in a history, what payloads hold included."""
    if isinstance(part, dict):
        for key, inner in part.items():
            yield from [base64.b64decode(inner).decode(errors="replace")] if key == "data" else texts(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from texts(inner)
    elif isinstance(part, str):
        yield part


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_history_names_no_machine(name: str) -> None:
    path: Path = HISTORIES / f"{name}.json"
    for text in texts(json.loads(path.read_text())):
        assert not MACHINE.search(text), text
