"""Batches inside one node: source -> batch -> summary, where the batch is an ordinary function with a cache of its own.

Tasks are 30, 10 and 20, results tenfold; task 20 fails once with code `TIMEOUT`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest

from graph.values import JSON
from runs import Failed, Runs

TASKS = [30, 10, 20]


def batches(retries: int) -> dict[str, Any]:
    """source -> batch -> summary, with so many retries on the batch."""
    batch: dict[str, JSON] = {
        "function": "functions_for_tests:batch",
        "input": {"run": "${run.id}", "tasks": "${source}"},
    }
    if retries:
        batch["on_fail"] = [{"retry": retries}]
    return {
        "nodes": {
            "source": {
                "function": "functions_for_tests:batch_source",
                "input": {"run": "${run.id}", "tasks": "${input.tasks}"},
            },
            "batch": batch,
            "summary": {
                "function": "functions_for_tests:batch_summary",
                "input": {"run": "${run.id}", "results": "${batch}"},
            },
        }
    }


@pytest.fixture(scope="module")
async def accepted(runs: Runs) -> dict[str, Any]:
    """A run with one retry: its envelope, with its state added."""
    done = await runs.complete(batches(retries=1), {"tasks": TASKS})
    return {**done, "state": await runs.query(done["id"], "state")}


@pytest.fixture(scope="module")
async def failed(runs: Runs) -> Failed:
    """A run without retries: its failure, with its state in the envelope."""
    failed = await runs.fail(batches(retries=0), {"tasks": TASKS})
    failed.envelope["state"] = await runs.query(failed.envelope["id"], "state")
    return failed


def payloads(part: JSON) -> Iterator[str]:
    """The texts of all payloads in a part of a history's JSON."""
    if isinstance(part, dict):
        if isinstance(part.get("data"), str) and "metadata" in part:
            yield base64.b64decode(part["data"]).decode()
        for value in part.values():
            yield from payloads(value)
    elif isinstance(part, list):
        for value in part:
            yield from payloads(value)


def executions(state: dict[str, Any], node: str) -> list[dict[str, Any]]:
    """A node's executions."""
    found: list[dict[str, Any]] = state["nodes"][node]["executions"]
    return found


async def test_one_batch_execution_comes_from_the_sources_execution(accepted: dict[str, Any]) -> None:
    (source,) = executions(accepted["state"], "source")
    (batch,) = executions(accepted["state"], "batch")
    assert batch["from"] == [{"node": "source", "execution": source["id"]}]
    (summary,) = executions(accepted["state"], "summary")
    assert summary["from"] == [{"node": "batch", "execution": batch["id"]}]
    assert source["from"] == []


@pytest.mark.parametrize("retries", [1, 3])
async def test_attempts_are_no_more_than_retries_plus_one_and_count_from_0(runs: Runs, retries: int) -> None:
    done = await runs.complete(batches(retries), {"tasks": TASKS})
    (batch,) = executions(await runs.query(done["id"], "state"), "batch")
    # Task 20 fails once only: the second attempt is the last, however many there may be.
    assert [attempt["index"] for attempt in batch["attempts"]] == [0, 1]


async def test_attempts_are_retries_plus_one_and_attempt_0_has_no_value_and_code_timeout(
    accepted: dict[str, Any], failed: Failed
) -> None:
    (batch,) = executions(accepted["state"], "batch")
    assert [attempt["index"] for attempt in batch["attempts"]] == [0, 1]
    assert [attempt["status"] for attempt in batch["attempts"]] == ["failed", "succeeded"]
    (alone,) = executions(failed.envelope["state"], "batch")[0]["attempts"]
    for first in (batch["attempts"][0], alone):
        assert first["error"]["code"] == "TIMEOUT"
        assert first["error"]["class"] == "function_error"
        assert first["error"]["details"] == {"details": [{"task": 20}]}
        assert first["output"] is None
        assert "value" not in first


async def test_tasks_30_and_10_are_computed_once_and_20_at_each_attempt(
    runs: Runs, accepted: dict[str, Any], failed: Failed
) -> None:
    for run, attempts in ((accepted["id"], 2), (failed.envelope["id"], 1)):
        computed = [call["key"] for call in runs.calls("batch_task", run)]
        assert sorted(computed) == sorted(["30", "10"] + ["20"] * attempts)
        assert len(runs.calls("batch_source", run)) == 1


async def test_without_retries_the_run_fails_with_timeout_and_no_part_of_the_batch_is_output(
    runs: Runs, failed: Failed
) -> None:
    assert failed.code == "TIMEOUT"
    assert "`batch`" in failed.message
    assert failed.envelope["error"]["node"] == "batch"
    assert failed.envelope["nodes"] == {"source": "succeeded", "batch": "failed", "summary": "idle"}
    state = failed.envelope["state"]
    (batch,) = executions(state, "batch")
    assert batch["status"] == "failed"
    assert batch["error"]["code"] == "TIMEOUT"
    assert executions(state, "summary") == []
    assert not runs.calls("batch_summary", failed.envelope["id"])
    history = await runs.client.get_workflow_handle(failed.envelope["id"]).fetch_history()
    kept = "\n".join(payloads(history.to_json_dict()))
    assert re.search(r"(?<![\d.])20(?!\d)", kept), "the tasks are in history"
    assert not re.search(r"(?<![\d.])[13]00(?!\d)", kept), "no result is"
    with pytest.raises(Exception, match="no value") as caught:
        await runs.query(failed.envelope["id"], "output", "batch")
    assert "`batch`" in str(caught.value)


async def test_with_one_retry_the_results_come_in_input_order_and_the_summary_ran_once(
    runs: Runs, accepted: dict[str, Any]
) -> None:
    assert accepted["result"] == {"total": 600, "results": [300, 100, 200]}
    (batch,) = executions(accepted["state"], "batch")
    assert batch["status"] == "succeeded"
    assert batch["attempts"][1]["status"] == "succeeded"
    assert batch["error"] is None
    assert await runs.query(accepted["id"], "output", "batch") == {"node": "batch", "value": [300, 100, 200]}
    assert len(runs.calls("batch_summary", accepted["id"])) == 1
