"""Hostile snapshots, and snapshots of runs in every phase: each is refused clearly or leads to the same end."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle

from activities.resume import take_up
from activities.store import Store
from activities.tools import Tools
from graph.compiled import CompiledGraph
from graph.errors import FerrataError, LoadError
from graph.paging import join, pages
from graph.values import JSON, Ref
from observing import node_status, queued, scheduled, until
from runs import Runs

KEY = "${input}"
FUNCTION = "functions_for_tests"
ODD: list[JSON] = [None, True, -1, 0, 3, 2**70, 1.5, "", "x", "sha256:" + "0" * 64, [], [1], {}, {"x": 1}]


def counted(name: str, value: JSON = 1, **more: Any) -> dict[str, Any]:
    return {"function": f"{FUNCTION}:count", "input": {"run": KEY, "key": name, "value": value}, **more}


def slow(name: str, seconds: float, value: JSON = 1, **more: Any) -> dict[str, Any]:
    given = {"run": KEY, "key": name, "seconds": seconds, "value": value}
    return {"function": f"{FUNCTION}:slow", "input": given, **more}


def fails(code: str = "BAD", **more: Any) -> dict[str, Any]:
    return {"function": f"{FUNCTION}:script", "input": {"run": KEY, "replies": [{"fail": code}]}, **more}


def calls(runs: Runs, key: str, name: str) -> int:
    return len([call for call in runs.calls("count", key) if call["key"] == name])


async def started(runs: Runs, key: str, name: str) -> None:
    async def has() -> bool:
        return any(c["key"] == name and c["event"] == "start" for c in runs.calls("slow", key))

    await until(has)


async def snapshot_of(runs: Runs, run: str) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(json.dumps(await runs.query(run, "snapshot"))))


async def go_on(runs: Runs, snapshot: JSON, **more: Any) -> WorkflowHandle[Any, Any]:
    return await runs.start_raw({"resume": snapshot, **more})


async def cut(runs: Runs, handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """The snapshot of a run that ends by termination now."""
    saved = await snapshot_of(runs, handle.id)
    await handle.terminate()
    return saved


# --- hostile snapshots ---------------------------------------------------------------------------------------------


def places(data: JSON, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


def mutated(data: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """One place changed, removed, or given another's content."""
    found = copy.deepcopy(data)
    *path, last = chance.choice([place for place in places(found) if place])
    holder: Any = found
    for key in path:
        holder = holder[key]
    kind = chance.randrange(4)
    if kind == 0:
        del holder[last]
    elif kind == 1 and isinstance(holder, dict):
        holder[f"{last}_"] = holder.pop(last)
    elif kind == 2:
        holder[last] = copy.deepcopy(holder[chance.choice(list(holder) if isinstance(holder, dict) else [0])])
    else:
        holder[last] = chance.choice(ODD)
    return found


async def tangled(runs: Runs, key: str) -> dict[str, Any]:
    """A snapshot with a little of everything: delays, maps, child runs, handlers, failures, escalations."""
    child = {"nodes": {"inner": slow("inner", 5)}}
    nodes: dict[str, Any] = {
        "done": counted("done", [1, 2]),
        "mapped": {**counted("mapped", "${item}"), "over": "${done}"},
        "forgiven": fails(optional=True, on_fail=["escalate"]),
        "guarded": {"value": 1, "when": "len(done) > 5"},
        "flying": slow("flying", 5),
        "delayed": {**fails("LATER"), "on_fail": [{"retry": {"times": 2, "delay": "60s", "feedback": True}}]},
        "below": {"graph": child, "input": KEY},
        "never": {"value": "${flying}"},
        "limited": slow("limited", 5, deadline="1m"),
    }
    handle = await runs.start({"on_failure": "continue", "nodes": nodes}, key)
    await started(runs, key, "inner")

    async def entangled() -> bool:
        state = (await runs.query(handle.id, "state"))["nodes"]
        wanted = {"mapped": "succeeded", "forgiven": "failed", "delayed": "waiting", "guarded": "skipped"}
        return all(state[name]["status"] == status for name, status in wanted.items())

    await until(entangled)
    return await cut(runs, handle)


