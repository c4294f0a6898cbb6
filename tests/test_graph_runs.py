"""Whole graphs on a real server: fan-in, loops, guards, outputs, and what can't be evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from graph.values import JSON
from nodes import call, count, executions, keys
from runs import Runs

# Fan-in, and what is refused


async def test_fan_in_gets_both_outputs(runs: Runs) -> None:
    nodes = {
        "left": count("left", {"number": 1}),
        "right": count("right", {"number": 2}),
        "both": count("both", ["${left.number}", "${right.number}", "${left.number + right.number}"]),
    }
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == [1, 2, 3]
    assert sorted(keys(runs, done["id"])) == ["both", "left", "right"]
    assert keys(runs, done["id"])[-1] == "both"
    (both,) = await executions(runs, done["id"], "both")
    ids = {node: (await executions(runs, done["id"], node))[0]["id"] for node in ("left", "right")}
    assert both["from"] == [{"node": node, "execution": ids[node]} for node in ("left", "right")]


WORK = count("work", {"name": "Ada"})
CLOSED = {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        ({"a": {"value": "${b}"}, "b": {"value": "${a}"}}, "cycle", ["`a`", "`b`"]),
        ({"a": {"value": "${a}"}}, "cycle", ["`a`", "itself"]),
        ({"work": WORK, "b": {"value": "${werk}"}}, "unknown_name", ["`werk`", "did you mean `work`"]),
        (
            {"work": {**WORK, "output_schema": CLOSED}, "b": {"value": "${work.nmae}"}},
            "type_error",
            ["nmae", "did you mean `name`"],
        ),
        ({"work": WORK, "b": {"scrpt": "def run(input): ..."}}, "unknown_key", ["`scrpt`", "did you mean `script`"]),
        ({"work": {**WORK, "optinal": True}}, "unknown_key", ["`optinal`", "did you mean `optional`"]),
        (
            {"work": WORK, "never": {"value": 1, "when": "false"}, "b": {"value": 1, "after": ["never"]}},
            "unreachable",
            ["`never`", "its guard is always false", "`b`"],
        ),
        ({"work": {"function": "functions_for_tests:echo"}}, "missing_input", ["`work`", "`input`"]),
        ({"work": {"function": "functions_for_tests:count", "input": {}}}, "missing_input", ["`run`"]),
    ],
    ids=[
        "cycle",
        "self-reference",
        "unknown node",
        "unknown property",
        "unknown kind",
        "unknown key",
        "unreachable node",
        "missing input",
        "missing argument",
    ],
)
async def test_what_is_wrong_with_a_graph_is_said_before_the_first_node_runs(
    runs: Runs, nodes: dict[str, Any], code: str, words: list[str]
) -> None:
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == code, failed.message
    for word in words:
        assert word in failed.message
    assert failed.envelope["error"]["node"] is None
    assert not runs.calls("count", failed.envelope["id"])
    for problem in failed.envelope["error"]["details"]["problems"]:
        assert problem["file"], problem


# Loops


async def test_g2_a_loop_that_never_reaches_its_condition_fails_at_max(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"loop": grows("output.value == 9")}})
    assert failed.code == "loop_exhausted"
    assert "5 rounds" in failed.message
    assert "output.value == 9" in failed.message
    assert len(runs.calls("grow", failed.envelope["id"])) == 5


def grows(until: str, **more: JSON) -> dict[str, Any]:
    """A loop whose output, and so its next input, is one larger in each round."""
    repeat = {"until": until, "max_rounds": 5}
    return {**call("grow", value=0), "repeat": repeat, **more}


async def test_g2_a_loop_that_is_done_at_once_runs_once(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"loop": grows("output.value == 1")}})
    assert done["result"]["value"] == 1
    assert len(runs.calls("grow", done["id"])) == 1


async def test_each_output_of_a_loop_is_its_next_input_and_the_loop_is_one_attempt(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"loop": grows("output.value == 3")}})
    assert done["result"]["value"] == 3
    assert [entry["value"] for entry in runs.calls("grow", done["id"])] == [0, 1, 2]
    (execution,) = await executions(runs, done["id"], "loop")
    assert len(execution["attempts"]) == 1


async def test_a_retried_loop_starts_again_from_the_original_input(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"loop": grows("output.value == 9", on_fail=[{"retry": 1}])}})
    assert failed.code == "loop_exhausted"
    assert [entry["value"] for entry in runs.calls("grow", failed.envelope["id"])] == [0, 1, 2, 3, 4] * 2


async def test_an_activity_loops_through_history(runs: Runs) -> None:
    node = {"activity": "step", "input": 3, "repeat": {"until": "output >= 6", "max_rounds": 5}}
    done = await runs.complete({"nodes": {"loop": node}})
    assert done["result"] == 6
    assert await scheduled(runs, done["id"], "step") == 3
    (execution,) = await executions(runs, done["id"], "loop")
    assert len(execution["attempts"]) == 1


async def test_an_activity_loop_that_is_done_at_once_calls_once(runs: Runs) -> None:
    node = {"activity": "step", "input": 3, "repeat": {"until": "output == 4", "max_rounds": 5}}
    done = await runs.complete({"nodes": {"loop": node}})
    assert done["result"] == 4
    assert await scheduled(runs, done["id"], "step") == 1


async def test_an_activity_loop_fails_at_max_and_a_retry_starts_from_the_original_input(runs: Runs) -> None:
    repeat = {"until": "output > 100", "max_rounds": 3}
    node = {"activity": "step", "input": 3, "repeat": repeat, "on_fail": [{"retry": 1}]}
    failed = await runs.fail({"nodes": {"loop": node}})
    assert failed.code == "loop_exhausted"
    assert await scheduled(runs, failed.envelope["id"], "step") == 6
    (execution,) = await executions(runs, failed.envelope["id"], "loop")
    assert [attempt["error"]["details"]["rounds"] for attempt in execution["attempts"]] == [3, 3]


async def test_a_script_loops(runs: Runs) -> None:
    script = "def run(input):\n    return {'n': input['n'] * 2}\n"
    node = {"script": script, "input": {"n": 1}, "repeat": {"until": "output.n > 10", "max_rounds": 9}}
    assert (await runs.complete({"nodes": {"loop": node}}))["result"] == {"n": 16}


async def test_a_loop_is_checked_once_it_is_done(runs: Runs) -> None:
    node = grows("output.value == 3", accept=[{"expr": "output.value == 3"}])
    assert (await runs.complete({"nodes": {"loop": node}}))["result"]["value"] == 3


async def scheduled(runs: Runs, run: str, activity: str) -> int:
    """How often a run's history schedules an activity."""
    history = await runs.client.get_workflow_handle(run).fetch_history()
    return sum(
        event.activity_task_scheduled_event_attributes.activity_type.name == activity for event in history.events
    )


