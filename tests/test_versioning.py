"""Builds of one deployment beside each other, on the real server: who runs what, before, during and after a change."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from cli.server import DevServer, temporal_binary
from conftest import StartWorker
from graph.values import JSON
from observing import history, until
from runs import Runs, assert_no_task_failed
from worker_process import WorkerProcess

FUNCTIONS = """
import asyncio, os
from pathlib import Path

def build() -> str:
    return os.environ.get("FERRATA_BUILD_ID", "")

async def hold(run: str) -> str:
    folder = Path(os.environ["TEST_LOG"])
    (folder / f"held-{run}").touch()
    while not (folder / f"open-{run}").exists():
        await asyncio.sleep(0.02)
    return build()
"""
BUILD: dict[str, Any] = {"function": "built:build", "input": {}}
HELD: dict[str, Any] = {
    "nodes": {
        "before": {"function": "built:hold", "input": {"run": "${run.id}"}},
        "child": {"graph": {"nodes": {"inner": BUILD}}, "input": 1, "after": ["before"]},
        "after_it": {**BUILD, "after": ["child"]},
    },
    "output": ["${before}", "${child}", "${after_it}"],
}


class Deployment:
    """One deployment on one task queue, of which a test starts builds."""

    def __init__(self, server: DevServer, client: Client, start_worker: StartWorker, folder: Path) -> None:
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self.runs = Runs(client, self.name, folder)
        self.folder = folder
        self._server = server
        self._start = start_worker
        (folder / "built.py").write_text(FUNCTIONS)

    async def start(self, build: str | None, **more: str) -> WorkerProcess:
        """A worker of this build; None: one that isn't versioned."""
        env = {"FERRATA_FUNCTIONS": "built", "PYTHONPATH": str(self.folder), "TEST_LOG": str(self.folder), **more}
        if build is not None:
            env |= {"FERRATA_BUILD_ID": build, "FERRATA_DEPLOYMENT": self.name}
        return await self._start(self.name, **env)

    async def temporal(self, *words: str) -> str | None:
        """What the `temporal` command prints; None if it fails."""
        done = await asyncio.to_thread(
            subprocess.run,
            [str(temporal_binary()), *words],
            env=self._server.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout if done.returncode == 0 else None

    async def make_current(self, build: str) -> None:
        """Send new runs to this build, once the server knows all of its task queues."""
        names = ("--deployment-name", self.name, "--build-id", build)
        await until(lambda: self.temporal("worker", "deployment", "set-current-version", *names, "--yes"))

    async def describe(self, build: str) -> dict[str, Any]:
        """What the server says of a build."""
        names = ("--deployment-name", self.name, "--build-id", build)
        printed = await self.temporal("worker", "deployment", "describe-version", *names, "-o", "json")
        found: dict[str, Any] = json.loads(printed or "{}")
        return found

    async def held(self, run: str) -> None:
        """Wait until the run's first node is under way."""
        await until(lambda: asyncio.to_thread((self.folder / f"held-{run}").exists))

    def open(self, run: str) -> None:
        """Let the run's first node go."""
        (self.folder / f"open-{run}").touch()


@pytest.fixture
def deployment(server: DevServer, client: Client, start_worker: StartWorker, tmp_path: Path) -> Deployment:
    return Deployment(server, client, start_worker, tmp_path)


async def builds(runs: Runs, run: str) -> set[str]:
    """The builds that completed workflow tasks of a run."""
    found = await history(runs, run)
    assert_no_task_failed(found)
    return {
        event.workflow_task_completed_event_attributes.deployment_version.build_id
        for event in found.events
        if event.HasField("workflow_task_completed_event_attributes")
    }


async def test_a_run_ends_on_the_build_it_started_on_and_so_does_its_child(deployment: Deployment) -> None:
    await deployment.start("a")
    await deployment.make_current("a")
    run = await deployment.runs.start(HELD)
    await deployment.held(run.id)
    await deployment.start("b")
    await deployment.make_current("b")
    new = await deployment.runs.complete({"nodes": {"work": BUILD}})
    assert new["result"] == "b"
    assert await builds(deployment.runs, new["id"]) == {"b"}
    deployment.open(run.id)
    assert (await run.result())["result"] == ["a", "a", "a"]
    assert await builds(deployment.runs, run.id) == {"a"}
    assert await builds(deployment.runs, f"{run.id}/child/2.0") == {"a"}
    await deployment.runs.replays(run)
