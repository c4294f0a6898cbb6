"""What ends work from outside: cancelling and terminating runs, killed processes, and workers told to stop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError

from cli.server import DevServer
from graph.values import JSON
from runs import Runs
from worker_process import WorkerProcess

TESTS = Path(__file__).parent
RUN = "${run.id}"
SPIN = "def run(input):\n    while True:\n        pass\n"
SOON = 10
"""Seconds that are more than enough for what takes one or two."""


def call(function: str, /, **input: JSON) -> dict[str, Any]:
    """A function node that notes its run."""
    return {"function": f"functions_for_tests:{function}", "input": {"run": RUN, **input}}


async def until_called(runs: Runs, name: str, run: str, times: int = 1) -> None:
    """Wait until a function noted so many calls of ``run``."""
    async with asyncio.timeout(30):
        while len(runs.calls(name, run)) < times:
            await asyncio.sleep(0.05)


async def until_started(handle: WorkflowHandle[Any, Any], activity: str) -> None:
    """Wait until a worker has taken on an activity of a run."""
    async with asyncio.timeout(30):
        while True:
            pending = (await handle.describe()).raw_description.pending_activities
            started = [p for p in pending if p.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED]
            if any(p.activity_type.name == activity for p in started):
                return
            await asyncio.sleep(0.05)


async def cancelled(runs: Runs, handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """Cancel a run, see that it soon ends as cancelled, and replay it; returns its state."""
    started = time.monotonic()
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert time.monotonic() - started < SOON
    assert isinstance(caught.value.cause, CancelledError)
    assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    await runs.replays(handle)
    state: dict[str, Any] = await handle.query("state")
    assert state["status"] == "cancelled"
    return state


def attempts(state: dict[str, Any], node: str = "work") -> list[dict[str, Any]]:
    """The attempts of a node's only execution."""
    (execution,) = state["nodes"][node]["executions"]
    return list(execution["attempts"])


# Cancelling


async def test_l11_cancellation_is_never_retried_nor_recorded_against_the_node_and_ends_the_run_as_cancelled(
    runs: Runs,
) -> None:
    work = call("slow", seconds=60)
    work["on_fail"] = [{"retry": 3}, {"reroute": {"value": "instead"}}, "escalate"]
    nodes = {
        "work": work,
        "later": {**call("count", value="${work}")},
        "caught": {**call("count"), "after": {"work": "failed"}},
        "cleanup": {**call("count"), "after": {"work": "any"}},
    }
    handle = await runs.start({"nodes": nodes})
    await until_called(runs, "slow", handle.id)
    state = await cancelled(runs, handle)
    assert [entry["event"] for entry in runs.calls("slow", handle.id)] == ["start", "cancelled"]
    (execution,) = state["nodes"]["work"]["executions"]
    assert (execution["status"], execution["error"]) == ("cancelled", None)
    (attempt,) = execution["attempts"]
    assert (attempt["status"], attempt["error"]) == ("cancelled", None)
    assert attempt["finished"] is not None
    statuses = {name: node["status"] for name, node in state["nodes"].items()}
    assert statuses == {"work": "cancelled", "later": "idle", "caught": "idle", "cleanup": "idle"}
    assert await handle.query("escalations") == []
    assert not runs.calls("count", handle.id)


async def test_cancelling_while_a_retry_waits_ends_the_run_at_once(runs: Runs) -> None:
    work = call("script", replies=[{"fail": "FLAKY"}])
    handle = await runs.start({"nodes": {"work": {**work, "on_fail": [{"retry": {"times": 1, "delay": "10m"}}]}}})
    async with asyncio.timeout(30):
        while (await handle.query("state")).get("nodes", {}).get("work", {}).get("status") != "waiting":
            await asyncio.sleep(0.05)
    state = await cancelled(runs, handle)
    assert state["nodes"]["work"]["status"] == "cancelled"
    assert [attempt["status"] for attempt in attempts(state)] == ["failed"]


@pytest.mark.parametrize(
    ("node", "activity"),
    [
        ({"infer": {"model": "slow", "prompt": "well?"}}, "attempt"),
        (call("slow_failure", seconds=30, code="LATE"), "attempt"),
        ({"activity": {"name": "sleep_for", "args": [RUN, 60]}}, "sleep_for"),
        ({"activity": {"name": "nap_once", "args": [RUN, 60]}}, "nap_once"),
        ({"value": 1, "accept": [{"script": SPIN}]}, "attempt"),
        ({"value": 1, "on_fail": [{"reroute": {"script": SPIN}}], "accept": [{"expr": "output == 2"}]}, "reroute"),
        ({"over": [1, 2], "script": SPIN}, "chunk"),
    ],
    ids=["infer", "function in a thread", "activity", "activity in a thread", "check", "reroute", "map"],
)
async def test_cancelling_reaches_every_kind_of_work(runs: Runs, node: dict[str, Any], activity: str) -> None:
    handle = await runs.start({"nodes": {"work": node}})
    await until_started(handle, activity)
    state = await cancelled(runs, handle)
    assert state["nodes"]["work"]["status"] == "cancelled"
    assert attempts(state)[-1]["status"] == "cancelled"


