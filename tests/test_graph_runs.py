"""Whole graphs on a real server: fan-in, loops, guards, outputs, and what a failure stops, starts and leaves alone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from graph.values import JSON
from runs import Runs

RUN = "${run.id}"


def call(function: str, /, **input: JSON) -> dict[str, Any]:
    """A function node that notes its run."""
    return {"function": f"functions_for_tests:{function}", "input": {"run": RUN, **input}}


def count(key: str, value: JSON = None, **more: JSON) -> dict[str, Any]:
    """A node that notes its call under ``key`` and gives ``value``."""
    return {**call("count", key=key, value=value), **more}


def failing(code: str = "BAD", key: str = "failing", **more: JSON) -> dict[str, Any]:
    """A node that fails with ``code``."""
    return {**call("script", key=key, replies=[{"fail": code}]), **more}


def slow(seconds: float, key: str = "slow", value: JSON = "slow", **more: JSON) -> dict[str, Any]:
    """A node that takes ``seconds``."""
    return {**call("slow", seconds=seconds, key=key, value=value), **more}


def failing_late(seconds: float, code: str, key: str = "late", **more: JSON) -> dict[str, Any]:
    """A node that fails with ``code`` after ``seconds``."""
    return {**call("slow_failure", seconds=seconds, code=code, key=key), **more}


def failing_once_called(name: str, seconds: float = 0) -> dict[str, Any]:
    """A node that fails with `BAD`, ``seconds`` after the function ``name`` was called."""
    return call("fail_once_called", name=name, code="BAD", seconds=seconds)


def keys(runs: Runs, run: str, name: str = "count") -> list[str]:
    """The keys of a run's calls, in order."""
    return [entry["key"] for entry in runs.calls(name, run)]


async def executions(runs: Runs, run: str, node: str) -> list[dict[str, Any]]:
    """A node's executions as the run tells."""
    state = await runs.query(run, "state")
    found: list[dict[str, Any]] = state["nodes"][node]["executions"]
    return found


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


async def test_a_loop_that_never_reaches_its_condition_fails_at_max(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"loop": grows("output.value == 9")}})
    assert failed.code == "loop_exhausted"
    assert "5 rounds" in failed.message
    assert "output.value == 9" in failed.message
    assert len(runs.calls("grow", failed.envelope["id"])) == 5


def grows(until: str, **more: JSON) -> dict[str, Any]:
    """A loop whose output, and so its next input, is one larger in each round."""
    repeat = {"until": until, "max_rounds": 5}
    return {**call("grow", value=0), "repeat": repeat, **more}


async def test_a_loop_that_is_done_at_once_runs_once(runs: Runs) -> None:
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


# Failures


