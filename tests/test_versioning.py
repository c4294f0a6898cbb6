"""Builds of one deployment beside each other, on the real server: who runs what, before, during and after a change."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import RoutingConfigUpdateState
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter

from cli.server import DevServer, temporal_binary
from conftest import StartWorker
from observing import queued, until
from runs import Runs, assert_no_task_failed
from test_continuing import chain
from worker_process import ROOT, WorkerProcess

QUICK = {
    "limit.historyCount.suggestContinueAsNew": 60,
    "matching.wv.VersionDrainageStatusRefreshInterval": "1s",
    "matching.wv.VersionDrainageStatusVisibilityGracePeriod": "1s",
}
"""Settings of a server that does soon what takes long otherwise."""

FUNCTIONS = """
import asyncio, os
from pathlib import Path

def build() -> str:
    return os.environ.get("FERRATA_BUILD_ID", "")

def refuse() -> None:
    raise ValueError("told to fail")

def opened(run: str) -> str:
    folder = Path(os.environ["TEST_LOG"])
    (folder / f"held-{run}").touch()
    if not (folder / f"open-{run}").exists():
        raise ValueError("not yet")
    return build()

async def hold(run: str) -> str:
    folder = Path(os.environ["TEST_LOG"])
    (folder / f"held-{run}").touch()
    while not (folder / f"open-{run}").exists():
        await asyncio.sleep(0.02)
    return build()
"""
ACTIVITY = """
import os
from temporalio import activity

@activity.defn
def told_build() -> str:
    return os.environ.get("FERRATA_BUILD_ID", "")
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

TWICE: dict[str, Any] = {
    "nodes": {"before": BUILD, "after_it": {**BUILD, "after": ["before"]}},
    "output": ["${before}", "${after_it}"],
}


class Deployment:
    """One deployment on one task queue, of which a test starts builds."""

    def __init__(
        self, server: DevServer, client: Client, start_worker: StartWorker, folder: Path, name: str | None = None
    ) -> None:
        self.name = name or f"test-{uuid.uuid4().hex[:8]}"
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

    async def make_current(self, build: str, deployment: str | None = None) -> None:
        """Send new runs to this build, once the server knows all of its task queues; returns once they all know it."""
        deployment = deployment or self.name
        names = ("--deployment-name", deployment, "--build-id", build)
        await until(lambda: self.temporal("worker", "deployment", "set-current-version", *names, "--yes"))
        client = self.runs.client
        request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)

        async def known() -> bool:
            answer = await client.workflow_service.describe_worker_deployment(request)
            state = answer.worker_deployment_info.routing_config_update_state
            return state == RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_COMPLETED

        await until(known)

    async def held(self, run: str) -> None:
        """Wait until the run's first node is under way."""
        await until(lambda: asyncio.to_thread((self.folder / f"held-{run}").exists))

    def open(self, run: str) -> None:
        """Let the run's first node go."""
        (self.folder / f"open-{run}").touch()


@pytest.fixture
def deployment(server: DevServer, client: Client, start_worker: StartWorker, tmp_path: Path) -> Deployment:
    return Deployment(server, client, start_worker, tmp_path)


async def builds(runs: Runs, run: str, run_id: str | None = None) -> set[str]:
    """The builds that completed workflow tasks of a run."""
    found = await runs.client.get_workflow_handle(run, run_id=run_id).fetch_history()
    assert_no_task_failed(found)
    return {
        event.workflow_task_completed_event_attributes.deployment_version.build_id
        for event in found.events
        if event.HasField("workflow_task_completed_event_attributes")
    }


async def workflow_tasks(runs: Runs, run: str) -> tuple[int, int]:
    """The events at which a run of `TWICE` ended its first workflow task, and the one that scheduled `before`."""
    found = await runs.client.get_workflow_handle(run).fetch_history()
    ended = [e.event_id for e in found.events if e.HasField("workflow_task_completed_event_attributes")]
    return ended[0], ended[1]


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


async def test_a_reset_keeps_a_run_on_its_build_unless_nothing_is_kept_of_it(deployment: Deployment) -> None:
    await deployment.start("a")
    await deployment.make_current("a")
    run = await deployment.runs.start(TWICE)
    await run.result()
    await deployment.start("b")
    await deployment.make_current("b")
    again = deployment.runs.client.get_workflow_handle(run.id)
    first_task, between = await workflow_tasks(deployment.runs, run.id)
    for event, wanted in ((between, ["a", "a"]), (first_task, ["b", "b"])):
        words = ("--workflow-id", run.id, "--run-id", run.first_execution_run_id or "", "--event-id", str(event))
        assert await deployment.temporal("workflow", "reset", *words, "--reason", "again") is not None
        assert (await again.result())["result"] == wanted
        assert await builds(deployment.runs, run.id) == set(wanted)


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

    async def moved() -> bool:  # the server hears of the build by its first poll
        told = await deployment.temporal(
            *("workflow", "update-options", "--workflow-id", run.id, "--versioning-override-behavior", "pinned"),
            *("--versioning-override-deployment-name", deployment.name, "--versioning-override-build-id", "b"),
        )
        return told is not None

    await until(moved)
    assert (await run.result())["result"] == ["b", "b", "b"]
    await deployment.runs.replays(run)