async def test_cancelling_a_map_starts_no_further_item(runs: Runs) -> None:
    work = {**call("slow", seconds=60, key="item ${index}"), "over": list(range(10)), "concurrency": 2}
    handle = await runs.start({"nodes": {"work": work}})
    await until_called(runs, "slow", handle.id, 2)
    await cancelled(runs, handle)
    events = [(entry["key"], entry["event"]) for entry in runs.calls("slow", handle.id)]
    assert sorted(events) == [(f"item {n}", event) for n in (0, 1) for event in ("cancelled", "start")]


async def test_l11_cancelling_a_run_ends_its_child_runs_too(runs: Runs) -> None:
    inner = {"inner": {**call("slow", seconds=60), "input": {"run": "${input.run}", "seconds": 60}}}
    below = {"graph": {"nodes": inner}, "input": {"run": RUN}}
    nodes = {"work": {"graph": {"nodes": {"below": below}}, "input": {}}}
    handle = await runs.start({"nodes": nodes})
    inmost = runs.client.get_workflow_handle(f"{handle.id}/work/1.0/below/1.0")
    await until_called(runs, "slow", inmost.id.rsplit("/", 2)[0])
    await cancelled(runs, handle)
    assert (await inmost.describe()).status == WorkflowExecutionStatus.CANCELED
    await runs.replays(inmost)


async def test_a_run_may_be_cancelled_from_the_start_and_twice(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"work": call("slow", seconds=60)}})
    await handle.cancel()
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert isinstance(caught.value.cause, CancelledError)
    await runs.replays(handle)
    assert (await handle.query("progress"))["status"] in ("loading", "cancelled")


async def test_terminating_a_run_stops_its_attempts(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"work": call("slow", seconds=60)}})
    await until_called(runs, "slow", handle.id)
    await handle.terminate()
    assert (await handle.describe()).status == WorkflowExecutionStatus.TERMINATED
    async with asyncio.timeout(SOON):
        while [entry["event"] for entry in runs.calls("slow", handle.id)] != ["start", "cancelled"]:
            await asyncio.sleep(0.1)


# A worker of our own, to be hurt


def environment(folder: Path) -> dict[str, str]:
    """What a worker with the test functions is told."""
    return {
        "FERRATA_FUNCTIONS": "functions_for_tests",
        "FERRATA_ACTIVITIES": "activities_for_tests",
        "FERRATA_STORE": str(folder / "store"),
        "TEST_LOG": str(folder),
        "PYTHONPATH": str(TESTS),
    }


@pytest.fixture(scope="module")
async def worker(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerProcess]:
    """A worker of this file alone, with one attempt process."""
    folder = tmp_path_factory.mktemp("own")
    async with WorkerProcess(server, folder, env=environment(folder)) as worker:
        yield worker


@pytest.fixture(scope="module")
def own(worker: WorkerProcess, client: Client) -> Runs:
    """Runs on that worker."""
    return Runs(client, worker.task_queue, Path(worker.env["TEST_LOG"]))


def processor_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processor time from /proc")
async def test_l11_a_spinning_guest_stops_when_its_run_is_cancelled_and_the_worker_goes_on(
    own: Runs, worker: WorkerProcess
) -> None:
    handle = await own.start({"nodes": {"work": {"script": SPIN}}})
    await until_started(handle, "attempt")
    pid = worker.pids()["attempts-1"]
    before = processor_seconds(pid)
    async with asyncio.timeout(30):
        while processor_seconds(pid) < before + 0.3:
            await asyncio.sleep(0.05)
    state = await cancelled(own, handle)
    (attempt,) = attempts(state)
    assert (attempt["status"], attempt["error"]) == ("cancelled", None)
    before = processor_seconds(pid)
    await asyncio.sleep(1)
    assert processor_seconds(pid) - before < 0.5, "nothing spins any more"
    done = await own.complete({"nodes": {"work": {"script": "def run(input):\n    return 'served'\n"}}})
    assert done["result"] == "served"
    assert worker.pids()["attempts-1"] == pid


