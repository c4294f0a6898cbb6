"""The ladder on a real server: one node whose output says who answered; the check demands the big model.

Calls are counted where they happen: each stub model notes every call it gets, each function too.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from graph.values import JSON, encode
from observing import attempts, blobs, history, mentions, node_status, queued, scheduled, until
from runs import Runs

WANTS_BIG = {"type": "object", "properties": {"from": {"const": "big"}}}


def asking(model: str, *rungs: JSON, **options: JSON) -> dict[str, Any]:
    """A graph of one node that asks ``model`` and demands the big model's answer."""
    node: dict[str, Any] = {"infer": {"model": model, "prompt": "who, ${run.id}?"}, "output_schema": WANTS_BIG}
    if rungs:
        node["on_fail"] = list(rungs)
    return {"nodes": {"work": {**node, **options}}}


def calling(function: str, input: dict[str, Any], *rungs: JSON, **options: JSON) -> dict[str, Any]:
    """A graph of one node that calls a test function with the run's id, and demands the big model's answer."""
    node: dict[str, Any] = {"function": f"functions_for_tests:{function}", "input": {"run": "${run.id}", **input}}
    return {"nodes": {"work": {**node, "output_schema": WANTS_BIG, "on_fail": list(rungs), **options}}}


async def test_no_ladder_is_one_call_and_the_run_fails(runs: Runs) -> None:
    failed = await runs.fail(asking("small"))
    assert failed.code == "rejected"
    assert len(runs.calls("small", failed.envelope["id"])) == 1


async def test_retry_2_is_three_calls_on_the_same_model(runs: Runs) -> None:
    failed = await runs.fail(asking("small", {"retry": 2}))
    assert failed.code == "rejected"
    assert len(runs.calls("small", failed.envelope["id"])) == 3
    assert not runs.calls("big", failed.envelope["id"])
    assert [a["index"] for a in await attempts(runs, failed.envelope["id"])] == [0, 1, 2]


async def test_a_reroute_asks_the_other_model_and_its_value_is_accepted(runs: Runs) -> None:
    done = await runs.complete(asking("small", {"retry": 1}, {"reroute": {"model": "big"}}))
    assert done["result"] == {"from": "big"}
    assert len(runs.calls("small", done["id"])) == 2
    assert len(runs.calls("big", done["id"])) == 1
    shown = [(a["implementation"], a["status"]) for a in await attempts(runs, done["id"])]
    assert shown == [("model:small", "failed"), ("model:small", "failed"), ("model:big", "succeeded")]
    assert scheduled(await history(runs, done["id"])) == ["load", "attempt", "attempt", "reroute"]


async def test_escalating_takes_no_call_and_its_reason_names_the_failing_field(runs: Runs) -> None:
    failed = await runs.fail(asking("small", {"retry": 1}, "escalate"))
    run = failed.envelope["id"]
    assert len(runs.calls("small", run)) == 2
    assert failed.envelope["escalations"] == 1
    [entry] = await queued(runs, run)
    assert (entry["node"], entry["code"], entry["check"], entry["attempts"]) == ("work", "rejected", "output_schema", 2)
    assert "$.from" in entry["reason"]
    assert len(await attempts(runs, run)) == 2


async def test_a_rejected_value_is_nowhere_in_history_once_the_retry_is_accepted(runs: Runs) -> None:
    done = await runs.complete(calling("rejected_then_big", {}, {"retry": 1}))
    run = done["id"]
    assert len(runs.calls("rejected_then_big", run)) == 2
    assert done["result"] == {"from": "big"}
    first, second = await attempts(runs, run)
    assert (first["status"], first["output"], second["status"]) == ("failed", None, "succeeded")
    assert second["output"] == "sha256:" + hashlib.sha256(encode({"from": "big"})).hexdigest()
    recorded = await history(runs, run)
    assert not mentions(recorded, "rejected-value-")
    # The accepted one is there, once as the attempt's result (and again as the run's).
    results = [e.activity_task_completed_event_attributes.result for e in recorded.events]
    assert sum(b'"from":"big"' in payload.data for result in results for payload in result.payloads) == 1
    assert done["escalations"] == 0
    assert not await queued(runs, run)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"properties": {"from": {"enum": ["big"]}}},
        {"properties": {"from": {"pattern": "^big$"}}},
        {"properties": {"from": {"maxLength": 3}}},
        {"anyOf": [{"required": ["name"]}, {"properties": {"from": {"const": "big"}}}]},
        {"not": {"required": ["from"]}},
    ],
    ids=["type", "enum", "pattern", "maxLength", "anyOf", "not"],
)
async def test_a_reason_never_quotes_the_rejected_value(runs: Runs, schema: JSON) -> None:
    failed = await runs.fail(calling("rejected_then_big", {}, output_schema=schema))
    assert failed.code == "rejected"
    assert not mentions(await history(runs, failed.envelope["id"]), "rejected-value-")


