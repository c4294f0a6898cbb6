"""`wait` nodes: for a time, until a time, for a reply. Replies by signal and by update; each is taken once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from graph.values import JSON
from nodes import count, failing, failing_once_called, keys, slow
from observing import attempts, node_status, timers, until
from runs import Runs

YES = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}
ASK: dict[str, Any] = {"wait": {"reply": YES}}


async def waiting(runs: Runs, handle: WorkflowHandle[Any, Any], *nodes: str) -> None:
    """Until these nodes wait for a reply."""

    async def all_wait() -> bool:
        progress = await runs.query(handle.id, "progress")
        return {entry["node"] for entry in progress.get("waiting", []) if entry["for"] == "reply"} >= set(nodes)

    await until(all_wait)


async def update(handle: WorkflowHandle[Any, Any], data: JSON) -> Any:
    return await handle.execute_update("reply", data)


async def refusal(handle: WorkflowHandle[Any, Any], data: JSON) -> ApplicationError:
    """How an update is refused."""
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await update(handle, data)
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause


async def ended(runs: Runs, handle: WorkflowHandle[Any, Any]) -> Any:
    """The run's result, once it completed and was replayed."""
    envelope = await handle.result()
    await runs.replays(handle)
    return envelope["result"]


async def test_a_wait_for_a_time_takes_that_long_and_yields_null(runs: Runs) -> None:
    graph = {
        "nodes": {"pause": {"wait": {"for": "200ms"}}, "work": count("work", after=["pause"])},
        "output": "${pause}",
    }
    envelope = await runs.complete(graph)
    assert envelope["result"] is None
    assert keys(runs, envelope["id"]) == ["work"]
    assert timers(await runs.client.get_workflow_handle(envelope["id"]).fetch_history()) == [200]


async def test_how_long_may_be_computed(runs: Runs) -> None:
    graph = {"nodes": {"pause": {"wait": {"for": "${input.long}"}}}}
    envelope = await runs.complete(graph, {"long": "150ms"})
    assert timers(await runs.client.get_workflow_handle(envelope["id"]).fetch_history()) == [150]


@pytest.mark.parametrize("long", ["5 minutes", 5, None, "400d", {"a": 1}])
async def test_a_duration_that_is_none_is_invalid_input(runs: Runs, long: JSON) -> None:
    graph = {"nodes": {"pause": {"wait": {"for": "${input.long}"}, "on_fail": [{"retry": 2}, "escalate"]}}}
    failed = await runs.fail(graph, {"long": long})
    assert failed.code == "invalid_input"
    assert "`for`" in failed.message
    assert len(await attempts(runs, failed.envelope["id"], "pause")) == 1


async def test_until_a_time(runs: Runs) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=1)
    envelope = await runs.complete({"nodes": {"pause": {"wait": {"until": "${input.at}"}}}}, {"at": moment.isoformat()})
    [attempt] = await attempts(runs, envelope["id"], "pause")
    assert attempt["finished"] >= round(moment.timestamp() * 1000)


async def test_a_time_that_has_passed_is_no_mistake(runs: Runs) -> None:
    await runs.complete({"nodes": {"pause": {"wait": {"until": "2020-01-31T08:00:00Z"}}}})


@pytest.mark.parametrize("at", ["tomorrow", "2030-01-31T08:00:00", 7, None])
async def test_a_time_that_is_none_is_invalid_input(runs: Runs, at: JSON) -> None:
    failed = await runs.fail({"nodes": {"pause": {"wait": {"until": "${input.at}"}}}}, {"at": at})
    assert failed.code == "invalid_input"
    assert "`until`" in failed.message


async def test_a_wait_that_takes_longer_than_its_timeout_climbs_its_ladder(runs: Runs) -> None:
    pause = {"wait": {"for": "1h"}, "timeout": "500ms", "on_fail": [{"reroute": {"value": "gave up"}}]}
    envelope = await runs.complete({"nodes": {"pause": pause}})
    assert envelope["result"] == "gave up"
    first, second = await attempts(runs, envelope["id"], "pause")
    assert (first["error"]["class"], second["implementation"]) == ("timeout", "value")


@pytest.mark.parametrize("way", ["signal", "update"])
async def test_a_reply_is_the_nodes_output(runs: Runs, way: str) -> None:
    graph = {"nodes": {"ask": ASK, "work": count("work", "${ask.ok}")}}
    handle = await runs.start(graph)
    await waiting(runs, handle, "ask")
    reply = {"node": "ask", "value": {"ok": True}}
    if way == "signal":
        await handle.signal("reply", reply)
    else:
        assert await update(handle, reply) == {"node": "ask", "status": "taken"}
    assert await ended(runs, handle) is True
    [attempt] = await attempts(runs, handle.id, "ask")
    assert attempt["status"] == "succeeded"
    assert attempt["output"].startswith("sha256:")


