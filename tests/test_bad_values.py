"""What nodes give back, when it is wrong, odd or large; what is asked of a run, when it makes no sense; a store that
loses data. Each is said at once and clearly; no workflow task fails on the way (`Runs.failure` sees to that)."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue

from graph.values import JSON
from runs import Failed, Runs

SECONDS = 15
KIB, MIB = 1024, 1024 * 1024


def calling(function: str, **input: JSON) -> dict[str, Any]:
    """A graph of one node that calls this test function."""
    return {"nodes": {"work": {"function": f"functions_for_tests:{function}", "input": input}}}


def script(*lines: str) -> dict[str, Any]:
    """A graph of one script whose run has these lines."""
    return {"nodes": {"work": {"script": "def run(input):\n    " + "\n    ".join(lines) + "\n"}}}


async def failure(runs: Runs, graph: JSON, input: JSON = None) -> Failed:
    async with asyncio.timeout(SECONDS):
        return await runs.fail(graph, input)


# What isn't JSON.


@pytest.mark.parametrize("kind", ["set", "bytes", "nan", "object", "surrogate"])
async def test_a_function_that_gives_what_is_not_json_is_invalid_output(runs: Runs, kind: str) -> None:
    failed = await failure(runs, calling("not_json", kind=kind))
    assert failed.code == "invalid_output"
    assert "node `work`" in failed.message
    assert "isn't JSON" in failed.message


@pytest.mark.parametrize(
    "value", ["{1, 2}", "b'x'", "float('nan')", "float('inf')", "object()", "'\\ud800'", "{(1, 2): 3}", "1j"]
)
async def test_a_script_that_gives_what_is_not_json_is_invalid_output(runs: Runs, value: str) -> None:
    failed = await failure(runs, script(f"return {value}"))
    assert failed.code == "invalid_output"
    assert "node `work`" in failed.message


@pytest.mark.parametrize("kind", ["bytes", "nan", "deep"])
async def test_an_activity_that_gives_what_is_not_json_is_invalid_output(runs: Runs, kind: str) -> None:
    failed = await failure(runs, {"nodes": {"work": {"activity": {"name": "odd_result", "args": [kind]}}}})
    assert failed.code == "invalid_output"
    assert "`odd_result`" in failed.message


async def test_an_activity_that_gives_nothing_gives_null(runs: Runs) -> None:
    done = await runs.complete({"nodes": {"work": {"activity": {"name": "odd_result", "args": ["nothing"]}}}})
    assert done["result"] is None


@pytest.mark.parametrize("levels", [101, 198, 254, 300, 900, 5000])
async def test_a_value_that_nests_too_deeply_is_refused_where_it_arises(runs: Runs, levels: int) -> None:
    failed = await failure(runs, calling("deep", levels=levels))
    assert failed.code in ("too_large", "invalid_output")
    assert "node `work`" in failed.message


async def test_a_value_of_a_hundred_levels_passes_through_nodes_and_maps(runs: Runs) -> None:
    graph = calling("deep", levels=100)
    graph["nodes"]["again"] = {"over": "${[1, 2]}", "value": "${work}"}
    graph["output"] = "${first(again.values)}"
    value = (await runs.complete(graph))["result"]
    assert json.dumps(value) == "[" * 100 + "]" * 100


# Errors that are hard to keep.


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        *itertools.product(
            ["raise_odd", "raise_odd_async"], ["exit", "interrupt", "cancelled", "stop", "surrogate", "huge"]
        ),
        ("raise_odd", "generator"),
    ],
)
async def test_whatever_a_function_raises_is_its_error_and_the_worker_lives(
    runs: Runs, function: str, kind: str
) -> None:
    failed = await failure(runs, calling(function, kind=kind))
    assert failed.code == "function_error"
    assert len(failed.message) < 4 * KIB
    assert (await runs.complete(calling("echo", value=1)))["result"] == 1


@pytest.mark.parametrize(
    ("kind", "code"),
    [("huge code", "C"), ("bytes", "BYTES"), ("huge details", "DETAILS"), ("worker_shutdown", "worker_shutdown")],
)
async def test_odd_codes_and_details_of_a_functions_error_are_trimmed(runs: Runs, kind: str, code: str) -> None:
    failed = await failure(runs, calling("raise_odd", kind=kind))
    assert failed.code.startswith(code)
    assert len(json.dumps(failed.envelope)) < 32 * KIB


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("huge code", "C"),
        ("bytes", "BYTES"),
        ("huge details", "DETAILS"),
        ("huge message", "MESSAGE"),
        ("worker_shutdown", "worker_shutdown"),
    ],
)
async def test_odd_errors_of_an_activity_are_trimmed(runs: Runs, kind: str, code: str) -> None:
    failed = await failure(runs, {"nodes": {"work": {"activity": {"name": "odd_failure", "args": [kind]}}}})
    assert failed.code.startswith(code)
    assert len(json.dumps(failed.envelope)) < 32 * KIB
    state = await runs.query(failed.envelope["id"], "state")
    assert len(state["nodes"]["work"]["executions"][0]["attempts"]) == 1


async def test_codes_and_messages_of_any_script_pass(runs: Runs) -> None:
    failed = await failure(runs, script("fail('ÜBER_🦙', 'Größe: 日本語', {'ключ': '値'})"))
    assert failed.code == "ÜBER_🦙"
    assert "Größe: 日本語" in failed.message
    assert failed.envelope["error"]["details"]["ключ"] == "値"
    failed = await failure(runs, calling("fail_as", code="ÜBER_🦙", message="Größe: 日本語"))
    assert failed.code == "ÜBER_🦙"


@pytest.mark.parametrize("code", ["ferrata.worker_shutdown", "NotFoundError", "CancelledError", "completed"])
async def test_no_code_of_an_author_means_anything_to_the_machinery(runs: Runs, code: str) -> None:
    assert (await failure(runs, script(f"fail({code!r}, 'mine')"))).code == code
    assert (await failure(runs, calling("fail_as", code=code))).code == code


async def test_values_of_any_script_pass_through_every_kind(runs: Runs) -> None:
    text = "Größe 日本語 🦙 \u0000 \u2028 \\ \" ' $ {}"
    graph = {
        "nodes": {
            "value": {"value": {"ключ": "${input.text}"}},
            "script": {
                "script": "def run(input):\n    return input['text'][::-1]\n",
                "input": {"text": "${value['ключ']}"},
            },
            "function": {"function": "functions_for_tests:echo", "input": {"value": "${script}"}},
            "activity": {"activity": {"name": "greet", "args": ["${function}"]}},
            "model": {"infer": {"model": "echo", "prompt": "${value['ключ']}"}},
            "large": {"value": "${input.text * 2000}"},
            "length": {"value": "${len(large)}"},
        },
        "output": {"activity": "${activity}", "model": "${model}", "length": "${length}", "text": "${input.text}"},
    }
    done = await runs.complete(graph, {"text": text})
    assert done["result"]["activity"] == "hello " + text[::-1]
    assert text in done["result"]["model"]
    assert done["result"]["length"] == len(text) * 2000
    assert done["result"]["text"] == text


# Arguments.


async def test_arguments_that_do_not_fit_a_functions_hints_are_named(runs: Runs) -> None:
    failed = await failure(runs, calling("typed", name=["no"], size="many"))
    assert failed.code == "invalid_input"
    assert "`name`" in failed.message
    assert "`size`" in failed.message


async def test_a_computed_input_with_wrong_keys_is_invalid_input(runs: Runs) -> None:
    graph = {"nodes": {"work": {"function": "functions_for_tests:typed", "input": "${input}"}}}
    failed = await failure(runs, graph, {"nmae": "x"})
    assert failed.code == "invalid_input"
    assert "`name`" in failed.message
    assert "`nmae`" in failed.message


# Sizes.


@pytest.mark.parametrize("kind", ["function", "script", "value"])
async def test_an_output_above_output_bytes_is_too_large(runs: Runs, kind: str) -> None:
    graphs: dict[str, dict[str, Any]] = {
        "function": calling("large", size=5000),
        "script": script("return 'x' * 5000"),
        "value": {"nodes": {"work": {"value": "${'x' * 5000}"}}},
    }
    graph = graphs[kind]
    graph["nodes"]["work"]["output_bytes"] = "4KiB"
    failed = await failure(runs, graph)
    assert failed.code == "too_large"
    assert "output_bytes" in failed.message


@pytest.mark.parametrize("size", [20 * KIB, 300 * KIB, 3 * MIB])
async def test_a_large_output_travels_through_the_store_and_arrives_whole(runs: Runs, size: int) -> None:
    graph = calling("large", size=size)
    graph["nodes"]["length"] = {"script": "def run(input):\n    return len(input)\n", "input": "${work}"}
    graph["nodes"]["again"] = {"function": "functions_for_tests:echo", "input": {"value": "${work}"}}
    graph["output"] = {"length": "${length}", "same": "${again == work}"}
    done = await runs.complete(graph)
    assert done["result"] == {"length": size, "same": True}
    assert set(await runs.query(done["id"], "output", "work")) == {"node", "ref"}
    history = await runs.client.get_workflow_handle(done["id"]).fetch_history()
    assert len(history.to_json()) < 64 * KIB


async def test_a_result_above_a_mebibyte_is_a_ref_that_the_store_has(runs: Runs) -> None:
    done = await runs.complete(calling("large", size=3 * MIB))
    assert done["result"] is None
    assert done["result_ref"]["size"] == 3 * MIB + 2
    assert blob(runs, done["result_ref"]["digest"]).stat().st_size == 3 * MIB + 2
    done = await runs.complete(calling("large", size=1000 * KIB))
    assert len(done["result"]) == 1000 * KIB
    assert "result_ref" not in done


async def test_an_activitys_arguments_and_result_above_their_limit_are_too_large(runs: Runs) -> None:
    calls: list[JSON] = [
        {"name": "greet", "args": ["${'x' * 300000}"]},
        {"name": "large_result", "args": [300_000]},
    ]
    for call in calls:
        failed = await failure(runs, {"nodes": {"work": {"activity": call}}})
        assert failed.code == "too_large"
        assert "262144" in failed.message


async def test_a_hundred_and_forty_values_that_could_have_been_inline_fan_in(runs: Runs) -> None:
    graph: dict[str, Any] = {
        "nodes": {f"n{i}": {"value": f"${{'{i % 10}' * 15000}}"} for i in range(140)},
        "output": {"length": "${length}", "last": "${last}"},
    }
    names = [f"n{i}" for i in range(140)]
    graph["nodes"]["joined"] = {"value": ["${" + name + "}" for name in names]}
    graph["nodes"]["length"] = {"value": "${len(joined)}"}
    graph["nodes"]["last"] = {"value": "${[part[0] for part in joined]}"}
    done = await runs.complete(graph)
    assert done["result"] == {"length": 140, "last": [str(i % 10) for i in range(140)]}
    history = await runs.client.get_workflow_handle(done["id"]).fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    assert max(attributes.ByteSize() for attributes in scheduled) < 300 * KIB


async def test_inline_values_that_are_too_large_together_are_packed_away(runs: Runs) -> None:
    names = [f"n{i}" for i in range(40)]
    nodes: dict[str, Any] = {name: {"value": f"${{'{name[-1]}' * 15000}}"} for name in names}
    nodes["joined"] = {"value": ["${" + name + "}" for name in names]}
    done = await runs.complete({"nodes": nodes, "output": "${[part[0] for part in joined]}"})
    assert done["result"] == [name[-1] for name in names]
    history = await runs.client.get_workflow_handle(done["id"]).fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    assert sum(attributes.activity_type.name == "pack" for attributes in scheduled) > 1
    assert max(attributes.ByteSize() for attributes in scheduled) < 300 * KIB


# Questions and signals that make no sense.


async def bad_query(runs: Runs, id: str, name: str, *args: Any) -> str:
    with pytest.raises(WorkflowQueryFailedError) as caught:
        await runs.query(id, name, *args)
    return str(caught.value)


async def test_a_query_that_makes_no_sense_says_why(runs: Runs) -> None:
    done = await runs.complete(calling("echo", value=1))
    assert "did you mean `work`?" in await bad_query(runs, done["id"], "output", "wrok")
    for args in ((), (None,), (3,), ({"node": "work"},)):
        assert "give a node's name" in await bad_query(runs, done["id"], "output", *args)
    raw = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{'"))
    assert "isn't JSON" in await bad_query(runs, done["id"], "output", raw)
    await bad_query(runs, done["id"], "output", "work", "work")
    assert "progress" in await bad_query(runs, done["id"], "progres")


async def test_a_run_that_was_refused_answers_queries(runs: Runs) -> None:
    failed = await failure(runs, {"nodes": {}})
    id = failed.envelope["id"]
    assert (await runs.query(id, "progress"))["status"] == "failed"
    assert (await runs.query(id, "state"))["status"] == "failed"
    assert await runs.query(id, "escalations") == []
    assert (await runs.query(id, "mermaid")).startswith("flowchart")
    await bad_query(runs, id, "output", "work")


async def opened(runs: Runs, handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """Open the run's gate; its end."""
    (runs.log / f"open-{handle.id}").touch()
    async with asyncio.timeout(SECONDS):
        result: dict[str, Any] = await handle.result()
    await runs.replays(handle)
    return result