async def test_a_check_that_yields_no_boolean_rejects_without_quoting_the_value(runs: Runs) -> None:
    failed = await runs.fail(calling("rejected_then_big", {}, output_schema=True, accept=[{"expr": "output['from']"}]))
    assert failed.code == "rejected"
    assert "must be true or false" in failed.message
    assert not mentions(await history(runs, failed.envelope["id"]), "rejected-value-")


async def test_a_model_answer_that_is_no_json_is_not_quoted_in_history(runs: Runs) -> None:
    failed = await runs.fail(asking("garbled", {"retry": {"times": 1, "feedback": True}}, "escalate"))
    assert failed.code == "invalid_output"
    assert not mentions(await history(runs, failed.envelope["id"]), "perhaps")
    # The model itself, and the person, do see it.
    assert [m["content"] for m in runs.calls("garbled", failed.envelope["id"])[1]["messages"]][1] == "perhaps"


async def test_accepted_at_once_under_a_long_ladder_is_one_call(runs: Runs) -> None:
    done = await runs.complete(asking("big", {"retry": 5}, "escalate"))
    assert len(runs.calls("big", done["id"])) == 1


async def test_a_run_that_succeeds_records_no_escalation_and_stores_no_input_for_one(runs: Runs) -> None:
    before = blobs(runs)
    marker = "kept-input-" * 200
    done = await runs.complete(calling("count", {"value": {"from": "big", "text": marker}}, {"retry": 5}, "escalate"))
    assert done["escalations"] == 0
    assert await runs.query(done["id"], "escalations") == []
    assert not await queued(runs, done["id"])
    assert "escalate" not in scheduled(await history(runs, done["id"]))
    new = [data for path, data in blobs(runs).items() if path not in before]
    assert [b'"nodes":' in data for data in new] == [True], "only the compiled graph is stored"


async def test_a_reroute_sticks(runs: Runs) -> None:
    nobody = {"properties": {"from": {"const": "nobody"}}}
    rungs = [{"retry": 1}, {"reroute": {"model": "big"}}, {"retry": 2}, "escalate"]
    failed = await runs.fail(asking("small", *rungs, output_schema=nobody))
    run = failed.envelope["id"]
    assert len(runs.calls("small", run)) == 2
    assert len(runs.calls("big", run)) == 3
    assert [a["implementation"] for a in await attempts(runs, run)] == ["model:small"] * 2 + ["model:big"] * 3
    assert [entry["attempts"] for entry in await queued(runs, run)] == [5]


async def test_cancellation_is_never_retried_nor_recorded_against_the_node(runs: Runs) -> None:
    handle = await runs.start(asking("slow", {"retry": 5}, {"reroute": {"model": "big"}}, "escalate"))
    await until(lambda: called(runs, "slow", handle.id))
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert isinstance(caught.value.cause, CancelledError)
    await runs.replays(handle)
    assert len(runs.calls("slow", handle.id)) == 1
    assert not runs.calls("big", handle.id)
    state = await runs.query(handle.id, "state")
    [execution] = state["nodes"]["work"]["executions"]
    assert (state["status"], state["nodes"]["work"]["status"]) == ("cancelled", "cancelled")
    assert (execution["status"], execution["error"]) == ("cancelled", None)
    assert [(a["status"], a["error"]) for a in execution["attempts"]] == [("cancelled", None)]
    assert not await queued(runs, handle.id)


async def test_cancelled_between_attempts_no_further_one_is_made(runs: Runs) -> None:
    handle = await runs.start(asking("small", {"retry": {"times": 3, "delay": "1h"}}, "escalate"))

    async def waiting() -> bool:
        return await node_status(runs, handle) == "waiting"

    await until(waiting)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert isinstance(caught.value.cause, CancelledError)
    await runs.replays(handle)
    assert await node_status(runs, handle) == "cancelled"
    assert len(runs.calls("small", handle.id)) == 1
    assert not await queued(runs, handle.id)


async def called(runs: Runs, name: str, run: str) -> bool:
    return bool(runs.calls(name, run))