async def test_an_activity_of_another_queue_goes_to_the_current_workers_there(
    deployment: Deployment, start_worker: StartWorker
) -> None:
    (deployment.folder / "told.py").write_text(ACTIVITY)
    await deployment.start("a")
    await deployment.make_current("a")
    queue = f"{deployment.name}-other"
    there = {"FERRATA_ACTIVITIES": "told", "PYTHONPATH": str(deployment.folder)}
    graph = {"nodes": {"work": {"activity": {"name": "told_build", "args": [], "task_queue": queue}}}}
    await start_worker(queue, **there)
    assert (await deployment.runs.complete(graph))["result"] == ""
    await start_worker(queue, **there, FERRATA_BUILD_ID="z", FERRATA_DEPLOYMENT=queue)
    await deployment.make_current("z", queue)
    assert (await deployment.runs.complete(graph))["result"] == "z"


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


async def test_who_polls_is_asked_with_the_command_of_the_page_on_deployment(deployment: Deployment) -> None:
    [command] = re.findall(r"temporal (task-queue describe .*)", (ROOT / "docs" / "deploy.md").read_text())
    [check] = re.findall(r"temporal (task-queue describe [^|]*)\|", (ROOT / "docker-compose.yml").read_text())
    assert check.split()[:-2] == command.split()  # but for `--output json`
    await deployment.start("a")
    words = [{"ferrata": deployment.name}.get(word, word) for word in check.split()]

    async def listed() -> bool:
        return re.search(r'@\S+ attempts-1"', await deployment.temporal(*words) or "") is not None

    await until(listed)


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


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Deployment]:
    """The deployment and queue `ferrata` on a server of its own that soon sees a build drained, and soon suggests to
    continue as new."""
    async with DevServer(dynamic_config=QUICK) as server, AsyncExitStack() as workers:

        async def start(task_queue: str | None = None, **env: str) -> WorkerProcess:
            folder = tmp_path / uuid.uuid4().hex
            folder.mkdir()
            env = {"FERRATA_STORE": str(tmp_path / "store"), **env}
            return await workers.enter_async_context(WorkerProcess(server, folder, task_queue=task_queue, env=env))

        client = await Client.connect(server.address, data_converter=pydantic_data_converter)
        yield Deployment(server, client, start, tmp_path, "ferrata")


async def test_a_run_that_continues_as_new_stays_on_its_build(quick: Deployment) -> None:
    polling = {
        "function": "built:opened",
        "input": {"run": "${run.id}"},
        "on_fail": [{"retry": {"times": 900, "delay": "20ms"}}],
    }
    await quick.start("a")
    await quick.make_current("a")
    run = await quick.runs.start({"nodes": {"work": polling}})
    await quick.held(run.id)
    await quick.start("b")
    await quick.make_current("b")
    handle = quick.runs.client.get_workflow_handle(run.id)
    begun = (await handle.describe()).run_id

    async def continued() -> bool:
        return (await handle.describe()).run_id != begun

    await until(continued)
    quick.open(run.id)
    assert (await run.result())["result"] == "a"
    parts = await chain(quick.runs, run)
    assert len(parts) > 2
    assert [await builds(quick.runs, run.id, part) for part in parts] == [{"a"}] * len(parts)


TIMES = re.compile(r"\b(?:now|\d+ \w+ ago|a long while ago)\b")


def lines(text: str) -> list[str]:
    """Its lines, but for spaces and for how long ago something was."""
    return [" ".join(TIMES.sub("AGO", line).split()) for line in text.splitlines() if line.strip() not in ("", "...")]


async def test_the_commands_of_the_page_on_versioning_print_what_it_shows(quick: Deployment) -> None:
    text = (ROOT / "docs" / "versioning.md").read_text()
    ran = 0
    for _, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if found := re.match(r"FERRATA_BUILD_ID=(\S+) python worker.py", block):
            await quick.start(found[1])
        for command, shown in re.findall(r"^\$ temporal ((?:.*\\\n)*.*)\n((?:[^$].*\n|\n)*)", block, re.MULTILINE):
            words, wanted = shlex.split(command.replace("\\\n", " ")), lines(shown)
            if "drained" in shown:
                quick.open("my-run")
                await quick.runs.client.get_workflow_handle("my-run").result()
            if "update-options" in words:
                await quick.runs.start(HELD, id="my-run")

            async def prints(words: list[str] = words, wanted: list[str] = wanted) -> bool:
                printed = lines(await quick.temporal(*words) or "")
                rest = iter(printed)
                return bool(wanted) and all(line in rest for line in wanted)  # in this order

            await until(prints)
            ran += 1
            if ran == 1:
                await quick.runs.start(HELD, id="my-run")
                await quick.held("my-run")
    assert ran == 7