async def test_mutated_snapshots_are_refused_or_taken_up_and_never_fail_a_workflow_task(runs: Runs) -> None:
    saved = await tangled(runs, "mutated")
    chance = random.Random(7)
    tools = offline_tools(runs.log / "store")
    await take_up(tools, saved, False)
    taken = []
    codes = set()
    for _ in range(400):
        snapshot = mutated(saved, chance)
        try:
            await take_up(tools, snapshot, chance.random() < 0.3)
            taken.append(snapshot)
        except LoadError as error:
            codes.add(error.problems[0].code)
    assert codes == {"bad_snapshot"}
    assert 12 <= len(taken) < 380
    handles = [await go_on(runs, snapshot) for snapshot in chance.sample(taken, 12)]
    await asyncio.sleep(2)
    for handle in handles:
        status = (await handle.describe()).status
        if status == WorkflowExecutionStatus.RUNNING:
            await runs.query(handle.id, "state")  # it lives
            await handle.terminate()
        else:
            assert status in (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED)
        await runs.replays(handle)


def offline_tools(store: Path) -> Tools:
    """As much of a process's tools as reading a given snapshot takes."""
    opened = Store.open(str(store))

    async def graph(ref: Ref) -> CompiledGraph:
        return CompiledGraph.model_validate_json(await opened.get(ref))

    return cast(Tools, SimpleNamespace(store=opened, graph=graph))


@pytest.mark.parametrize(
    "resume", [{"digest": 5}, {"digest": "x", "size": 1}, {"digest": "sha256:" + "0" * 64, "size": 1}, {"run": 5}, {}]
)
async def test_a_reference_to_no_snapshot_is_refused(tmp_path: Path, resume: dict[str, Any]) -> None:
    with pytest.raises(FerrataError):
        await take_up(offline_tools(tmp_path), resume, False)


async def test_what_another_blob_holds_is_no_graph(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"a": {"value": 1}}})
    await handle.result()
    saved = await snapshot_of(runs, handle.id)
    blob = await Store.open(str(runs.log / "store")).put_json({"no": "graph"})
    failed = await runs.failure(await go_on(runs, {**saved, "compiled": blob.model_dump()}))
    assert failed.code == "bad_snapshot"


def test_pages_cut_escalations_too_and_join_to_the_whole() -> None:
    nodes = {f"n{i}": {"status": "idle", "executions": [], "reason": "x" * i} for i in range(300)}
    entries = [{"id": str(i), "reason": "y" * 2000} for i in range(300)]
    whole = {"version": 1, "escalations": entries, "nodes": nodes, "values": {"n7": {"inline": 1}}}
    cut_up = pages(whole, 20_000)
    assert max(len(json.dumps(page)) for page in cut_up) < 25_000
    assert join(json.loads(json.dumps(cut_up))) == whole


# --- every phase ---------------------------------------------------------------------------------------------------


async def test_a_run_restored_while_it_escalates_keeps_the_rejected_output_and_makes_no_other_attempt(
    runs: Runs,
) -> None:
    node = {"infer": {"model": "small", "prompt": "who?"}, "accept": [{"expr": "false"}], "on_fail": ["escalate"]}
    handle = await runs.start({"nodes": {"work": node}})
    await runs.failure(handle)
    saved = await snapshot_of(runs, handle.id)
    (entry,) = await runs.query(handle.id, "escalations")
    # The moment before, as a query would have found it: the attempt failed, and the entry isn't made yet.
    (execution,) = saved["nodes"]["work"]["executions"]
    execution["progress"] = {
        "standing": [1, 0, 0],
        "step": {"rung": "first", "implementation": 0, "delay": 0, "feedback": False, "fuel": 1.0, "memory": 1.0},
        "index": 0,
        "feedback": None,
        "due": None,
        "deadline": None,
        "ending": {"error": execution["error"], "queue": "escalations", "rejected": entry["rejected"]},
    }
    execution.update(status="active", error=None)
    saved["nodes"]["work"]["status"] = "active"
    saved.update(status="running", failures=[], escalations=[])
    before = len(runs.calls("small"))
    again = await go_on(runs, saved)
    failed = await runs.failure(again)
    assert failed.code == "rejected"
    assert len(runs.calls("small")) == before
    (made,) = await queued(runs, again.id)
    assert made["rejected"] == entry["rejected"] is not None
    assert (await runs.query(again.id, "state"))["nodes"]["work"]["executions"][0]["attempts"] == execution["attempts"]