async def test_signals_and_updates_that_do_not_exist_leave_a_run_alone(runs: Runs) -> None:
    handle = await runs.start(
        {"nodes": {"gate": {"function": "functions_for_tests:gate", "input": {"run": "${run.id}"}}}}
    )
    await handle.signal("nonsense", "x")
    await handle.signal("nonsense", args=[1, 2, 3])
    await handle.signal("drain", RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"\xff")))
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await handle.execute_update("nonsense", "x")
    assert "nonsense" in str(caught.value.cause)
    assert (await opened(runs, handle))["result"] == "open"


async def test_signals_with_another_number_of_arguments_are_counted_by_the_queue(runs: Runs) -> None:
    name = f"queue-{uuid.uuid4().hex[:8]}"
    handle = await runs.client.start_workflow("EscalationQueue", id=name, task_queue=runs.task_queue)
    bad = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{'"))
    odd: list[list[Any]] = [[], [1, 2], [{"ids": []}, {"ids": []}], [bad]]
    for signal in ("enqueue", "drain"):
        for args in odd:
            await handle.signal(signal, args=args)
    answer = await handle.query("all")
    assert [told["signal"] for told in answer.pop("last_ignored")] == ["enqueue"] * 4 + ["drain"] * 4
    assert answer == {"entries": [], "total": 0, "next": None, "ignored": {"enqueue": 4, "drain": 4}}
    await handle.terminate()
    await runs.replays(handle)


# A store that loses data between nodes.

TOO_LARGE_TO_CACHE = 17 * MIB
"""Bytes of a blob that no process keeps in memory."""


def blob(runs: Runs, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    [path] = [path for path in (runs.log / "store").rglob("*") if path.is_file() and "".join(path.parts)[-64:] == name]
    return path


@pytest.mark.parametrize("code", ["blob_missing", "blob_damaged"])
async def test_a_blob_that_is_lost_between_nodes_is_named(runs: Runs, code: str) -> None:
    graph = calling("large", size=TOO_LARGE_TO_CACHE)
    graph["nodes"]["work"]["output_bytes"] = "32MiB"
    graph["nodes"]["gate"] = {"function": "functions_for_tests:gate", "input": {"run": "${run.id}"}, "after": ["work"]}
    graph["nodes"]["reader"] = {"value": "${len(work)}", "after": ["gate"]}
    handle = await runs.start(graph)
    async with asyncio.timeout(SECONDS):
        while not runs.calls("gate", handle.id):
            await asyncio.sleep(0.05)
    ref = (await runs.query(handle.id, "output", "work"))["ref"]
    path = blob(runs, ref["digest"])
    if code == "blob_missing":
        path.unlink()
    else:
        with path.open("r+b") as file:
            file.write(b'"y')
    (runs.log / f"open-{handle.id}").touch()
    async with asyncio.timeout(SECONDS):
        failed = await runs.failure(handle)
    path.unlink(missing_ok=True)
    assert failed.code == code
    assert ref["digest"] in failed.message
    assert failed.envelope["error"]["class"] == "invalid_input"
    assert failed.envelope["nodes"] == {"work": "succeeded", "gate": "succeeded", "reader": "failed"}
