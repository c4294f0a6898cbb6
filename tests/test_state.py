"""What the query `state` answers: all of a run, a part of it, or as much as fits with how to get the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.client import WorkflowQueryFailedError

from graph.errors import OperateError
from graph.paging import join
from graph.plan import NodePlan, Plan
from graph.state import Attempt, Error, Execution, NodeState, Usage
from graph.values import ANSWER_LIMIT, JSON, encode
from graph.views import state
from runs import Runs

FUNCTION = "functions_for_tests"


def failed(attempts: int, details: int, message: int = 10, executions: int = 1) -> NodeState:
    error = Error("BAD", "function_error", "m" * message, {"text": "d" * details})
    made = [Attempt(index, "value", "failed", 1, 2, error) for index in range(attempts)]
    return NodeState("failed", [Execution(number, [], "failed", made, error) for number in range(executions)])


def answered(nodes: dict[str, NodeState], wanted: JSON = None) -> dict[str, Any]:
    plans = [NodePlan(name=name, kinds=["value"], implementations=["value"], timeout=1) for name in nodes]
    plan = Plan(name="g", fingerprint="sha256:0", nodes=plans)
    answer = json.loads(json.dumps(state(plan, "failed", Usage(), nodes, wanted)))
    assert len(encode(answer)) <= ANSWER_LIMIT
    return dict(answer)


def test_a_state_that_fits_is_whole() -> None:
    nodes = {"a": failed(3, 1000), "b": NodeState()}
    answer = answered(nodes)
    assert answer["nodes"] == {name: node.to_json() for name, node in nodes.items()}
    assert "trimmed" not in answer


def test_details_go_first_and_of_the_largest_nodes_only_and_each_says_so() -> None:
    nodes = {"small": failed(2, 100), "large": failed(100, 15_000), "medium": failed(10, 10_000)}
    answer = answered(nodes)
    assert [name for name, node in answer["nodes"].items() if "trimmed" in node] == ["large"]
    assert answer["nodes"]["large"]["trimmed"] == ["details"]
    assert len(answer["nodes"]["large"]["executions"][0]["attempts"]) == 100
    assert answer["nodes"]["medium"] == nodes["medium"].to_json()
    assert '{"nodes": [NAME]}' in answer["trimmed"]
    assert '{"page": 0}' in answer["trimmed"]


@pytest.mark.parametrize(
    ("nodes", "lacks"),
    [
        ({f"n{i}": failed(20, 1000) for i in range(300)}, {"details", "attempts"}),
        ({f"n{i}": failed(1, 0, message=2000) for i in range(2000)}, {"attempts", "messages"}),
        ({f"n{i}": failed(1, 0, executions=20) for i in range(2000)}, {"attempts", "executions"}),
    ],
)
def test_however_much_there_is_the_answer_fits(nodes: dict[str, NodeState], lacks: set[str]) -> None:
    answer = answered(nodes)
    assert list(answer["nodes"]) == list(nodes)
    assert {what for node in answer["nodes"].values() for what in node.get("trimmed", [])} >= lacks


def test_pages_have_everything() -> None:
    nodes = {"small": failed(2, 100), "large": failed(300, 15_000), "more": failed(1, 1, executions=3000)}
    first = answered(nodes, {"page": 0})
    parts = [answered(nodes, {"page": number}) for number in range(first["pages"])]
    joined = join(parts)
    assert joined["nodes"] == {name: node.to_json() for name, node in nodes.items()}
    assert joined["status"] == "failed"
    assert all("trimmed" not in part for part in parts)


def test_nodes_asked_for_by_name_are_shown_alone_and_in_pages_too() -> None:
    nodes = {"small": failed(2, 100), "large": failed(100, 15_000), "medium": failed(10, 10_000)}
    answer = answered(nodes, {"nodes": ["medium", "small", "medium"]})
    assert answer["nodes"] == {name: nodes[name].to_json() for name in ("medium", "small")}
    parts = [answered(nodes, {"nodes": ["large"], "page": number}) for number in (0, 1)]
    assert parts[0]["pages"] == parts[1]["pages"] >= 2
    assert set(parts[0]["nodes"]) == {"large"}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"nodes": ["b"]}, "unknown_node"),
        ({"nodes": [5]}, "unknown_node"),
        ({"nodes": "a"}, "bad_request"),
        ({"node": "a"}, "bad_request"),
        ("a", "bad_request"),
        ({}, "bad_request"),
        ([], "bad_request"),
        ({"page": 1}, "bad_cursor"),
        ({"page": True}, "bad_cursor"),
        ({"page": "0"}, "bad_cursor"),
        ({"page": -1}, "bad_cursor"),
    ],
)
def test_a_part_that_is_not_there_is_refused(wanted: JSON, code: str) -> None:
    with pytest.raises(OperateError) as caught:
        answered({"a": failed(1, 1)}, wanted)
    assert caught.value.code == code


async def test_a_run_whose_attempts_have_more_details_than_an_answer_carries_shows_and_carries_them_all(
    runs: Runs,
) -> None:
    nodes = {
        f"work{i}": {
            "function": f"{FUNCTION}:fail_as",
            "input": {"code": "BAD", "details": "${'d' * 15000}"},
            "on_fail": [{"retry": {"times": 39}}],
        }
        for i in range(2)
    }
    graph = {"on_failure": "continue", "nodes": {"small": {"value": 1}, **nodes}}
    handle = await runs.start(graph)
    await runs.failure(handle)
    trimmed = await runs.query(handle.id, "state")
    assert len(encode(trimmed)) <= ANSWER_LIMIT
    first = await runs.query(handle.id, "state", {"page": 0})
    whole = join([await runs.query(handle.id, "state", {"page": number}) for number in range(first["pages"])])
    assert encode(whole["nodes"]["small"]) == encode(trimmed["nodes"]["small"])
    for name in nodes:
        attempts = whole["nodes"][name]["executions"][0]["attempts"]
        assert [len(attempt["error"]["details"]["details"][0]) for attempt in attempts] == [15_000] * 40
        alone = await runs.query(handle.id, "state", {"nodes": [name]})
        assert alone["nodes"] == {name: whole["nodes"][name]}
    with pytest.raises(WorkflowQueryFailedError, match="pages are 0 to"):
        await runs.query(handle.id, "state", {"page": 1000})

    again = await runs.start_raw({"resume": {"run": handle.id}})
    await runs.failure(again)
    pages = (await runs.query(again.id, "state", {"page": 0}))["pages"]
    restored = join([await runs.query(again.id, "state", {"page": number}) for number in range(pages)])
    assert encode(restored) == encode(whole)
