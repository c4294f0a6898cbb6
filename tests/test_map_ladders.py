"""Items on their ladders: each is checked, retried, rerouted and escalated by itself, at no cost to its neighbours."""

from __future__ import annotations

from collections import Counter

import pytest

from mapped import BAD, RUN, alone, calls, count, history_of, mapping, replies, scheduled
from observing import stored
from runs import Runs


async def test_items_are_checked_against_the_nodes_own_schema(runs: Runs) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    done = await runs.complete(alone(count(output_schema=schema)), {"items": [{"n": 1}, {"n": "x"}, {"n": 3}]})
    assert done["result"]["indexes"] == [0, 2]
    (failure,) = done["result"]["failures"]
    assert failure["code"] == "rejected"
    assert "is not of type 'integer'" in failure["reason"]


async def test_one_items_retries_cost_its_neighbours_no_call(runs: Runs) -> None:
    items = [["a"], [{"fail": "FLAKY"}, {"fail": "FLAKY"}, "b"], ["c"]]
    done = await runs.complete(alone(replies(on_fail=[{"retry": 2}])), {"items": items})
    assert done["result"]["values"] == ["a", "b", "c"]
    assert calls(runs, done["id"], "script") == Counter({"item 0": 1, "item 1": 3, "item 2": 1})
    assert scheduled(await history_of(runs, done["id"]))["chunk"] == 1


async def test_a_ladder_counts_for_each_item_alone(runs: Runs) -> None:
    flaky = [{"fail": "FLAKY"}, "late"]
    done = await runs.complete(alone(replies(on_fail=[{"retry": 1}])), {"items": [flaky] * 5 + [BAD]})
    assert done["result"]["values"] == ["late"] * 5
    assert calls(runs, done["id"], "script") == Counter({f"item {n}": 2 for n in range(6)})


async def test_only_exhausted_items_are_rerouted_and_together(runs: Runs) -> None:
    items = [["a"], BAD, ["c"], BAD]
    node = replies(on_fail=[{"retry": 1}, {"reroute": {"value": "rerouted ${index}"}}])
    done = await runs.complete(alone(node), {"items": items})
    assert done["result"]["values"] == ["a", "rerouted 1", "c", "rerouted 3"]
    assert calls(runs, done["id"], "script") == Counter({"item 0": 1, "item 1": 2, "item 2": 1, "item 3": 2})
    activities = scheduled(await history_of(runs, done["id"]))
    assert (activities["chunk"], activities["reroute_chunk"]) == (1, 1)


async def test_a_reroute_sticks_for_an_item_and_its_retries_follow(runs: Runs) -> None:
    script = "def run(input):\n    fail('NEVER', 'not by script')\n"
    node = {
        "over": "${input.items}",
        "script": script,
        "input": {"run": RUN, "key": "item ${index}", "replies": "${item}"},
        "on_fail": [{"reroute": {"function": "functions_for_tests:script"}}, {"retry": 2}],
    }
    done = await runs.complete(alone(node), {"items": [["a"], [{"fail": "X"}, {"fail": "X"}, "b"], BAD]})
    assert done["result"]["values"] == ["a", "b"]
    assert done["result"]["failures"][0]["code"] == "BAD"
    assert calls(runs, done["id"], "script") == Counter({"item 0": 1, "item 1": 3, "item 2": 3})


async def test_a_delayed_retry_comes_back_without_its_neighbours(runs: Runs) -> None:
    items = [["a"], [{"fail": "FLAKY"}, "b"], ["c"]]
    ladder = [{"retry": {"times": 1, "delay": "1500ms"}}]
    done = await runs.complete(alone(replies(on_fail=ladder)), {"items": items})
    assert done["result"]["values"] == ["a", "b", "c"]
    assert calls(runs, done["id"], "script") == Counter({"item 0": 1, "item 1": 2, "item 2": 1})
    first, second = (e["time"] for e in runs.calls("script", done["id"]) if e["key"] == "item 1")
    assert second - first > 1.4
    history = await history_of(runs, done["id"])
    assert any(event.HasField("timer_started_event_attributes") for event in history.events)


async def test_a_back_off_grows_for_each_item(runs: Runs) -> None:
    ladder = [{"retry": {"times": 3, "delay": "200ms", "backoff": 2, "max_delay": "300ms"}}]
    done = await runs.complete(alone(replies(on_fail=ladder)), {"items": [[{"fail": "X"}] * 3 + ["a"], ["b"]]})
    assert done["result"]["values"] == ["a", "b"]
    history = await history_of(runs, done["id"])
    delays = [
        event.timer_started_event_attributes.start_to_fire_timeout.ToMilliseconds()
        for event in history.events
        if event.HasField("timer_started_event_attributes")
    ]
    assert delays == [200, 300, 300]


