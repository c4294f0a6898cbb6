"""Continuing as new: a run whose history has grown long goes on in a fresh one, and nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from cli.server import DevServer
from graph.values import JSON
from nodes import call, count, keys
from observing import attempts, until
from runs import Runs
from test_waits import ASK, update, waiting
from worker_process import WorkerProcess

TESTS = Path(__file__).parent
SOON = {"limit.historyCount.suggestContinueAsNew": 60}


@pytest.fixture(scope="module")
async def runs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runs]:
    """Runs on a server of its own that suggests to continue as new after few events."""
    folder = tmp_path_factory.mktemp("continuing")
    environment = {
        "FERRATA_FUNCTIONS": "functions_for_tests",
        "FERRATA_ACTIVITIES": "activities_for_tests",
        "TEST_LOG": str(folder),
        "PYTHONPATH": str(TESTS),
    }
    async with DevServer(dynamic_config=SOON) as server:
        client = await Client.connect(server.address, data_converter=pydantic_data_converter)
        async with WorkerProcess(server, folder, env=environment) as worker:
            yield Runs(client, worker.task_queue, folder)


async def chain(runs: Runs, handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The run ids of a run's histories, the first one first; each of them replays."""
    found: list[str] = []
    run_id = handle.first_execution_run_id or handle.result_run_id
    while run_id:
        found.append(run_id)
        history = await runs.replays(runs.client.get_workflow_handle(handle.id, run_id=run_id))
        last = history.events[-1]
        if last.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            return found
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


def replies(rejections: int) -> list[Any]:
    return [{"fail": "NOT_YET"}] * rejections + ["ready"]


async def test_a_long_polling_ladder_continues_as_new(runs: Runs) -> None:
    poll = {
        **call("script", key="poll", replies=replies(20)),
        "on_fail": [{"retry": {"times": 100, "delay": "20ms"}}],
    }
    handle = await runs.start({"nodes": {"before": count("before", 7), "poll": {**poll, "after": ["before"]}}})
    result = await handle.result()
    assert result["result"] == "ready"
    assert len(await chain(runs, handle)) > 2
    assert keys(runs, handle.id, "script") == ["poll"] * 21
    assert keys(runs, handle.id) == ["before"]
    found = await attempts(runs, handle.id, "poll")
    assert [attempt["index"] for attempt in found] == list(range(21))
    assert [attempt["status"] for attempt in found] == ["failed"] * 20 + ["succeeded"]


async def test_a_ladder_without_delays_continues_as_new(runs: Runs) -> None:
    poll = {**call("script", key="poll", replies=replies(20)), "on_fail": [{"retry": 100}]}
    handle = await runs.start({"nodes": {"poll": poll}})
    assert (await handle.result())["result"] == "ready"
    assert len(await chain(runs, handle)) > 2
    assert keys(runs, handle.id, "script") == ["poll"] * 21


async def test_a_chain_of_nodes_continues_as_new(runs: Runs) -> None:
    nodes: dict[str, Any] = {"n0": count("n0", 0)}
    for number in range(1, 40):
        nodes[f"n{number}"] = count(f"n{number}", f"${{n{number - 1} + 1}}")
    handle = await runs.start({"nodes": nodes})
    assert (await handle.result())["result"] == 39
    assert len(await chain(runs, handle)) > 1
    assert keys(runs, handle.id) == list(nodes)


async def test_a_loop_over_a_subgraph_continues_as_new(runs: Runs) -> None:
    child = {"nodes": {"add": count("add", "${input + 1}")}}
    loop = {"graph": child, "input": 0, "repeat": {"until": "output >= 20", "max_rounds": 30}}
    handle = await runs.start({"nodes": {"loop": loop}})
    assert (await handle.result())["result"] == 20
    assert len(await chain(runs, handle)) > 1
    rounds = [f"{handle.id}/loop/1.0.{number}" for number in range(1, 21)]
    assert [sum(entry["run"] == run for entry in runs.calls("count")) for run in rounds] == [1] * 20
    assert len(await attempts(runs, handle.id, "loop")) == 1


