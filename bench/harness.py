"""One development server with two workers on it, Ferrata's and the hand-written one, and paired timing."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from cli.processes import tied
from cli.server import DevServer

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = 2
LONG_HISTORIES = {"limit.historyCount.suggestContinueAsNew": 40_000}
"""A run of 10,000 events, which `replay` wants, would continue as new otherwise."""
FERRATA, BY_HAND, EAGER = "bench-ferrata", "bench-by-hand", "bench-eager"


@dataclass
class Bench:
    """A client of the server that both workers serve. ``environment`` is a worker's, ``folder`` where logs go."""

    client: Client
    environment: dict[str, str]
    folder: Path

    async def ferrata(self, graph: dict[str, Any], input: Any = None) -> WorkflowHandle[Any, Any]:
        """Run a graph to its end."""
        request = {"graph": graph, "input": input}
        handle = await self.client.start_workflow("RunGraph", request, id=new_id(), task_queue=FERRATA)
        await handle.result()
        return handle

    async def by_hand(self, name: str, *args: Any, queue: str = BY_HAND) -> WorkflowHandle[Any, Any]:
        """Run a hand-written workflow to its end."""
        handle = await self.client.start_workflow(name, args=list(args), id=new_id(), task_queue=queue)
        await handle.result()
        return handle


def new_id() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """Server (file database) and workers, up and polling; stopped afterwards."""
    with tempfile.TemporaryDirectory(prefix="ferrata-bench-") as folder:
        async with DevServer(db=Path(folder, "bench.db"), dynamic_config=LONG_HISTORIES) as server:
            environment = server.environment | {
                "PYTHONPATH": str(ROOT),
                "FERRATA_STORE": str(Path(folder, "store")),
                "FERRATA_READ": folder,
                "FERRATA_TASK_QUEUE": FERRATA,
                "FERRATA_PROCESSES": str(PROCESSES),
            }
            hand = [sys.executable, "-m", "bench.by_hand"]
            commands = [
                ([sys.executable, str(ROOT / "worker.py")], r"worker ready"),
                ([*hand, "orchestrator", BY_HAND], r"ready"),
                *[([*hand, "attempts", BY_HAND], r"ready")] * PROCESSES,
                ([*hand, "eager", EAGER], r"ready"),
            ]
            processes = []
            try:
                for number, (command, ready) in enumerate(commands):
                    log = Path(folder, f"{number}.log")
                    process = started(command, environment, log)
                    processes.append(process)
                    wait_for(process, log, ready)
                client = await Client.connect(server.address, data_converter=pydantic_data_converter)
                yield Bench(client, environment, Path(folder))
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
                    process.wait(30)


def started(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A process that writes to ``log`` and dies with this one."""
    with log.open("wb") as output:
        return subprocess.Popen(tied(command), env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)


def wait_for(process: subprocess.Popen[bytes], log: Path, pattern: str) -> None:
    """Wait until the process's log says that it is ready. Raises RuntimeError with the log otherwise."""
    deadline = time.monotonic() + 120
    while not re.search(pattern, log.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"a worker of the benchmark didn't start:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


async def paired(
    ours: Callable[[], Awaitable[Any]], theirs: Callable[[], Awaitable[Any]], rounds: int
) -> dict[str, Any]:
    """Time both in turn, after one round that isn't counted. Seconds, and the median of the ratios pair by pair."""
    pairs = []
    for number in range(rounds + 1):
        pair = (await seconds(ours), await seconds(theirs))
        if number:
            pairs.append(pair)
    return {
        "ferrata_seconds": spread([ours for ours, _ in pairs]),
        "by_hand_seconds": spread([theirs for _, theirs in pairs]),
        "ratio": round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
        "rounds": rounds,
    }


async def seconds(work: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


def spread(values: list[float]) -> dict[str, float]:
    return {
        "min": round(min(values), 4),
        "median": round(statistics.median(values), 4),
        "max": round(max(values), 4),
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