# Guards


async def test_a_false_guard_skips_the_node_and_what_depends_on_it(runs: Runs) -> None:
    nodes = {
        "guarded": count("guarded", when="input.go"),
        "child": count("child", "${guarded}"),
        "grandchild": count("grandchild", after=["child"]),
        "other": count("other", "here"),
    }
    done = await runs.complete({"nodes": nodes}, {"go": False})
    assert done["nodes"] == {"guarded": "skipped", "child": "skipped", "grandchild": "skipped", "other": "succeeded"}
    assert keys(runs, done["id"]) == ["other"]
    state = await runs.query(done["id"], "state")
    assert state["nodes"]["guarded"]["executions"] == []
    assert state["nodes"]["guarded"]["reason"] == "its guard was false"
    assert "`guarded` was skipped" in state["nodes"]["child"]["reason"]


async def test_a_branch_not_taken_never_runs(runs: Runs) -> None:
    nodes = {
        "choose": count("choose", {"way": "left"}),
        "left": count("left", when="choose.way == 'left'"),
        "right": count("right", when="choose.way == 'right'"),
        "after_right": count("after_right", "${right}"),
    }
    done = await runs.complete({"nodes": nodes})
    assert keys(runs, done["id"]) == ["choose", "left"]
    assert done["nodes"]["right"] == done["nodes"]["after_right"] == "skipped"


async def test_a_guard_that_is_no_boolean_is_invalid_input(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"a": {"value": 1}, "work": count("work", when="input.go")}}, {"go": "yes"})
    assert failed.code == "invalid_input"
    assert "guard" in failed.message
    assert "true or false" in failed.message
    assert not keys(runs, failed.envelope["id"])


# Outputs