async def test_when_a_node_fails_nothing_new_starts_and_what_is_in_flight_finishes_and_counts(runs: Runs) -> None:
    nodes = {
        "asked": {"infer": {"model": "unhurried", "prompt": f"who, {RUN}?"}},
        "running": slow(1.5),
        "bad": failing("BAD"),
        "after_bad": count("after_bad", "${bad}"),
        "after_running": count("after_running", "${running}"),
        "after_asked": count("after_asked", after={"asked": "any"}),
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    assert failed.envelope["failed"] == ["bad"]
    assert failed.envelope["nodes"] == {
        "asked": "succeeded",
        "running": "succeeded",
        "bad": "failed",
        "after_bad": "idle",
        "after_running": "idle",
        "after_asked": "idle",
    }
    id = failed.envelope["id"]
    assert [entry["event"] for entry in runs.calls("slow", id)] == ["start", "end"]
    assert not keys(runs, id)
    assert failed.envelope["usage"] == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    assert await runs.query(id, "output", "running") == {"node": "running", "value": "slow"}
    state = await runs.query(id, "state")
    assert state["nodes"]["after_running"]["reason"] == "the run was already failing"


async def test_when_a_node_fails_the_ladders_of_others_stop(runs: Runs) -> None:
    nodes = {
        "bad": failing("BAD"),
        "late": failing_late(1.5, "LATE", on_fail=[{"retry": 5}, {"reroute": {"value": 1}}]),
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    assert failed.envelope["failed"] == ["bad", "late"]
    assert len(runs.calls("slow_failure", failed.envelope["id"])) == 1


async def test_of_several_failures_the_first_in_history_is_the_runs_and_the_rest_are_listed(runs: Runs) -> None:
    nodes = {
        "last": failing_late(3, "LAST", "last"),
        "next": failing_late(1.5, "NEXT", "next"),
        "soonest": failing("SOONEST"),
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "SOONEST"
    assert "`soonest`" in failed.message
    assert failed.envelope["error"]["node"] == "soonest"
    assert failed.envelope["failed"] == ["soonest", "next", "last"]
    assert failed.envelope["failures"] == 3


async def test_what_waits_for_a_failure_runs_and_sees_null(runs: Runs) -> None:
    nodes = {
        "bad": failing("BAD"),
        "caught": count("caught", {"was": "${bad}"}, after={"bad": "failed"}),
        "after_caught": count("after_caught", "${caught.was}"),
        "cleanup": count("cleanup", after={"bad": "any"}),
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    assert failed.envelope["nodes"] == {
        "bad": "failed",
        "caught": "succeeded",
        "after_caught": "succeeded",
        "cleanup": "succeeded",
    }
    assert sorted(keys(runs, failed.envelope["id"])) == ["after_caught", "caught", "cleanup"]
    assert await runs.query(failed.envelope["id"], "output", "caught") == {"node": "caught", "value": {"was": None}}


async def test_what_waits_for_a_failure_is_skipped_when_there_is_none(runs: Runs) -> None:
    nodes = {
        "good": count("good"),
        "caught": count("caught", after={"good": "failed"}),
        "cleanup": count("cleanup", after={"good": "any"}),
    }
    done = await runs.complete({"nodes": nodes})
    assert done["nodes"] == {"good": "succeeded", "caught": "skipped", "cleanup": "succeeded"}
    assert keys(runs, done["id"]) == ["good", "cleanup"]


async def test_what_waits_for_the_failure_of_a_node_that_never_ran_never_starts(runs: Runs) -> None:
    nodes = {
        "bad": failing("BAD"),
        "unreached": count("unreached", "${bad}"),
        "caught": count("caught", after={"unreached": "failed"}),
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.envelope["nodes"] == {"bad": "failed", "unreached": "idle", "caught": "idle"}
    assert not keys(runs, failed.envelope["id"])


async def test_a_handler_has_its_own_ladder_and_may_fail_too(runs: Runs) -> None:
    nodes = {
        "bad": failing("BAD"),
        "mended": {
            **call("script", key="mended", replies=[{"fail": "ONCE"}, "mended"]),
            "after": {"bad": "failed"},
            "on_fail": [{"retry": 1}],
        },
        "worse": {**failing("WORSE", "worse"), "after": {"mended": "any"}},
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    assert failed.envelope["failed"] == ["bad", "worse"]
    assert failed.envelope["nodes"]["mended"] == "succeeded"
    assert keys(runs, failed.envelope["id"], "script").count("mended") == 2


async def test_on_failure_continue_lets_independent_branches_finish_first(runs: Runs) -> None:
    nodes = {
        "bad": failing("BAD"),
        "after_bad": count("after_bad", "${bad}"),
        "running": slow(1),
        "after_running": count("after_running", "${running}"),
        "stubborn": {**call("script", key="s", replies=[{"fail": "X"}, "ok"]), "after": ["running"]},
        "late": failing_late(1, "LATE"),
    }
    nodes["stubborn"]["on_fail"] = [{"retry": 1}]
    failed = await runs.fail({"nodes": nodes, "on_failure": "continue"})
    assert failed.code == "BAD"
    assert failed.envelope["failed"] == ["bad", "late"]
    assert failed.envelope["nodes"] == {
        "bad": "failed",
        "after_bad": "idle",
        "running": "succeeded",
        "after_running": "succeeded",
        "stubborn": "succeeded",
        "late": "failed",
    }


async def test_an_optional_nodes_failure_does_not_fail_the_run(runs: Runs) -> None:
    nodes = {
        "nice": failing("NICE", optional=True),
        "after_nice": count("after_nice", "${nice}"),
        "caught": count("caught", after={"nice": "failed"}),
        "anyway": count("anyway", "${nice}", after={"nice": "any"}),
        "other": count("other", "here"),
    }
    done = await runs.complete({"nodes": nodes, "output": "${other}"})
    assert done["result"] == "here"
    assert done["failures"] == 1
    assert done["nodes"] == {
        "nice": "failed",
        "after_nice": "skipped",
        "caught": "succeeded",
        "anyway": "succeeded",
        "other": "succeeded",
    }
    assert await runs.query(done["id"], "output", "anyway") == {"node": "anyway", "value": None}


async def test_a_saga_undoes_what_was_done_in_reverse_order(runs: Runs) -> None:
    nodes = {
        "flight": count("flight", "flight 1"),
        "hotel": count("hotel", "room 2", after=["flight"]),
        "payment": {**failing("CARD_DECLINED"), "after": ["hotel"]},
        "confirm": count("confirm", after=["payment"]),
        "undo_hotel": count("undo_hotel", "${hotel}", after={"payment": "failed"}),
        "undo_flight": count("undo_flight", "${flight}", after={"undo_hotel": "any"}),
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "CARD_DECLINED"
    assert keys(runs, failed.envelope["id"]) == ["flight", "hotel", "undo_hotel", "undo_flight"]
    assert await runs.query(failed.envelope["id"], "output", "undo_flight") == {
        "node": "undo_flight",
        "value": "flight 1",
    }


async def test_a_saga_that_goes_well_undoes_nothing(runs: Runs) -> None:
    nodes = {
        "flight": count("flight"),
        "payment": count("payment", after=["flight"]),
        "undo_flight": count("undo_flight", "${flight}", after={"payment": "failed"}),
    }
    done = await runs.complete({"nodes": nodes})
    assert keys(runs, done["id"]) == ["flight", "payment"]
    assert done["nodes"]["undo_flight"] == "skipped"


@pytest.mark.parametrize("way", ["left", "right"])
async def test_a_join_after_exclusive_branches_gets_the_one_that_ran(runs: Runs, way: str) -> None:
    nodes = {
        "left": count("left", "from left", when="input.way == 'left'"),
        "right": count("right", "from right", when="input.way == 'right'"),
        "join": {"value": "${left or right}", "after": {"left": "any", "right": "any"}},
    }
    done = await runs.complete({"nodes": nodes}, {"way": way})
    assert done["result"] == f"from {way}"
    assert keys(runs, done["id"]) == [way]


async def test_a_failing_run_does_not_wait_for_a_retrys_delay(runs: Runs) -> None:
    nodes = {
        "waiting": failing("FLAKY", "waiting", on_fail=[{"retry": {"times": 3, "delay": "10m"}}]),
        "bad": failing_once_called("script", 1.5),
    }
    started = time.monotonic()
    failed = await runs.fail({"nodes": nodes})
    assert time.monotonic() - started < 30
    assert failed.code == "BAD"
    assert failed.envelope["nodes"] == {"waiting": "cancelled", "bad": "failed"}
    assert failed.envelope["failed"] == ["bad"]
    (execution,) = await executions(runs, failed.envelope["id"], "waiting")
    assert [attempt["status"] for attempt in execution["attempts"]] == ["failed"]
    assert execution["error"] is None


async def test_a_failing_run_ends_its_child_runs(runs: Runs) -> None:
    child = {"nodes": {"inner": {**slow(60), "input": {"run": "${input.run}", "seconds": 60}}}}
    nodes = {
        "below": {"graph": child, "input": {"run": RUN}},
        "bad": failing_once_called("slow"),
    }
    started = time.monotonic()
    failed = await runs.fail({"nodes": nodes})
    assert time.monotonic() - started < 30
    assert failed.code == "BAD"
    assert failed.envelope["nodes"] == {"below": "cancelled", "bad": "failed"}
    (execution,) = await executions(runs, failed.envelope["id"], "below")
    below = runs.client.get_workflow_handle(f"{failed.envelope['id']}/below/{execution['id']}.0")
    assert (await below.describe()).status == WorkflowExecutionStatus.CANCELED


async def test_a_handlers_retry_delay_and_child_run_outlive_the_failure(runs: Runs) -> None:
    child = {"nodes": {"inner": {**count("inner"), "input": {"run": "${input.run}", "key": "inner"}}}}
    nodes = {
        "bad": failing("BAD"),
        "undo": {"graph": child, "input": {"run": RUN}, "after": {"bad": "failed"}},
        "patient": {
            **call("script", key="patient", replies=[{"fail": "ONCE"}, "done"]),
            "after": {"bad": "any"},
            "on_fail": [{"retry": {"times": 1, "delay": "1s"}}],
        },
        # Fails while the handlers are at work.
        "late": failing_late(1, "LATE"),
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    assert failed.envelope["failed"] == ["bad", "late"]
    assert failed.envelope["nodes"]["undo"] == failed.envelope["nodes"]["patient"] == "succeeded"
    assert keys(runs, failed.envelope["id"]) == ["inner"]


async def test_a_run_shows_its_state_while_nodes_run(runs: Runs) -> None:
    nodes = {
        "fast": count("fast", 1),
        "running": slow(3, after=["fast"]),
        "later": count("later", "${running}"),
    }
    handle = await runs.start({"nodes": nodes})
    async with asyncio.timeout(20):
        while not runs.calls("slow", handle.id):
            await asyncio.sleep(0.05)
    state = await runs.query(handle.id, "state")
    assert {name: node["status"] for name, node in state["nodes"].items()} == {
        "fast": "succeeded",
        "running": "active",
        "later": "idle",
    }
    (execution,) = state["nodes"]["running"]["executions"]
    assert [attempt["status"] for attempt in execution["attempts"]] == ["running"]
    progress = await runs.query(handle.id, "progress")
    assert progress["running"] == ["running"]
    assert (await handle.result())["result"] == "slow"
    await runs.replays(handle)


async def test_more_nodes_than_may_be_in_flight_all_run(runs: Runs) -> None:
    nodes: dict[str, Any] = {f"n{number}": {"value": number} for number in range(130)}
    nodes["total"] = {"value": "${sum([" + ", ".join(nodes) + "])}"}
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == sum(range(130))


async def test_nodes_in_line_for_their_turn_never_start_once_the_run_fails(runs: Runs) -> None:
    nodes: dict[str, Any] = {"bad": failing("BAD")}
    nodes |= {f"slow{number}": slow(1.5, f"slow{number}") for number in range(105)}
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    statuses = list(failed.envelope["nodes"].values())
    assert statuses.count("cancelled") > 0
    assert statuses.count("succeeded") + statuses.count("cancelled") == 105
    called = {entry["key"] for entry in runs.calls("slow", failed.envelope["id"])}
    assert len(called) == statuses.count("succeeded")


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
