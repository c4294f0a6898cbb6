"""Races and extremes: a cancellation that comes too late to stop an activity, scripts that wait for each other, large
values that must not keep a process from beating, and sizes that Temporal would refuse for ever."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.testing import ActivityEnvironment

from activities.checks import run_checks
from activities.chunk import ChunkActivities
from activities.evaluate import Environment
from activities.lists import ListWriter, put_list
from activities.sandbox import Sandbox, SandboxLimits
from activities.settings import Settings
from activities.store import Store, StoreError
from activities.tools import Tools
from cli.supervisor import Child, Supervisor
from conftest import StartWorker
from graph.compile import compile_graph
from graph.errors import Failure
from graph.files import NoFiles
from graph.source import from_object
from graph.state import Usage
from graph.values import ANSWER_LIMIT, CODE_LIMIT, JSON, Value, encode
from graph.views import escalations
from graph.wire import ChunkRequest, Entry, RunInfo, Scope
from runs import Runs

TESTS = Path(__file__).parent


@activity.defn
async def stubborn(run: str) -> str:
    """Notes the call, waits until it is cancelled, and succeeds all the same."""
    with Path(os.environ["TEST_LOG"], f"stubborn-{run}").open("a") as file:
        file.write("called\n")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return run
    return run


async def test_a_run_whose_activity_succeeds_in_spite_of_the_cancellation_goes_no_further(
    start_worker: StartWorker, client: Client, tmp_path: Path
) -> None:
    worker = await start_worker(FERRATA_ACTIVITIES="test_review", PYTHONPATH=str(TESTS), TEST_LOG=str(tmp_path))
    runs = Runs(client, worker.task_queue, tmp_path)
    node = {"activity": "stubborn", "input": "${run.id}", "repeat": {"until": "false", "max_rounds": 3}}
    handle = await runs.start({"nodes": {"work": node}})
    log = tmp_path / f"stubborn-{handle.id}"
    async with asyncio.timeout(30):
        while not log.exists():
            await asyncio.sleep(0.1)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 20)
    assert isinstance(caught.value.cause, CancelledError)
    assert log.read_text() == "called\n"
    await runs.replays(handle)


async def test_more_scripts_that_ask_models_than_there_are_threads_all_end(
    start_worker: StartWorker, client: Client, tmp_path: Path
) -> None:
    models = {"unhurried": {"provider": "stub", "reply": "hi", "delay": "300ms"}}
    worker = await start_worker(FERRATA_SLOTS="1", FERRATA_MODELS=json.dumps(models))
    runs = Runs(client, worker.task_queue, tmp_path)
    node = {
        "over": list(range(20)),
        "concurrency": 20,
        "script": "def run(input): return infer('hi')",
        "grants": {"models": ["unhurried"]},
    }
    handle = await runs.start({"nodes": {"work": node}})
    envelope = await asyncio.wait_for(handle.result(), 40)
    assert envelope["result"]["succeeded"] == 20


@pytest.fixture(scope="module")
async def tools(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """An attempt process's tools, in this one."""
    return Tools(Settings(store=str(tmp_path_factory.mktemp("store"))), client)


async def turns(stop: asyncio.Event) -> int:
    """How often the event loop came to something else."""
    count = 0
    while not stop.is_set():
        await asyncio.sleep(0)
        count += 1
    return count


async def scope_of(store: Store, graph: dict[str, JSON], **nodes: Value) -> Scope:
    """A graph stored as the load activity does it, and what its nodes may read."""
    compiled = compile_graph(from_object(graph, "graph"), NoFiles()).graph
    ref = await store.put(compiled.model_dump_json(by_alias=True).encode())
    return Scope(graph=ref, run=RunInfo(id="r", graph="graph", started=""), input=Value(), nodes=dict(nodes))


async def test_validating_a_large_output_does_not_keep_the_process_from_beating(tools: Tools) -> None:
    item = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    graph = {"nodes": {"work": {"value": 1, "output_schema": {"type": "array", "items": item}}}}
    scope = await scope_of(tools.store, graph)
    node = await tools.node(scope.graph, "work")
    output: list[JSON] = [{"name": f"name {number}", "size": number} for number in range(30_000)]
    output.append({"size": 0})  # to find what is wrong with it takes long
    stop = asyncio.Event()
    counting = asyncio.create_task(turns(stop))
    await asyncio.sleep(0)
    with pytest.raises(Failure):
        await run_checks(node, Environment(tools, scope, node.limits), None, output, Usage())
    stop.set()
    assert await counting > 5


