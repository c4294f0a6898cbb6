"""Child graphs: a graph as a node of another, run as a workflow of its own that ends with its parent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle

from graph.values import JSON
from runs import Runs

BELOW_RUN = "${input.run}"


def below(nodes: dict[str, Any], **more: JSON) -> dict[str, Any]:
    """A node that runs ``nodes`` as a child graph, telling it the parent's run."""
    return {"graph": {"nodes": nodes}, "input": {"run": "${run.id}"}, **more}


def count(key: str, value: JSON = None, **more: JSON) -> dict[str, Any]:
    """A node of a child that notes its call under the parent's run."""
    call = {"run": BELOW_RUN, "key": key, "value": value}
    return {"function": "functions_for_tests:count", "input": call, **more}


def failing(code: str, **more: JSON) -> dict[str, Any]:
    """A node of a child that fails with ``code``."""
    call = {"run": BELOW_RUN, "replies": [{"fail": code}], "key": "failing"}
    return {"function": "functions_for_tests:script", "input": call, **more}


def slow(seconds: float = 60) -> dict[str, Any]:
    """A node of a child that takes ``seconds``."""
    return {"function": "functions_for_tests:slow", "input": {"run": BELOW_RUN, "seconds": seconds, "key": "inner"}}


async def attempts(runs: Runs, run: str, node: str = "below") -> list[dict[str, Any]]:
    """The attempts of a node's only execution."""
    (execution,) = (await runs.query(run, "state"))["nodes"][node]["executions"]
    return list(execution["attempts"])


async def until_called(runs: Runs, name: str, run: str) -> None:
    """Wait until a function noted a call of ``run``."""
    async with asyncio.timeout(30):
        while not runs.calls(name, run):
            await asyncio.sleep(0.05)


async def child(runs: Runs, run: str, attempt: int = 0) -> WorkflowHandle[Any, Any]:
    """The child run of the node `below`."""
    (execution,) = (await runs.query(run, "state"))["nodes"]["below"]["executions"]
    return runs.client.get_workflow_handle(f"{run}/below/{execution['id']}.{attempt}")


async def status_of(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionStatus | None:
    """How a run ended, once it did."""
    async with asyncio.timeout(30):
        while (found := (await handle.describe()).status) == WorkflowExecutionStatus.RUNNING:
            await asyncio.sleep(0.1)
    return found


async def test_an_inline_child_gets_its_input_and_its_output_is_the_nodes_value(runs: Runs) -> None:
    inner = {"nodes": {"a": {"value": "${input.n * 2}"}, "b": {"value": "${a + 1}"}}, "output": {"b": "${b}"}}
    nodes = {"below": {"graph": inner, "input": {"n": 20}}, "after_it": {"value": "${below.b + 1}"}}
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == 42
    assert (await attempts(runs, done["id"]))[0]["implementation"].startswith("graph:sha256:")


async def test_a_child_by_file_has_its_own_files_defaults_and_name(runs: Runs) -> None:
    done = await runs.complete("parent.yaml")
    assert done["result"] == 41
    value = (await runs.query(done["id"], "output", "below"))["value"]
    assert value["graph"] == "doubled"
    assert value["run"].startswith(f"{done['id']}/below/")
    (seen,) = runs.calls("count", done["id"])
    assert seen["key"] == "child"


async def test_a_child_run_is_named_by_run_node_execution_and_attempt(runs: Runs) -> None:
    graph = {"nodes": {"first_one": {"value": 1}, "below": below({"inner": {"value": "${run.id}"}})}}
    graph["nodes"]["below"]["after"] = ["first_one"]
    done = await runs.complete(graph)
    assert done["result"] == f"{done['id']}/below/2.0"
    handle = runs.client.get_workflow_handle(f"{done['id']}/below/2.0")
    described = await handle.describe()
    assert described.status == WorkflowExecutionStatus.COMPLETED
    assert described.parent_id == done["id"]
    await runs.replays(handle)
    assert (await handle.query("state"))["nodes"]["inner"]["status"] == "succeeded"


async def test_a_child_sees_its_own_input_only(runs: Runs) -> None:
    inner = {"inner": {"value": "${input}"}}
    done = await runs.complete({"nodes": {"secret": {"value": 1}, "below": below(inner)}}, {"parents": "own"})
    assert done["result"]["below"] == {"run": done["id"]}
    failed = await runs.fail({"nodes": {"secret": {"value": 1}, "below": below({"inner": {"value": "${secret}"}})}})
    assert failed.code == "unknown_name"
    assert "`secret`" in failed.message
    assert "own `input`" in failed.message


async def test_without_an_input_a_child_gets_the_runs(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"below": {"graph": {"nodes": {"a": {"value": "${input.x}"}}}}}}, {"x": 7})
    assert done["result"] == 7


async def test_a_childs_input_is_checked_against_its_schema(runs: Runs) -> None:
    failed = await runs.fail("checked_child.yaml", {"n": "many"})
    assert failed.envelope["error"]["class"] == "child_failed"
    assert "'many' is not of type 'integer'" in failed.message


