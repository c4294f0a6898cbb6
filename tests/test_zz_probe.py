from __future__ import annotations
import asyncio, time, subprocess
from test_versioning import deployment, Deployment, HELD, BUILD, builds
from observing import queued, until, history
from cli.server import temporal_binary
import pytest

def cli(deployment, *words):
    d = subprocess.run([str(temporal_binary()), *words], env=deployment._server.environment, capture_output=True, text=True)
    print(" ".join(words), d.returncode, d.stdout, d.stderr)

async def test_probe_override(deployment):
    a = await deployment.start("a")
    await deployment.make_current("a")
    new = await deployment.runs.complete({"nodes": {"work": BUILD}})
    run = await deployment.runs.start(HELD)
    await deployment.held(run.id)
    b = await deployment.start("b")
    await deployment.make_current("b")
    a.kill(); await a.wait()
    cli(deployment, "workflow", "update-options", "--workflow-id", new["id"], "--versioning-override-behavior", "auto_upgrade")
    cli(deployment, "workflow", "update-options", "--workflow-id", run.id, "--versioning-override-behavior", "pinned", "--versioning-override-deployment-name", deployment.name, "--versioning-override-build-id", "b")
    deployment.open(run.id)
    print("MOVED", await asyncio.wait_for(run.result(), 60), await builds(deployment.runs, run.id))
    print((await deployment.runs.client.get_workflow_handle(run.id).describe()).raw_description.workflow_execution_info.versioning_info)
    cli(deployment, "workflow", "reset", "--workflow-id", run.id, "--type", "FirstWorkflowTask", "--reason", "x")
    print("RESET", await asyncio.wait_for(deployment.runs.client.get_workflow_handle(run.id).result(), 60), await builds(deployment.runs, run.id))
    cli(deployment, "workflow", "describe", "--workflow-id", run.id)
    cli(deployment, "worker", "deployment", "describe", "--name", deployment.name)
    cli(deployment, "worker", "deployment", "describe-version", "--deployment-name", deployment.name, "--build-id", "a")
    cli(deployment, "worker", "deployment", "delete-version", "--deployment-name", deployment.name, "--build-id", "a")
    assert 0

async def test_probe_escalation(deployment):
    a = await deployment.start("a")
    await deployment.make_current("a")
    q = f"queue-{deployment.name}"
    g = {"nodes": {"gate": {"function": "built:hold", "input": {"run": "${run.id}"}},
        "work": {"script": "def run(input):\n    fail('NO')", "after": ["gate"], "on_fail": [{"escalate": {"queue": q}}]}}}
    one = await deployment.runs.start(g)
    two = await deployment.runs.start(g)
    await deployment.held(one.id); await deployment.held(two.id)
    deployment.open(one.id)
    print(await deployment.runs.failure(one))
    print("QUEUE", await builds(deployment.runs, q))
    b = await deployment.start("b")
    await deployment.make_current("b")
    deployment.open(two.id)
    print(await deployment.runs.failure(two), await builds(deployment.runs, two.id))
    await until(lambda: queued(deployment.runs, two.id, q))
    print("QUEUE", await builds(deployment.runs, q))
    await a.stop()
    print("QUEUED", len(await queued(deployment.runs, one.id, q)))
    await deployment.runs.replays(deployment.runs.client.get_workflow_handle(q))
    assert 0

async def test_probe_unversioned(deployment):
    u = await deployment.start(None)
    run = await deployment.runs.start(HELD)
    await deployment.held(run.id)
    b = await deployment.start("b")
    new = await deployment.runs.complete({"nodes": {"work": BUILD}})
    print("NEW before current", new["result"])
    await deployment.make_current("b")
    new = await deployment.runs.complete({"nodes": {"work": BUILD}})
    print("NEW after current", new["result"])
    deployment.open(run.id)
    print("OLD", await asyncio.wait_for(run.result(), 60), await builds(deployment.runs, run.id))
    print((await run.describe()).raw_description.workflow_execution_info.versioning_info)
    cli(deployment, "worker", "deployment", "set-current-version", "--deployment-name", deployment.name, "--unversioned", "--yes")
    new = await deployment.runs.complete({"nodes": {"work": BUILD}})
    print("NEW after unversioned", new["result"])
    assert 0
