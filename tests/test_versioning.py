"""Builds of one deployment beside each other, on the real server: who runs what, before, during and after a change."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from cli.server import DevServer, temporal_binary
from conftest import StartWorker
from observing import history, queued, until
from runs import Runs, assert_no_task_failed
from worker_process import WorkerProcess

FUNCTIONS = """
import asyncio, os
from pathlib import Path

def build() -> str:
    return os.environ.get("FERRATA_BUILD_ID", "")

def refuse() -> None:
    raise ValueError("told to fail")

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


async def test_a_run_whose_build_is_gone_waits_and_goes_on_when_it_returns(deployment: Deployment) -> None:
    gone = await deployment.start("a")
    await deployment.make_current("a")
    run = await deployment.runs.start(HELD)
    await deployment.held(run.id)
    await deployment.start("b")
    await deployment.make_current("b")
    gone.kill()
    await gone.wait()
    deployment.open(run.id)
    # B has served a whole run since, and A's was left alone.
    assert (await deployment.runs.complete({"nodes": {"work": BUILD}}))["result"] == "b"
    assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING
    await deployment.start("a")
    assert (await run.result())["result"] == ["a", "a", "a"]
    assert await builds(deployment.runs, run.id) == {"a"}


async def test_a_run_whose_build_never_returns_can_be_moved_to_another(deployment: Deployment) -> None:
    gone = await deployment.start("a")
    await deployment.make_current("a")
    run = await deployment.runs.start(HELD)
    await deployment.held(run.id)
    await deployment.start("b")
    gone.kill()
    await gone.wait()
    deployment.open(run.id)
    moved = await deployment.temporal(
        *("workflow", "update-options", "--workflow-id", run.id, "--versioning-override-behavior", "pinned"),
        *("--versioning-override-deployment-name", deployment.name, "--versioning-override-build-id", "b"),
    )
    assert moved is not None
    assert (await run.result())["result"] == ["b", "b", "b"]
    await deployment.runs.replays(run)


async def test_a_queue_of_escalations_outlives_its_build(deployment: Deployment) -> None:
    escalating = {
        "nodes": {
            "before": {"function": "built:hold", "input": {"run": "${run.id}"}},
            "work": {
                "function": "built:refuse",
                "input": {},
                "after": ["before"],
                "on_fail": [{"escalate": {"queue": deployment.name}}],
            },
        }
    }
    old = await deployment.start("a")
    await deployment.make_current("a")
    [one, two] = [await deployment.runs.start(escalating) for _ in range(2)]
    deployment.open(one.id)
    await deployment.runs.failure(one)
    assert await builds(deployment.runs, deployment.name) == {"a"}
    await deployment.held(two.id)
    await deployment.start("b")
    await deployment.make_current("b")
    # A run that stays on the old build escalates to the same queue, and then the old build is gone.
    deployment.open(two.id)
    await deployment.runs.failure(two)
    assert await builds(deployment.runs, two.id) == {"a"}
    await old.stop()
    queue = deployment.runs.client.get_workflow_handle(deployment.name)
    [entry] = await queued(deployment.runs, one.id, deployment.name)
    [other] = await queued(deployment.runs, two.id, deployment.name)
    await queue.signal("drain", {"ids": [entry["id"], other["id"]], "action": "skip"})

    async def drained() -> bool:
        return not (await queue.query("outstanding"))["entries"]

    await until(drained)
    assert await builds(deployment.runs, deployment.name) == {"a", "b"}
    await deployment.runs.replays(queue)


async def test_runs_of_unversioned_workers_go_on_in_the_first_current_build(deployment: Deployment) -> None:
    await deployment.start(None)
    run = await deployment.runs.start(HELD)
    await deployment.held(run.id)
    await deployment.start("a")
    assert (await deployment.runs.complete({"nodes": {"work": BUILD}}))["result"] == ""
    await deployment.make_current("a")
    assert (await deployment.runs.complete({"nodes": {"work": BUILD}}))["result"] == "a"
    deployment.open(run.id)
    assert (await run.result())["result"] == ["", "a", "a"]
    assert await builds(deployment.runs, run.id) == {"", "a"}
    await deployment.runs.replays(run)


async def test_a_worker_says_how_new_runs_come_to_its_build(deployment: Deployment) -> None:
    command = f"temporal worker deployment set-current-version --deployment-name {deployment.name} --build-id"
    first = await deployment.start("a")
    missing = f"deployment {deployment.name} has no current build, so new runs don't reach this one: {command} a"
    assert f"WARNING orchestrator: {missing}" in first.read()
    assert f"worker ready: build a of {deployment.name}, task queue" in first.read()
    await deployment.make_current("a")
    second = await deployment.start("a")
    assert f"new runs go to this build, a of {deployment.name}" in second.read()
    third = await deployment.start("b")
    assert f"new runs go to build a of {deployment.name}; to send them to this one: {command} b" in third.read()


@pytest.mark.slow
async def test_a_run_of_a_build_that_is_gone_can_not_be_gone_on_from_and_the_error_says_why(
    deployment: Deployment,
) -> None:
    gone = await deployment.start("a")
    await deployment.make_current("a")
    ended = await deployment.runs.complete({"nodes": {"work": BUILD}})
    saved = await deployment.runs.query(ended["id"], "snapshot")
    await deployment.start("b")
    await deployment.make_current("b")
    await gone.stop()
    failed = await deployment.runs.failure(await deployment.runs.start_raw({"resume": {"run": ended["id"]}}))
    assert failed.code == "unknown_run"
    assert "no poller seen" in failed.message
    assert "start a worker that serves it, of the build that it ran on, or give the snapshot itself" in failed.message
    resumed = await deployment.runs.start_raw({"resume": saved})
    assert (await resumed.result())["result"] == "a"
    assert await builds(deployment.runs, resumed.id) == {"b"}
