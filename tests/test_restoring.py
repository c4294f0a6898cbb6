"""Restoring through the server itself: another worker takes over after SIGKILL, or the run is reset.

What a snapshot restores is in test_resume.py; the same situations are here.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle, WorkflowHistory

from cli.server import DevServer, temporal_binary
from graph.values import JSON, encode
from nodes import call, count, failing, keys
from observing import until, without_times_and_ids
from runs import Runs
from worker_process import WorkerProcess

TESTS = Path(__file__).parent
WAYS = ["killed", "reset"]
SMALL = {"type": "object", "properties": {"from": {"const": "big"}}}
USAGE = {"input_tokens": 7, "output_tokens": 3}


class Served:
    """Runs on one task queue, served by one worker after another."""

    def __init__(self, server: DevServer, client: Client, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._count = 0
        # Rejected at its first call, and then failing without having used anything, after a while.
        late = {"replies": [{"from": "small"}, {"fail": "SECOND"}], "delay": "2s", "usage": USAGE}
        models = {
            name: {"provider": "stub", "log": str(folder / f"{name}.jsonl"), **late}
            for name in ("late_snapshot", "late_killed", "late_reset")
        }
        self._env = {
            "FERRATA_FUNCTIONS": "functions_for_tests,chaos.work",
            "FERRATA_ACTIVITIES": "chaos.work",
            "FERRATA_MODELS": json.dumps(models),
            "FERRATA_STORE": str(folder / "store"),
            "TEST_LOG": str(folder),
            "PYTHONPATH": str(TESTS),
        }
        self.worker = WorkerProcess(server, folder, env=self._env)
        self.runs = Runs(client, self.worker.task_queue, folder)

    async def another_takes_over(self) -> None:
        """SIGKILL the worker, all its processes, and start another one."""
        self.worker.kill()
        await self.worker.wait()
        self._count += 1
        folder = self._folder / f"worker-{self._count}"
        folder.mkdir()
        self.worker = WorkerProcess(self._server, folder, task_queue=self.runs.task_queue, env=self._env)
        await self.worker.start()

    async def reset(self, handle: WorkflowHandle[Any, Any]) -> None:
        """`temporal workflow reset` to the last workflow task."""
        words = ("--workflow-id", handle.id, "--type", "LastWorkflowTask", "--reason", "a test")
        process = await asyncio.create_subprocess_exec(
            str(temporal_binary()), "workflow", "reset", *words, env=self._server.environment
        )
        assert await process.wait() == 0

    async def interrupt(self, way: str, handle: WorkflowHandle[Any, Any]) -> WorkflowHandle[Any, Any]:
        """What a test is parametrized with; the run that goes on."""
        if way == "snapshot":
            snapshot = await handle.query("snapshot")
            await handle.terminate()
            return await self.runs.start_raw({"resume": json.loads(json.dumps(snapshot))})
        await (self.another_takes_over() if way == "killed" else self.reset(handle))
        return self.runs.client.get_workflow_handle(handle.id)


@pytest.fixture(scope="module")
async def served(server: DevServer, client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    served = Served(server, client, tmp_path_factory.mktemp("restoring"))
    await served.worker.start()
    yield served
    await served.worker.stop()


@pytest.fixture
def runs(served: Served) -> Runs:
    """Instead of those on the shared worker."""
    return served.runs


async def execution(handle: WorkflowHandle[Any, Any], node: str) -> dict[str, Any]:
    """A node's only execution."""
    (found,) = (await handle.query("state"))["nodes"][node]["executions"]
    return dict(found)


def shown(way: str, data: JSON) -> JSON:
    """A part of a state, to be equal byte for byte. The workflow task that a reset goes back to is done again, later:
    then it isn't the same moment at which it sees what had ended."""
    return re.sub(rb'"finished":\d+', b'"finished":0', encode(data)) if way == "reset" else encode(data)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_r1_with_source_done_and_batch_in_flight_the_batch_runs_whole_in_place_and_source_is_not_called(
    served: Served, runs: Runs, way: str
) -> None:
    batch = {**call("slow", key="batch", seconds=2, value="${source}")}
    nodes = {"source": count("source", [30, 10, 20]), "batch": batch, "summary": count("summary", "${sum(batch)}")}
    handle = await runs.start({"nodes": nodes})
    await until(lambda: called(runs, "slow", handle.id))
    saved = await handle.query("snapshot")
    again = await served.interrupt(way, handle)
    assert (await again.result())["result"] == 60
    await runs.replays(again)
    assert keys(runs, handle.id) == ["source", "summary"]
    assert [entry["event"] for entry in runs.calls("slow", handle.id)].count("start") == 2
    final = await again.query("snapshot")
    assert shown(way, final["nodes"]["source"]) == shown(way, saved["nodes"]["source"])
    (before,), (after,) = saved["nodes"]["batch"]["executions"], final["nodes"]["batch"]["executions"]
    assert (after["id"], after["from"]) == (before["id"], before["from"])
    assert [(a["index"], a["status"]) for a in after["attempts"]] == [(0, "succeeded")]
    assert final["last_id"] == saved["last_id"] + 1  # the summary's
    assert final == await again.query("snapshot")


