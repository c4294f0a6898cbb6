"""What attacks on a running worker found: each of these once got a run, a process or a value into a bad state."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from cli.server import DevServer, temporal_binary
from conftest import StartWorker
from runs import Runs

ROOT = Path(__file__).resolve().parent.parent

SUPERVISE = """
import asyncio, os, sys
import cli.supervisor as supervisor
supervisor.ALIVE_SECONDS, supervisor.MOST_SILENCE, supervisor.FIRST_DELAY = 0.2, 3, 0.1
supervisor.configure_logging("supervisor")
child = supervisor.Child("child", (sys.executable, "-c", sys.argv[1]))
sys.exit(asyncio.run(supervisor.Supervisor([child], environment=os.environ, ready_message="here").run()))
"""
CHILD = """
import json, os, signal, subprocess, sys, time
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
pipe = int(arguments["--status-fd"])
def say(**word):
    os.write(pipe, json.dumps(word).encode() + b"\\n")
say(ready=True)
"""
LEAVES_AN_HEIR = CHILD + "subprocess.Popen(['sleep', '8'], close_fds=False); time.sleep(0.5); os._exit(3)"
FALLS_SILENT = CHILD + "say(alive=True); time.sleep(30)"


def supervised(code: str, log: Path, until: str) -> str:
    """What a supervisor of a child that runs ``code`` logged until it was told to drain, and while it did."""
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", SUPERVISE, code], cwd=ROOT, stderr=output)
    try:
        deadline = time.monotonic() + 20
        while until not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
    return log.read_text()


def test_a_child_is_started_again_though_what_it_started_lives_on(tmp_path: Path) -> None:
    began = time.monotonic()
    log = supervised(LEAVES_AN_HEIR, tmp_path / "log", "worker ready again")
    assert "child ended with exit code 3: restarting child" in log
    assert time.monotonic() - began < 8, "nothing waits for the heir"


def test_a_child_that_falls_silent_is_killed_and_started_again(tmp_path: Path) -> None:
    log = supervised(FALLS_SILENT, tmp_path / "log", "worker ready again")
    assert "child is stuck" in log
    assert "child was killed by SIGKILL: restarting child" in log


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="looks into /proc")
async def test_what_a_function_starts_does_not_hold_the_workers_own_pipe(start_worker: StartWorker) -> None:
    worker = await start_worker()
    for pid in set(worker.pids().values()) - {worker.pids()["supervisor"]}:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        pipe = int(command[command.index(b"--status-fd") + 1])
        flags = Path(f"/proc/{pid}/fdinfo/{pipe}").read_text().split("flags:")[1].split()[0]
        assert int(flags, 8) & os.O_CLOEXEC


async def test_a_function_that_changes_its_input_changes_it_for_nobody_else(runs: Runs) -> None:
    node = {
        "over": "${input}",
        "function": "functions_for_tests:consume",
        "input": {"run": "${run.id}", "key": "${item.key}", "parts": "${item.parts}"},
        "accept": [{"expr": "output == [1, 2]"}],
        "on_fail": [{"retry": 1}],
    }
    items = [{"key": key, "parts": [1, 2]} for key in "ab"]
    done = await runs.complete({"nodes": {"work": node}, "output": "${work.values}"}, items)
    assert done["result"] == [[1, 2], [1, 2]]
    assert [call["parts"] for call in runs.calls("consume", done["id"])] == [[1, 2]] * 4


async def test_an_activity_that_somebody_completes_by_hand_with_anything_is_a_failed_attempt(
    runs: Runs, server: DevServer
) -> None:
    node = {"function": "functions_for_tests:gate", "input": {"run": "${run.id}"}, "on_fail": [{"retry": 1}]}
    run = await runs.start({"nodes": {"work": node}})
    while not runs.calls("gate", run.id):
        await asyncio.sleep(0.02)
    (activity,) = (await run.describe()).raw_description.pending_activities
    which = ("--address", server.address, "--workflow-id", run.id, "--activity-id", activity.activity_id)
    command = (str(temporal_binary()), "activity", "complete", *which, "--result", '"anything"')
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    (runs.log / f"open-{run.id}").touch()
    assert (await asyncio.wait_for(run.result(), 20))["result"] == "open"
    attempts = (await run.query("state"))["nodes"]["work"]["executions"][0]["attempts"]
    assert [attempt["status"] for attempt in attempts] == ["failed", "succeeded"]
    assert attempts[0]["error"]["code"] == "invalid_output"
    await runs.replays(run)


async def test_an_activity_that_somebody_fails_by_hand_with_anything_is_a_failed_attempt(
    runs: Runs, server: DevServer
) -> None:
    run = await runs.start({"nodes": {"work": {"function": "functions_for_tests:gate", "input": {"run": "${run.id}"}}}})
    while not runs.calls("gate", run.id):
        await asyncio.sleep(0.02)
    (activity,) = (await run.describe()).raw_description.pending_activities
    which = ("--address", server.address, "--workflow-id", run.id, "--activity-id", activity.activity_id)
    command = (str(temporal_binary()), "activity", "fail", *which, "--reason", "no", "--detail", '{"failure_class": 7}')
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    (runs.log / f"open-{run.id}").touch()
    assert (await runs.failure(run)).message == "node `work`: no"


async def test_a_run_cancelled_while_it_loads_says_so(runs: Runs) -> None:
    run = await runs.start({"nodes": {"work": {"value": 1}}})
    await run.cancel()
    try:
        await run.result()
    except WorkflowFailureError:
        assert (await run.query("progress"))["status"] == "cancelled"


async def test_items_of_a_map_share_the_large_values_that_they_read(runs: Runs) -> None:
    async def seconds(shown: str) -> float:
        nodes: dict[str, Any] = {
            "big": {"function": "functions_for_tests:large", "input": {"size": 6_000_000}},
            "work": {
                "over": "${list(range(500))}",
                "function": "functions_for_tests:echo",
                "input": {"value": shown},
                "after": ["big"],
            },
        }
        began = time.monotonic()
        await runs.complete({"nodes": nodes, "output": "${work.succeeded}"})
        return time.monotonic() - began

    assert await seconds("${len(big)}") < await seconds("${item}") + 5  # 10 s if each item read it anew
