"""The worker as operators see it: what it says, what it survives, how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowFailureError

from activities.settings import VARIABLES
from cli.server import DevServer, free_port
from cli.supervisor import EXIT_CONFIG, EXIT_UNAVAILABLE
from observing import until
from worker_process import ROOT, WorkerProcess, assert_gone

StartWorker = Callable[..., Awaitable[WorkerProcess]]
WORKFLOW, ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
SLOW = """
import time
from temporalio import activity

@activity.defn
def nap(seconds: float) -> str:
    print("napping", flush=True)
    time.sleep(seconds)
    return "rested"
"""
NAP = {"name": "nap", "nodes": {"nap": {"activity": {"name": "nap", "args": [2]}, "input": None}}}


async def pollers(client: Client, task_queue: str, kind: TaskQueueType.ValueType) -> list[str]:
    """Who the server sees polling: the last word of each identity is the process's name."""
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
        )
    )
    return sorted(p.identity.split()[-1] for p in answer.pollers)


async def ends(server: DevServer, folder: Path, **env: str) -> tuple[int, list[str]]:
    """Run a worker that can't start. Returns its exit code and the lines that it logged as errors."""
    worker = WorkerProcess(server, folder, env=env)
    worker.spawn()
    code = await worker.wait()
    for word in ("Traceback", "restarting", "Fatal Python error"):
        assert word not in worker.read()
    return code, [line for line in worker.read().splitlines() if " ERROR " in line]