async def test_a_child_run_continues_as_new_under_its_parent(runs: Runs) -> None:
    poll = {**call("script", key="poll", replies=replies(30)), "on_fail": [{"retry": {"times": 100, "delay": "20ms"}}]}
    handle = await runs.start({"nodes": {"sub": {"graph": {"nodes": {"poll": poll}}}}})
    assert (await handle.result())["result"] == "ready"
    child = f"{handle.id}/sub/1.0"
    assert keys(runs, child, "script") == ["poll"] * 31


async def test_a_continued_child_ends_with_its_parent(runs: Runs) -> None:
    poll = {
        **call("script", key="poll", replies=[{"fail": "NOT_YET"}]),
        "on_fail": [{"retry": {"times": 900, "delay": "20ms"}}],
    }
    handle = await runs.start({"nodes": {"sub": {"graph": {"nodes": {"poll": poll}}}}})
    child = runs.client.get_workflow_handle(f"{handle.id}/sub/1.0")
    await until(lambda: called(runs, child.id, 12))
    await handle.terminate()

    async def gone() -> bool:
        status = (await child.describe()).status
        return status is not None and status.name == "TERMINATED"

    await until(gone)


async def called(runs: Runs, run: str, times: int) -> bool:
    return len(keys(runs, run, "script")) >= times


async def test_q3_signals_all_through_continuing_as_new_are_neither_lost_nor_applied_twice(runs: Runs) -> None:
    poll = {**call("script", key="poll", replies=replies(30)), "on_fail": [{"retry": {"times": 100, "delay": "20ms"}}]}
    asks = {f"ask{number}": {**ASK, "after": ["poll"]} for number in range(30)}
    handle = await runs.start({"nodes": {"poll": poll, **asks}})
    for number in range(30):
        await handle.signal("reply", {"node": f"ask{number}", "value": {"ok": True, "number": number}})
        await handle.signal("reply", {"node": f"ask{number}", "value": {"ok": False}})  # refused: it has one
        await asyncio.sleep(0.02)
    result = (await handle.result())["result"]
    assert len(await chain(runs, handle)) > 2
    assert result == {"poll": "ready"} | {f"ask{n}": {"ok": True, "number": n} for n in range(30)} or result == {
        f"ask{n}": {"ok": True, "number": n} for n in range(30)
    }
    assert keys(runs, handle.id, "script") == ["poll"] * 31
    assert (await runs.query(handle.id, "progress"))["ignored"] == {"reply": 30}


async def test_updates_all_through_continuing_as_new(runs: Runs) -> None:
    poll = {**call("script", key="poll", replies=replies(30)), "on_fail": [{"retry": {"times": 100, "delay": "20ms"}}]}
    asks = {f"ask{number}": {**ASK, "after": ["poll"]} for number in range(20)}
    handle = await runs.start({"nodes": {"poll": poll, **asks}})
    answers = [await update(handle, {"node": name, "value": {"ok": True}}) for name in asks]
    assert {answer["status"] for answer in answers} <= {"kept", "taken"}
    await handle.result()
    assert len(await chain(runs, handle)) > 2


async def test_waits_keep_their_absolute_ends_through_continuing_as_new(runs: Runs) -> None:
    poll = {**call("script", key="poll", replies=replies(20)), "on_fail": [{"retry": {"times": 100, "delay": "20ms"}}]}
    late = {**ASK, "timeout": "3s", "on_fail": [{"reroute": {"value": {"ok": False, "late": True}}}]}
    nodes = {"poll": poll, "pause": {"wait": {"for": "3s"}}, "ask": late}
    handle = await runs.start({"nodes": nodes})
    result = (await handle.result())["result"]
    assert result == {"poll": "ready", "pause": None, "ask": {"ok": False, "late": True}}
    assert len(await chain(runs, handle)) > 2
    for node in ("pause", "ask"):
        first = (await attempts(runs, handle.id, node))[0]
        assert first["finished"] - first["created"] >= 3000


