"""One real development server for the whole session, and workers on it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from cli.server import DevServer
from runs import Runs
from worker_process import WorkerProcess

# The same examples each time: what passes on one machine passes on another.
settings.register_profile("steady", derandomize=True, database=None)
settings.load_profile("steady")

LOG_LINES = 80
TESTS = Path(__file__).parent

StartWorker = Callable[..., Awaitable[WorkerProcess]]


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[DevServer]:
    """The session's server: in memory, no UI, on a free port."""
    async with DevServer() as server:
        yield server


@pytest.fixture(scope="session")
async def client(server: DevServer) -> Client:
    """A client of the session's server that speaks pydantic, as the workers do."""
    return await Client.connect(server.address, data_converter=pydantic_data_converter)


@pytest.fixture
async def start_worker(server: DevServer, tmp_path: Path) -> AsyncIterator[StartWorker]:
    """`worker = await start_worker(FERRATA_FUNCTIONS="...")`: as many as a test wants, drained after it."""
    workers: list[WorkerProcess] = []

    async def start(task_queue: str | None = None, **env: str) -> WorkerProcess:
        folder = tmp_path / f"worker-{len(workers)}"
        folder.mkdir()
        # Workers of one test share a store, as workers of one queue must.
        worker = WorkerProcess(
            server, folder, task_queue=task_queue, env={"FERRATA_STORE": str(tmp_path / "store"), **env}
        )
        workers.append(worker)
        return await worker.start()

    yield start
    for worker in workers:
        await worker.stop()


MODELS: dict[str, dict[str, Any]] = {
    "small": {"reply": {"from": "small"}},
    "big": {"reply": {"from": "big"}},
    "improving": {"replies": [{"from": "small"}, {"from": "big"}]},
    "echo": {"echo": True},
    "broken": {"fail": {"code": "overloaded", "message": "no capacity"}},
    "slow": {"reply": {"from": "slow"}, "delay": "30s"},
    "yes": {"reply": {"accept": True, "reason": "fine"}},
    "no": {"reply": {"accept": False, "reason": "too short"}},
    "garbled": {"reply": "perhaps"},
    "doubtful": {"replies": ["perhaps", {"accept": True, "reason": "fine"}]},
    "unhurried": {"reply": "at last", "delay": "1500ms", "usage": {"input_tokens": 7, "output_tokens": 3}},
}
"""Stub models of the shared worker. Each notes its calls in ``<name>.jsonl``."""


@pytest.fixture(scope="session")
async def runs(server: DevServer, client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runs]:
    """Runs on a worker that the whole session shares: two attempt processes, the test functions, activities, models."""
    folder = tmp_path_factory.mktemp("runs")
    models = {name: {"provider": "stub", "log": str(folder / f"{name}.jsonl"), **more} for name, more in MODELS.items()}
    (folder / "data").mkdir()
    environment = {
        "FERRATA_FUNCTIONS": "functions_for_tests",
        "FERRATA_ACTIVITIES": "activities_for_tests",
        "FERRATA_MODELS": json.dumps(models),
        "FERRATA_PROCESSES": "2",
        "FERRATA_GRAPHS": str(TESTS / "graphs") + os.pathsep + str(TESTS.parent),
        "FERRATA_READ": str(TESTS / "graphs") + os.pathsep + str(folder / "data"),
        "TEST_LOG": str(folder),
        "PYTHONPATH": str(TESTS),
    }
    async with WorkerProcess(server, folder, env=environment) as worker:
        yield Runs(client, worker.task_queue, folder)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Forget workers that ended with an earlier test."""
    WorkerProcess.recent[:] = [w for w in WorkerProcess.recent if w.process and w.process.poll() is None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Show the end of each worker's log with a failure."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed:
        for worker in WorkerProcess.recent:
            tail = "\n".join(worker.read().splitlines()[-LOG_LINES:])
            report.sections.append((f"log of worker on {worker.task_queue}", tail))
    return report  # type: ignore[return-value]