def test_help_names_every_setting_and_the_exit_codes() -> None:
    command = [sys.executable, "worker.py", "--help"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in [v.name for v in VARIABLES] + ["TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "69", "78"]:
        assert name in printed
    assert "--role" not in printed


async def test_once_ready_one_process_polls_for_workflows_and_the_others_for_activities(
    start_worker: StartWorker, client: Client
) -> None:
    worker = await start_worker(FERRATA_PROCESSES="2")

    async def all_polled() -> bool:
        seen = [await pollers(client, worker.task_queue, kind) for kind in (WORKFLOW, ACTIVITY)]
        return len({name for names in seen for name in names}) == 3

    await until(all_polled)  # the server knows a process from its first poll on, a moment after it serves
    assert await pollers(client, worker.task_queue, WORKFLOW) == ["orchestrator"]
    assert await pollers(client, worker.task_queue, ACTIVITY) == ["attempts-1", "attempts-2"]


async def test_killed_processes_are_replaced_and_a_stop_leaves_none(start_worker: StartWorker) -> None:
    worker = await start_worker()
    before = worker.pids()
    worker.kill("orchestrator", "attempts-1")
    await worker.wait_for("worker ready again")
    after = worker.pids()
    assert before.keys() == after.keys()
    assert before["orchestrator"] != after["orchestrator"]
    assert before["attempts-1"] != after["attempts-1"]
    assert await worker.stop() == 0
    assert_gone(after.values())


async def test_a_killed_worker_takes_its_processes_along(start_worker: StartWorker) -> None:
    worker = await start_worker()
    pids = worker.pids()
    worker.kill()
    await worker.wait()
    assert_gone(pids.values())


async def test_an_attempt_in_flight_ends_before_a_draining_worker_does(
    start_worker: StartWorker, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "naps.py").write_text(SLOW)
    worker = await start_worker(FERRATA_ACTIVITIES="naps", PYTHONPATH=str(tmp_path))
    run = await client.start_workflow("RunGraph", {"graph": NAP}, id="drained", task_queue=worker.task_queue)
    await worker.wait_for("napping")
    started = time.monotonic()
    assert await worker.stop() == 0
    assert 0.5 < time.monotonic() - started < 10
    # Another worker on the queue goes on where this one left off: the nap isn't taken again.
    other = await start_worker(worker.task_queue, FERRATA_ACTIVITIES="naps", PYTHONPATH=str(tmp_path))
    assert (await run.result())["result"] == "rested"
    assert "napping" not in other.read()


async def test_no_server_in_reach_is_one_line(server: DevServer, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    code, errors = await ends(server, tmp_path, TEMPORAL_ADDRESS=address, FERRATA_PROCESSES="2")
    assert code == EXIT_UNAVAILABLE
    (line,) = errors
    assert f"can't reach a Temporal server at {address}: Connection refused" in line
    assert "TEMPORAL_ADDRESS" in line


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({"FERRATA_PROCESSES": "many"}, "FERRATA_PROCESSES is `many`"),
        ({"FERRATA_FUNCTIONS": "not_there.at_all"}, "not_there.at_all"),
        ({"FERRATA_ACTIVITIES": "not_there"}, "not_there"),
        ({"FERRATA_MODELS": '{"small": {"provider": "nobody"}}'}, "nobody"),
        ({"TEMPORAL_NAMESPACE": "nowhere"}, "namespace 'nowhere' can't be served"),
        ({"TEMPORAL_ADDRESS": "not an address"}, "TEMPORAL_ADDRESS 'not an address' is no address"),
        ({"TEMPORAL_PROFILE": "absent"}, "Profile 'absent' not found"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_wrong_setting_is_one_line_that_names_it(
    server: DevServer, tmp_path: Path, env: dict[str, str], wanted: str
) -> None:
    code, errors = await ends(server, tmp_path, **env)
    assert code == EXIT_CONFIG
    (line,) = errors
    assert wanted in line


async def test_an_unknown_setting_is_warned_of(start_worker: StartWorker) -> None:
    worker = await start_worker(FERRATA_SLOT="3")
    assert "FERRATA_SLOT is no setting of Ferrata and has no effect: did you mean FERRATA_SLOTS?" in worker.read()


async def test_all_that_is_wrong_with_the_settings_is_said_at_once(server: DevServer, tmp_path: Path) -> None:
    modules = {
        "FERRATA_FUNCTIONS": "no_functions",
        "FERRATA_ACTIVITIES": "no_activities,none_either",
        "FERRATA_MODELS": '{"small": {"provider": "nobody"}}',
    }
    wanted = ["no_functions", "no_activities", "none_either", "nobody"]
    for env, more in (({}, []), ({"FERRATA_SLOTS": "many", "FERRATA_STOR": "x"}, ["FERRATA_SLOTS is `many`"])):
        worker = WorkerProcess(server, tmp_path, env=modules | env)
        worker.spawn()
        assert await worker.wait() == EXIT_CONFIG
        for words in wanted + more:
            assert words in worker.read(), worker.read()
    assert "FERRATA_STOR is no setting" in worker.read().splitlines()[0]


async def test_the_log_tells_of_each_run_in_a_few_short_lines(start_worker: StartWorker, client: Client) -> None:
    worker = await start_worker()
    script = "def run(input):\n    fail('EMPTY', 'nothing\\nthere')"
    graph = {
        "name": "told",
        "nodes": {"work": {"script": script, "on_fail": [{"escalate": {"queue": "told"}}], "optional": True}},
    }
    ends = {"good": graph, "bad": {"nodes": {"work": {"script": script}}}, "none": "no/such/graph", "wrong": 7}
    for name, request in ends.items():
        run = await client.start_workflow(
            "RunGraph", {"graph": request}, id=f"told-{name}", task_queue=worker.task_queue
        )
        with suppress(WorkflowFailureError):
            await run.result()
    lines = [line.partition("orchestrator: ")[2] for line in worker.read().splitlines() if " INFO " in line]
    told = [line for line in lines if line.startswith("run ")]
    assert told[0] == "run told-good: started, graph told of 1 node"
    assert re.fullmatch(r"run told-good: node work escalated to queue told as \S+ \[EMPTY\] nothing there", told[1])
    assert told[2] == "run told-good: completed, failures: 1, escalations: 1"
    assert told[4] == "run told-bad: failed at node work [EMPTY] nothing there"
    assert told[5].startswith("run told-none: failed [unknown_graph] ")
    assert told[6].startswith("run told-wrong: failed [bad_request] ")
    assert len(told) == 7


async def test_modules_of_the_working_folder_can_be_named(server: DevServer, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def hello() -> str:\n    return 'hello'\n")
    async with WorkerProcess(server, tmp_path, env={"FERRATA_FUNCTIONS": "mine"}, cwd=tmp_path) as worker:
        assert "worker ready" in worker.read()


@pytest.mark.slow
async def test_a_server_that_goes_away_and_comes_back_is_survived(tmp_path: Path) -> None:
    db = tmp_path / "dev.db"
    server = DevServer(db=db)
    async with server, WorkerProcess(server, tmp_path) as worker:
        pids = worker.pids()
        await server.stop()
        await asyncio.sleep(2)
        async with DevServer(db=db, port=server.port) as again:
            client = await Client.connect(again.address)
            graph = {"name": "one", "nodes": {"one": {"value": 1}}}
            run = await client.start_workflow(
                "RunGraph", {"graph": graph}, id="after", task_queue=worker.task_queue, result_type=dict
            )
            assert (await run.result())["result"] == 1
            assert worker.pids() == pids
            await worker.stop()


@pytest.mark.slow
def test_ferrata_dev_runs_both_and_an_interrupt_stops_both(tmp_path: Path) -> None:
    log = tmp_path / "dev.log"
    command = [sys.executable, "-m", "cli.main", "dev", "--port", "0", "--ui-port", "0", "--db", str(tmp_path / "db")]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while "worker ready" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(40) == 0
    finally:
        process.kill()
        process.wait()
    printed = log.read_text()
    assert "workflow start --address 127.0.0.1:" in printed
    assert '--workflow-id hello-1 \\\n    --input \'{"graph": "examples/hello", ' in printed
    assert "Traceback" not in printed