async def test_a_childs_failure_is_child_failed_and_keeps_the_authors_code(runs: Runs) -> None:
    inner = {"inner": failing("NO_STOCK"), "rest": count("rest", "${inner}")}
    failed = await runs.fail({"nodes": {"below": below(inner)}})
    assert failed.code == "NO_STOCK"
    assert failed.envelope["error"]["class"] == "child_failed"
    assert "`below`" in failed.message
    assert "`inner`" in failed.message
    details = failed.envelope["error"]["details"]
    assert details["run"] == f"{failed.envelope['id']}/below/1.0"
    assert details["error"]["node"] == "inner"
    assert details["error"]["class"] == "function_error"
    assert not runs.calls("count", failed.envelope["id"])


async def test_a_childs_failure_without_a_code_of_the_author_is_child_failed(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"below": below({"inner": count("x", 1, accept=[{"expr": "output == 2"}])})}})
    assert failed.code == "child_failed"
    assert failed.envelope["error"]["details"]["error"]["code"] == "rejected"


async def test_each_attempt_is_a_child_run_of_its_own(runs: Runs) -> None:
    inner = {
        "inner": {
            "function": "functions_for_tests:script",
            "input": {"run": BELOW_RUN, "replies": [{"fail": "FLAKY"}, "fine"]},
        },
        "named": {"value": ["${inner}", "${run.id}"]},
    }
    done = await runs.complete({"nodes": {"below": below(inner, on_fail=[{"retry": {"times": 2, "on": ["FLAKY"]}}])}})
    assert done["result"] == ["fine", f"{done['id']}/below/1.1"]
    assert [attempt["status"] for attempt in await attempts(runs, done["id"])] == ["failed", "succeeded"]
    assert (await (await child(runs, done["id"], 0)).describe()).status == WorkflowExecutionStatus.FAILED


async def test_a_childs_output_is_checked_by_the_parent(runs: Runs) -> None:
    node = below({"inner": count("inner", 1)}, accept=[{"expr": "output == 2"}], on_fail=[{"retry": 1}])
    failed = await runs.fail({"nodes": {"below": node}})
    assert failed.code == "rejected"
    assert "accept[0]" in failed.message
    assert len(runs.calls("count", failed.envelope["id"])) == 2


async def test_a_false_guard_starts_no_child(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"below": below({"inner": count("inner")}, when="input.go")}}, {"go": False})
    assert done["nodes"] == {"below": "skipped"}
    assert not runs.calls("count", done["id"])


ASK = {"infer": {"model": "unhurried", "prompt": "who?"}}
"""Seven tokens in, three out."""


async def test_a_childs_usage_is_added_up_failed_attempts_included(runs: Runs) -> None:
    inner = {
        "asked": ASK,
        "flaky": {
            "function": "functions_for_tests:script",
            "input": {"run": BELOW_RUN, "replies": [{"fail": "FLAKY"}, "fine"]},
            "after": ["asked"],
        },
    }
    done = await runs.complete({"nodes": {"above": ASK, "below": below(inner, on_fail=[{"retry": 1}])}})
    assert done["usage"] == {"input_tokens": 21, "output_tokens": 9, "total_tokens": 30}
    first, second = await attempts(runs, done["id"])
    assert first["usage"] == second["usage"] == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


async def test_what_a_child_escalated_and_left_failed_is_counted_by_the_parent(runs: Runs) -> None:
    lost = failing("LOST", optional=True, on_fail=[{"escalate": {"queue": "childrens"}}])
    inner = {"lost": lost, "kept": count("k", 1)}
    node = {"graph": {"nodes": inner, "output": "${kept}"}, "input": {"run": "${run.id}"}}
    done = await runs.complete({"nodes": {"below": node}})
    assert done["result"] == 1
    assert (done["escalations"], done["failures"]) == (1, 1)
    (entry,) = await (await child(runs, done["id"])).query("escalations")
    assert entry["node"] == "lost"


async def test_a_child_loops_as_one_attempt_with_a_run_for_each_round(runs: Runs) -> None:
    inner = {"nodes": {"asked": ASK, "next_one": {"value": {"n": "${input.n + 1}"}}}, "output": "${next_one}"}
    node = {"graph": inner, "input": {"n": 0}, "repeat": {"until": "output.n == 3", "max_rounds": 5}}
    done = await runs.complete({"nodes": {"below": node}})
    assert done["result"] == {"n": 3}
    (attempt,) = await attempts(runs, done["id"])
    assert attempt["usage"] == {"input_tokens": 21, "output_tokens": 9, "total_tokens": 30}
    for number in (1, 2, 3):
        handle = runs.client.get_workflow_handle(f"{done['id']}/below/1.0.{number}")
        assert (await handle.describe()).status == WorkflowExecutionStatus.COMPLETED


