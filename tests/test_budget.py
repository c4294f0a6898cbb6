"""A run's history is foreseen at load: it never takes more, and what can't fit is refused with its node's name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from graph.budget import IN_FLIGHT, MOST_BYTES, MOST_EVENTS, MOST_PENDING, run_cost
from graph.compile import Compilation, compile_graph
from graph.errors import LoadError, Problem
from graph.files import NoFiles
from graph.planning import item_graph
from graph.source import from_object
from graph.values import INLINE_LIMIT, JSON
from observing import stored
from runs import Runs
from workflows import schedule

FUNCTION = "functions_for_tests"
REJECTED = {"accept": [{"expr": "False"}]}
LARGE = f"${{'x' * {INLINE_LIMIT - 100}}}"
GRAPHS: dict[str, Any] = {
    "chain": {f"n{i}": {"value": f"${{n{i - 1}}}" if i else 0} for i in range(20)},
    "chain_of_large_values": {f"n{i}": {"value": f"${{n{i - 1}}}" if i else LARGE} for i in range(20)},
    "fan_out": {f"n{i}": {"value": i} for i in range(60)},
    "fan_in_of_large_values": {
        **{f"n{i}": {"value": LARGE} for i in range(40)},
        "together": {"value": [f"${{len(n{i})}}" for i in range(40)], **REJECTED, "on_fail": [{"retry": 2}]},
    },
    "ladder": {
        "a": {"value": 1, **REJECTED, "on_fail": [{"retry": {"times": 3, "feedback": True}}, {"reroute": {"value": 2}}]}
    },
    "delays": {
        "a": {
            "function": f"{FUNCTION}:crash",
            "input": {},
            "on_fail": [{"retry": {"times": 4, "delay": "10ms"}}, "escalate"],
        }
    },
    "large_failures": {
        "a": {
            "function": f"{FUNCTION}:fail_as",
            "input": {"code": "BAD", "message": "${'m' * 2000}", "details": "${'d' * 15000}"},
            "on_fail": [{"retry": {"times": 9, "feedback": True}}, "escalate"],
        }
    },
    "activity_loop": {"a": {"activity": "step", "input": 0, "repeat": {"until": "output >= 5", "max_rounds": 9}}},
    "large_activity": {"a": {"activity": "large_result", "input": 250_000}},
    "child": {"a": {"graph": {"nodes": {"b": {"value": LARGE}}}, "input": LARGE}},
    "child_loop": {
        "a": {
            "graph": {"nodes": {"b": {"value": "${input + 1}"}}},
            "input": 0,
            "repeat": {"until": "output >= 20", "max_rounds": 20},
        }
    },
    "map": {
        "a": {"over": [1, 2, 3], "value": "${item}", **REJECTED, "on_fail": [{"reroute": {"value": 0}}, "escalate"]}
    },
    "map_of_chunks": {"a": {"over": list(range(2500)), "value": "${item}"}},
    "deadline": {"a": {"value": 1, "deadline": "1m"}, "b": {"value": "${a}", "deadline": "1m"}},
    "wait": {"a": {"wait": {"for": "10ms"}}, "b": {"value": "${a}"}},
}


def compiled(nodes: dict[str, JSON], **more: JSON) -> Compilation:
    return compile_graph(from_object({"nodes": nodes, **more}, "graph"), NoFiles())


def refused(nodes: dict[str, JSON], **more: JSON) -> Problem:
    with pytest.raises(LoadError) as caught:
        compiled(nodes, **more)
    (problem,) = caught.value.problems
    assert problem.code == "too_large"
    return problem


@pytest.mark.parametrize("name", GRAPHS)
async def test_a_run_takes_no_more_events_and_bytes_than_were_foreseen(runs: Runs, name: str) -> None:
    foreseen = run_cost(compiled(GRAPHS[name]).graph)
    handle = await runs.start({"nodes": GRAPHS[name]})
    with suppress(WorkflowFailureError):
        await handle.result()
    taken = len((await runs.replays(handle)).events)
    size = (await handle.describe()).raw_description.workflow_execution_info.history_size_bytes
    assert taken <= foreseen.events, (taken, foreseen)
    assert size <= foreseen.size, (size, foreseen)


def test_what_takes_too_many_events_is_refused_with_the_name_of_the_node() -> None:
    endless = {
        "activity": "step",
        "input": 0,
        "repeat": {"until": "output > 1", "max_rounds": 1000},
        "on_fail": [{"retry": 100}],
    }
    problem = refused({"small": {"value": 1}, "endless": endless})
    assert "`endless`" in problem.message
    assert str(MOST_EVENTS) in problem.message


def test_what_takes_too_many_bytes_even_with_small_values_is_refused_with_the_name_of_the_node() -> None:
    sources = {f"source_{i}": {"value": i} for i in range(1000)}
    parts = [f"${{{name}}}" for name in sources]
    wide = {"function": "m:f", "input": {"parts": parts}, "on_fail": [{"retry": {"times": 1000, "delay": "1s"}}]}
    problem = refused({**sources, "wide": wide})
    assert "`wide`" in problem.message
    assert "40.0 MiB" in problem.message


def test_more_operations_pending_than_fit_are_refused_with_the_name_of_the_node() -> None:
    escalating = {"value": 1, "on_fail": ["escalate"]}
    most = MOST_PENDING - IN_FLIGHT
    compiled({f"n{i}": escalating for i in range(most)})
    problem = refused({f"n{i}": escalating for i in range(most + 1)})
    assert f"`n{most}`" in problem.message
    assert str(MOST_PENDING) in problem.message


def test_as_many_attempts_are_in_flight_as_the_estimate_says() -> None:
    assert schedule.IN_FLIGHT == IN_FLIGHT


def test_a_run_near_the_limits_is_warned_of() -> None:
    ladder = {"function": "m:f", "input": {}, "on_fail": [{"retry": {"times": 4, "delay": "1s"}}]}
    (events,) = compiled({f"n{i}": {"value": 1} for i in range(10)} | {f"m{i}": ladder for i in range(500)}).warnings[
        :1
    ]
    assert (events.code, "`m0`" in events.message) == ("near_limit", True)
    polled = {"activity": "step", "input": 0, "repeat": {"until": "output > 1", "max_rounds": 100}}
    (bytes_,) = compiled({"small": {"value": 1}, "polled": polled}).warnings
    assert (bytes_.code, "`polled`" in bytes_.message) == ("near_limit", True)
    assert compiled({f"n{i}": {"value": 1, "on_fail": ["escalate"]} for i in range(300)}).warnings == []


def heavy() -> dict[str, JSON]:
    """So many readers of so much, so often, that it can't all travel inline."""
    sources = {f"n{i}": {"value": f"${{'x' * {12_000}}}"} for i in range(12)}
    read = [f"${{len(n{i})}}" for i in range(12)]
    reader = {"function": f"{FUNCTION}:echo", "input": {"value": read}, "on_fail": [{"retry": 20}]}
    return {**sources, "small": {"value": "y"}, **{f"reader{i}": reader for i in range(20)}}