async def test_attempts_in_flight_of_a_failing_run_and_its_saga_go_on_after_a_restore(runs: Runs) -> None:
    key = "restored-saga"
    nodes = {
        "flying": slow("flying", 2, 7),
        "bad": {"function": f"{FUNCTION}:slow_failure", "input": {"run": KEY, "seconds": 0.3, "code": "BAD"}},
        "undo": slow("undo", 2, after={"bad": "failed"}),
        "undone": counted("undone", "${undo}"),
        "never": counted("never", "${flying}"),
    }
    handle = await runs.start({"nodes": nodes}, key)
    await started(runs, key, "undo")
    saved = await cut(runs, handle)
    assert saved["nodes"]["flying"]["status"] == "active"
    again = await go_on(runs, saved)
    failed = await runs.failure(again)
    assert failed.code == "BAD"
    assert failed.envelope["nodes"] == {
        "flying": "succeeded",
        "bad": "failed",
        "undo": "succeeded",
        "undone": "succeeded",
        "never": "idle",
    }
    assert (calls(runs, key, "undone"), calls(runs, key, "never")) == (1, 0)
    assert len(runs.calls("slow_failure", key)) == 1


async def test_a_map_and_a_loop_of_child_runs_in_flight_end_as_if_undisturbed_in_a_run_resumed_twice(
    runs: Runs,
) -> None:
    key = "restored-map-and-loop"
    child = {
        "nodes": {"opening": counted("opening", 3), "then": slow("then", 2, "${opening}")},
        "output": "${then}",
    }
    nodes = {
        "mapped": {**slow("item ${index}", 2, "${item}"), "over": "${[1, 2, 3]}"},
        "looped": {"graph": child, "input": KEY, "repeat": {"until": "output > 1", "max_rounds": 3}},
        "last": counted("last", "${sum(mapped.values)}"),
    }
    handle = await runs.start({"nodes": nodes, "output": "${[last, looped]}"}, key)
    await started(runs, key, "then")
    await started(runs, key, "item 0")
    saved = await cut(runs, handle)
    again = await go_on(runs, saved)
    await until(lambda: is_active(runs, again, "looped"))
    twice = await cut(runs, again)
    assert twice["previous"] == [handle.id]
    final = await go_on(runs, twice)
    assert (await final.result())["result"] == [6, 3]
    await runs.replays(final)
    assert calls(runs, key, "opening") == 1
    assert calls(runs, key, "last") == 1


async def is_active(runs: Runs, handle: WorkflowHandle[Any, Any], node: str) -> bool:
    return await node_status(runs, handle, node) == "active"


async def test_deadlines_of_nodes_and_maps_go_on_from_when_they_began(runs: Runs) -> None:
    key = "restored-deadline"
    nodes = {
        "work": slow("work", 30, deadline="2s"),
        "mapped": {**slow("mapped", 30, "${item}"), "over": "${[1]}", "deadline": "2s"},
    }
    handle = await runs.start({"on_failure": "continue", "nodes": nodes}, key)
    await started(runs, key, "work")
    await started(runs, key, "mapped")
    saved = await cut(runs, handle)
    await asyncio.sleep(2)
    again = await go_on(runs, saved)
    failed = await asyncio.wait_for(runs.failure(again), 5)
    assert failed.code == "timeout"
    assert set(failed.envelope["failed"]) == {"work", "mapped"}


async def test_a_delay_that_is_over_is_not_waited_for_again(runs: Runs) -> None:
    key = "restored-delay"
    node = {
        "function": f"{FUNCTION}:script",
        "input": {"run": KEY, "replies": [{"fail": "ONCE"}, 5]},
        "on_fail": [{"retry": {"times": 1, "delay": "2s"}}],
    }
    handle = await runs.start({"nodes": {"work": node}}, key)
    await until(lambda: is_waiting(runs, handle))
    saved = await cut(runs, handle)
    await asyncio.sleep(2)
    again = await go_on(runs, saved)
    assert (await again.result())["result"] == 5
    history = await runs.replays(again)
    assert not any(event.HasField("timer_started_event_attributes") for event in history.events)


async def is_waiting(runs: Runs, handle: WorkflowHandle[Any, Any]) -> bool:
    return await node_status(runs, handle) == "waiting"


