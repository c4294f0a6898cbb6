"""What the rungs' options do: delays, feedback, more fuel and memory, filters, reroutes, queues, time limits."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from graph.values import JSON
from observing import attempts, blobs, history, node_status, queued, scheduled, timers, until
from runs import Runs

RUN = {"run": "${run.id}"}
WANTS_BIG = {"properties": {"from": {"const": "big"}}}
WHO = {"model": "small", "prompt": "who, ${run.id}?"}


def script(*lines: str) -> str:
    return "\n    ".join(["def run(input):", *lines])


def replying(replies: list[JSON], *rungs: JSON, **options: JSON) -> dict[str, Any]:
    """A graph of one node whose function gives one reply after the other; ``{"fail": CODE}`` is a failure."""
    node = {"function": "functions_for_tests:script", "input": {**RUN, "replies": replies}, "on_fail": list(rungs)}
    return {"nodes": {"work": {**node, **options}}}


FAILS: list[JSON] = [{"fail": "BUSY"}]


async def test_retry_delays_grow_by_backoff_up_to_max_delay(runs: Runs) -> None:
    retry = {"times": 4, "delay": "100ms", "backoff": 2, "max_delay": "300ms"}
    failed = await runs.fail(replying(FAILS, {"retry": retry}))
    assert timers(await history(runs, failed.envelope["id"])) == [100, 200, 300, 300]
    made = await attempts(runs, failed.envelope["id"])
    gaps = [later["created"] - earlier["finished"] for earlier, later in pairwise(made)]
    assert all(gap >= least for gap, least in zip(gaps, [100, 200, 300, 300], strict=True)), gaps


async def test_without_a_delay_no_timer_is_started(runs: Runs) -> None:
    failed = await runs.fail(replying(FAILS, {"retry": 2}))
    assert timers(await history(runs, failed.envelope["id"])) == []


async def test_a_delayed_node_shows_as_waiting_then_active_then_succeeded(runs: Runs) -> None:
    graph = replying([*FAILS, {"from": "big"}], {"retry": {"times": 1, "delay": "1500ms"}})
    handle = await runs.start(graph)

    async def waiting() -> bool:
        return await node_status(runs, handle) == "waiting"

    await until(waiting)
    progress = await runs.query(handle.id, "progress")
    assert progress["running"] == ["work"]
    assert progress["nodes"]["waiting"] == 1
    [execution] = (await runs.query(handle.id, "state"))["nodes"]["work"]["executions"]
    assert [attempt["status"] for attempt in execution["attempts"]] == ["failed"]
    await handle.result()
    await runs.replays(handle)
    assert await node_status(runs, handle) == "succeeded"


async def test_feedback_shows_a_model_its_rejected_answer_and_the_reason(runs: Runs) -> None:
    rungs = [{"retry": {"times": 1, "feedback": True}}]
    failed = await runs.fail({"nodes": {"work": {"infer": WHO, "output_schema": WANTS_BIG, "on_fail": rungs}}})
    first, second = runs.calls("small", failed.envelope["id"])
    assert [m["role"] for m in first["messages"]] == ["user"]
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "user"]
    assert second["messages"][0] == first["messages"][0]
    assert second["messages"][1]["content"] == '{"from":"small"}'
    assert "$.from: " in second["messages"][2]["content"]


async def test_without_feedback_every_attempt_asks_the_same(runs: Runs) -> None:
    node = {"infer": {**WHO, "system": "be brief"}, "output_schema": WANTS_BIG, "on_fail": [{"retry": 1}]}
    failed = await runs.fail({"nodes": {"work": node}})
    first, second = runs.calls("small", failed.envelope["id"])
    assert first["messages"] == second["messages"]
    assert [m["role"] for m in first["messages"]] == ["system", "user"]


async def test_feedback_reaches_the_parameter_of_that_name_of_a_function(runs: Runs) -> None:
    node = {"function": "functions_for_tests:with_feedback", "input": RUN, "output_schema": WANTS_BIG}
    done = await runs.complete({"nodes": {"work": {**node, "on_fail": [{"retry": {"times": 2, "feedback": True}}]}}})
    first, second = runs.calls("feedback", done["id"])
    assert first["feedback"] is None
    assert second["feedback"]["code"] == "rejected"
    assert "$.from" in second["feedback"]["reason"]
    assert second["feedback"]["rejected"] == {"from": "small", "feedback": None}


@pytest.mark.parametrize(
    "parameters",
    ["input, feedback", "input, feedback=None", "input, *, feedback", "*input, feedback", "it, x=1, feedback=2"],
)
async def test_feedback_reaches_a_script_that_has_a_parameter_for_it(runs: Runs, parameters: str) -> None:
    telling = f"def run({parameters}):\n    return {{'from': 'big' if feedback else 'small', 'feedback': feedback}}"
    rungs = [{"retry": {"times": 1, "feedback": True}}]
    done = await runs.complete({"nodes": {"work": {"script": telling, "output_schema": WANTS_BIG, "on_fail": rungs}}})
    feedback = done["result"]["feedback"]
    assert (feedback["code"], feedback["rejected"]) == ("rejected", {"from": "small", "feedback": None})
    assert "$.from" in feedback["reason"]


async def test_an_input_may_be_called_feedback(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"work": {"script": "def run(feedback):\n    return feedback"}}}, {"n": 1})
    assert done["result"] == {"n": 1}


@pytest.mark.parametrize("parameters", ["", "a, b", "a, *, b", "input, feedback, /"])
async def test_a_script_that_cannot_be_called_with_its_input_is_refused(runs: Runs, parameters: str) -> None:
    failed = await runs.fail({"nodes": {"work": {"script": f"def run({parameters}):\n    return 1"}}})
    assert failed.code == "bad_script"
    assert "takes one argument" in failed.message


async def test_feedback_is_of_the_attempt_just_before_and_only_where_asked_for(runs: Runs) -> None:
    nobody = {"properties": {"from": {"const": "nobody"}}}
    node = {"function": "functions_for_tests:with_feedback", "input": RUN, "output_schema": nobody}
    rungs = [{"retry": 1}, {"retry": {"times": 2, "feedback": True}}]
    failed = await runs.fail({"nodes": {"work": {**node, "on_fail": rungs}}})
    seen = [call["feedback"] for call in runs.calls("feedback", failed.envelope["id"])]
    assert [feedback and feedback["rejected"]["from"] for feedback in seen] == [None, None, "small", "big"]


async def test_feedback_after_a_failure_without_an_output_has_the_reason_alone(runs: Runs) -> None:
    node = {"infer": {**WHO, "model": "broken"}, "on_fail": [{"retry": {"times": 1, "feedback": True}}]}
    failed = await runs.fail({"nodes": {"work": node}})
    _, second = runs.calls("broken", failed.envelope["id"])
    assert [m["role"] for m in second["messages"]] == ["user", "user"]
    assert "no capacity" in second["messages"][1]["content"]


async def test_a_large_rejected_answer_is_shown_whole_but_travels_by_reference(runs: Runs) -> None:
    prompt = "say, ${run.id}: " + "long " * 8000
    node = {"infer": {"model": "echo", "prompt": prompt, "format": "text"}, "accept": [{"expr": "len(output) < 9"}]}
    rungs = [{"retry": {"times": 1, "feedback": True}}]
    failed = await runs.fail({"nodes": {"work": {**node, "on_fail": rungs}}})
    first, second = runs.calls("echo", failed.envelope["id"])
    assert second["messages"][1]["content"] == first["messages"][0]["content"]
    recorded = await history(runs, failed.envelope["id"])
    sizes = [e.ByteSize() for e in recorded.events if e.HasField("activity_task_scheduled_event_attributes")]
    assert max(sizes[1:]) < 4096, "the request that loads the graph is the only large one"


async def test_a_script_that_runs_out_of_fuel_passes_with_4x(runs: Runs) -> None:
    counting = script("n = 0", "for i in range(40_000): n += i", "return {'from': 'big', 'n': n}")
    rungs = [{"retry": {"times": 1, "fuel": "4x", "on": ["out_of_fuel"]}}]
    done = await runs.complete({"nodes": {"work": {"script": counting, "fuel": 15_000_000, "on_fail": rungs}}})
    assert done["result"]["n"] == 799_980_000
    first, second = await attempts(runs, done["id"])
    assert first["error"]["class"] == "out_of_fuel"
    assert 15_000_000 < second["fuel"] <= 60_000_000
    again = await runs.complete({"nodes": {"work": {"script": counting}}})
    assert [a["fuel"] for a in await attempts(runs, again["id"])] == [second["fuel"]]


async def test_a_script_that_runs_out_of_memory_passes_with_2x(runs: Runs) -> None:
    filling = script("return {'size': len(bytes(80 * 2**20))}")
    rungs = [{"retry": {"times": 1, "memory": "2x", "on": ["out_of_memory"]}}]
    done = await runs.complete({"nodes": {"work": {"script": filling, "memory": "64MiB", "on_fail": rungs}}})
    assert done["result"] == {"size": 80 * 2**20}
    first, second = await attempts(runs, done["id"])
    assert (first["error"]["class"], second["status"]) == ("out_of_memory", "succeeded")


async def test_the_largest_factors_on_the_largest_limits_still_run(runs: Runs) -> None:
    retry = {"times": 1, "fuel": "1000x", "memory": "1000x"}
    limits = {"fuel": 10_000_000_000_000, "memory": "4095MiB", "output_bytes": "1KiB"}
    node = {"script": script("return 'x' * 2000"), **limits, "on_fail": [{"retry": retry}]}
    failed = await runs.fail({"nodes": {"work": node}})
    assert [a["error"]["class"] for a in await attempts(runs, failed.envelope["id"])] == ["too_large"] * 2


async def test_more_fuel_lasts_for_its_rung_only(runs: Runs) -> None:
    counting = script("n = 0", "for i in range(40_000): n += i", "fail('TOO_SMALL', str(n))")
    rungs = [{"retry": {"times": 1, "fuel": "4x"}}, {"retry": 1}]
    failed = await runs.fail({"nodes": {"work": {"script": counting, "fuel": 15_000_000, "on_fail": rungs}}})
    codes = [a["error"]["code"] for a in await attempts(runs, failed.envelope["id"])]
    assert codes == ["out_of_fuel", "TOO_SMALL", "out_of_fuel"]


@pytest.mark.parametrize("name", ["function_error", "BUSY"], ids=["by-class", "by-code"])
async def test_a_retry_limited_to_a_class_or_a_code_applies_to_it(runs: Runs, name: str) -> None:
    done = await runs.complete(replying([*FAILS, {"from": "big"}], {"retry": {"times": 1, "on": [name]}}))
    assert len(runs.calls("script", done["id"])) == 2


async def test_a_rung_that_does_not_apply_is_passed_over_for_good(runs: Runs) -> None:
    replies: list[JSON] = [{"fail": "BUSY"}, {"fail": "BROKEN"}, {"fail": "BUSY"}]
    rungs = [{"retry": {"times": 5, "on": ["BUSY"]}}, {"retry": {"times": 1, "on": ["BROKEN"]}}, "escalate"]
    failed = await runs.fail(replying(replies, *rungs))
    assert failed.code == "BUSY"
    assert len(runs.calls("script", failed.envelope["id"])) == 3
    [entry] = await queued(runs, failed.envelope["id"])
    assert entry["attempts"] == 3


async def test_a_reroute_limited_to_a_class_is_passed_over_for_others(runs: Runs) -> None:
    rungs = [{"reroute": {"value": "slowly", "on": ["timeout"]}}, {"reroute": {"value": "anew", "on": ["BUSY"]}}]
    done = await runs.complete(replying(FAILS, *rungs))
    assert done["result"] == "anew"
    assert len(await attempts(runs, done["id"])) == 2


@pytest.mark.parametrize(
    ("to", "implementation"),
    [
        ({"script": script("return {'from': 'big', 'input': input['key']}")}, "script:sha256:"),
        ({"function": "functions_for_tests:keyed"}, "function:functions_for_tests:keyed"),
        ({"value": {"from": "big", "input": "${before.key}"}}, "value"),
        ({"infer": {"model": "echo", "prompt": '{"from": "big", "input": "${before.key}"}'}}, "model:echo"),
    ],
    ids=["script", "function", "value", "infer"],
)
async def test_a_reroute_to_another_kind_gets_the_same_input_and_is_checked(
    runs: Runs, to: dict[str, JSON], implementation: str
) -> None:
    graph = replying([{"from": "small"}], {"reroute": to}, output_schema=WANTS_BIG)
    graph["nodes"]["work"]["input"]["key"] = "${before.key}"
    graph["nodes"]["before"] = {"value": {"key": "the same"}}
    done = await runs.complete({**graph, "output": "${work}"})
    assert done["result"] == {"from": "big", "input": "the same"}
    first, second = await attempts(runs, done["id"])
    assert first["implementation"] == "function:functions_for_tests:script"
    assert second["implementation"].startswith(implementation)
    assert "before" not in scheduled(await history(runs, done["id"]))


async def test_a_rerouted_output_that_the_check_rejects_climbs_on(runs: Runs) -> None:
    rungs = [{"reroute": {"value": {"from": "medium"}}}, {"reroute": {"value": {"from": "big"}}}]
    done = await runs.complete(replying([{"from": "small"}], *rungs, output_schema=WANTS_BIG))
    assert [a["status"] for a in await attempts(runs, done["id"])] == ["failed", "failed", "succeeded"]


async def test_a_reroute_with_feedback_is_shown_what_the_one_before_gave(runs: Runs) -> None:
    node = {"infer": WHO, "input": RUN, "output_schema": WANTS_BIG}
    rungs = [{"reroute": {"function": "functions_for_tests:with_feedback", "feedback": True}}]
    done = await runs.complete({"nodes": {"work": {**node, "on_fail": rungs}}})
    [call] = runs.calls("feedback", done["id"])
    assert call["feedback"]["rejected"] == {"from": "small"}
    assert "$.from" in call["feedback"]["reason"]


async def test_a_script_asks_the_model_that_its_ladder_rerouted_to(runs: Runs) -> None:
    asking = script("return infer('who? ' + input['run'], format='json')")
    node = {"script": asking, "input": RUN, "grants": {"models": ["small", "big"]}, "output_schema": WANTS_BIG}
    done = await runs.complete({"nodes": {"work": {**node, "on_fail": [{"reroute": {"model": "big"}}]}}})
    assert (len(runs.calls("small", done["id"])), len(runs.calls("big", done["id"]))) == (1, 1)
    assert done["result"] == {"from": "big"}


async def test_escalate_names_its_queue(runs: Runs) -> None:
    failed = await runs.fail(replying(FAILS, {"escalate": {"queue": "night-shift"}}))
    [entry] = await queued(runs, failed.envelope["id"], "night-shift")
    assert entry["code"] == "BUSY"
    assert not await queued(runs, failed.envelope["id"])


async def test_a_timeout_ends_one_attempt_and_the_next_one_starts_afresh(runs: Runs) -> None:
    node = {"function": "functions_for_tests:slow", "input": {**RUN, "seconds": 30}, "timeout": "300ms"}
    failed = await runs.fail({"nodes": {"work": {**node, "on_fail": [{"retry": 1}]}}})
    assert (failed.code, failed.envelope["error"]["class"]) == ("timeout", "timeout")
    assert "300ms" in failed.message
    events = [call["event"] for call in runs.calls("slow", failed.envelope["id"])]
    assert events == ["start", "cancelled"] * 2


async def test_checks_count_towards_the_timeout(runs: Runs) -> None:
    node = {"function": "functions_for_tests:echo", "input": {"value": 1}, "timeout": "300ms"}
    judge = {"judge": {"model": "slow", "prompt": "well, ${run.id}?"}}
    failed = await runs.fail({"nodes": {"work": {**node, "accept": [judge]}}})
    assert failed.code == "timeout"


async def test_a_deadline_ends_a_node_between_attempts(runs: Runs) -> None:
    retry = {"times": 100, "delay": "250ms"}
    failed = await runs.fail(replying(FAILS, {"retry": retry}, "escalate", deadline="1s"))
    assert failed.code == "timeout"
    assert "deadline of 1s" in failed.message
    made = await attempts(runs, failed.envelope["id"])
    assert 1 <= len(made) <= 5
    assert {a["error"]["code"] for a in made} == {"BUSY"}, "each attempt keeps its own error"
    [entry] = await queued(runs, failed.envelope["id"])
    assert (entry["code"], entry["attempts"]) == ("timeout", len(made))


async def test_a_deadline_ends_an_attempt_in_flight(runs: Runs) -> None:
    node = {"function": "functions_for_tests:slow", "input": {**RUN, "seconds": 30}, "deadline": "500ms"}
    started = time.monotonic()
    failed = await runs.fail({"nodes": {"work": {**node, "on_fail": [{"retry": 3}, {"reroute": {"value": 1}}]}}})
    assert time.monotonic() - started < 15
    assert failed.code == "timeout"
    assert [(a["status"], a["error"]["class"]) for a in await attempts(runs, failed.envelope["id"])] == [
        ("failed", "timeout")
    ]
    assert [call["event"] for call in runs.calls("slow", failed.envelope["id"])] == ["start", "cancelled"]
    assert failed.envelope["nodes"] == {"work": "failed"}


async def test_the_deadline_of_a_run_ends_it_with_a_timeout(runs: Runs) -> None:
    node = {
        "function": "functions_for_tests:slow",
        "input": {**RUN, "seconds": 30},
        "on_fail": [{"retry": 3}, "escalate"],
    }
    started = time.monotonic()
    failed = await runs.fail({"deadline": "700ms", "nodes": {"work": node}})
    assert time.monotonic() - started < 15
    assert failed.code == "timeout"
    assert "deadline of 700ms" in failed.message
    assert failed.envelope["error"]["node"] is None
    assert failed.envelope["nodes"] == {"work": "cancelled"}
    assert [call["event"] for call in runs.calls("slow", failed.envelope["id"])] == ["start", "cancelled"]
    assert not await queued(runs, failed.envelope["id"])


async def test_each_attempt_gets_the_same_input_and_a_fresh_sandbox(runs: Runs) -> None:
    spoiling = script(
        "input['list'].append(1)",
        "import script",
        "script.n = getattr(script, 'n', 0) + 1",
        "fail('N', str([input, script.n]))",
    )
    failed = await runs.fail(
        {"nodes": {"work": {"script": spoiling, "input": {"list": []}, "on_fail": [{"retry": 2}]}}}
    )
    made = await attempts(runs, failed.envelope["id"])
    assert [a["error"]["message"] for a in made] == ["[{'list': [1]}, 1]"] * 3
    assert len({a["input"] for a in made}) == 1


async def test_a_rejected_output_is_kept_only_if_some_rung_shows_it(runs: Runs) -> None:
    node = {"function": "functions_for_tests:rejected_then_big", "input": RUN, "output_schema": WANTS_BIG}
    forgotten = await runs.complete({"nodes": {"work": {**node, "on_fail": [{"retry": 1}]}}})
    assert not any(f"rejected-value-{forgotten['id']}".encode() in data for data in blobs(runs).values())
    shown = await runs.complete({"nodes": {"work": {**node, "on_fail": [{"retry": 1}, "escalate"]}}})
    assert any(f"rejected-value-{shown['id']}".encode() in data for data in blobs(runs).values())
