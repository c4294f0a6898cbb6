"""Restoring: a new run goes on from another one's snapshot, calling nothing that had concluded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle

from graph.values import JSON
from observing import node_status, until
from runs import Runs

KEY = "${input}"
FUNCTION = "functions_for_tests"


def counted(name: str, value: JSON, **more: Any) -> dict[str, Any]:
    """A node that notes its call under ``name`` and gives ``value``."""
    return {"function": f"{FUNCTION}:count", "input": {"run": KEY, "key": name, "value": value}, **more}


def batch(**more: Any) -> dict[str, Any]:
    """source -> batch -> summary; the batch takes a while."""
    return {
        "nodes": {
            "source": counted("source", [30, 10, 20]),
            "batch": {
                "function": f"{FUNCTION}:slow",
                "input": {"run": KEY, "key": "batch", "seconds": 1, "value": "${source}"},
                **more,
            },
            "summary": counted("summary", "${sum(batch)}"),
        }
    }


async def snapshot_of(runs: Runs, run: str) -> dict[str, Any]:
    found: dict[str, Any] = await runs.query(run, "snapshot")
    return found


async def resume(runs: Runs, snapshot: JSON, **more: Any) -> Any:
    """Start a run from a snapshot that went through JSON text."""
    request = {"resume": json.loads(json.dumps(snapshot)), **more}
    return await runs.start_raw(request)


async def interrupted(runs: Runs, key: str) -> dict[str, Any]:
    """The snapshot of a run that was terminated while its batch was in flight."""
    handle = await runs.start(batch(), key)
    await until_called(runs, key, "batch", 1)
    snapshot = await snapshot_of(runs, handle.id)
    await handle.terminate()
    return snapshot


async def until_called(runs: Runs, key: str, name: str, times: int) -> None:
    async def called() -> bool:
        return len([c for c in runs.calls("slow", key) if c["key"] == name and c["event"] == "start"]) >= times

    await until(called)


async def until_waiting(runs: Runs, handle: WorkflowHandle[Any, Any]) -> None:
    async def waiting() -> bool:
        return await node_status(runs, handle) == "waiting"

    await until(waiting)


def calls(runs: Runs, key: str, name: str) -> int:
    return len([call for call in runs.calls("count", key) if call["key"] == name])


async def test_r1_a_run_restored_with_a_batch_in_flight_calls_it_again_in_place_and_its_source_not(runs: Runs) -> None:
    key = "restored-in-flight"
    saved = await interrupted(runs, key)
    handle = await resume(runs, saved)
    assert (await handle.result())["result"] == 60
    await runs.replays(handle)
    assert calls(runs, key, "source") == 1
    assert calls(runs, key, "summary") == 1
    final = await snapshot_of(runs, handle.id)
    assert final["nodes"]["source"] == saved["nodes"]["source"]
    (before,), (after,) = saved["nodes"]["batch"]["executions"], final["nodes"]["batch"]["executions"]
    assert after["id"] == before["id"]
    assert [(a["index"], a["created"]) for a in after["attempts"]] == [(0, before["attempts"][0]["created"])]
    assert final["last_id"] == saved["last_id"] + 1  # the summary's
    assert final == await snapshot_of(runs, handle.id)


async def test_r2_a_run_restored_after_its_failure_fails_the_same_way_each_time_and_calls_nothing(runs: Runs) -> None:
    key = "restored-failure"
    graph = {
        "nodes": {
            "source": counted("source", 1),
            "work": {"function": f"{FUNCTION}:script", "input": {"run": KEY, "replies": [{"fail": "BAD"}]}},
            "after_it": counted("after", "${work}"),
        }
    }
    handle = await runs.start(graph, key)
    first = await runs.failure(handle)
    saved = await snapshot_of(runs, handle.id)
    for _ in range(2):
        again = await resume(runs, saved)
        failed = await runs.failure(again)
        assert (failed.code, failed.message) == (first.code, first.message)
        assert failed.envelope["error"] == first.envelope["error"]
        final = await snapshot_of(runs, again.id)
        assert {**final, "run": None, "started": None} == {**saved, "run": None, "started": None}
    assert len(runs.calls("script", key)) == 1
    assert calls(runs, key, "source") == 1


async def test_a_failed_attempt_stays_and_counts_after_a_restore(runs: Runs) -> None:
    key = "restored-second-attempt"
    node = {
        "function": f"{FUNCTION}:script",
        "input": {"run": KEY, "replies": [{"fail": "FIRST"}, {"fail": "SECOND"}]},
        "on_fail": [{"retry": {"times": 1, "delay": "5s"}}],
    }
    handle = await runs.start({"nodes": {"work": node}}, key)
    await until_waiting(runs, handle)
    saved = await snapshot_of(runs, handle.id)
    await handle.terminate()
    again = await resume(runs, saved)
    failed = await runs.failure(again)
    assert failed.code == "SECOND"
    (execution,) = (await runs.query(again.id, "state"))["nodes"]["work"]["executions"]
    assert execution["id"] == saved["nodes"]["work"]["executions"][0]["id"]
    assert execution["attempts"][0] == saved["nodes"]["work"]["executions"][0]["attempts"][0]
    assert [attempt["error"]["code"] for attempt in execution["attempts"]] == ["FIRST", "SECOND"]
    assert len(runs.calls("script", key)) == 2


async def test_usage_of_attempts_before_and_after_a_restore_adds_up(runs: Runs) -> None:
    node = {
        "infer": {"model": "small", "prompt": "who?"},
        "output_schema": {"type": "object", "properties": {"from": {"const": "big"}}},
        "on_fail": [{"retry": {"times": 1, "delay": "5s"}}],
    }
    handle = await runs.start({"nodes": {"work": node}})
    await until_waiting(runs, handle)
    saved = await snapshot_of(runs, handle.id)
    await handle.terminate()
    again = await resume(runs, saved)
    await runs.failure(again)
    state = await runs.query(again.id, "state")
    one = saved["usage"]["total_tokens"]
    assert one > 0
    assert state["usage"]["total_tokens"] == state["nodes"]["work"]["executions"][0]["usage"]["total_tokens"] == 2 * one


async def test_a_run_is_resumed_by_its_id_and_redrive_runs_what_failed_and_what_depended_on_it(runs: Runs) -> None:
    key = "redriven"
    graph = {
        "on_failure": "continue",
        "nodes": {
            "source": counted("source", 1),
            "work": {
                "function": f"{FUNCTION}:script",
                "input": {"run": KEY, "replies": [{"fail": "BAD"}, 2]},
            },
            "dependent": counted("dependent", "${work + source}"),
            "other": counted("other", 5),
        },
        "output": "${dependent}",
    }
    handle = await runs.start(graph, key)
    assert (await runs.failure(handle)).code == "BAD"
    again = await runs.start_raw({"resume": {"run": handle.id}, "redrive": True})
    assert (await again.result())["result"] == 3
    await runs.replays(again)
    assert [calls(runs, key, name) for name in ("source", "dependent", "other")] == [1, 1, 1]
    executions = (await runs.query(again.id, "state"))["nodes"]["work"]["executions"]
    assert [execution["status"] for execution in executions] == ["failed", "succeeded"]
    assert executions[0]["id"] < executions[1]["id"]


async def test_a_cancelled_run_is_resumed_only_by_a_redrive(runs: Runs) -> None:
    key = "cancelled-then-redriven"
    handle = await runs.start(batch(), key)
    await until_called(runs, key, "batch", 1)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    refused = await runs.failure(await runs.start_raw({"resume": {"run": handle.id}}))
    assert refused.code == "not_resumable"
    again = await runs.start_raw({"resume": {"run": handle.id}, "redrive": True})
    assert (await again.result())["result"] == 60
    assert calls(runs, key, "source") == 1


async def test_r5_a_snapshot_of_a_changed_graph_is_refused_naming_what_changed(runs: Runs) -> None:
    saved = await interrupted(runs, "changed-graph")
    changed = batch()
    changed["nodes"]["summary"]["input"]["value"] = "${max(batch)}"
    changed["nodes"]["more"] = {"value": 1}
    failed = await runs.failure(await resume(runs, saved, graph=changed))
    assert failed.code == "changed_graph"
    assert "node `summary`: input" in failed.message
    assert "node `more` is new" in failed.message
    same = await resume(runs, saved, graph=batch())
    assert (await same.result())["result"] == 60


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nodes": {}}, "bad_snapshot"),
        ({"version": 99}, "bad_snapshot"),
        ({"fingerprint": "sha256:" + "0" * 64}, "bad_snapshot"),
        ({"compiled": {"digest": "sha256:" + "0" * 64, "size": 1}}, "bad_snapshot"),
        ({"usage": {"tokens": "many"}}, "bad_snapshot"),
    ],
)
async def test_what_is_no_snapshot_is_refused(runs: Runs, change: dict[str, Any], code: str) -> None:
    handle = await runs.start({"nodes": {"a": {"value": 1}}})
    await handle.result()
    saved = await snapshot_of(runs, handle.id)
    failed = await runs.failure(await resume(runs, {**saved, **change}))
    assert failed.code == code


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"resume": {"run": "no-such-run"}}, "unknown_run"),
        ({"resume": {"rum": "x"}}, "bad_snapshot"),
        ({"resume": "x"}, "bad_request"),
        ({"resume": {"run": "x"}, "redrive": "yes"}, "bad_request"),
        ({"graph": {"nodes": {"a": {"value": 1}}}, "redrive": True}, "bad_request"),
    ],
)
async def test_a_wrong_resume_is_refused(runs: Runs, request_: JSON, code: str) -> None:
    failed = await runs.failure(await runs.start_raw(request_))
    assert failed.code == code


async def test_a_run_that_still_runs_is_not_resumed(runs: Runs) -> None:
    key = "still-running"
    handle = await runs.start(batch(), key)
    await until_called(runs, key, "batch", 1)
    failed = await runs.failure(await runs.start_raw({"resume": {"run": handle.id}}))
    assert failed.code == "still_running"
    await handle.result()


async def test_a_large_snapshot_comes_in_pages_and_is_resumed_whole(runs: Runs) -> None:
    key = "large-snapshot"
    nodes: dict[str, Any] = {f"n{i}": {"value": f"${{'x' * 14000}}{i}"} for i in range(80)}
    nodes["wait_for_it"] = {
        "function": f"{FUNCTION}:slow",
        "input": {"run": KEY, "key": "batch", "seconds": 2, "value": 1},
        "after": list(nodes),
    }
    nodes["last"] = {"value": "${n79[-2:] + n7[-2:]}", "after": ["wait_for_it"]}
    handle = await runs.start({"nodes": nodes, "output": "${last}"}, key)
    await until_called(runs, key, "batch", 1)
    first = await snapshot_of(runs, handle.id)
    assert first["pages"] > 1
    await handle.terminate()
    again = await runs.start_raw({"resume": {"run": handle.id}})
    assert (await again.result())["result"] == "79x7"
    history = await runs.replays(again)
    assert len([e for e in history.events if e.HasField("activity_task_scheduled_event_attributes")]) < 20


async def test_a_child_run_in_flight_goes_on_from_its_own_snapshot(runs: Runs) -> None:
    key = "child-in-flight"
    child = {**batch(), "output": "${summary}"}
    handle = await runs.start({"nodes": {"below": {"graph": child, "input": KEY}}}, key)
    await until_called(runs, key, "batch", 1)
    saved = await snapshot_of(runs, handle.id)
    await handle.terminate()
    again = await resume(runs, saved)
    assert (await again.result())["result"] == 60
    await runs.replays(again)
    assert calls(runs, key, "source") == 1
    assert calls(runs, key, "summary") == 1