async def test_a_run_past_its_deadline_or_without_output_fails_the_same_way_and_calls_nothing(runs: Runs) -> None:
    graphs: list[dict[str, Any]] = [
        {"deadline": "500ms", "nodes": {"work": slow("late", 30)}},
        {"nodes": {"work": {"value": 1}}, "output": "${1 // (work - 1)}"},
    ]
    for graph in graphs:
        handle = await runs.start(graph, "run-level")
        first = await runs.failure(handle)
        saved = await snapshot_of(runs, handle.id)
        again = await go_on(runs, saved)
        failed = await runs.failure(again)
        assert (failed.code, failed.message, failed.envelope) == (first.code, first.message, first.envelope)
        final = await snapshot_of(runs, again.id)
        assert {**final, "run": 0, "started": 0} == {**saved, "run": 0, "started": 0}
        assert scheduled(await again.fetch_history()) in (["load", "restore"],)


# --- redrive -------------------------------------------------------------------------------------------------------


async def test_redrive_twice_and_of_completed_runs(runs: Runs) -> None:
    key = "redriven-often"
    nodes = {
        "source": counted("source", 1),
        "work": {
            "function": f"{FUNCTION}:script",
            "input": {"run": KEY, "replies": [{"fail": "A"}, {"fail": "B"}, 3]},
            "optional": True,
        },
        "join": counted("join", "${[work, source]}", after={"work": "any"}),
    }
    handle = await runs.start({"nodes": nodes, "output": "${join}"}, key)
    assert (await handle.result())["result"] == [None, 1]
    results = []
    for _ in range(3):
        handle = await runs.start_raw({"resume": {"run": handle.id}, "redrive": True})
        results.append((await handle.result())["result"])
        await runs.replays(handle)
    assert results == [[None, 1], [3, 1], [3, 1]]
    assert (calls(runs, key, "source"), calls(runs, key, "join"), len(runs.calls("script", key))) == (1, 3, 3)
    state = (await runs.query(handle.id, "state"))["nodes"]
    ids = [execution["id"] for node in state.values() for execution in node["executions"]]
    assert len(ids) == len(set(ids)) == 7
    newest = state["join"]["executions"][-1]
    assert {source["node"]: source["execution"] for source in newest["from"]} == {
        "work": state["work"]["executions"][-1]["id"],
        "source": state["source"]["executions"][-1]["id"],
    }


async def test_a_run_cancelled_in_flight_is_redriven_with_its_child_calling_nothing_concluded(runs: Runs) -> None:
    key = "cancelled-child"
    child = {"nodes": {"opening": counted("opening", 3), "then": slow("then", 2, "${opening}")}, "output": "${then}"}
    handle = await runs.start({"nodes": {"below": {"graph": child, "input": KEY}}}, key)
    await started(runs, key, "then")
    saved = await snapshot_of(runs, handle.id)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    again = await go_on(runs, saved)
    assert (await again.result())["result"] == 3
    assert calls(runs, key, "opening") == 1


async def test_a_resumed_run_may_be_given_its_input_again_as_it_was_first_given(runs: Runs) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "size": {"default": 5}}}
    graph = {"input_schema": schema, "nodes": {"work": {"value": "${input.size}"}}}
    handle = await runs.start(graph, {"a": 1})
    await handle.result()
    saved = await snapshot_of(runs, handle.id)
    assert (await (await go_on(runs, saved, input={"a": 1})).result())["result"] == 5
    assert (await runs.failure(await go_on(runs, saved, input={"a": 2}))).code == "bad_request"


async def test_values_inline_stored_and_deep_are_the_same_after_a_restore(runs: Runs) -> None:
    key = "restored-values"
    nodes = {
        "small": {"value": {"a": [1, None, "ü"]}},
        "medium": {"value": "${'x' * 5000}"},
        "large": {"value": "${'x' * 50000}"},
        "deep": {"function": f"{FUNCTION}:deep", "input": {"levels": 99}},
        "flying": slow("flying", 1.5, after=["small", "medium", "large", "deep"]),
        "last": {"value": "${[small, len(medium), len(large)]}", "after": ["flying"]},
    }
    graph = {"nodes": nodes, "output": "${last}"}
    handle = await runs.start(graph, key)
    await started(runs, key, "flying")
    again = await go_on(runs, await cut(runs, handle))
    assert (await again.result())["result"] == [{"a": [1, None, "ü"]}, 5000, 50000]