async def called(runs: Runs, name: str, run: str, times: int = 1) -> bool:
    return len(runs.calls(name, run)) >= times


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_r2_after_terminal_failure_the_error_is_the_same_twice_and_nothing_is_called(
    served: Served, runs: Runs, way: str
) -> None:
    handle = await runs.start(
        {"nodes": {"source": count("source"), "work": failing(after=["source"]), "later": count("later", "${work}")}}
    )
    first = await runs.failure(handle)
    saved = await handle.query("snapshot")
    for _ in range(2):
        again = await served.interrupt(way, handle)
        failed = await runs.failure(again)
        assert (failed.code, failed.message, failed.envelope) == (first.code, first.message, first.envelope)
        assert shown(way, await again.query("snapshot")) == shown(way, saved)
    assert keys(runs, handle.id) == ["source"]
    assert keys(runs, handle.id, "script") == ["failing"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["snapshot", *WAYS])
async def test_r3_with_attempt_0_failed_and_attempt_1_under_way_attempt_0_stays_and_attempt_1_is_the_last(
    served: Served, runs: Runs, way: str
) -> None:
    model = f"late_{way}"
    work = {"infer": {"model": model, "prompt": "who?"}, "output_schema": SMALL, "on_fail": [{"retry": 1}]}
    handle = await runs.start({"nodes": {"work": work}})
    await until(lambda: called(runs, model, "", 2))
    saved = await execution(handle, "work")
    again = await served.interrupt(way, handle)
    failed = await runs.failure(again)
    assert failed.code == "SECOND"
    assert len(runs.calls(model)) == 3  # the one in flight is made again, once
    state = await again.query("state")
    (final,) = state["nodes"]["work"]["executions"]
    assert [attempt["status"] for attempt in saved["attempts"]] == ["failed", "running"]
    assert final["id"] == saved["id"]
    assert shown(way, final["attempts"][0]) == shown(way, saved["attempts"][0])
    assert final["attempts"][0]["error"]["details"]
    assert final["attempts"][0]["usage"] == {**USAGE, "total_tokens": 10}
    assert [(a["index"], a["status"]) for a in final["attempts"]] == [(0, "failed"), (1, "failed")]
    assert state["usage"] == final["usage"] == {**USAGE, "total_tokens": 10}


async def test_r6_a_snapshot_survives_a_json_round_trip(runs: Runs) -> None:
    nodes = {"odd": {"value": {"é": [1.0, 1e300, None, "\u2028", 2**53]}}, "bad": failing(optional=True)}
    handle = await runs.start({"nodes": nodes, "output": "${odd}"})
    result = await handle.result()
    saved = await handle.query("snapshot")
    again = await runs.start_raw({"resume": json.loads(json.dumps(saved, ensure_ascii=False, sort_keys=True))})
    assert await again.result() == result
    final = await again.query("snapshot")
    assert encode({**final, "run": "", "started": ""}) == encode({**saved, "run": "", "started": ""})
    assert len(keys(runs, handle.id, "script")) == 1


LATER = {"on_fail": [{"retry": {"times": 2, "delay": "100ms", "feedback": True}}]}


def work(key: str, value: JSON, fails: int = 0, seconds: float = 0, **more: JSON) -> dict[str, Any]:
    """A node whose calls are noted together with the activity that made them."""
    given = {"key": key, "value": value, "fails": fails, "seconds": seconds}
    return {"function": "chaos.work:work", "input": given, **more}


def below(key: str) -> dict[str, Any]:
    """A child graph."""
    nodes = {"inner": work(f"{key} inner", "${input}"), "outer": work(f"{key} outer", "${inner + 1}", seconds=0.3)}
    return {"nodes": nodes, "output": "${outer}"}