async def test_a_graph_of_several_sinks_returns_every_sink(runs: Runs) -> None:
    nodes = {
        "one": {"value": 1},
        "second": {"value": "${one + 1}"},
        "third": {"value": "${one + 2}"},
        "skipped": {"value": 0, "when": "one > 1"},
    }
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == {"second": 2, "third": 3}


async def test_a_sink_that_is_left_alone_of_several_is_still_named(runs: Runs) -> None:
    nodes = {"kept": {"value": 1}, "skipped": {"value": 2, "when": "input.go"}}
    assert (await runs.complete({"nodes": nodes}, {"go": False}))["result"] == {"kept": 1}
    assert (await runs.complete({"nodes": nodes}, {"go": True}))["result"] == {"kept": 1, "skipped": 2}


async def test_a_single_sinks_value_is_the_result_null_included(runs: Runs) -> None:
    assert (await runs.complete({"nodes": {"a": {"value": 1}, "b": {"value": "${[a]}"}}}))["result"] == [1]
    assert (await runs.complete({"nodes": {"a": {"value": None}}}))["result"] is None
    many = await runs.complete({"nodes": {"a": {"value": None}, "b": {"value": 1}}})
    assert many["result"] == {"a": None, "b": 1}


async def test_output_is_the_expression_that_the_graph_gives(runs: Runs) -> None:
    nodes = {"a": {"value": [1, 2]}, "b": {"value": "x"}}
    done = await runs.complete({"nodes": nodes, "output": {"sum": "${sum(a)}", "text": "${b}-${len(a)}"}})
    assert done["result"] == {"sum": 3, "text": "x-2"}


async def test_an_output_that_cant_be_evaluated_fails_the_run(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"a": {"value": "${input.x}"}}, "output": "${a['missing']}"}, {"x": {}})
    assert failed.code == "invalid_input"
    assert "missing" in failed.message
    assert failed.envelope["error"]["node"] is None


# Bindings and checks that can't be evaluated


async def test_a_binding_that_cant_be_evaluated_is_invalid_input_and_buys_no_retry(runs: Runs) -> None:
    node = count("work", "${1 / input.zero}", on_fail=[{"retry": 3}, {"reroute": {"value": 1}}])
    failed = await runs.fail({"nodes": {"work": node}}, {"zero": 0})
    assert failed.code == "invalid_input"
    assert "1 / input.zero" in failed.message
    (execution,) = await executions(runs, failed.envelope["id"], "work")
    assert len(execution["attempts"]) == 1
    assert not keys(runs, failed.envelope["id"])


@pytest.mark.parametrize(
    "node",
    [
        {"value": "${input.missing.more}"},
        {"value": 1, "when": "input.missing > 1"},
        {"value": "${item}", "over": "${input.missing}"},
        {"value": "${item}", "over": "${input.zero}"},
        {"activity": {"name": "greet", "args": ["${input.missing}"]}},
        {"graph": {"nodes": {"a": {"value": 1}}}, "input": "${input.missing}"},
        {**grows("output.nothing == 1"), "on_fail": [{"retry": 2}]},
    ],
    ids=["binding", "guard", "over", "over no list", "activity", "graph", "until"],
)
async def test_whatever_cant_be_bound_is_invalid_input_at_once(runs: Runs, node: dict[str, Any]) -> None:
    failed = await runs.fail({"nodes": {"work": node}}, {"zero": 0})
    assert failed.code == "invalid_input"
    (execution,) = await executions(runs, failed.envelope["id"], "work")
    assert [attempt["error"]["class"] for attempt in execution["attempts"]] == ["invalid_input"]


async def test_an_error_inside_a_check_is_a_rejection_with_that_error_as_reason(runs: Runs) -> None:
    node = {
        **call("script", replies=[{"n": 0}, {"n": 2}]),
        "accept": [{"expr": "10 / output.n == 5"}],
        "on_fail": [{"retry": 1}],
    }
    done = await runs.complete({"nodes": {"work": node}})
    assert done["result"] == {"n": 2}
    (execution,) = await executions(runs, done["id"], "work")
    error = execution["attempts"][0]["error"]
    assert error["code"] == error["class"] == "rejected"
    assert "division by zero" in error["message"]
    assert "accept[0]" in error["message"]


async def test_a_check_that_is_no_boolean_is_a_rejection(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"work": count("work", 5, accept=[{"expr": "output + 1"}])}})
    assert failed.code == "rejected"
    assert "true or false" in failed.message
