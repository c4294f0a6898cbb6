"""Large maps: a workflow of their own, a window of chunks, histories that stay short."""

from __future__ import annotations

from typing import Any

from temporalio.client import WorkflowHandle

from graph.values import digest, encode
from mapped import history_of, scheduled
from observing import stored, until
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


async def test_progress_tells_how_fast_a_large_map_is_and_how_long_it_will_take(runs: Runs) -> None:
    node = {
        "over": NUMBERS,
        "function": "functions_for_tests:slow",
        "input": {"run": "${run.id}", "key": "${str(item)}", "seconds": 0.3, "value": "${item}"},
        "concurrency": 4,
    }
    handle = await runs.start({"nodes": {"work": node}, "output": "${work.succeeded}"}, {"count": 150})

    async def told() -> Any:
        progress = await runs.query(handle.id, "progress")
        return progress if "per_second" in progress.get("maps", {}).get("work", {}) else None

    progress = await until(told, 40)
    found = progress["maps"]["work"]
    assert 0 < found["done"] < found["items"] == 150
    assert found["seconds_left"] > 0
    assert f"`work`: {found['done']} of 150 items, " in progress["markdown"]
    of_items = await runs.query(items_run(runs, handle), "progress")
    assert of_items["items"] == 150
    assert of_items["done"] >= found["done"]
    assert (await handle.result())["result"] == 150
    assert "maps" not in await runs.query(handle.id, "progress")
    await runs.replays(handle)


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


async def test_a_large_output_stays_in_pages_and_reads_as_a_plain_one(runs: Runs) -> None:
    """Values, failures and escalated items are more than a page each; what follows reads them, and maps over them."""
    node = {
        "over": NUMBERS,
        "value": {"number": "${item}", "third": "${item % 3}", "text": "x" * 60},
        "accept": [{"expr": "output.number % 5 != 4"}],
        "on_fail": ["escalate"],
        "tolerate": {"failures": "30%"},
    }
    again = {"over": "${work.values}", "value": "${item.number}"}
    told = {
        "kinds": "${count_by(work.values, 'third')}",
        "lost": "${len(work.failures)}",
        "last": "${work.indexes[-1]}",
    }
    graph = {
        "nodes": {
            "work": node,
            "again": again,
            "told": {"value": told},
            "total": {"value": "${sum(again.values)}"},
            "lost": {"value": "${work.failures[0]}"},
        },
        "output": "${[told, total, lost, work.escalated, again.succeeded]}",
    }
    handle = await runs.start(graph, {"count": 12_000})
    output = (await handle.result())["result"]
    kept = [number for number in range(12_000) if number % 5 != 4]
    kinds = {str(third): sum(number % 3 == third for number in kept) for third in range(3)}
    assert output[0] == {"kinds": kinds, "lost": 2400, "last": 11_998}
    assert output[1] == sum(kept)
    assert {key: output[2][key] for key in ("index", "item")} == {"index": 4, "item": 4}
    assert output[3:] == [2400, len(kept)]
    state = await runs.query(handle.id, "state")
    work = state["nodes"]["work"]["executions"][0]
    whole = {
        "values": [{"number": number, "third": number % 3, "text": "x" * 60} for number in kept],
        "indexes": kept,
        "failures": [dict(output[2], index=number, item=number) for number in range(4, 12_000, 5)],
        "succeeded": 9600,
        "failed": 0,
        "escalated": 2400,
        "skipped": 0,
    }
    assert work["attempts"][0]["output"] == digest(encode(whole))
    (entry,) = await runs.query(handle.id, "escalations")
    assert entry["ref"]["count"] == 2400
    escalated = await stored(runs, entry["ref"])
    assert [each["index"] for each in escalated] == list(range(4, 12_000, 5))
    await runs.replays(handle)


async def test_a_hundred_thousand_lines_of_a_file_take_few_events(runs: Runs) -> None:
    file = runs.log / "data" / "numbers.jsonl"
    file.write_text("".join(f"{number % 10}\n" for number in range(100_000)))
    work = {
        "over": {"file": str(file)},
        "grants": {"read": [str(file.parent)]},
        "script": "def run(input):\n    return {'digit': input}\n",
        "output_schema": {"type": "object", "required": ["digit"]},
    }
    graph = {
        "nodes": {"work": work, "digits": {"value": "${count_by(work.values, 'digit')}"}},
        "output": "${[digits, len(work.values), work.values[99999], work.indexes[-1]]}",
    }
    handle = await runs.start(graph)
    digits, count, last, index = (await handle.result())["result"]
    assert digits == {str(digit): 10_000 for digit in range(10)}
    assert (count, last, index) == (100_000, {"digit": 9}, 99_999)
    map_run = await history_of(runs, items_run(runs, handle))
    assert len(map_run.events) < 500
    assert len((await runs.replays(handle)).events) < 500
    await replayer().replay_workflow(map_run)