async def test_in_a_graph_that_could_not_hold_them_large_values_lie_in_the_store(runs: Runs) -> None:
    graph = compiled(heavy()).graph
    inline = graph.nodes[0].inline
    assert inline < 12_000
    assert all(node.inline == inline for node in graph.nodes)
    assert graph.fingerprint == compiled(heavy()).graph.fingerprint
    run = await runs.complete({"nodes": heavy(), "output": "${reader0}"})
    assert run["result"] == [12_000] * 12
    assert (await runs.query(run["id"], "output", "small"))["value"] == "y"
    answer = await runs.query(run["id"], "output", "n3")
    assert await stored(runs, answer["ref"]) == "x" * 12_000
    info = (await runs.client.get_workflow_handle(run["id"]).describe()).raw_description.workflow_execution_info
    assert info.history_size_bytes < MOST_BYTES / 100


def test_a_usual_graph_has_its_values_inline() -> None:
    assert {node.inline for node in compiled(GRAPHS["fan_in_of_large_values"]).graph.nodes} == {INLINE_LIMIT}


@pytest.mark.parametrize("kind", [{"activity": {"name": "act"}}, {"graph": {"nodes": {"a": {"wait": {"reply": {}}}}}}])
def test_the_longest_ladder_of_an_item_fits_in_the_history_of_its_run(kind: dict[str, JSON]) -> None:
    """So nothing has to be refused where the items of a map are runs of their own."""
    ladder: JSON = [{"retry": {"times": 1_000, "delay": "1s", "feedback": True}}, "escalate"]
    graph = compiled({"work": {"over": [1], **kind, "on_fail": ladder, "deadline": "1d"}}).graph
    assert run_cost(item_graph(graph, "work")).events < MOST_EVENTS