EVERYTHING: dict[str, Any] = {
    "nodes": {
        "opening": work("opening", 3),
        "delayed": work("delayed", "${opening}", 1, **LATER),
        "rerouted": {
            **work("rejected", "${opening}"),
            "accept": [{"expr": "output > opening"}],
            "on_fail": [{"reroute": {"value": "${opening + 1}"}}],
        },
        "called": {"activity": {"name": "foreign", "args": ["foreign", "${opening}", 0]}},
        "below": {"graph": below("below"), "input": "${opening}"},
        "looped": {"graph": below("looped"), "input": "${delayed}", "repeat": {"until": "output > 4", "max_rounds": 3}},
        "mapped": {"over": "${[opening, 2, 1]}", **work("item ${index}", "${item}", 1, **LATER)},
        "forgiven": work("forgiven", 1, 1, optional=True, on_fail=[{"escalate": {"queue": "restoring"}}]),
        "ask": {"wait": {"reply": {"type": "integer"}}},
        "pause": {"wait": {"for": "200ms"}, "after": ["below"]},
        "closing": work("closing", "${delayed + rerouted + called + below + looped + ask}", after=["pause"]),
    },
    "output": "${[closing, mapped.values]}",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_r4_a_reset_to_any_workflow_task_of_a_finished_run_ends_alike_and_calls_nothing_concluded_before(
    runs: Runs,
) -> None:
    handle = await runs.start(EVERYTHING)
    await handle.signal("reply", {"node": "ask", "value": 7})
    wanted = await handle.result()
    history = await runs.replays(handle)
    state = without_times_and_ids(await handle.query("state"))
    calls = [call for call in runs.calls("calls", handle.id) if call["event"] == "start"]
    ends = conclusions(history, calls)
    tasks = [event.event_id for event in history.events if event.HasField("workflow_task_completed_event_attributes")]
    assert len(tasks) > 10
    for task in tasks:
        before = len(calls)
        await reset_to(runs, handle, history, task)
        again = runs.client.get_workflow_handle(handle.id)
        async with asyncio.timeout(60):
            assert await again.result() == wanted, task
        await runs.replays(again)
        assert without_times_and_ids(await again.query("state")) == state, task
        calls = [call for call in runs.calls("calls", handle.id) if call["event"] == "start"]
        made = Counter((call["key"], call["number"]) for call in calls[before:])
        assert made == Counter(key for key, end in ends if end > task), task


def conclusions(history: WorkflowHistory, calls: list[dict[str, Any]]) -> list[tuple[tuple[str, int], int]]:
    """For each call of a run or its children: its key and number, and the event after which a reset won't repeat it."""
    scheduled = {
        event.event_id: event.activity_task_scheduled_event_attributes.activity_id
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    }
    ends: dict[str, int] = {}
    for event in history.events:
        if event.HasField("activity_task_completed_event_attributes"):
            ends[scheduled[event.activity_task_completed_event_attributes.scheduled_event_id]] = event.event_id
        elif event.HasField("activity_task_failed_event_attributes"):
            ends[scheduled[event.activity_task_failed_event_attributes.scheduled_event_id]] = event.event_id
        elif event.HasField("start_child_workflow_execution_initiated_event_attributes"):
            # Its run has ended since, and the server tells so again: nothing of a child run that was begun is called.
            ends[event.start_child_workflow_execution_initiated_event_attributes.workflow_id] = event.event_id
    own = history.workflow_id
    return [
        ((call["key"], call["number"]), ends[call["activity"] if call["run"] == own else call["run"]]) for call in calls
    ]


async def reset_to(runs: Runs, handle: WorkflowHandle[Any, Any], history: WorkflowHistory, task: int) -> None:
    """Reset the run of this history to a workflow task."""
    await runs.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=runs.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=history.run_id),
            reason="a test",
            workflow_task_finish_event_id=task,
            request_id=f"{handle.id}-{task}",
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_r4_a_child_run_in_flight_ends_under_its_restored_parent(served: Served, runs: Runs, way: str) -> None:
    inner = {"opening": count("opening", 4), "inner": call("slow", seconds=3, key="inner", value="${opening}")}
    child = {"nodes": inner, "output": "${inner}"}
    handle = await runs.start({"nodes": {"below": {"graph": child, "input": 1}, "last": count("last", "${below + 1}")}})
    await until(lambda: called(runs, "slow", handle.id))
    again = await served.interrupt(way, handle)
    async with asyncio.timeout(60):
        assert (await again.result())["result"] == 5
    await runs.replays(again)
    assert keys(runs, handle.id) == ["opening", "last"]
