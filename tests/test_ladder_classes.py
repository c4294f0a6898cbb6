"""Every class of failure climbs the ladder: retried, rerouted, escalated. Only cancellation never does.

`lost` is where workers are killed: in the tests of cancellation and loss.
"""

from __future__ import annotations

from typing import Any

import pytest

from graph.errors import FAILURE_CLASSES
from graph.values import JSON
from observing import attempts, history, queued, scheduled
from runs import Runs

RUN = {"run": "${run.id}"}
SMALL = {"from": "small"}
WANTS_BIG = {"properties": {"from": {"const": "big"}}}


def function(function: str, /, **input: JSON) -> dict[str, JSON]:
    return {"function": f"functions_for_tests:{function}", "input": input}


def script(*lines: str) -> dict[str, JSON]:
    return {"script": "\n    ".join(["def run(input):", *lines])}


FAILING: dict[str, dict[str, Any]] = {
    "rejected": {**function("echo", value=SMALL), "output_schema": WANTS_BIG},
    "invalid_output": function("not_json", kind="set"),
    "script_error": script("return 1 / 0"),
    "function_error": function("crash"),
    "wasm_trap": script(
        "import sys", "sys.setrecursionlimit(10**9)", "def down(n): return down(n + 1)", "return down(0)"
    ),
    "out_of_fuel": {**script("while True: pass"), "fuel": 1_000_000},
    "out_of_memory": {**script("return len(bytes(200 * 2**20))"), "memory": "64MiB"},
    "timeout": {**function("slow", **RUN, seconds=30), "timeout": "100ms"},
    "denied": script("return open('/etc/hostname').read()"),
    "unsupported": script("import threading", "threading.Thread(target=print).start()"),
    "model_error": {"infer": {"model": "broken", "prompt": "who, ${run.id}?"}},
    "activity_error": {"activity": {"name": "fail_with", "args": ["${run.id}", "ODD", 9]}},
    "child_failed": {"graph": {"nodes": {"inner": script("return {}['key']")}}},
    "loop_exhausted": {
        **function("echo", value=1),
        "repeat": {"until": "output != 1", "max_rounds": 2},
    },
    "too_large": {**function("large", size=3000), "output_bytes": "2KiB"},
}
"""A node for each class that a value in its place mends."""
CODES = {"model_error": "overloaded", "activity_error": "ODD"}
"""The code where it isn't the class."""
ELSEWHERE = {"lost", "invalid_input", "unusable"}
"""Classes with tests of their own."""


def test_no_class_is_forgotten() -> None:
    assert FAILING.keys() | ELSEWHERE == set(FAILURE_CLASSES)


@pytest.mark.parametrize("failure_class", FAILING)
async def test_the_class_is_retried_then_rerouted(runs: Runs, failure_class: str) -> None:
    rungs = [{"retry": {"times": 1, "on": [failure_class]}}, {"reroute": {"value": {"from": "big"}}}]
    done = await runs.complete({"nodes": {"work": {**FAILING[failure_class], "on_fail": rungs}}})
    assert done["result"] == {"from": "big"}
    one, two, last = await attempts(runs, done["id"])
    code = CODES.get(failure_class, failure_class)
    for attempt in (one, two):
        assert (attempt["status"], attempt["error"]["class"], attempt["error"]["code"]) == (
            "failed",
            failure_class,
            code,
        )
        assert attempt["error"]["message"]
        assert attempt["output"] is None
    assert (last["status"], last["implementation"]) == ("succeeded", "value")
    made = scheduled(await history(runs, done["id"]))
    first_try = {"activity_error": "bind", "child_failed": "bind"}.get(failure_class, "attempt")
    assert made.count(first_try) == 2
    assert made.count("reroute") == 1


@pytest.mark.parametrize("failure_class", FAILING)
async def test_the_class_escalates_and_gives_the_run_its_code(runs: Runs, failure_class: str) -> None:
    # A retry that doesn't apply is passed over: nothing in the ladder hinders the escalation.
    rungs = [{"retry": {"times": 3, "on": ["SOMETHING_ELSE"]}}, "escalate"]
    failed = await runs.fail({"nodes": {"work": {**FAILING[failure_class], "on_fail": rungs}}})
    code = CODES.get(failure_class, failure_class)
    assert failed.code == code
    assert failed.envelope["error"]["class"] == failure_class
    [entry] = await queued(runs, failed.envelope["id"])
    assert (entry["code"], entry["attempts"]) == (code, 1)
    assert entry["reason"] == failed.envelope["error"]["message"]


