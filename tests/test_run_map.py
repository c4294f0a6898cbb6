"""Large maps: a workflow of their own, a window of chunks, histories that stay short."""

from __future__ import annotations

from typing import Any

from temporalio.client import WorkflowHandle

from mapped import history_of, scheduled
from observing import until
from runs import Runs
from workflows import replayer
from workflows.chunks import first_ranges, shares, split

NUMBERS = "${[number for number in range(input.count)]}"


def items_run(runs: Runs, handle: WorkflowHandle[Any, Any], node: str = "work", execution: int = 1) -> str:
    """The id of the run that works through a map's items."""
    return f"{handle.id}/{node}/{execution}.0"


async def test_more_items_than_a_chunk_has_run_in_a_workflow_of_their_own(runs: Runs) -> None:
    node = {"over": NUMBERS, "value": "${item * 2}", "accept": [{"expr": "output != 40"}], "on_fail": ["escalate"]}
    handle = await runs.start({"nodes": {"work": node}, "output": "${work}"}, {"count": 5000})
    output = (await handle.result())["result"]
    assert output["values"] == [number * 2 for number in range(5000) if number != 20]
    assert output["indexes"] == [number for number in range(5000) if number != 20]
    assert [failure["index"] for failure in output["failures"]] == [20]
    parent = scheduled(await runs.replays(handle))
    assert (parent["pin"], parent["chunk"], parent["collect"]) == (1, 0, 1)
    history = await history_of(runs, items_run(runs, handle))
    assert scheduled(history)["chunk"] >= 8
    await replayer().replay_workflow(history)


async def test_slow_items_begun_in_their_run_go_on_in_a_workflow_of_their_own(runs: Runs) -> None:
    node = {
        "over": NUMBERS,
        "function": "functions_for_tests:slow",
        "input": {"run": "${run.id}", "key": "${str(item)}", "seconds": 0.5, "value": "${item}"},
        "concurrency": 3,
    }
    handle = await runs.start({"nodes": {"work": node}, "output": "${work.values}"}, {"count": 40})
    assert (await handle.result())["result"] == list(range(40))
    calls = [call for call in runs.calls("slow", handle.id) if call["event"] in ("start", "end")]
    at_once, most = 0, 0
    for call in sorted(calls, key=lambda call: call["time"]):
        at_once += 1 if call["event"] == "start" else -1
        most = max(most, at_once)
    assert most == 3
    assert len(calls) == 80
    await runs.replays(handle)
    history = await history_of(runs, items_run(runs, handle))
    await replayer().replay_workflow(history)


async def test_items_climb_in_the_workflow_of_their_own(runs: Runs) -> None:
    node = {
        "over": NUMBERS,
        "script": "def run(input):\n    if input % 100 == 7:\n        fail('ODD', 'no')\n    return input\n",
        "on_fail": [{"retry": {"times": 1, "delay": "1s"}}, {"reroute": {"value": "again ${item}"}}],
    }
    handle = await runs.start(
        {"nodes": {"work": node}, "output": "${[work.values[7], work.succeeded]}"}, {"count": 1500}
    )
    assert (await handle.result())["result"] == ["again 7", 1500]
    history = await history_of(runs, items_run(runs, handle))
    assert scheduled(history)["reroute_chunk"] >= 2
    await replayer().replay_workflow(history)


async def test_a_cancelled_run_ends_the_workflow_of_its_items(runs: Runs) -> None:
    call = {"run": "${run.id}", "key": "${str(item)}", "seconds": 60, "value": 1}
    node = {"over": NUMBERS, "function": "functions_for_tests:slow", "input": call}
    handle = await runs.start({"nodes": {"work": node}}, {"count": 2000})

    async def begun() -> bool:
        return len(runs.calls("slow", handle.id)) >= 8

    await until(begun)
    await handle.cancel()
    child = runs.client.get_workflow_handle(items_run(runs, handle))

    async def ended() -> str | None:
        status = (await child.describe()).status
        return status.name if status is not None and status.name != "RUNNING" else None

    assert await until(ended) == "CANCELED"
    await runs.replays(handle)


def test_a_window_shares_out_the_concurrency() -> None:
    assert shares(1) == [1]
    assert shares(8) == [1] * 8
    assert sum(shares(100)) == 100
    assert len(shares(100)) == 16


def test_ranges_cover_all_items_once() -> None:
    for count, concurrency in ((1, 8), (7, 8), (5000, 3), (1_000_000, 16)):
        ranges = first_ranges(count, concurrency)
        assert [number for start, size in ranges for number in range(start, start + size)] == list(range(count))
    assert split(10, 5, 2) == [(10, 2), (12, 2), (14, 1)]