async def test_the_runs_deadline_goes_on_through_continuing_as_new(runs: Runs) -> None:
    poll = {
        **call("script", key="poll", replies=[{"fail": "NOT_YET"}]),
        "on_fail": [{"retry": {"times": 1000, "delay": "20ms"}}],
    }
    handle = await runs.start({"nodes": {"poll": poll}, "deadline": "6s"})
    failed = await runs.failure(handle)
    assert failed.code == "timeout"
    state = await runs.query(handle.id, "state")
    [execution] = state["nodes"]["poll"]["executions"]
    assert execution["attempts"][-1]["finished"] - execution["attempts"][0]["created"] < 60_000
    assert len(await chain(runs, handle)) > 1


async def test_a_continued_run_resumes_resets_and_tells_its_start_as_one_run(runs: Runs) -> None:
    poll = {**call("script", key="poll", replies=replies(30)), "on_fail": [{"retry": {"times": 100, "delay": "20ms"}}]}
    nodes = {
        "start": {"value": "${run.started}"},
        "poll": {**poll, "after": ["start"]},
        "ask": {**ASK, "after": ["poll"]},
    }
    end = {"end": {"value": "${run.started}", "after": ["ask"]}}
    handle = await runs.start({"nodes": {**nodes, **end}, "output": {"start": "${start}", "end": "${end}"}})
    await waiting(runs, handle, "ask")
    snapshot = await runs.query(handle.id, "snapshot")
    await update(handle, {"node": "ask", "value": {"ok": True}})
    result = (await handle.result())["result"]
    assert result["start"] == result["end"]
    assert len(await chain(runs, handle)) > 1
    again = await runs.start_raw({"resume": snapshot})
    await waiting(runs, again, "ask")
    await update(again, {"node": "ask", "value": {"ok": True}})
    await again.result()
    assert keys(runs, handle.id, "script") == ["poll"] * 31
    assert keys(runs, again.id, "script") == []


async def test_what_a_run_hands_to_itself_is_checked_when_people_give_it(runs: Runs) -> None:
    nowhere = {"digest": "sha256:" + "0" * 64, "size": 1}
    values: list[JSON] = [7, {}, {"pages": []}, {"pages": [nowhere]}]
    for given in values:
        handle = await runs.start_raw({"continued": given})
        failed = await runs.failure(handle)
        assert failed.code in ("bad_request", "bad_snapshot", "blob_missing")


async def test_the_run_of_a_maps_items_continues_as_new_between_their_runs(runs: Runs) -> None:
    node = {"over": "${input}", "activity": {"name": "step", "args": ["${item}"]}, "concurrency": 4}
    handle = await runs.start({"nodes": {"work": node}, "output": "${work}"}, list(range(40)))
    output = (await handle.result())["result"]
    assert output["values"] == list(range(1, 41))
    assert output["indexes"] == list(range(40))
    await chain(runs, handle)
    items = runs.client.get_workflow_handle(f"{handle.id}/work/1.0")
    first = (await items.describe()).raw_description.workflow_execution_info.first_run_id
    assert len(await chain(runs, runs.client.get_workflow_handle(items.id, first_execution_run_id=first))) > 2


async def test_the_run_of_an_item_continues_as_new(runs: Runs) -> None:
    """With what its node may read of the map's run: other nodes' values, the run's input, its item."""
    poll = call("script", key="${item}", replies=replies(20))
    work = {
        "over": "${input}",
        "activity": {"name": "step", "args": ["${before + index}"]},
        "accept": [{"expr": "output > 99"}],
        "on_fail": [
            {"retry": {"times": 25, "delay": "20ms"}},
            {"reroute": {"function": poll["function"]}},
            {"retry": {"times": 100, "delay": "20ms"}},
        ],
        "input": {"run": "${run.id}", "key": "${item}", "replies": [*replies(20)[:-1], 100]},
    }
    graph = {"nodes": {"before": count("before", 7), "work": work}, "output": "${work}"}
    handle = await runs.start(graph, ["a", "b"])
    output = (await handle.result())["result"]
    assert output["values"] == [100, 100]
    assert sorted(keys(runs, handle.id, "script")) == ["a"] * 21 + ["b"] * 21
    item = runs.client.get_workflow_handle(f"{handle.id}/work/2.0/1")
    first = (await item.describe()).raw_description.workflow_execution_info.first_run_id
    assert len(await chain(runs, runs.client.get_workflow_handle(item.id, first_execution_run_id=first))) > 2
