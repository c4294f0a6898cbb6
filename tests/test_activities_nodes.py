"""Activity nodes: users' own Temporal activities, on Ferrata's task queue or another, as nodes of a graph."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from graph.values import JSON
from runs import Runs

RUN = "${run.id}"


def calling(name: str, *args: JSON, **more: JSON) -> dict[str, Any]:
    """A graph of one node that calls the activity ``name``."""
    return {"nodes": {"work": {"activity": {"name": name, "args": list(args)}, **more}}}


async def execution(runs: Runs, run: str, node: str = "work") -> dict[str, Any]:
    """The only execution of a node."""
    state = await runs.query(run, "state")
    (found,) = state["nodes"][node]["executions"]
    return dict(found)


async def scheduled(runs: Runs, run: str, name: str) -> list[Any]:
    """The events of a run that schedule the activity ``name``."""
    history = await runs.client.get_workflow_handle(run).fetch_history()
    attributes = [event.activity_task_scheduled_event_attributes for event in history.events]
    return [scheduled for scheduled in attributes if scheduled.activity_type.name == name]


async def test_an_activity_gets_its_arguments_and_its_result_is_the_nodes_value(runs: Runs) -> None:
    nodes = {
        "name": {"value": "Ada"},
        "greeting": {"activity": {"name": "greet", "args": ["${name}"]}},
        "total": {"activity": {"name": "add", "args": [2, "${len(greeting)}"]}},
    }
    done = await runs.complete({"nodes": nodes})
    assert done["result"] == 2 + len("hello Ada")
    assert await runs.query(done["id"], "output", "greeting") == {"node": "greeting", "value": "hello Ada"}


async def test_without_args_the_input_is_the_only_argument(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"work": {"activity": "greet", "input": "${input.name}"}}}, {"name": "Zoë"})
    assert done["result"] == "hello Zoë"


async def test_an_activity_without_args_or_input_is_refused_at_load(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"work": {"activity": "greet"}}})
    assert failed.code == "missing_input"
    assert "`work`" in failed.message


async def test_an_activity_may_take_no_argument(runs: Runs) -> None:
    done = await runs.complete(calling("take_nothing"))
    assert done["result"] == "nothing taken"


async def test_a_plain_function_runs_in_a_thread_and_outlives_the_heartbeat_timeout(runs: Runs) -> None:
    done = await runs.complete(calling("sleep_in_thread", 7))
    assert done["result"] == "slept"
    assert len(await scheduled(runs, done["id"], "sleep_in_thread")) == 1


async def test_an_attempt_is_bind_call_and_check_and_each_is_in_history(runs: Runs) -> None:
    done = await runs.complete(calling("greet", "Ada"))
    for name in ("bind", "greet", "check"):
        assert len(await scheduled(runs, done["id"], name)) == 1
    (attempt,) = (await execution(runs, done["id"]))["attempts"]
    assert attempt["implementation"] == "activity:greet"
    assert attempt["input"].startswith("sha256:")
    assert attempt["output"].startswith("sha256:")


async def test_a_false_guard_calls_nothing(runs: Runs) -> None:
    done = await runs.complete(calling("greet", "Ada", when="input.go"), {"go": False})
    assert done["nodes"] == {"work": "skipped"}
    assert not await scheduled(runs, done["id"], "greet")


async def test_an_error_type_is_the_code_and_its_details_are_kept(runs: Runs) -> None:
    failed = await runs.fail(calling("fail_with", RUN, "NO_STOCK", 9))
    assert failed.code == "NO_STOCK"
    (attempt,) = (await execution(runs, failed.envelope["id"]))["attempts"]
    assert attempt["error"] == {
        "code": "NO_STOCK",
        "class": "activity_error",
        "message": "told to fail",
        "details": {"details": [{"more": 1}]},
    }
    assert len(runs.calls("fail_with", failed.envelope["id"])) == 1


async def test_an_ordinary_exception_is_an_activity_error(runs: Runs) -> None:
    failed = await runs.fail(calling("divide", 1, 0))
    assert failed.envelope["error"]["class"] == "activity_error"
    assert failed.envelope["error"]["code"] == "ZeroDivisionError"
    assert "division by zero" in failed.message
    assert len(await scheduled(runs, failed.envelope["id"], "divide")) == 1


async def test_an_argument_of_the_wrong_type_is_an_activity_error(runs: Runs) -> None:
    failed = await runs.fail(calling("add", 1, "x"))
    assert failed.code == "activity_error"
    assert "arguments" in failed.message


async def test_retries_are_counted_by_the_workflow_with_one_try_each(runs: Runs) -> None:
    done = await runs.complete(calling("fail_with", RUN, "FLAKY", 2, on_fail=[{"retry": 3}]))
    assert done["result"] == "done"
    assert len(runs.calls("fail_with", done["id"])) == 3
    events = await scheduled(runs, done["id"], "fail_with")
    assert [event.retry_policy.maximum_attempts for event in events] == [1, 1, 1]
    attempts = (await execution(runs, done["id"]))["attempts"]
    assert [(a["index"], a["status"]) for a in attempts] == [(0, "failed"), (1, "failed"), (2, "succeeded")]


async def test_a_code_decides_whether_a_rung_applies(runs: Runs) -> None:
    ladder = [{"retry": {"times": 5, "on": ["OTHER"]}}, {"reroute": {"value": "instead", "on": ["FLAKY"]}}]
    done = await runs.complete(calling("fail_with", RUN, "FLAKY", 9, on_fail=ladder))
    assert done["result"] == "instead"
    assert len(runs.calls("fail_with", done["id"])) == 1


async def test_a_result_is_checked_and_a_rejected_one_climbs(runs: Runs) -> None:
    graph = calling("add", 1, 2, accept=[{"expr": "output == 4"}], on_fail=[{"retry": 1}])
    failed = await runs.fail(graph)
    assert failed.code == "rejected"
    assert "accept[0]" in failed.message
    assert len(await scheduled(runs, failed.envelope["id"], "add")) == 2


async def test_a_non_retryable_error_climbs_too(runs: Runs) -> None:
    done = await runs.complete(calling("refuse", RUN, on_fail=[{"retry": 1}, {"reroute": {"value": "instead"}}]))
    assert done["result"] == "instead"
    assert len(runs.calls("refuse", done["id"])) == 2


@pytest.mark.parametrize("size", [300_000, 3_000_000, 6_000_000])
async def test_a_result_that_is_too_large_for_history_is_too_large(runs: Runs, size: int) -> None:
    failed = await runs.fail(calling("large_result", size))
    assert failed.code == "too_large"
    assert "large_result" in failed.message
    assert len((await execution(runs, failed.envelope["id"]))["attempts"]) == 1


async def test_a_result_of_200_kb_passes(runs: Runs) -> None:
    done = await runs.complete(
        {"nodes": {**calling("large_result", 200_000)["nodes"], "size": {"value": "${len(work)}"}}}
    )
    assert done["result"] == 200_000


async def test_arguments_that_are_too_large_are_too_large(runs: Runs) -> None:
    nodes = {
        "text": {"function": "functions_for_tests:large", "input": {"size": 300_000}},
        "work": {"activity": {"name": "greet", "args": ["${text}"]}},
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "too_large"
    assert "greet" in failed.message
    assert not await scheduled(runs, failed.envelope["id"], "greet")


async def test_a_result_that_is_not_json_fails_the_attempt(runs: Runs) -> None:
    failed = await runs.fail(calling("bytes_result"))
    assert failed.code == "invalid_output"
    assert "bytes_result" in failed.message


async def test_an_attempt_that_takes_longer_than_its_timeout_is_a_timeout(runs: Runs) -> None:
    failed = await runs.fail(calling("sleep_for", RUN, 60, timeout="1s"))
    assert failed.code == "timeout"
    assert len((await execution(runs, failed.envelope["id"]))["attempts"]) == 1


async def test_a_deadline_cancels_the_call_and_is_a_timeout(runs: Runs) -> None:
    failed = await runs.fail(calling("sleep_for", RUN, 60, deadline="1s", on_fail=[{"retry": 3}]))
    assert failed.code == "timeout"
    assert "deadline of 1s" in failed.message
    assert [entry["event"] for entry in runs.calls("sleep_for", failed.envelope["id"])] == ["start", "cancelled"]
    (attempt,) = (await execution(runs, failed.envelope["id"]))["attempts"]
    assert attempt["status"] == "failed"


@pytest.mark.parametrize("size", [100_000, 3_000_000])
async def test_an_error_that_is_too_large_for_history_still_fails_the_attempt(runs: Runs, size: int) -> None:
    failed = await runs.fail(calling("fail_at_length", size))
    assert failed.code == "LONG"
    assert failed.envelope["error"]["class"] == "activity_error"
    assert len(failed.message) < 3000
    assert len((await execution(runs, failed.envelope["id"]))["attempts"]) == 1


async def test_a_call_in_flight_when_another_node_fails_finishes_and_is_checked(runs: Runs) -> None:
    wait = {"run": RUN, "name": "sleep_for", "code": "BAD"}
    nodes = {
        "work": {"activity": {"name": "sleep_for", "args": [RUN, 1]}, "accept": [{"expr": "output == 'slept'"}]},
        "bad": {"function": "functions_for_tests:fail_once_called", "input": wait},
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "BAD"
    assert failed.envelope["nodes"] == {"work": "succeeded", "bad": "failed"}


async def test_an_activity_that_nobody_registered_is_refused_at_load_with_the_nearest_name(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"work": {"activity": "gret", "input": "x"}}})
    assert failed.code == "unknown_activity"
    assert "`gret`" in failed.message
    assert "did you mean `greet`" in failed.message


async def test_a_queue_that_nobody_polls_is_refused_at_load(runs: Runs) -> None:
    queue = f"nobody-{uuid.uuid4().hex[:8]}"
    nodes = {
        "before": {"function": "functions_for_tests:count", "input": {"run": RUN}},
        "work": {"activity": {"name": "greet", "task_queue": queue, "args": ["x"]}},
    }
    failed = await runs.fail({"nodes": nodes})
    assert failed.code == "unpolled_queue"
    assert "`work`" in failed.message
    assert queue in failed.message
    assert not runs.calls("count", failed.envelope["id"])


async def test_a_queue_that_nobody_polls_is_refused_in_a_child_graph_too(runs: Runs) -> None:
    queue = f"nobody-{uuid.uuid4().hex[:8]}"
    child = {"nodes": {"inner": {"activity": {"name": "greet", "task_queue": queue, "args": ["x"]}}}}
    failed = await runs.fail({"nodes": {"below": {"graph": child, "input": {}}}})
    assert failed.code == "unpolled_queue"
    assert "`inner`" in failed.message


@activity.defn(name="whisper")
async def whisper(name: str, times: int = 1) -> dict[str, Any]:
    """Served by this process alone; it never beats."""
    if name == "nobody":
        raise ApplicationError("there is nobody", type="NOBODY")
    return {"whispered": name.lower() * times, "thread": threading.current_thread().name}


async def test_an_activity_of_another_worker_is_called_on_its_own_task_queue(runs: Runs, client: Client) -> None:
    queue = f"other-{uuid.uuid4().hex[:8]}"
    other = {"name": "whisper", "task_queue": queue}
    nodes = {
        "quiet": {"activity": {**other, "args": ["ADA", 2]}},
        "nobody": {"activity": {**other, "args": ["nobody"]}, "optional": True, "on_fail": [{"retry": 1}]},
        "report": {"value": "${quiet.whispered}"},
    }
    async with Worker(client, task_queue=queue, activities=[whisper]):
        done = await runs.complete({"nodes": nodes, "output": "${report}"})
    assert done["result"] == "adaada"
    assert done["nodes"]["nobody"] == "failed"
    attempts = (await execution(runs, done["id"], "nobody"))["attempts"]
    assert [attempt["error"]["code"] for attempt in attempts] == ["NOBODY", "NOBODY"]
    assert {event.task_queue.name for event in await scheduled(runs, done["id"], "whisper")} == {queue}


async def test_an_activity_that_the_other_worker_lacks_fails_the_attempt(runs: Runs, client: Client) -> None:
    queue = f"other-{uuid.uuid4().hex[:8]}"
    call = {"name": "shout", "task_queue": queue, "args": ["x"]}
    async with Worker(client, task_queue=queue, activities=[whisper]):
        failed = await runs.fail({"nodes": {"work": {"activity": call}}})
    assert failed.envelope["error"]["class"] == "activity_error"
    assert "shout" in failed.message
