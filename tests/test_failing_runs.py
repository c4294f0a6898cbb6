"""What a failed node stops, starts and leaves alone: stop and continue, handlers, sagas, joins, optional nodes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from nodes import RUN, call, count, executions, failing, failing_late, failing_once_called, keys, slow
from runs import Runs


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
    # Many more than are in flight at once: activities start in no particular order, the failing one perhaps late.
    nodes |= {f"slow{number}": slow(0.3, f"slow{number}") for number in range(400)}
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    statuses = list(failed.envelope["nodes"].values())
    assert statuses.count("cancelled") > 0
    assert statuses.count("succeeded") + statuses.count("cancelled") == 400
    called = {entry["key"] for entry in runs.calls("slow", failed.envelope["id"])}
    assert len(called) == statuses.count("succeeded")