async def test_progress_says_what_a_run_waits_for(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"ask": {**ASK, "timeout": "1h"}, "pause": {"wait": {"for": "1h"}}}})
    await waiting(runs, handle, "ask")

    async def both() -> Any:
        found = (await runs.query(handle.id, "progress"))["waiting"]
        return found if len(found) == 2 else None

    assert [(entry["node"], entry["for"]) for entry in await until(both)] == [("ask", "reply"), ("pause", "time")]
    assert "- waiting: `ask` for a reply, `pause` for a time" in (await runs.query(handle.id, "progress"))["markdown"]
    await handle.terminate()


async def test_a_reply_that_fails_the_schema_is_refused_and_the_node_waits_on(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"ask": ASK}})
    await waiting(runs, handle, "ask")
    error = await refusal(handle, {"node": "ask", "value": {"ok": "yes"}})
    assert error.type == "refused"
    assert "$.ok" in error.message
    await handle.signal("reply", {"node": "ask", "value": 7})
    await waiting(runs, handle, "ask")
    assert await update(handle, {"node": "ask", "value": {"ok": False}}) == {"node": "ask", "status": "taken"}
    assert await ended(runs, handle) == {"ok": False}
    assert len(await attempts(runs, handle.id, "ask")) == 1
    assert (await runs.query(handle.id, "progress"))["ignored"] == {"reply": 1}


async def test_a_reply_must_pass_accept_too(runs: Runs) -> None:
    ask = {**ASK, "accept": [{"expr": "output.ok or early"}]}
    handle = await runs.start({"nodes": {"early": {"value": False}, "ask": ask}, "output": "${ask}"})
    await waiting(runs, handle, "ask")
    error = await refusal(handle, {"node": "ask", "value": {"ok": False}})
    assert "accept[0]" in error.message
    await update(handle, {"node": "ask", "value": {"ok": True}})
    assert await ended(runs, handle) == {"ok": True}


async def test_an_early_reply_is_kept(runs: Runs) -> None:
    graph = {"nodes": {"pause": {"wait": {"for": "1s"}}, "ask": {**ASK, "after": ["pause"]}}, "output": "${ask}"}
    handle = await runs.start(graph)
    await handle.signal("reply", {"node": "ask", "value": {"ok": True}})  # perhaps before the graph is loaded
    assert await ended(runs, handle) == {"ok": True}


async def test_an_early_update_says_that_the_reply_is_kept_and_a_second_one_is_refused(runs: Runs) -> None:
    graph = {"nodes": {"pause": {"wait": {"for": "1s"}}, "ask": {**ASK, "after": ["pause"]}}, "output": "${ask}"}
    handle = await runs.start(graph)
    assert await update(handle, {"node": "ask", "value": {"ok": True}}) == {"node": "ask", "status": "kept"}
    assert (await refusal(handle, {"node": "ask", "value": {"ok": False}})).type == "not_waiting"
    assert await ended(runs, handle) == {"ok": True}


async def test_an_early_reply_that_fails_the_schema_is_refused_at_once(runs: Runs) -> None:
    graph = {"nodes": {"pause": {"wait": {"for": "1s"}}, "ask": {**ASK, "after": ["pause"]}}, "output": "${ask}"}
    handle = await runs.start(graph)
    assert (await refusal(handle, {"node": "ask", "value": 7})).type == "refused"
    await update(handle, {"node": "ask", "value": {"ok": True}})
    assert await ended(runs, handle) == {"ok": True}


async def test_an_early_reply_that_other_checks_refuse_leaves_the_node_waiting(runs: Runs) -> None:
    ask = {**ASK, "after": ["pause"], "accept": [{"expr": "output.ok == expected"}]}
    nodes = {"pause": {"wait": {"for": "500ms"}}, "expected": {"value": True, "after": ["pause"]}, "ask": ask}
    handle = await runs.start({"nodes": nodes, "output": "${ask}"})
    assert (await update(handle, {"node": "ask", "value": {"ok": False}}))["status"] == "kept"
    await waiting(runs, handle, "ask")
    progress = await runs.query(handle.id, "progress")
    assert progress["ignored"] == {"reply": 1}
    assert "accept[0]" in progress["last_ignored"][0]["reason"]
    await update(handle, {"node": "ask", "value": {"ok": True}})
    assert await ended(runs, handle) == {"ok": True}