def started(history: Any, activity: str) -> list[int]:
    """For each time that an activity was scheduled by the workflow: at which try of Temporal's it was done."""
    scheduled = {
        event.event_id: 0
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity
    }
    for event in history.events:
        attributes = event.activity_task_started_event_attributes
        if attributes.scheduled_event_id in scheduled:
            scheduled[attributes.scheduled_event_id] = attributes.attempt
    return list(scheduled.values())


@pytest.mark.slow
async def test_when_an_attempt_process_is_killed_attempts_run_again_at_the_same_index_and_spend_no_rung(
    own: Runs, worker: WorkerProcess
) -> None:
    # The first call of each hangs, so only what runs again can end.
    alone = await own.start(
        {"nodes": {"before": call("count"), "work": {**call("slow_once", seconds=90), "after": ["before"]}}}
    )
    foreign = await own.start({"nodes": {"work": {"activity": {"name": "sleep_once", "args": [RUN, 90]}}}})
    items = {**call("slow_once", seconds=90, key="item ${index}"), "over": [1, 2, 3], "timeout": "5m"}
    many = await own.start({"nodes": {"work": items, "total": {"value": "${len(work.values)}"}}})
    await until_called(own, "slow_once", alone.id)
    await until_called(own, "sleep_once", foreign.id)
    await until_called(own, "slow_once", many.id, 3)
    worker.kill("attempts-1")

    for handle, activity in ((alone, "attempt"), (foreign, "sleep_once"), (many, "chunk")):
        envelope = await handle.result()
        history = await own.replays(handle)
        state = await handle.query("state")
        (attempt,) = attempts(state)
        assert (attempt["index"], attempt["status"], attempt["error"]) == (0, "succeeded", None)
        if handle is alone:
            assert envelope["result"] == 1
            assert len(own.calls("slow_once", handle.id)) == 2
            assert len(own.calls("count", handle.id)) == 1, "concluded work doesn't run again"
            assert started(history, activity) == [1, 2]
        elif handle is foreign:
            assert envelope["result"] == 1
            assert started(history, activity) == [1, 1]
        else:
            assert envelope["result"] == 3
            assert started(history, activity) == [2]
            assert (await handle.query("output", "work"))["value"]["succeeded"] == 3


@pytest.mark.slow
async def test_when_the_orchestrator_is_killed_runs_go_on_and_nothing_is_called_twice(
    own: Runs, worker: WorkerProcess
) -> None:
    nodes = {
        "before": call("count", key="before"),
        "work": {**call("slow", seconds=3), "after": ["before"]},
        "later": {**call("count", key="later"), "after": ["work"]},
    }
    handle = await own.start({"nodes": nodes})
    await until_called(own, "slow", handle.id)
    worker.kill("orchestrator")
    assert (await handle.result())["nodes"] == {"before": "succeeded", "work": "succeeded", "later": "succeeded"}
    assert [entry["key"] for entry in own.calls("count", handle.id)] == ["before", "later"]
    assert [entry["event"] for entry in own.calls("slow", handle.id)] == ["start", "end"]
    await own.replays(handle)


@pytest.mark.slow
async def test_a_long_attempt_of_a_worker_told_to_stop_is_taken_over_and_not_counted(
    server: DevServer, client: Client, tmp_path: Path
) -> None:
    ladder = {"on_fail": [{"retry": 1}]}
    nodes = {
        "work": {**call("slow_once", seconds=90), **ladder},
        "foreign": {"activity": {"name": "sleep_once", "args": [RUN, 90]}, **ladder},
        "threaded": {"activity": {"name": "nap_once", "args": [RUN, 90]}, **ladder},
    }
    first = WorkerProcess(server, tmp_path, env=environment(tmp_path))
    (tmp_path / "second").mkdir()
    second = WorkerProcess(server, tmp_path / "second", task_queue=first.task_queue, env=first.env)
    async with first:
        runs = Runs(client, first.task_queue, tmp_path)
        handle = await runs.start({"nodes": nodes, "output": ["${work}", "${foreign}", "${threaded}"]})
        for name in ("slow_once", "sleep_once", "nap_once"):
            await until_called(runs, name, handle.id)
        async with second:
            assert await first.stop() == 0
            assert (await handle.result())["result"] == [1, 1, 1]
            history = await runs.replays(handle)
            state = await handle.query("state")
    for node, activity in (("work", "attempt"), ("foreign", "sleep_once"), ("threaded", "nap_once")):
        (attempt,) = attempts(state, node)
        assert (attempt["index"], attempt["status"]) == (0, "succeeded")
        # Scheduled anew by the workflow, each at its first try: no loss was counted either.
        assert started(history, activity) == [1, 1]
