"""What `state` tells of where an output came from: what ran, on which input, and what it took; of attempts that failed
or were broken off, too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

import functions_for_tests
from conftest import StartWorker
from graph.state import MOST_RAN
from graph.values import JSON, digest, encode
from mapped import alone, execution
from nodes import RUN, call
from observing import attempts, node_status, until
from runs import Runs

SCRIPT = "def run(input):\n    return {'n': input['n'] + 1}\n"
NO = "def run(input):\n    fail('NO', 'not this one')\n"
INPUT: JSON = {"n": 1}
COST = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
"""Of one answer of the model `unhurried`."""


def of(value: JSON) -> str:
    """The digest of a value."""
    return digest(encode(value))


def of_items(items: list[JSON]) -> str:
    """The digest of a map's items, as they lie in the store."""
    return of(items)


def source() -> str:
    """The digest of the source of the test functions."""
    return digest(Path(functions_for_tests.__file__).read_bytes())


# What ran


async def test_each_attempt_of_each_kind_names_what_ran_and_the_digests_of_its_input_and_output(runs: Runs) -> None:
    child = {"nodes": {"inner": {"value": "${input.n * 2}"}}}
    nodes = {
        "script": {"script": SCRIPT},
        "function": {"function": "functions_for_tests:echo", "input": {"value": "${input}"}},
        "infer": {"infer": {"model": "small", "prompt": "who?", "format": "json"}},
        "activity": {"activity": {"name": "add", "args": [1, 2]}},
        "graph": {"graph": child, "input": {"n": 4}},
        "wait": {"wait": {"for": "1ms"}},
        "value": {"value": {"n": "${input.n}"}},
    }
    done = await runs.complete({"nodes": nodes}, INPUT)
    fingerprint = (await runs.query(f"{done['id']}/graph/5.0", "state"))["fingerprint"]
    wanted = {
        "script": (f"script:{digest(SCRIPT.encode())}", INPUT, {"n": 2}),
        "function": ("function:functions_for_tests:echo", {"value": INPUT}, INPUT),
        "infer": ("model:small", INPUT, {"from": "small"}),
        "activity": ("activity:add", [1, 2], 3),
        "graph": (f"graph:{fingerprint}", {"n": 4}, 8),
        "wait": ("wait:for", "1ms", None),
        "value": ("value", None, {"n": 1}),
    }
    found, ran = {}, {}
    for name in nodes:
        (attempt,) = await attempts(runs, done["id"], name)
        found[name] = (attempt["implementation"], attempt["input"], attempt["output"])
        ran[name] = attempt.get("ran")
    assert found == {name: (what, of(input), of(output)) for name, (what, input, output) in wanted.items()}
    # The others are named wholly by their implementation, and the stub doesn't say who answers.
    assert ran == {**dict.fromkeys(nodes), "function": f"function:functions_for_tests:echo@{source()}"}