async def test_q4_one_reply_is_never_taken_by_two_waiting_nodes(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"one": ASK, "two": ASK}})
    await waiting(runs, handle, "one", "two")
    await handle.signal("reply", {"node": "one", "value": {"ok": True}})
    await until(lambda: node_is(runs, handle, "one", "succeeded"))
    assert await node_status(runs, handle, "two") == "waiting"
    assert (await refusal(handle, {"node": "one", "value": {"ok": True}})).type == "not_waiting"
    await update(handle, {"node": "two", "value": {"ok": False}})
    assert await ended(runs, handle) == {"one": {"ok": True}, "two": {"ok": False}}


async def node_is(runs: Runs, handle: WorkflowHandle[Any, Any], node: str, status: str) -> bool:
    return await node_status(runs, handle, node) == status


async def test_q4_an_ambiguous_reply_is_refused(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"one": ASK, "two": ASK}})
    await waiting(runs, handle, "one", "two")
    error = await refusal(handle, {"value": {"ok": True}})
    assert error.type == "ambiguous"
    assert "`one` or `two`" in error.message
    await handle.signal("reply", {"value": {"ok": True}})
    await update(handle, {"node": "one", "value": {"ok": True}})
    # Now only one node waits, and a reply without a name can only be meant for that.
    assert await update(handle, {"value": {"ok": False}}) == {"node": "two", "status": "taken"}
    assert await ended(runs, handle) == {"one": {"ok": True}, "two": {"ok": False}}
    assert (await runs.query(handle.id, "progress"))["ignored"] == {"reply": 1}


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (None, "bad_request"),
        ([], "bad_request"),
        ({"node": "ask"}, "bad_request"),
        ({"node": "ask", "value": {"ok": True}, "by": "me"}, "bad_request"),
        ({"node": "asck", "value": {"ok": True}}, "unknown_node"),
        ({"node": 7, "value": {"ok": True}}, "unknown_node"),
        ({"node": "work", "value": {"ok": True}}, "not_waiting"),
        ({"node": "ask", "value": "x" * 300_000}, "too_large"),
    ],
)
async def test_q5_a_malformed_reply_changes_nothing(runs: Runs, reply: JSON, code: str) -> None:
    handle = await runs.start({"nodes": {"ask": ASK, "work": {"value": 1}}, "output": "${ask}"})
    await waiting(runs, handle, "ask")
    assert (await refusal(handle, reply)).type == code
    await handle.signal("reply", reply)
    await handle.signal("reply", args=[1, 2])
    await handle.signal("repli", reply)
    await waiting(runs, handle, "ask")
    await update(handle, {"node": "ask", "value": {"ok": True}})
    assert await ended(runs, handle) == {"ok": True}
    progress = await runs.query(handle.id, "progress")
    assert progress["ignored"] == {"reply": 2, "unknown": 1}
    assert any("`reply`" in told["reason"] for told in progress["last_ignored"])


async def test_many_replies_at_once_are_taken_in_order_and_once(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"ask": ASK}})
    await waiting(runs, handle, "ask")
    for number in range(50):
        value: JSON = {"ok": True, "number": number} if number >= 20 else {"ok": number}
        await handle.signal("reply", {"node": "ask", "value": value})
    assert await ended(runs, handle) == {"ok": True, "number": 20}


async def test_a_large_reply_lies_in_the_store(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"ask": {"wait": {"reply": {"type": "string"}}}}, "output": "${len(ask)}"})
    await waiting(runs, handle, "ask")
    await update(handle, {"node": "ask", "value": "x" * 100_000})
    assert await ended(runs, handle) == 100_000
    assert "ref" in await runs.query(handle.id, "output", "ask")


async def test_a_reply_that_does_not_come_climbs_the_ladder(runs: Runs) -> None:
    ask = {**ASK, "timeout": "300ms", "on_fail": [{"retry": 1}, {"reroute": {"value": {"ok": False}}}]}
    envelope = await runs.complete({"nodes": {"ask": ask}})
    assert envelope["result"] == {"ok": False}
    found = await attempts(runs, envelope["id"], "ask")
    assert [attempt["implementation"] for attempt in found] == ["wait:reply", "wait:reply", "value"]
    assert found[0]["error"]["code"] == "timeout"
    assert "no reply came" in found[0]["error"]["message"]


