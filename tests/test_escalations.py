"""Escalations: what an entry says of its node, and how it gets into its queue."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from graph.values import JSON
from observing import history, mentions, queued, scheduled, stored, until
from runs import Runs

WANTS_BIG = {"required": ["from"], "properties": {"from": {"const": "big"}}}


def escalating(value: JSON, *rungs: JSON, **options: JSON) -> dict[str, Any]:
    """A graph of one node that gives back its input and escalates, since the check wants another value."""
    node = {"function": "functions_for_tests:echo", "input": {"value": value}, "output_schema": WANTS_BIG}
    return {"nodes": {"work": {**node, "on_fail": [*rungs, "escalate"], **options}}}


async def test_an_entry_says_who_what_why_and_is_not_drained(runs: Runs) -> None:
    failed = await runs.fail(escalating({"from": "small"}, {"retry": 2}))
    run = failed.envelope["id"]
    assert failed.envelope["escalations"] == 1
    [shown] = await queued(runs, run)
    assert uuid.UUID(shown["id"])
    assert (shown["run"], shown["node"], shown["item"]) == (run, "work", None)
    assert (shown["code"], shown["check"], shown["attempts"]) == ("rejected", "output_schema", 3)
    assert "$.from" in shown["reason"]
    assert shown["input"] == {"value": {"from": "small"}}
    assert await stored(runs, shown["rejected"]) == {"from": "small"}
    assert (shown["drained_at"], shown["resolution"]) == (None, None)
    [execution] = (await runs.query(run, "state"))["nodes"]["work"]["executions"]
    assert abs(shown["at"] - execution["attempts"][-1]["finished"]) < 60_000
    assert shown.keys() == {
        *("id", "run", "node", "item", "code", "reason", "check", "rejected", "input", "attempts", "at"),
        *("drained_at", "resolution"),
    }


async def test_the_run_answers_for_its_entries_itself(runs: Runs) -> None:
    failed = await runs.fail(escalating({"from": "small"}))
    own = await runs.query(failed.envelope["id"], "escalations")
    assert own == await queued(runs, failed.envelope["id"])


ODD_INPUTS: dict[str, JSON] = {
    "nested": {"a": [1, {"b": [None, True, False]}], "": {}, "c": []},
    "unicode": {"text": '日本語 ∑ \u0000 " \\ 🧗 e\u0301'},
    "numbers": {"zero": 0, "float": 1.5, "negative": -0.25, "large": 2**53 + 1, "tiny": 1e-300},
    "order": {"z": 1, "a": 2, "m": 3},
}


@pytest.mark.parametrize("value", ODD_INPUTS.values(), ids=ODD_INPUTS)
async def test_an_entry_carries_the_input_verbatim(runs: Runs, value: JSON) -> None:
    failed = await runs.fail(escalating("${input}"), value)
    [shown] = await queued(runs, failed.envelope["id"])
    assert json.dumps(shown["input"]) == json.dumps({"value": value})


async def test_a_large_input_lies_in_the_store_verbatim(runs: Runs) -> None:
    value = {"text": "é" * 30_000, "list": list(range(5000))}
    failed = await runs.fail(escalating("${input}"), value)
    [shown] = await queued(runs, failed.envelope["id"])
    assert shown["input"] is None
    assert await stored(runs, shown["input_ref"]) == {"value": value}
    assert await stored(runs, shown["rejected"]) == value
    assert len(json.dumps(shown)) < 4096


async def test_a_node_without_an_input_of_its_own_escalates_the_runs(runs: Runs) -> None:
    node = {"script": "def run(input):\n    fail('NO', 'never')", "on_fail": ["escalate"]}
    failed = await runs.fail({"nodes": {"work": node}}, {"path": "/srv", "depth": 3})
    [shown] = await queued(runs, failed.envelope["id"])
    assert shown["input"] == {"path": "/srv", "depth": 3}


async def test_a_failure_without_an_output_has_no_check_and_nothing_rejected(runs: Runs) -> None:
    node = {"infer": {"model": "broken", "prompt": "?"}, "on_fail": ["escalate"]}
    failed = await runs.fail({"nodes": {"work": node}})
    [shown] = await queued(runs, failed.envelope["id"])
    assert (shown["code"], shown["check"], shown["rejected"]) == ("overloaded", None, None)
    assert shown["reason"] == "no capacity"


async def test_an_answer_that_is_no_json_is_shown_to_people_as_rejected(runs: Runs) -> None:
    node = {"infer": {"model": "garbled", "prompt": "?"}, "output_schema": WANTS_BIG, "on_fail": ["escalate"]}
    failed = await runs.fail({"nodes": {"work": node}})
    [shown] = await queued(runs, failed.envelope["id"])
    assert shown["code"] == "invalid_output"
    assert await stored(runs, shown["rejected"]) == "perhaps"


async def test_a_long_reason_is_cut_and_says_so(runs: Runs) -> None:
    node = {"script": "def run(input):\n    fail('LONG', 'é' * 100_000)", "on_fail": ["escalate"]}
    failed = await runs.fail({"nodes": {"work": node}})
    [shown] = await queued(runs, failed.envelope["id"])
    assert len(shown["reason"].encode()) <= 2048
    assert shown["reason"].endswith((" more bytes)", "..."))


async def test_the_rejected_value_itself_is_in_neither_history(runs: Runs) -> None:
    node = {"function": "functions_for_tests:rejected_then_big", "input": {"run": "${run.id}"}}
    work = {**node, "output_schema": WANTS_BIG, "on_fail": ["escalate"]}
    failed = await runs.fail({"nodes": {"work": work}})
    run = failed.envelope["id"]
    [shown] = await queued(runs, run)
    assert await stored(runs, shown["rejected"]) == {"from": f"rejected-value-{run}"}
    assert not mentions(await history(runs, run), "rejected-value-")
    assert not mentions(await history(runs, "escalations"), f"rejected-value-{run}")


async def test_an_optional_node_escalates_and_the_run_completes(runs: Runs) -> None:
    graph = escalating({"from": "small"}, optional=True)
    graph["nodes"]["rest"] = {"value": "done"}
    done = await runs.complete({**graph, "output": "${rest}"})
    assert (done["result"], done["escalations"], done["failures"]) == ("done", 1, 1)
    assert done["nodes"] == {"work": "failed", "rest": "succeeded"}
    assert len(await queued(runs, done["id"])) == 1


async def test_escalated_items_of_a_map_are_one_entry_with_a_list(runs: Runs) -> None:
    node = {
        "over": "${input.names}",
        "function": "functions_for_tests:echo",
        "input": {"value": {"from": "${item}"}},
        "output_schema": WANTS_BIG,
        "on_fail": [{"retry": 1}, "escalate"],
    }
    done = await runs.complete({"nodes": {"work": node}}, {"names": ["big", "small", "big", "medium"]})
    assert done["result"]["escalated"] == 2
    assert (done["escalations"], done["failures"]) == (1, 2)
    [shown] = await queued(runs, done["id"])
    assert (shown["node"], shown["count"], shown["resolved"], shown["drained_at"]) == ("work", 2, 0, None)
    first, second = await stored(runs, shown["ref"])
    assert shown["reason"] == f"2 items of `work` used up their ladders; the first: item 1: {first['reason']}"
    assert shown["sample"] == [
        {"index": 1, "code": "rejected", "reason": first["reason"], "item": "small"},
        {"index": 3, "code": "rejected", "reason": second["reason"], "item": "medium"},
    ]
    assert (first["index"], first["item"], second["index"], second["item"]) == (1, "small", 3, "medium")
    assert (first["code"], first["check"], first["attempts"]) == ("rejected", "output_schema", 2)
    assert "$.from" in first["reason"]
    assert await stored(runs, first["rejected"]) == {"from": "small"}
    assert await runs.query(done["id"], "escalations") == [shown]


def picky(reason: str = "nobody to greet") -> dict[str, Any]:
    """A graph of one map that escalates every item but the text `ok`."""
    script = f"def run(input):\n    if input != 'ok':\n        fail('NO_NAME', {reason!r})\n    return input\n"
    return {"nodes": {"greet": {"over": "${input.names}", "script": script, "on_fail": ["escalate"]}}}


async def test_a_single_escalated_item_reads_as_one(runs: Runs) -> None:
    done = await runs.complete(picky(), {"names": ["ok", "", "ok"]})
    [shown] = await runs.query(done["id"], "escalations")
    assert shown["reason"] == "1 item of `greet` used up its ladder; the first: item 1: nobody to greet"
    assert shown["sample"] == [{"index": 1, "code": "NO_NAME", "reason": "nobody to greet", "item": ""}]


async def test_an_entry_shows_a_few_items_within_a_kibibyte(runs: Runs) -> None:
    names: list[JSON] = [None, "x" * 190, {"long": "y" * 300}, "four"]
    done = await runs.complete(picky("é" * 1000), {"names": ["ok", *names]})
    [shown] = await runs.query(done["id"], "escalations")
    assert shown["count"] == 4
    assert [item["index"] for item in shown["sample"]] == [1, 2, 3]
    assert [item.get("item", "left out") for item in shown["sample"]] == [None, "x" * 190, "left out"]
    assert all(len(item["reason"].encode()) <= 200 and "more bytes" in item["reason"] for item in shown["sample"])
    assert len(json.dumps(shown["sample"], ensure_ascii=False).encode()) <= 1100
    assert [item["item"] for item in await stored(runs, shown["ref"])] == names
    control = await runs.complete(picky("\x01" * 1000), {"names": ["ok", "a", "b"]})
    [shown] = await runs.query(control["id"], "escalations")
    assert len(json.dumps(shown["sample"]).encode()) <= 1100
    assert shown["count"] == 2


async def test_progress_counts_as_the_result_does(runs: Runs) -> None:
    graph = picky()
    graph["nodes"]["bad"] = escalating({"from": "small"}, optional=True)["nodes"]["work"]
    graph["nodes"]["inner"] = {"graph": escalating({"from": "small"}, optional=True)}
    done = await runs.complete(graph, {"names": ["ok", "", "ok", ""]})
    progress = await runs.query(done["id"], "progress")
    assert progress["items"] == {"items": 4, "succeeded": 2, "failed": 0, "escalated": 2, "skipped": 0}
    assert (progress["escalations"], progress["failures"]) == (done["escalations"], done["failures"]) == (3, 4)
    assert "- items: 4, of which 2 succeeded, 2 escalated\n- escalations: 3\n- failures: 4" in progress["markdown"]


async def test_a_run_that_has_the_name_of_a_queue_swallows_nothing(runs: Runs) -> None:
    name = f"taken-{uuid.uuid4().hex[:8]}"
    graph = escalating({"from": "small"})
    graph["nodes"]["work"]["on_fail"] = [{"escalate": {"queue": name}}]
    taken = await runs.start(
        {"nodes": {"gate": {"function": "functions_for_tests:gate", "input": {"run": "${run.id}"}}}}, id=name
    )
    failed = await runs.fail(graph)
    [shown] = await runs.query(failed.envelope["id"], "escalations")
    note = f"(not handed to queue `{name}`: the workflow `{name}` is no escalation queue but a RunGraph: "
    assert note in shown["reason"]
    assert failed.code == "rejected"
    (runs.log / f"open-{name}").touch()
    await taken.result()
    # Once that run has ended, the name is free.
    second = await runs.fail(graph)
    assert [e["run"] for e in (await runs.query(name, "all"))["entries"]] == [second.envelope["id"]]
    await runs.client.get_workflow_handle(name).terminate()


async def test_items_escalated_to_two_queues_are_an_entry_in_each(runs: Runs) -> None:
    node = {
        "over": "${input.names}",
        "function": "functions_for_tests:echo",
        "input": {"value": "${item}"},
        "accept": [{"expr": "output != 'bad'"}],
        "on_fail": [{"escalate": {"queue": "day-shift"}}],
    }
    done = await runs.complete({"nodes": {"work": node}}, {"names": ["good", "bad"]})
    assert [e["count"] for e in await queued(runs, done["id"], "day-shift")] == [1]
    assert not await queued(runs, done["id"])


async def test_a_map_whose_items_cannot_be_had_escalates_as_a_node(runs: Runs) -> None:
    node = {"over": "${input.names}", "value": "${item}", "on_fail": ["escalate"]}
    failed = await runs.fail({"nodes": {"work": node}}, {"names": "no list"})
    assert failed.code == "invalid_input"
    [shown] = await queued(runs, failed.envelope["id"])
    assert (shown["code"], shown["node"]) == ("invalid_input", "work")


async def test_escalating_twice_in_a_run_makes_two_entries(runs: Runs) -> None:
    graph = escalating({"from": "small"})
    graph["nodes"]["other"] = graph["nodes"]["work"]
    failed = await runs.fail({**graph, "on_failure": "continue"})
    assert failed.envelope["escalations"] == 2
    entries = await queued(runs, failed.envelope["id"])
    assert {e["node"] for e in entries} == {"work", "other"}
    assert len({e["id"] for e in entries}) == 2


async def test_an_escalation_of_a_child_run_counts_in_its_parent(runs: Runs) -> None:
    failed = await runs.fail({"nodes": {"outer": {"graph": escalating({"from": "small"})}}})
    assert failed.envelope["escalations"] == 1
    child = f"{failed.envelope['id']}/outer/1.0"
    assert (await queued(runs, child))[0]["node"] == "work"


async def test_the_queue_of_a_run_is_started_by_its_first_escalation(runs: Runs) -> None:
    name = f"fresh-{uuid.uuid4().hex[:8]}"
    graph = escalating({"from": "small"})
    graph["nodes"]["work"]["on_fail"] = [{"escalate": {"queue": name}}]
    first = await runs.fail(graph)
    second = await runs.fail(graph)
    answer = await runs.query(name, "all")
    assert [e["run"] for e in answer["entries"]] == [first.envelope["id"], second.envelope["id"]]
    queue = runs.client.get_workflow_handle(name)
    await runs.replays(queue)
    await queue.terminate()


async def test_after_its_queue_was_terminated_a_run_starts_it_anew(runs: Runs) -> None:
    name = f"gone-{uuid.uuid4().hex[:8]}"
    graph = escalating({"from": "small"})
    graph["nodes"]["work"]["on_fail"] = [{"escalate": {"queue": name}}]
    await runs.fail(graph)
    await runs.client.get_workflow_handle(name).terminate()
    second = await runs.fail(graph)
    assert [e["run"] for e in (await runs.query(name, "all"))["entries"]] == [second.envelope["id"]]
    await runs.client.get_workflow_handle(name).terminate()


async def test_a_run_whose_escalation_was_drained_fails_all_the_same(runs: Runs) -> None:
    failed = await runs.fail(escalating({"from": "small"}))
    [shown] = await queued(runs, failed.envelope["id"])
    queue = runs.client.get_workflow_handle("escalations")
    await queue.signal("drain", {"ids": [shown["id"]], "action": "skip", "by": "ann"})

    async def drained() -> bool:
        return (await queued(runs, failed.envelope["id"]))[0]["drained_at"] is not None

    await until(drained)
    assert scheduled(await history(runs, failed.envelope["id"])).count("escalate") == 1