async def test_g2_a_loop_over_a_child_that_never_reaches_its_condition_fails_at_max(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"below": child_loop("output.n == 9")}})
    assert failed.code == "loop_exhausted"
    assert "3 rounds" in failed.message
    (attempt,) = await attempts(runs, failed.envelope["id"])
    assert (attempt["status"], attempt["error"]["class"]) == ("failed", "loop_exhausted")
    assert [call["key"] for call in runs.calls("count", failed.envelope["id"])] == ["round 0", "round 1", "round 2"]


def child_loop(until: str, **more: JSON) -> dict[str, Any]:
    """A loop over a child graph whose output is one larger in each round."""
    nodes = {
        "turn": count("round ${input.n}", "${input.n}"),
        "next_one": {"value": {"run": BELOW_RUN, "n": "${turn + 1}"}},
    }
    inner = {"nodes": nodes, "output": "${next_one}"}
    given = {"run": "${run.id}", "n": 0}
    return {"graph": inner, "input": given, "repeat": {"until": until, "max_rounds": 3}, **more}


async def test_g2_a_loop_over_a_child_that_is_done_at_once_runs_once(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"below": child_loop("output.n == 1")}})
    assert done["result"]["n"] == 1
    assert [call["key"] for call in runs.calls("count", done["id"])] == ["round 0"]


async def test_a_retried_loop_over_a_child_starts_again_from_the_original_input(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"below": child_loop("output.n == 9", on_fail=[{"retry": 1}])}})
    assert failed.code == "loop_exhausted"
    assert [attempt["index"] for attempt in await attempts(runs, failed.envelope["id"])] == [0, 1]
    rounds = [call["key"] for call in runs.calls("count", failed.envelope["id"])]
    assert rounds == ["round 0", "round 1", "round 2"] * 2


async def test_a_child_that_takes_longer_than_the_nodes_timeout_is_a_timeout(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"below": below({"inner": slow()}, timeout="2s")}})
    assert failed.code == "timeout"
    assert "2s" in failed.message
    assert await status_of(await child(runs, failed.envelope["id"])) == WorkflowExecutionStatus.TIMED_OUT


async def test_a_deadline_cancels_the_child_and_is_a_timeout(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"below": below({"inner": slow()}, deadline="2s", on_fail=[{"retry": 3}])}})
    assert failed.code == "timeout"
    assert "deadline of 2s" in failed.message
    assert len(await attempts(runs, failed.envelope["id"])) == 1
    assert await status_of(await child(runs, failed.envelope["id"])) == WorkflowExecutionStatus.CANCELED


async def test_a_large_output_of_a_child_travels_by_reference(runs: Runs) -> None:
    inner = {"text": {"function": "functions_for_tests:large", "input": {"size": 3_000_000}}}
    done = await runs.complete({"nodes": {"below": below(inner), "size": {"value": "${len(below)}"}}})
    assert done["result"] == 3_000_000
    history = await runs.client.get_workflow_handle(done["id"]).fetch_history()
    assert len(history.to_json()) < 100_000


async def test_children_nest(runs: Runs) -> None:
    innermost = {"nodes": {"deep": {"value": "${run.id}"}}}
    nodes = {"below": {"graph": {"nodes": {"below": {"graph": innermost, "input": {}}}}, "input": {}}}
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == f"{done['id']}/below/1.0/below/1.0"


async def test_a_child_is_cancelled_with_its_parent(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"below": below({"inner": slow()}, on_fail=[{"retry": 3}])}})
    await until_called(runs, "slow", handle.id)
    below_it = await child(runs, handle.id)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert await status_of(handle) == await status_of(below_it) == WorkflowExecutionStatus.CANCELED
    assert [attempt["status"] for attempt in await attempts(runs, handle.id)] == ["cancelled"]
    assert [entry["event"] for entry in runs.calls("slow", handle.id)] == ["start", "cancelled"]
    await runs.replays(handle)
    await runs.replays(below_it)


async def test_a_child_is_terminated_with_its_parent(runs: Runs) -> None:
    handle = await runs.start({"nodes": {"below": below({"inner": slow()})}})
    await until_called(runs, "slow", handle.id)
    below_it = await child(runs, handle.id)
    await handle.terminate()
    assert await status_of(below_it) == WorkflowExecutionStatus.TERMINATED
    async with asyncio.timeout(10):
        while [entry["event"] for entry in runs.calls("slow", handle.id)] != ["start", "cancelled"]:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("end", ["cancel", "terminate"])
async def test_a_child_that_somebody_else_ended_is_child_failed_and_climbs(runs: Runs, end: str) -> None:
    node = below({"inner": slow()}, on_fail=[{"reroute": {"value": "instead"}}])
    handle = await runs.start({"nodes": {"below": node}})
    await until_called(runs, "slow", handle.id)
    below_it = await child(runs, handle.id)
    await getattr(below_it, end)()
    assert (await handle.result())["result"] == "instead"
    first, second = await attempts(runs, handle.id)
    assert first["error"]["class"] == "child_failed"
    assert second["status"] == "succeeded"
    await runs.replays(handle)