async def test_a_second_wait_of_the_ladder_takes_a_reply(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"ask": {**ASK, "timeout": "1s", "on_fail": [{"retry": 1000}]}}})

    async def second() -> bool:
        return len(await attempts(runs, handle.id, "ask")) > 1 if await node_status(runs, handle, "ask") else False

    await until(second)
    await handle.signal("reply", {"node": "ask", "value": {"ok": True}})
    assert await ended(runs, handle) == {"ok": True}


async def test_a_deadline_ends_a_wait(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"ask": {**ASK, "deadline": "300ms"}}})
    assert failed.code == "timeout"
    assert "deadline" in failed.message


async def test_a_failing_run_breaks_off_what_waits(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"ask": ASK, "pause": {"wait": {"for": "1h"}}, "bad": failing()}})
    assert failed.code == "BAD"
    assert {failed.envelope["nodes"][name] for name in ("ask", "pause")} <= {"cancelled", "idle"}


async def test_a_false_guard_skips_a_wait(runs: Runs) -> None:
    envelope = await runs.complete({"nodes": {"ask": {**ASK, "when": "1 > 2"}}})
    assert envelope["nodes"] == {"ask": "skipped"}


async def test_cancelling_ends_a_run_that_waits(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"ask": ASK, "pause": {"wait": {"for": "1h"}}}})
    await waiting(runs, handle, "ask")
    await handle.cancel()

    async def cancelled() -> bool:
        return (await handle.describe()).status == WorkflowExecutionStatus.CANCELED

    await until(cancelled)
    await runs.replays(handle)
    assert (await runs.query(handle.id, "state"))["nodes"]["ask"]["status"] == "cancelled"


async def test_a_reply_to_a_node_of_a_child_run_is_sent_to_that_run(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"sub": {"graph": {"nodes": {"ask": ASK}}}}})
    child = runs.client.get_workflow_handle(f"{handle.id}/sub/1.0")

    async def started() -> bool:
        try:
            await waiting(runs, child, "ask")
        except Exception as error:  # until the child is started
            if "not found" not in str(error).lower():
                raise
            return False
        return True

    await until(started)
    await child.signal("reply", {"node": "ask", "value": {"ok": True}})
    assert await ended(runs, handle) == {"ok": True}


async def test_a_restored_run_waits_until_the_same_moment_and_keeps_its_early_replies(runs: Runs) -> None:
    nodes = {"pause": {"wait": {"for": "3s"}}, "ask": {**ASK, "after": ["pause"]}}
    first = await runs.start({"nodes": nodes, "output": "${ask}"})
    await update(first, {"node": "ask", "value": {"ok": True}})

    async def paused() -> Any:
        found = (await runs.query(first.id, "progress")).get("waiting")
        return found and found[0]["until"]

    over = await until(paused)
    snapshot = await runs.query(first.id, "snapshot")
    await first.terminate()
    second = await runs.start_raw({"resume": snapshot})
    assert await ended(runs, second) == {"ok": True}
    [attempt] = await attempts(runs, second.id, "pause")
    assert attempt["finished"] >= over
    assert attempt["created"] < over - 2900


async def test_a_reply_and_the_runs_failure_at_once(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"ask": ASK, "bad": failing_once_called("count"), "work": count("work")}})
    await asyncio.gather(*(handle.signal("reply", {"node": "ask", "value": {"ok": True}}) for _ in range(20)))
    failed = await runs.failure(handle)
    assert failed.code == "BAD"


async def test_a_reply_that_is_being_checked_while_its_node_begins_to_wait_must_pass_all_checks(runs: Runs) -> None:
    """Replies come about when their nodes begin to wait: whichever is first, `accept` is never passed over."""
    nodes: dict[str, Any] = {}
    for number in range(10):
        nodes[f"before{number}"] = slow(0.4 + number * 0.01, key=f"before{number}")
        nodes[f"ask{number}"] = {
            "wait": {"reply": {"type": "string"}},
            "accept": [{"expr": "output == 'yes'"}],
            "after": [f"before{number}"],
        }
    asks = [name for name in nodes if name.startswith("ask")]
    graph = {"nodes": nodes, "output": "${[" + ", ".join(asks) + "]}"}
    handle = await runs.start(graph)

    async def begun() -> bool:
        return len(runs.calls("slow", handle.id)) >= 8

    await until(begun)
    await asyncio.sleep(0.35)
    for name in asks:
        await handle.signal("reply", {"node": name, "value": "no"})
    await waiting(runs, handle, *asks)
    for name in asks:
        await update(handle, {"node": name, "value": "yes"})
    assert await ended(runs, handle) == ["yes"] * len(asks)