async def test_a_node_that_failed_last_gives_the_run_its_own_code(runs: Runs) -> None:
    script = "def run(input):\n    fail('NO_LUCK', 'the dice fell badly', {'dice': [1, 1]})"
    failed = await runs.fail({"nodes": {"work": {"script": script, "output_schema": WANTS_BIG}}})
    assert (failed.code, failed.message) == ("NO_LUCK", "node `work`: the dice fell badly")
    assert failed.envelope["error"]["class"] == "script_error"
    assert failed.envelope["error"]["details"]["dice"] == [1, 1]
    assert failed.envelope["error"]["node"] == "work"


async def test_the_last_attempt_decides_the_code(runs: Runs) -> None:
    replies: list[JSON] = [{"fail": "BUSY"}, {"from": "small"}]
    failed = await runs.fail(calling("script", {"replies": replies}, {"retry": 1}))
    assert failed.code == "rejected"
    failed = await runs.fail(calling("script", {"replies": replies[::-1]}, {"retry": 1}))
    assert failed.code == "BUSY"
    assert failed.envelope["error"]["class"] == "function_error"


@pytest.mark.parametrize(
    ("checks", "name"),
    [
        ({"output_schema": WANTS_BIG}, "output_schema"),
        ({"accept": [{"expr": "true"}, {"schema": WANTS_BIG}]}, "accept[1] schema"),
        ({"accept": [{"expr": "output['from'] == 'big'"}]}, "accept[0] expr"),
        ({"accept": [{"script": "def run(input):\n    return {'ok': False, 'reason': 'no'}"}]}, "accept[0] script"),
        ({"accept": [{"judge": {"model": "no", "prompt": "is it big?"}}]}, "accept[0] judge"),
        ({"accept": [{"expr": "output.nothing > 3"}]}, "accept[0] expr"),
    ],
    ids=["output_schema", "schema", "expr", "script", "judge", "error-in-a-check"],
)
async def test_a_check_that_rejected_last_makes_the_code_rejected_and_is_named(
    runs: Runs, checks: dict[str, JSON], name: str
) -> None:
    node = {"function": "functions_for_tests:echo", "input": {"value": {"from": "small"}}, **checks}
    failed = await runs.fail({"nodes": {"work": node}})
    assert failed.code == "rejected"
    assert "`work`" in failed.message
    assert name in failed.message
    assert failed.envelope["error"]["details"]["check"] == name


async def test_running_out_of_rungs_without_escalate_fails_and_enqueues_nothing(runs: Runs) -> None:
    failed = await runs.fail(asking("small", {"retry": 1}, {"reroute": {"model": "echo"}}))
    run = failed.envelope["id"]
    assert failed.envelope["escalations"] == 0
    assert await runs.query(run, "escalations") == []
    assert not await queued(runs, run)
    assert "escalate" not in scheduled(await history(runs, run))


@pytest.mark.parametrize(
    ("node", "code", "named"),
    [
        (asking("small", {"reroute": {"model": "bigg"}}), "unknown_model", "`bigg`"),
        (asking("small", accept=[{"judge": {"model": "yess", "prompt": "?"}}]), "unknown_model", "`yess`"),
        (asking("small", {"reroute": {"function": "functions_for_tests:bigg"}}), "unknown_function", "`bigg`"),
        (asking("small", {"reroute": {"script": "def run(:"}}), "bad_script", "work"),
        (asking("small", output_schema={"type": "objekt"}), "bad_schema", "objekt"),
        (asking("small", accept=[{"schema": {"minimum": "1"}}]), "bad_schema", "minimum"),
        ("schemas/missing", "bad_file", "absent.schema.json"),
        ("schemas/malformed", "bad_schema", "malformed.schema.json"),
        ("schemas/wrong", "bad_schema", "wrong.schema.json"),
    ],
    ids=["model", "judge", "function", "script", "schema", "accept", "missing-file", "malformed-file", "wrong-file"],
)
async def test_what_nobody_serves_or_a_bad_schema_is_refused_before_the_first_node_runs(
    runs: Runs, node: JSON, code: str, named: str
) -> None:
    if isinstance(node, dict):
        before = {"function": "functions_for_tests:count", "input": {"run": "${run.id}"}}
        node = {"nodes": {"before": before, **node["nodes"]}}
    failed = await runs.fail(node)
    assert failed.code == code
    assert named in failed.message
    [problem] = failed.envelope["error"]["details"]["problems"]
    assert "nodes.work" in failed.message or problem["file"].startswith("schemas/"), "the message has a place"
    assert scheduled(await history(runs, failed.envelope["id"])) == ["load"]
    assert not runs.calls("count", failed.envelope["id"])
    assert not runs.calls("small", failed.envelope["id"])