@asynccontextmanager
async def model_server(answers: str) -> AsyncIterator[str]:
    """The address of a server of one model that says its answers are by ``answers`` and a count."""
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        message = {"role": "assistant", "content": f"answer {asked}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": f"{answers}-{asked}"}
        return web.json_response({**head, "choices": [choice], "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def test_an_attempt_tells_which_model_answered_even_if_its_answer_was_rejected(
    start_worker: StartWorker, client: Client, tmp_path: Path
) -> None:
    infer: JSON = {"model": "big", "prompt": "who?"}
    rejecting = {"infer": infer, "accept": [{"expr": "output == 'answer 2'"}], "on_fail": [{"retry": 1}]}
    many: JSON = {"over": f"${{list(range({MOST_RAN + 5}))}}", "concurrency": 1, "infer": infer}
    async with model_server("gpt-x") as url:
        model = {"provider": "openai", "model": "gpt-x", "base_url": url, "api_key_env": "BIG_API_KEY"}
        worker = await start_worker(FERRATA_MODELS=json.dumps({"big": model}), BIG_API_KEY="key")
        runs = Runs(client, worker.task_queue, tmp_path)
        done = await runs.complete({"nodes": {"work": rejecting, "many": {**many, "after": ["work"]}}})
        first, second = await attempts(runs, done["id"])
        assert (first["status"], first["ran"]) == ("failed", "model:big@gpt-x-1")
        assert (second["status"], second["ran"]) == ("succeeded", "model:big@gpt-x-2")
        assert first["input"] == second["input"] == of(None)
        assert first["usage"] == second["usage"] == {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
        (attempt,) = await attempts(runs, done["id"], "many")
        # However many models answer, only so many are named.
        assert attempt["ran"] == ", ".join(f"model:big@gpt-x-{number}" for number in range(3, 3 + MOST_RAN))


async def test_what_ran_is_kept_when_another_run_goes_on_from_a_snapshot(runs: Runs) -> None:
    nodes = {"good": call("count", value=1), "bad": call("fail_once_called", name="count", code="BAD")}
    handle = await runs.start({"nodes": nodes})
    await runs.failure(handle)
    before = (await runs.query(handle.id, "state"))["nodes"]
    assert before["good"]["executions"][0]["attempts"][0]["ran"] == f"function:functions_for_tests:count@{source()}"
    again = await runs.start_raw({"resume": {"run": handle.id}})
    await runs.failure(again)
    assert encode((await runs.query(again.id, "state"))["nodes"]) == encode(before)


# Inputs of what failed


FAILING: dict[str, tuple[dict[str, Any], JSON]] = {
    "a function fails": ({"function": "functions_for_tests:fail_as", "input": {"code": "BAD"}}, {"code": "BAD"}),
    "a function's output is rejected": (
        {"function": "functions_for_tests:echo", "input": {"value": 1}, "accept": [{"expr": "false"}]},
        {"value": 1},
    ),
    "a script fails": ({"script": NO}, INPUT),
    "a script takes too long": ({"script": "def run(input):\n    while True: pass\n", "timeout": "1s"}, INPUT),
    "an activity fails": ({"activity": {"name": "divide", "args": [1, 0]}}, [1, 0]),
    "an activity is stopped by its deadline": (
        {"activity": {"name": "sleep_for", "args": ["deadline", 60]}, "deadline": "5s"},
        ["deadline", 60],
    ),
    "an activity's output is rejected": (
        {"activity": "greet", "input": "Ada", "accept": [{"expr": "false"}]},
        "Ada",
    ),
    "an activity's input is too large": ({"activity": "greet", "input": "${'x' * 300000}"}, "x" * 300_000),
    "an activity's loop is exhausted": (
        {"activity": "step", "input": 1, "repeat": {"until": "output > 9", "max_rounds": 2}},
        1,
    ),
    "a child run fails": ({"graph": {"nodes": {"inner": {"script": NO}}}, "input": {"n": 2}}, {"n": 2}),
    "a child run's output is rejected": (
        {"graph": {"nodes": {"inner": {"value": 1}}}, "input": {"n": 2}, "accept": [{"expr": "false"}]},
        {"n": 2},
    ),
    "a wait takes too long": ({"wait": {"for": "1h"}, "timeout": "1s"}, "1h"),
}


@pytest.mark.parametrize("why", FAILING)
async def test_an_attempt_that_failed_tells_its_input_and_has_no_output(why: str, runs: Runs) -> None:
    node, input = FAILING[why]
    failed = await runs.fail(alone(node), INPUT)
    (attempt,) = await attempts(runs, failed.envelope["id"])
    assert (attempt["status"], attempt["input"], attempt["output"]) == ("failed", of(input), None)


async def test_an_activity_in_flight_tells_its_input_and_so_does_one_that_was_cancelled(runs: Runs) -> None:
    handle = await runs.start(alone({"activity": {"name": "sleep_for", "args": [RUN, 60]}}))

    async def called() -> bool:
        return bool(runs.calls("sleep_for", handle.id))

    await until(called)
    (attempt,) = await attempts(runs, handle.id)
    assert (attempt["status"], attempt["input"]) == ("running", of([handle.id, 60]))
    await cancel(runs, handle)
    (attempt,) = await attempts(runs, handle.id)
    assert (attempt["status"], attempt["input"]) == ("cancelled", of([handle.id, 60]))


async def cancel(runs: Runs, handle: WorkflowHandle[Any, Any]) -> None:
    """Cancel a run, wait until it ended, and replay it."""
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    await runs.replays(handle)


# Maps


async def test_a_map_tells_its_items_its_output_and_its_chunks_fuel_together(runs: Runs) -> None:
    one = await runs.complete(alone({"over": [INPUT], "script": SCRIPT}))
    items = [INPUT] * 1001  # more than one chunk
    many = await runs.complete(alone({"over": "${input}", "script": SCRIPT}), items)
    (single,) = await attempts(runs, one["id"])
    (attempt,) = await attempts(runs, many["id"])
    assert single["fuel"] > 0
    assert 0 < attempt["fuel"] <= len(items) * single["fuel"]  # many at once share what a fresh sandbox costs
    assert (single["input"], attempt["input"]) == (of_items([INPUT]), of_items(items))
    assert single["output"] == of(one["result"])
    assert (attempt["implementation"], attempt.get("ran")) == (f"script:{digest(SCRIPT.encode())}", None)


async def test_a_map_names_all_that_its_items_ran_on(runs: Runs) -> None:
    small = {"function": "functions_for_tests:echo", "input": {"value": "${item}"}, "over": "${input}"}
    node = {**small, "accept": [{"expr": "output != 2"}], "on_fail": [{"reroute": {"script": SCRIPT}}]}
    done = await runs.complete(alone(node), [1, 2, 3])
    function = f"function:functions_for_tests:echo@{source()}"
    (attempt,) = await attempts(runs, done["id"])
    assert attempt["ran"] == f"{function}, script:{digest(SCRIPT.encode())}"
    done = await runs.complete(alone(node), [1, 3])
    (attempt,) = await attempts(runs, done["id"])
    assert attempt["ran"] == function


async def test_a_map_that_fails_keeps_its_input_and_fuel_and_has_no_output(runs: Runs) -> None:
    failed = await runs.fail(alone({"over": "${input}", "script": NO}), [1, 2])
    (attempt,) = await attempts(runs, failed.envelope["id"])
    assert attempt["fuel"] > 0
    assert (attempt["status"], attempt["input"], attempt["output"]) == ("failed", of_items([1, 2]), None)


SLOW_MAP: JSON = alone(
    {
        "over": ["x", "y"],
        "infer": {"model": "unhurried", "prompt": f"{RUN}: ${{item}}?"},
        "accept": [{"expr": "index == 0"}],
        "on_fail": [{"retry": {"times": 1, "delay": "5s"}}],
    }
)
"""The second item is rejected, and comes back in a chunk of its own after its delay."""


async def until_waiting(runs: Runs, handle: WorkflowHandle[Any, Any]) -> None:
    async def waiting() -> bool:
        return await node_status(runs, handle) == "waiting"

    await until(waiting)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["cancelled", "failed by its deadline"])
async def test_a_map_that_ends_midway_shows_what_was_spent(then: str, runs: Runs) -> None:
    work = {**SLOW_MAP["nodes"]["work"], "on_fail": [{"retry": {"times": 1, "delay": "1h"}}]}
    both = {key: 2 * count for key, count in COST.items()}
    if then == "cancelled":
        handle = await runs.start(alone(work))
        await until_waiting(runs, handle)
        assert (await execution(runs, handle.id))["usage"] == both
        await cancel(runs, handle)
    else:
        handle = await runs.start(alone({**work, "deadline": "12s"}))
        assert (await runs.failure(handle)).code == "timeout"
    found = await execution(runs, handle.id)
    (attempt,) = found["attempts"]
    assert attempt["usage"] == found["usage"] == (await runs.query(handle.id, "state"))["usage"] == both
    assert (attempt["status"], attempt["input"]) == (then.split()[0], of_items(["x", "y"]))


@pytest.mark.slow
async def test_a_map_taken_over_by_another_run_adds_to_what_was_spent_before(runs: Runs) -> None:
    handle = await runs.start(SLOW_MAP)
    await until_waiting(runs, handle)
    saved = await runs.query(handle.id, "snapshot")
    await handle.terminate()
    again = await runs.start_raw({"resume": saved})
    done = await again.result()
    await runs.replays(again)
    # All items again, then the second item's retry.
    assert saved["usage"]
    assert done["usage"] == {key: saved["usage"][key] + 3 * count for key, count in COST.items()}
    (attempt,) = await attempts(runs, again.id)
    assert attempt["usage"] == done["usage"]
