"""Recovery: seconds from a SIGKILL, in the middle of a node, until the run schedules its next node.

That says that the node in flight has concluded, and that a workflow task has been done since.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowHandle

from bench.harness import ROOT, Bench, new_id, spread, started, wait_for

NODES = 100
PAUSE = 0.5
STARTED = re.compile(r"started (\S+) as process (\d+)$", re.MULTILINE)


def graph() -> dict[str, Any]:
    """Nodes one after another that each take `PAUSE` seconds."""
    node = {"function": "bench.pausing:pause", "input": {"seconds": PAUSE}}
    nodes = {f"n{number}": node | ({"after": [f"n{number - 1}"]} if number else {}) for number in range(NODES)}
    return {"name": "recovering", "nodes": nodes, "output": "${n0}"}


class KilledWorker:
    """A worker of two attempt processes, to be killed in part or whole."""

    def __init__(self, on: Bench, queue: str, number: int) -> None:
        self.log = Path(on.folder, f"{queue}-{number}.log")
        environment = on.environment | {"FERRATA_TASK_QUEUE": queue, "FERRATA_FUNCTIONS": "bench.pausing"}
        self.process: subprocess.Popen[bytes] = started(
            [sys.executable, str(ROOT / "worker.py")], environment, self.log
        )

    async def ready(self) -> None:
        await asyncio.to_thread(wait_for, self.process, self.log, r"worker ready")

    def children(self) -> dict[str, int]:
        """Process id by name, as last started."""
        return {name: int(pid) for name, pid in STARTED.findall(self.log.read_text())}

    def end(self) -> None:
        self.process.kill()
        self.process.wait(30)


async def in_flight(run: WorkflowHandle[Any, Any]) -> PendingActivityInfo | None:
    """The activity that a process works on now."""
    for activity in (await run.describe()).raw_description.pending_activities:
        if activity.activity_type.name == "attempt":
            return activity
    return None


async def recovered(on: Bench, what: str) -> float:
    """Seconds until a run goes on, after the kill of its ``attempt process``, ``orchestrator`` or ``whole worker``."""
    queue = new_id()
    workers = [KilledWorker(on, queue, 0)]
    try:
        await workers[0].ready()
        run = await on.client.start_workflow("RunGraph", {"graph": graph()}, id=queue, task_queue=queue)
        while await in_flight(run) is None:
            await asyncio.sleep(0.02)
        if what == "whole worker":  # the other one comes later, so that the run is in the first one's cache
            workers.append(KilledWorker(on, queue, 1))
            await workers[1].ready()
        mine = set(workers[0].children().values())
        while True:
            found = await in_flight(run)
            if found and found.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
                pid = int(found.last_worker_identity.split("@")[0])
                if pid in mine:
                    break
            await asyncio.sleep(0.02)
        victims = {"attempt process": pid, "orchestrator": workers[0].children()["orchestrator"]}
        killed = time.time()
        os.kill(victims.get(what, workers[0].process.pid), signal.SIGKILL)
        while (now := await in_flight(run)) is None or now.activity_id == found.activity_id:
            await asyncio.sleep(0.02)
        await run.terminate()
        return now.scheduled_time.ToMicroseconds() / 1e6 - killed
    finally:
        for worker in workers:
            worker.end()


async def recovery(on: Bench, rounds: int) -> dict[str, Any]:
    """Recovery from SIGKILL."""
    kinds = ("attempt process", "orchestrator", "whole worker")
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            seconds[kind].append(await recovered(on, kind))
    return {"seconds": {kind: spread(each) for kind, each in seconds.items()}, "node_seconds": PAUSE, "rounds": rounds}
