"""Maps on a real server: a node that runs once for each item of a list."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from graph.values import JSON
from mapped import BAD, RUN, alone, calls, count, execution, history_of, mapping, replies, scheduled
from runs import Runs

# Results


async def test_a_map_calls_once_per_item_and_a_reduce_sees_all_results_in_input_order(runs: Runs) -> None:
    shuffled = list(range(20))
    random.Random(1).shuffle(shuffled)
    nodes = {
        # Later items end sooner.
        "work": mapping("slow", {"seconds": "${(20 - index) / 100}", "value": "${item * 10}"}),
        "total": {"value": {"values": "${work.values}", "sum": "${sum(work.values)}"}},
    }
    done = await runs.complete({"nodes": nodes}, {"items": shuffled})
    assert done["result"] == {"values": [n * 10 for n in shuffled], "sum": 1900}
    starts = [entry["key"] for entry in runs.calls("slow", done["id"]) if entry["event"] == "start"]
    assert sorted(starts) == sorted(f"item {n}" for n in range(20))


async def test_a_maps_output_counts_its_items_and_tells_which_value_is_whose(runs: Runs) -> None:
    items = [["a"], BAD, ["c"], ["skip"], ["e"]]
    done = await runs.complete(alone(replies(when="item != ['skip']")), {"items": items})
    assert done["result"] == {
        "values": ["a", "c", "e"],
        "indexes": [0, 2, 4],
        "failures": [{"index": 1, "item": BAD, "code": "BAD", "reason": "told to fail"}],
        "succeeded": 3,
        "failed": 1,
        "escalated": 0,
        "skipped": 1,
    }
    assert done["failures"] == 1
    found = await execution(runs, done["id"])
    assert found["items"] == {"items": 5, "succeeded": 3, "failed": 1, "escalated": 0, "skipped": 1}
    assert (await runs.query(done["id"], "progress"))["items"] == found["items"]


async def test_one_bad_item_is_recorded_the_rest_run_and_the_run_completes(runs: Runs) -> None:
    items = [["a"], BAD, ["c"]]
    done = await runs.complete(alone(replies()), {"items": items})
    assert done["result"]["values"] == ["a", "c"]
    assert done["status"] == "completed"
    assert done["failures"] == 1
    assert calls(runs, done["id"], "script") == Counter({"item 0": 1, "item 1": 1, "item 2": 1})


async def test_when_all_items_are_bad_the_run_fails_quoting_the_first(runs: Runs) -> None:
    items = [[{"fail": "WORSE", "message": "no luck"}], BAD]
    failed = await runs.fail(alone(replies()), {"items": items})
    assert failed.code == "WORSE"
    assert failed.envelope["error"]["class"] == "function_error"
    assert "all 2 items failed" in failed.message
    assert "item 0: no luck" in failed.message
    assert failed.envelope["failures"] == 2
    with pytest.raises(Exception, match="no value"):
        await runs.query(failed.envelope["id"], "output", "work")


async def test_a_map_whose_items_are_all_skipped_succeeds(runs: Runs) -> None:
    done = await runs.complete(alone(count(when="item > 5")), {"items": [1, 2]})
    assert done["result"]["values"] == []
    assert done["result"]["skipped"] == 2
    assert not calls(runs, done["id"])


async def test_a_map_that_skips_some_and_loses_the_rest_fails(runs: Runs) -> None:
    failed = await runs.fail(alone(replies(when="index > 0")), {"items": [["a"], BAD]})
    assert failed.code == "BAD"


# Lists


async def test_an_empty_list_is_refused(runs: Runs) -> None:
    failed = await runs.fail(alone(count()), {"items": []})
    assert failed.code == "empty_list"
    assert failed.envelope["error"]["class"] == "invalid_input"
    assert "allow_empty" in failed.message


async def test_an_empty_list_that_is_allowed_gives_no_values(runs: Runs) -> None:
    done = await runs.complete(alone(count(allow_empty=True)), {"items": []})
    assert (done["result"]["values"], done["result"]["succeeded"]) == ([], 0)
    assert done["nodes"] == {"work": "succeeded"}


@pytest.mark.parametrize("items", [5, "text", {"a": 1}, None])
async def test_what_is_no_list_is_refused(runs: Runs, items: JSON) -> None:
    failed = await runs.fail(alone(count(on_fail=[{"retry": 2}])), {"items": items})
    assert failed.code == "invalid_input"
    assert "must be a list" in failed.message


async def test_in_batches_each_item_is_a_list(runs: Runs) -> None:
    done = await runs.complete(alone(count(batch=3)), {"items": list(range(7))})
    assert done["result"]["values"] == [[0, 1, 2], [3, 4, 5], [6]]
    assert calls(runs, done["id"]) == Counter({"item 0": 1, "item 1": 1, "item 2": 1})


async def test_without_an_input_the_item_is_the_input(runs: Runs) -> None:
    node = {"over": [1, 2], "script": "def run(input):\n    return input + 1\n"}
    assert (await runs.complete(alone(node)))["result"]["values"] == [2, 3]


async def test_a_guard_that_names_no_item_skips_the_whole_map(runs: Runs) -> None:
    done = await runs.complete(alone(count(when="input.go")), {"go": False, "items": [1]})
    assert done["nodes"] == {"work": "skipped"}
    assert not calls(runs, done["id"])


async def test_items_are_null_booleans_texts_and_objects_alike(runs: Runs) -> None:
    items: list[JSON] = [None, False, 0, "", [], {}, "日本語 🎉", 1.5]
    done = await runs.complete(alone(count()), {"items": items})
    assert done["result"]["values"] == items
    assert done["result"]["succeeded"] == len(items)


# Kinds


async def test_a_map_over_a_value(runs: Runs) -> None:
    node = {"over": "${input.items}", "value": {"n": "${item}", "i": "${index}"}}
    done = await runs.complete(alone(node), {"items": ["a", "b"]})
    assert done["result"]["values"] == [{"n": "a", "i": 0}, {"n": "b", "i": 1}]


async def test_a_map_over_a_script(runs: Runs) -> None:
    script = "def run(input):\n    if input == 2:\n        fail('TWO', 'no twos')\n    return input * input\n"
    done = await runs.complete(alone({"over": [1, 2, 3], "script": script}))
    assert done["result"]["values"] == [1, 9]
    assert done["result"]["failures"] == [{"index": 1, "item": 2, "code": "TWO", "reason": "no twos"}]


async def test_a_map_over_a_model_adds_up_usage(runs: Runs) -> None:
    node = {
        "over": ["x", "y"],
        "infer": {"model": "unhurried", "prompt": f"{RUN}: ${{item}}?"},
        "accept": [{"expr": "index == 0"}],
        "on_fail": [{"retry": 1}],
    }
    done = await runs.complete(alone(node))
    assert done["result"]["values"] == ["at last"]
    # One call for the first item, two for the second, which is rejected twice.
    assert done["usage"] == {"input_tokens": 21, "output_tokens": 9, "total_tokens": 30}
    (attempt,) = (await execution(runs, done["id"]))["attempts"]
    assert attempt["usage"] == done["usage"]


async def test_a_model_is_asked_once_for_each_item(runs: Runs) -> None:
    node = {"over": ["Ada", "Zoë"], "infer": {"model": "echo", "prompt": f"{RUN} ${{item}}"}}
    done = await runs.complete(alone(node))
    assert done["result"]["values"] == [f"{done['id']} Ada", f"{done['id']} Zoë"]
    assert len(runs.calls("echo", done["id"])) == 2


# Tolerance


@pytest.mark.parametrize(
    ("tolerate", "bad", "of"),
    [(0, 0, 4), (1, 1, 4), ("25%", 1, 4), ("50%", 2, 4), ("33%", 1, 4), ("0%", 0, 3), ("99%", 3, 4)],
)
async def test_a_map_with_as_many_failures_as_tolerated_succeeds(runs: Runs, tolerate: JSON, bad: int, of: int) -> None:
    items = [BAD] * bad + [["ok"]] * (of - bad)
    done = await runs.complete(alone(replies(tolerate={"failures": tolerate})), {"items": items})
    assert done["result"]["failed"] == bad


@pytest.mark.parametrize(
    ("tolerate", "bad", "of"), [(0, 1, 4), (1, 2, 4), ("25%", 2, 4), ("50%", 3, 4), ("33%", 2, 4), ("0%", 1, 200)]
)
async def test_a_map_with_one_failure_more_than_tolerated_fails(runs: Runs, tolerate: JSON, bad: int, of: int) -> None:
    items = [["ok"]] * (of - bad) + [BAD] * bad
    failed = await runs.fail(alone(replies(tolerate={"failures": tolerate})), {"items": items})
    assert failed.code == "BAD"
    assert f"{bad} of {of} items failed" in failed.message
    assert str(tolerate) in failed.message
    assert len(calls(runs, failed.envelope["id"], "script")) == of


async def test_an_escalated_item_counts_as_a_failure(runs: Runs) -> None:
    node = replies(tolerate={"failures": 1}, on_fail=["escalate"])
    failed = await runs.fail(alone(node), {"items": [BAD, BAD, ["ok"]]})
    assert failed.code == "BAD"
    assert failed.envelope["escalations"] == 1


# Concurrency


def peak(entries: Iterable[dict[str, Any]]) -> int:
    """The most calls at once, by their notes of start and end."""
    steps = sorted((entry["time"], 1 if entry["event"] == "start" else -1) for entry in entries)
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


async def test_the_concurrency_cap_is_never_exceeded_and_is_used(runs: Runs) -> None:
    node = mapping("slow", {"seconds": 0.15}, concurrency=3)
    done = await runs.complete(alone(node), {"items": list(range(12))})
    assert peak(runs.calls("slow", done["id"])) == 3


async def test_the_concurrency_cap_holds_after_retries_and_reroutes(runs: Runs) -> None:
    ladder = [
        {"retry": 1},
        {"retry": {"times": 1, "delay": "100ms"}},
        {"reroute": {"script": "def run(input):\n    return input['key']\n"}},
    ]
    node = mapping(
        "slow",
        {"seconds": 0.1, "value": "${index}"},
        concurrency=2,
        on_fail=ladder,
        accept=[{"expr": "index % 2 == 0"}],
    )
    done = await runs.complete(alone(node), {"items": list(range(6))})
    assert done["result"]["failed"] == 3
    assert peak(runs.calls("slow", done["id"])) <= 2
    assert calls(runs, done["id"], "slow")["item 1"] == 6


async def test_one_item_at_a_time_goes_in_order(runs: Runs) -> None:
    done = await runs.complete(alone(count(concurrency=1)), {"items": list(range(10))})
    assert [entry["key"] for entry in runs.calls("count", done["id"])] == [f"item {n}" for n in range(10)]


# Size


async def test_large_items_and_results_travel_by_reference(runs: Runs) -> None:
    nodes = {
        "texts": {"function": "functions_for_tests:texts", "input": {"count": 40, "size": 20_000}},
        "work": {"over": "${texts}", "function": "functions_for_tests:echo", "input": {"value": "${item + '!'}"}},
        "sizes": {"value": {"count": "${len(work.values)}", "first": "${len(work.values[0])}"}},
    }
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == {"count": 40, "first": 20_001}
    history = await history_of(runs, done["id"])
    assert len(history.to_json()) < 60_000
    assert base64.b64encode(b"x" * 300).decode() not in history.to_json()
    assert (await runs.query(done["id"], "output", "work"))["ref"]["digest"].startswith("sha256:")


@pytest.mark.parametrize(
    "work",
    [
        {"script": "def run(input):\n    return input\n"},
        {"value": "${item}"},
        {"function": "functions_for_tests:echo", "input": {"value": "${item}"}},
    ],
)
@pytest.mark.parametrize("limit", ["1MiB", "4MiB"])
async def test_items_and_results_of_three_megabytes_are_kept_or_refused(
    runs: Runs, work: dict[str, JSON], limit: str
) -> None:
    nodes = {
        "texts": {
            "function": "functions_for_tests:texts",
            "input": {"count": 2, "size": 3_000_000},
            "output_bytes": "16MiB",
        },
        "work": {"over": "${texts}", **work, "output_bytes": limit},
        "told": {"value": ["${work.indexes}", "${len(first(work.values))}"]},
    }
    if limit == "4MiB":
        assert (await runs.complete({"nodes": nodes}))["result"] == [[0, 1], 3_000_000]
    else:
        failed = await runs.fail({"nodes": nodes})
        assert failed.code == "too_large"
        assert "all 2 items failed; the first was item 0: the output is 3000002 bytes" in failed.message


async def test_thousands_of_items_take_few_events(runs: Runs) -> None:
    nodes = {
        "numbers": {"function": "functions_for_tests:numbers", "input": {"count": 3500}},
        "work": {"over": "${numbers}", "value": {"n": "${item}"}},
        "check": {"value": ["${len(work.values)}", "${first(work.values)}", "${work.indexes[3499]}"]},
    }
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == [3500, {"n": 0}, 3499]
    assert len((await history_of(runs, done["id"])).events) < 70


# Maps among other nodes

BAD_ONCE_CALLED = {
    "function": "functions_for_tests:fail_once_called",
    "input": {"run": RUN, "name": "slow", "code": "BAD"},
}
"""Fails as soon as an item is under way."""


async def test_a_failing_run_lets_a_chunk_in_flight_finish_and_sends_out_no_more(runs: Runs) -> None:
    nodes = {
        "work": mapping(
            "slow",
            {"seconds": 1.5},
            accept=[{"expr": "index == 0"}],
            on_fail=[{"reroute": {"value": "rerouted"}}],
        ),
        "bad": BAD_ONCE_CALLED,
    }
    failed = await runs.fail({"nodes": nodes}, {"items": [1, 2]})
    assert failed.code == "BAD"
    assert failed.envelope["nodes"] == {"work": "cancelled", "bad": "failed"}
    ends = Counter(entry["event"] for entry in runs.calls("slow", failed.envelope["id"]))
    assert ends == Counter({"start": 2, "end": 2})
    assert not scheduled(await history_of(runs, failed.envelope["id"]))["reroute_chunk"]


async def test_a_map_in_flight_that_is_done_when_another_node_failed_counts(runs: Runs) -> None:
    nodes = {
        "work": mapping("slow", {"seconds": 1.5, "value": "${item}"}),
        "bad": BAD_ONCE_CALLED,
    }
    failed = await runs.fail({"nodes": nodes}, {"items": [1, 2]})
    assert failed.envelope["nodes"] == {"work": "succeeded", "bad": "failed"}


async def test_a_map_of_a_map(runs: Runs) -> None:
    nodes = {
        "outer": {"over": [1, 2, 3], "value": "${[item] * item}"},
        "inner": {"over": "${outer.values}", "value": "${sum(item)}"},
    }
    assert (await runs.complete({"nodes": nodes}))["result"]["values"] == [1, 4, 9]


async def test_a_map_used_as_a_list_is_refused_with_the_mend(runs: Runs) -> None:
    nodes = {"work": {"over": [1], "value": "${item}"}, "n": {"value": "${len(work)}"}}
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "type_error"
    assert "work.values" in failed.message


async def test_progress_counts_items_while_a_map_runs(runs: Runs) -> None:
    handle = await runs.start(alone(mapping("slow", {"seconds": 2})), {"items": [1, 2, 3]})
    async with asyncio.timeout(20):
        while not runs.calls("slow", handle.id):
            await asyncio.sleep(0.05)
    progress = await runs.query(handle.id, "progress")
    assert progress["items"]["items"] == 3
    assert (await handle.result())["result"]["succeeded"] == 3
