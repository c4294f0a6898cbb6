"""A run's history is foreseen at load: it never takes more, and what can't fit is refused with its node's name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from graph.budget import MOST_EVENTS, run_events
from graph.compile import compile_graph
from graph.errors import LoadError
from graph.files import NoFiles
from graph.source import from_object
from runs import Runs

REJECTED = {"accept": [{"expr": "False"}]}
GRAPHS: dict[str, Any] = {
    "chain": {f"n{i}": {"value": f"${{n{i - 1}}}" if i else 0} for i in range(20)},
    "fan_out": {f"n{i}": {"value": i} for i in range(60)},
    "ladder": {
        "a": {"value": 1, **REJECTED, "on_fail": [{"retry": {"times": 3, "feedback": True}}, {"reroute": {"value": 2}}]}
    },
    "delays": {
        "a": {
            "function": "functions_for_tests:crash",
            "input": {},
            "on_fail": [{"retry": {"times": 4, "delay": "10ms"}}, "escalate"],
        }
    },
    "activity_loop": {"a": {"activity": "step", "input": 0, "repeat": {"until": "output >= 5", "max_rounds": 9}}},
    "child": {"a": {"graph": {"nodes": {"b": {"value": 1}}}, "input": 1}},
    "map": {
        "a": {"over": [1, 2, 3], "value": "${item}", **REJECTED, "on_fail": [{"reroute": {"value": 0}}, "escalate"]}
    },
    "deadline": {"a": {"value": 1, "deadline": "1m"}, "b": {"value": "${a}", "deadline": "1m"}},
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_a_run_takes_no_more_events_than_were_foreseen(runs: Runs, name: str) -> None:
    graph = {"nodes": GRAPHS[name]}
    foreseen = run_events(compile_graph(from_object(graph, "graph"), NoFiles()).graph)
    handle = await runs.start(graph)
    with suppress(WorkflowFailureError):
        await handle.result()
    taken = len((await runs.replays(handle)).events)
    assert taken <= foreseen, (taken, foreseen)


def test_what_cannot_fit_is_refused_with_the_name_of_the_node() -> None:
    graph = {
        "nodes": {
            "small": {"value": 1},
            "endless": {
                "activity": "step",
                "input": 0,
                "repeat": {"until": "output > 1", "max_rounds": 1000},
                "on_fail": [{"retry": 100}],
            },
        }
    }
    with pytest.raises(LoadError) as caught:
        compile_graph(from_object(graph, "graph"), NoFiles())
    (problem,) = caught.value.problems
    assert problem.code == "too_large"
    assert "`endless`" in problem.message
    assert str(MOST_EVENTS) in problem.message
