"""Maps whose items are runs of their own: graphs that wait, called activities, `run: child`."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from mapped import history_of
from observing import queued, stored, until
from runs import Runs
from test_run_map import items_run
from workflows import replayer

ADD = "def run(input):\n    return input + 1\n"


def mapped(graph: dict[str, Any], **node: Any) -> dict[str, Any]:
    return {"nodes": {"work": {"over": "${input.items}", "graph": graph, **node}}, "output": "${work}"}


async def exists(run: WorkflowHandle[Any, Any]) -> bool:
    """Whether a run has begun."""
    try:
        return (await run.describe()).status is not None
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise


async def replays_all(runs: Runs, run: str, *items: int) -> None:
    """The run's history replays, and so do those of its map's run and of some items' runs."""
    await runs.replays(runs.client.get_workflow_handle(run))
    map_run = f"{run}/work/1.0"
    for id in (map_run, *(f"{map_run}/{item}" for item in items)):
        await replayer().replay_workflow(await history_of(runs, id))


async def test_items_may_be_forced_into_runs_of_their_own(runs: Runs) -> None:
    nodes = {"one": {"script": ADD}, "two": {"script": ADD, "input": "${one}"}}
    handle = await runs.start(mapped({"nodes": nodes}, run="child"), {"items": list(range(5))})
    output = (await handle.result())["result"]
    assert output["values"] == [2, 3, 4, 5, 6]
    assert output["indexes"] == [0, 1, 2, 3, 4]
    await replays_all(runs, handle.id, 0, 4)
    await replayer().replay_workflow(await history_of(runs, f"{items_run(runs, handle)}/3/work/1.0"))


async def test_a_called_activity_serves_a_maps_items_with_the_ladder_of_each(runs: Runs) -> None:
    node = {
        "over": "${input.items}",
        "activity": {"name": "fail_with", "args": ["${item.run}", "FLAKY", "${item.times}"]},
        "when": "item.times >= 0",
        "on_fail": [{"retry": {"times": 1, "delay": "20ms"}}, {"reroute": {"value": "instead ${index}"}}],
        "concurrency": 2,
    }
    calls = [{"run": f"{id(runs)}-{number}", "times": number} for number in (0, 1, 9, -1)]
    handle = await runs.start({"nodes": {"work": node}, "output": "${work}"}, {"items": calls})
    output = (await handle.result())["result"]
    assert output["values"] == ["done", "done", "instead 2"]
    assert (output["indexes"], output["skipped"]) == ([0, 1, 2], 1)
    assert [len(runs.calls("fail_with", call["run"])) for call in calls] == [1, 2, 2, 0]
    await replays_all(runs, handle.id, 0, 1, 2, 3)


async def test_items_without_arguments_are_the_one_argument(runs: Runs) -> None:
    node = {"over": "${['Ada', 'Alan']}", "activity": {"name": "greet"}}
    done = await runs.complete({"nodes": {"work": node}, "output": "${work.values}"})
    assert done["result"] == ["hello Ada", "hello Alan"]


async def test_an_item_waits_for_a_reply_while_the_others_go_on(runs: Runs) -> None:
    """A graph with a `wait` in it can't run inside a chunk; its run is replied to like any other."""
    nodes = {
        "ask": {"wait": {"reply": {"type": "string"}}, "when": "input == 1"},
        "both": {"value": "${[input, ask]}", "after": {"ask": "any"}},
    }
    handle = await runs.start(mapped({"nodes": nodes}), {"items": [0, 1, 2]})

    child = runs.client.get_workflow_handle(f"{items_run(runs, handle)}/1/work/1.0")
    await until(lambda: exists(child))

    async def asked() -> bool:
        return bool((await runs.query(child.id, "progress")).get("waiting"))

    await until(asked)
    await child.signal("reply", {"node": "ask", "value": "yes"})
    output = (await handle.result())["result"]
    assert output["values"][1] == [1, "yes"]
    assert output["succeeded"] == 3
    await replays_all(runs, handle.id, 1)


async def test_what_fails_is_told_and_escalated_once_by_its_own_run(runs: Runs) -> None:
    queue = f"apart-{id(runs)}"
    nodes = {"one": {"script": "def run(input):\n    if input == 1:\n        fail('ODD', 'no')\n    return input\n"}}
    node = mapped({"nodes": nodes}, run="child", on_fail=[{"retry": 1}, {"escalate": {"queue": queue}}])
    handle = await runs.start(node, {"items": [0, 1, 2]})
    output = (await handle.result())["result"]
    assert (output["values"], output["escalated"]) == ([0, 2], 1)
    (failure,) = output["failures"]
    assert (failure["index"], failure["item"], failure["code"]) == (1, 1, "ODD")
    (entry,) = await queued(runs, f"{items_run(runs, handle)}/1", queue)
    assert (entry["node"], entry["input"], entry["attempts"]) == ("work", 1, 2)
    assert await runs.query(handle.id, "escalations") == []
    await replays_all(runs, handle.id, 1)


@pytest.mark.parametrize("size", [20_000, 1_000_000])
async def test_large_items_and_results_go_by_reference(runs: Runs, size: int) -> None:
    node = mapped({"nodes": {"one": {"value": "${input.text}"}}}, run="child", input={"text": "${item * input.times}"})
    handle = await runs.start(node, {"items": ["a", "b"], "times": size})
    result = await handle.result()
    output = result["result"] or await stored(runs, result["result_ref"])
    assert output["values"] == ["a" * size, "b" * size]
    await replays_all(runs, handle.id, 0)


async def test_a_cancelled_run_ends_the_runs_of_its_items(runs: Runs) -> None:
    handle = await runs.start(mapped({"nodes": {"ask": {"wait": {"reply": True}}}}), {"items": [0, 1]})
    child = runs.client.get_workflow_handle(f"{items_run(runs, handle)}/1/work/1.0")

    await until(lambda: exists(child))
    await handle.cancel()

    async def ended() -> bool:
        status = (await child.describe()).status
        return status is not None and status.name == "CANCELED"

    await until(ended)
    await runs.replays(handle)


async def test_a_failing_run_breaks_off_the_runs_of_its_items(runs: Runs) -> None:
    graph = mapped({"nodes": {"ask": {"wait": {"reply": True}}}})
    graph["nodes"]["other"] = {
        "script": "def run(input):\n    fail('NO', 'no')\n",
        "on_fail": [{"retry": {"times": 1, "delay": "1s"}}],
    }
    failed = await runs.fail(graph, {"items": [0, 1]})
    assert failed.code == "NO"
    assert failed.envelope["nodes"]["work"] == "cancelled"
    await runs.replays(runs.client.get_workflow_handle(failed.envelope["id"]))


async def test_the_run_of_an_item_cannot_be_resumed_by_itself(runs: Runs) -> None:
    nodes = {"one": {"script": "def run(input):\n    if input == 1:\n        fail('ODD', 'no')\n    return input\n"}}
    handle = await runs.start(mapped({"nodes": nodes}, run="child"), {"items": [0, 1]})
    await handle.result()
    for item in (0, 1):
        again = await runs.start_raw({"resume": {"run": f"{items_run(runs, handle)}/{item}"}, "redrive": True})
        failed = await runs.failure(again)
        assert failed.code == "bad_snapshot"
        assert "resume the run that has the map" in failed.message