async def test_a_store_that_is_away_in_a_chunk_is_said_plainly(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    tools = Tools(Settings(store=str(folder)), client)
    large = await Store.open(str(folder)).put_json("x" * 1000)  # by another store: it isn't in this one's cache
    nodes = {"source": {"value": 1}, "work": {"over": [1, 2], "value": "${source}"}}
    scope = await scope_of(tools.store, {"nodes": nodes}, source=Value(ref=large, size=large.size))
    writer = ListWriter(tools.store)
    for number in (0, 1):
        await writer.add(number, b"1")
    items = await put_list(tools.store, await writer.close())
    (folder / "sha256").rename(tmp_path / "away")
    (folder / "sha256").write_text("in the way")
    request = ChunkRequest(scope=scope, node="work", items=items, start=0, count=2)
    with pytest.raises(StoreError) as caught:
        await ActivityEnvironment().run(ChunkActivities(tools).chunk, request)
    assert caught.value.code == "store_unavailable"


@pytest.mark.parametrize("carried", ["x", {"entries": 5}, [], {"entries": [{"id": 1}]}], ids=str)
async def test_a_queue_that_was_started_by_hand_with_anything_takes_entries(runs: Runs, carried: JSON) -> None:
    handle: Any = await runs.client.start_workflow(
        "EscalationQueue", carried, id=f"queue-{uuid.uuid4().hex[:8]}", task_queue=runs.task_queue
    )
    entry = {"id": "a", "run": "r", "node": "n", "code": "c", "reason": "", "attempts": 1, "at": 1}
    await handle.signal("enqueue", entry)
    assert [entry["id"] for entry in (await handle.query("outstanding"))["entries"]] == ["a"]
    await runs.replays(handle)
    await handle.terminate()


async def test_the_queue_takes_an_entry_whose_input_is_as_deep_as_values_may_be(runs: Runs) -> None:
    queue = f"deep-{uuid.uuid4().hex[:8]}"
    deep: JSON = []
    for _ in range(98):
        deep = [deep]
    node = {"script": "def run(input): fail('NO', 'no')", "on_fail": [{"escalate": {"queue": queue}}]}
    failed = await runs.fail({"nodes": {"work": node}}, deep)
    assert failed.code == "NO"
    handle: Any = runs.client.get_workflow_handle(queue)
    (entry,) = (await handle.query("outstanding"))["entries"]
    assert entry["input"] == deep
    await handle.terminate()


async def test_a_child_whose_id_would_be_too_long_fails_its_node(runs: Runs) -> None:
    graph = {"nodes": {"work": {"graph": {"nodes": {"inner": {"value": 1}}}, "input": {}}}}
    failed = await runs.fail(graph, id=f"{uuid.uuid4().hex}{'x' * 967}")
    assert failed.code == "too_large"
    assert "give the run a shorter id" in failed.envelope["error"]["message"]


async def test_a_graph_with_a_very_long_name_runs(runs: Runs) -> None:
    done = await runs.complete({"name": "long " * 1000, "nodes": {"work": {"value": 1}}})
    assert done["result"] == 1


async def test_what_a_map_cost_counts_though_the_failing_run_breaks_it_off(runs: Runs) -> None:
    nodes = {
        "work": {
            "over": list(range(1100)),
            "concurrency": 1000,
            "when": "index < 2",
            "infer": {"model": "unhurried", "prompt": "?"},
        },
        "bad": {
            "function": "functions_for_tests:fail_once_called",
            "input": {"run": "${run.id}", "name": "unhurried", "code": "BAD"},
        },
    }
    nodes["work"]["infer"]["prompt"] = "${run.id}"
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    assert failed.envelope["nodes"]["work"] == "cancelled"
    assert failed.envelope["usage"]["total_tokens"] == 20


async def test_the_escalation_of_a_node_without_input_carries_none_and_of_an_activity_its_arguments(
    runs: Runs,
) -> None:
    rungs = [{"escalate": {"queue": f"none-{uuid.uuid4().hex[:8]}"}}]
    wrong = {"accept": [{"expr": "output == 0"}], "on_fail": rungs}
    nodes = {"plain": {"value": 1, **wrong}, "called": {"activity": {"name": "add", "args": [1, 2]}, **wrong}}
    failed = await runs.fail({"nodes": nodes, "on_failure": "continue"}, {"big": "input"})
    entries = {entry["node"]: entry["input"] for entry in await runs.query(failed.envelope["id"], "escalations")}
    assert entries == {"plain": None, "called": [1, 2]}


def test_what_a_run_escalated_fits_in_an_answer() -> None:
    entry = Entry(id="e" * 36, run="r" * 30, node="n", code="c", reason="x" * 2000, attempts=1, at=1)
    entry.input = Value(inline="y" * 1000, size=1002)
    assert escalations([entry])[0]["input"] == "y" * 1000
    many = escalations([entry] * 2000)
    assert len(many) == 2000
    assert len(encode(many)) <= ANSWER_LIMIT


def test_a_code_that_a_script_forged_is_short() -> None:
    forging = (
        "import json, sys\n"
        "def run(input):\n"
        "    failure = {'class': 'script_error', 'code': 'C' * 1000000, 'message': '', 'details': {}}\n"
        "    raise sys.modules['componentize_py_types'].Err(json.dumps(failure))\n"
    )
    with pytest.raises(Failure) as caught:
        Sandbox().run_script(forging, "forging.py", 1, "null", SandboxLimits())
    assert len(caught.value.code) <= CODE_LIMIT


async def test_a_supervisor_that_can_not_start_a_child_ends() -> None:
    supervisor = Supervisor([Child("child", ("/no/such/program",))], environment={}, ready_message="")
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(supervisor.run(), 10)