async def test_an_invalid_input_passes_over_retry_and_reroute_to_escalate(runs: Runs) -> None:
    rungs = [{"retry": 3}, {"reroute": {"value": {"from": "big"}}}, "escalate"]
    node = {**function("typed", name="${before.name}"), "on_fail": rungs}
    failed = await runs.fail({"nodes": {"before": function("echo", value={"name": [1]}), "work": node}})
    assert (failed.code, failed.envelope["error"]["class"]) == ("invalid_input", "invalid_input")
    assert "`name`" in failed.message
    assert len(await attempts(runs, failed.envelope["id"])) == 1
    assert "reroute" not in scheduled(await history(runs, failed.envelope["id"]))
    [entry] = await queued(runs, failed.envelope["id"])
    assert entry["input"] == {"name": [1]}


@pytest.mark.parametrize(
    "node",
    [
        {"value": {"number": "${1 / before.zero}"}},
        {**function("echo", value="${before.missing}")},
        {**function("echo", value=1), "when": "before.zero"},
        {**function("echo", value=1), "repeat": {"until": "output.x", "max_rounds": 3}},
        {"activity": {"name": "step", "args": ["${1 / before.zero}"]}},
        {"graph": {"nodes": {"inner": {"value": "${input}"}}}, "input": "${1 / before.zero}"},
    ],
    ids=["value", "binding", "guard", "until", "activity", "graph"],
)
async def test_what_cannot_be_evaluated_is_an_invalid_input_and_buys_no_retry(runs: Runs, node: dict[str, Any]) -> None:
    work = {**node, "on_fail": [{"retry": 3}, "escalate"]}
    failed = await runs.fail({"nodes": {"before": function("echo", value={"zero": 0}), "work": work}})
    assert (failed.code, failed.envelope["error"]["class"]) == ("invalid_input", "invalid_input")
    assert len(await attempts(runs, failed.envelope["id"])) == 1
    assert len(await queued(runs, failed.envelope["id"])) == 1


async def test_an_unusable_verdict_of_a_judge_climbs(runs: Runs) -> None:
    judge = {"judge": {"model": "doubtful", "prompt": "is it big, ${run.id}?"}}
    node = {**function("echo", value=SMALL), "accept": [judge]}
    done = await runs.complete({"nodes": {"work": {**node, "on_fail": [{"retry": {"times": 1, "on": ["unusable"]}}]}}})
    assert len(runs.calls("doubtful", done["id"])) == 2
    first, second = await attempts(runs, done["id"])
    assert (first["error"]["class"], first["error"]["code"]) == ("unusable", "unusable")
    assert "doubtful" in first["error"]["message"]
    assert second["status"] == "succeeded"
    # Judges cost, whether their answer could be used or not.
    assert first["usage"]["total_tokens"] > 0
    assert done["usage"]["total_tokens"] == first["usage"]["total_tokens"] + second["usage"]["total_tokens"]


async def test_a_judge_that_rejects_climbs(runs: Runs) -> None:
    rungs = [{"retry": {"times": 1, "on": ["rejected"]}}, "escalate"]
    node = {**function("echo", value=SMALL), "accept": [{"judge": {"model": "no", "prompt": "is it, ${run.id}?"}}]}
    failed = await runs.fail({"nodes": {"work": {**node, "on_fail": rungs}}})
    assert failed.code == "rejected"
    assert "too short" in failed.message
    assert len(runs.calls("no", failed.envelope["id"])) == 2
    [entry] = await queued(runs, failed.envelope["id"])
    assert entry["check"] == "accept[0] judge"


async def test_a_judge_that_is_broken_rejects_with_that_error_as_reason(runs: Runs) -> None:
    node = {**function("echo", value=SMALL), "accept": [{"judge": {"model": "broken", "prompt": "?"}}]}
    failed = await runs.fail({"nodes": {"work": node}})
    assert failed.code == "rejected"
    assert "no capacity" in failed.message
    assert failed.envelope["error"]["details"]["error"] == {"class": "model_error", "code": "overloaded"}


async def test_the_code_of_a_child_that_failed_by_its_author_is_kept(runs: Runs) -> None:
    child = {"nodes": {"inner": script("fail('NO_PAPER', 'the tray is empty')")}}
    rungs = [{"retry": {"times": 1, "on": ["NO_PAPER"]}}]
    failed = await runs.fail({"nodes": {"work": {"graph": child, "on_fail": rungs}}})
    assert (failed.code, failed.envelope["error"]["class"]) == ("NO_PAPER", "child_failed")
    assert "the tray is empty" in failed.message
    assert len(await attempts(runs, failed.envelope["id"])) == 2