@pytest.mark.parametrize("delay", ["0s", "1s"])
async def test_feedback_is_the_items_own(runs: Runs, delay: str) -> None:
    node = {
        "over": ["x", "y"],
        "function": "functions_for_tests:with_feedback",
        "input": {"run": f"{RUN} ${{item}}"},
        "accept": [{"expr": "output['from'] == 'big'"}],
        "on_fail": [{"retry": {"times": 1, "delay": delay, "feedback": True}}],
    }
    done = await runs.complete(alone(node))
    for value in done["result"]["values"]:
        assert value["feedback"]["code"] == "rejected"
        assert value["feedback"]["rejected"] == {"from": "small", "feedback": None}
    for item in ("x", "y"):
        given = [entry["feedback"] for entry in runs.calls("feedback", f"{done['id']} {item}")]
        assert given[0] is None
        assert "accept[0]" in given[1]["reason"]
        assert len(given) == 2


async def test_a_binding_that_fails_for_one_item_is_its_invalid_input_and_buys_no_retry(runs: Runs) -> None:
    node = mapping("count", {"value": "${10 / item}"}, on_fail=[{"retry": 3}])
    done = await runs.complete(alone(node), {"items": [5, 0, 2]})
    assert done["result"]["values"] == [2, 5]
    assert done["result"]["failures"][0]["code"] == "invalid_input"
    assert "10 / item" in done["result"]["failures"][0]["reason"]
    assert calls(runs, done["id"]) == Counter({"item 0": 1, "item 2": 1})


async def test_exhausted_items_are_escalated_in_one_entry(runs: Runs) -> None:
    done = await runs.complete(alone(replies(on_fail=["escalate"])), {"items": [["a"], BAD, BAD]})
    assert (done["result"]["escalated"], done["result"]["failed"]) == (2, 0)
    assert [failure["index"] for failure in done["result"]["failures"]] == [1, 2]
    assert (done["escalations"], done["failures"]) == (1, 2)
    (entry,) = await runs.query(done["id"], "escalations")
    assert (entry["count"], entry["node"], entry["resolved"]) == (2, "work", 0)


async def test_an_escalated_item_keeps_why_each_of_its_attempts_failed(runs: Runs) -> None:
    ladder = [
        {"retry": {"times": 1, "delay": "100ms"}},
        {"reroute": {"script": "def run(input):\n    fail('OTHER', 'no ' + 'x' * 1000)\n"}},
        {"retry": 10},
        "escalate",
    ]
    items = [["a"], [{"fail": "FIRST"}, {"fail": "SECOND"}], [{"fail": "FIRST"}, "b"]]
    done = await runs.complete(alone(replies(on_fail=ladder)), {"items": items})
    assert (done["result"]["values"], done["result"]["escalated"]) == (["a", "b"], 1)
    (entry,) = await runs.query(done["id"], "escalations")
    (item,) = await stored(runs, entry["ref"])
    assert (item["index"], item["attempts"], len(item["history"])) == (1, 13, 10)
    assert {(past["code"], past["reason"][:4]) for past in item["history"]} == {("OTHER", "no x")}
    assert all(len(past["reason"]) <= 200 for past in item["history"])
    shorter = [*ladder[:2], "escalate"]
    done = await runs.complete(alone(replies(on_fail=shorter)), {"items": items})
    (entry,) = await runs.query(done["id"], "escalations")
    (item,) = await stored(runs, entry["ref"])
    assert [past["code"] for past in item["history"]] == ["FIRST", "SECOND", "OTHER"]


async def test_an_items_attempt_has_the_nodes_timeout(runs: Runs) -> None:
    node = mapping("slow", {"seconds": "${item}"}, timeout="1s")
    done = await runs.complete(alone(node), {"items": [0, 30, 0]})
    assert done["result"]["indexes"] == [0, 2]
    assert done["result"]["failures"][0]["code"] == "timeout"


async def test_a_maps_deadline_ends_it(runs: Runs) -> None:
    node = mapping("slow", {"seconds": 60}, deadline="2s", timeout="5m")
    failed = await runs.fail(alone(node), {"items": [1, 2]})
    assert failed.code == "timeout"
    assert "deadline of 2s" in failed.message
    ends = Counter(entry["event"] for entry in runs.calls("slow", failed.envelope["id"]))
    assert ends == Counter({"start": 2, "cancelled": 2})
