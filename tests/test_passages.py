"""An item that passes through a graph inside a chunk fares as a child run does: the same value or failure, the same
calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from mapped import history_of, scheduled
from observing import queued, stored
from runs import Runs
from workflows import replayer

RUN = "${input.run}"


def call(function: str, /, **input: Any) -> dict[str, Any]:
    return {"function": f"functions_for_tests:{function}", "input": {"run": RUN, **input}}


def count(key: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return {**call("count", key=key, value=value), **more}


def failing(code: str = "BAD", key: str = "failing", **more: Any) -> dict[str, Any]:
    return {**call("script", key=key, replies=[{"fail": code}]), **more}


def flaky(times: int, value: Any = "done", key: str = "flaky", **more: Any) -> dict[str, Any]:
    return {**call("script", key=key, replies=[{"fail": "FLAKY"}] * times + [value]), **more}


ADD = "def run(input):\n    return input + 1\n"
REFUSE = "def run(input):\n    if input['n'] == 7:\n        fail('SEVEN', 'no sevens')\n    return input['n']\n"
COUNTS = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "more": {"default": "more"}}}

GRAPHS: dict[str, dict[str, Any]] = {
    "one sink": {"nodes": {"a": count("a", 1), "b": {"script": ADD, "input": "${a}"}}},
    "several sinks": {"nodes": {"a": count("a", 1), "b": count("b", 2), "c": {"value": "${a}"}}},
    "output": {"nodes": {"a": count("a", 1), "b": count("b", 2)}, "output": {"sum": "${a + b}", "n": "${input.n}"}},
    "guard false": {"nodes": {"a": count("a", 1, when="input.n > 100"), "b": {"script": ADD, "input": "${a}"}}},
    "guard false, sink beside": {"nodes": {"a": count("a", 1, when="input.n > 100"), "b": count("b", 2)}},
    "guard fails": {"nodes": {"a": count("a", 1, when="input.missing > 1")}},
    "guard true": {"nodes": {"a": count("a", 1, when="input.n == 7"), "b": {"script": ADD, "input": "${a}"}}},
    "failure": {"nodes": {"a": failing(), "b": count("b", 1, after=["a"])}},
    "failure in a script": {"nodes": {"a": {"script": REFUSE}, "b": {"value": "${a}"}}},
    "failure in an expression": {"nodes": {"a": {"value": "${input.n / 0}"}}},
    "caught": {"nodes": {"a": failing(), "b": count("b", "caught", after={"a": "failed"})}},
    "caught, optional": {"nodes": {"a": failing(optional=True), "b": count("b", "caught", after={"a": "failed"})}},
    "not caught": {"nodes": {"a": count("a", 1), "b": count("b", "caught", after={"a": "failed"})}},
    "finally": {"nodes": {"a": failing(), "b": count("b", "end", after={"a": "any"}), "c": count("c", 1, after=["a"])}},
    "optional": {"nodes": {"a": failing(optional=True), "b": count("b", 1, after=["a"]), "c": count("c", 2)}},
    "continue": {
        "nodes": {"a": failing(), "b": count("b", 1), "c": count("c", 2, after=["b"])},
        "on_failure": "continue",
    },
    "joined": {
        "nodes": {
            "a": count("a", 1, when="input.n == 7"),
            "b": count("b", 2, when="input.n != 7"),
            "c": {"value": "${[a, b]}", "after": {"a": "any", "b": "any"}},
        }
    },
    "retry": {"nodes": {"a": flaky(2, on_fail=[{"retry": 2}]), "b": count("b", "${a}")}},
    "retry used up": {"nodes": {"a": flaky(9, on_fail=[{"retry": 2}])}},
    "retry for another code": {"nodes": {"a": flaky(1, on_fail=[{"retry": {"times": 2, "on": ["OTHER"]}}])}},
    "retry with a delay": {
        "nodes": {"b": count("b", 1), "a": flaky(2, after=["b"], on_fail=[{"retry": {"times": 2, "delay": "50ms"}}])}
    },
    "two with delays": {
        "nodes": {
            "a": flaky(2, key="a", on_fail=[{"retry": {"times": 2, "delay": "20ms"}}]),
            "b": flaky(1, key="b", on_fail=[{"retry": {"times": 2, "delay": "70ms"}}]),
            "c": {"value": "${[a, b]}"},
        }
    },
    "reroute to a value": {"nodes": {"a": {"script": REFUSE, "on_fail": [{"reroute": {"value": "n ${input.n}"}}]}}},
    "reroute to a script": {
        "nodes": {"a": failing(on_fail=[{"reroute": {"script": "def run(input):\n    return 3\n"}}])}
    },
    "feedback": {
        "nodes": {
            "a": {
                **call("with_feedback"),
                "accept": [{"expr": "output.feedback != None"}],
                "on_fail": [{"retry": {"times": 1, "feedback": True}}],
            }
        }
    },
    "accept": {"nodes": {"a": {"value": "${input.n}", "accept": [{"expr": "output < 7"}]}}},
    "accept a script": {
        "nodes": {
            "a": count("a", "${input.n}", accept=[{"script": "def run(input):\n    return input['output'] == 7\n"}])
        }
    },
    "output schema": {"nodes": {"a": {"value": "${input.n}", "output_schema": {"type": "string"}}}},
    "loop": {
        "nodes": {"a": {"script": ADD, "input": "${input.n}", "repeat": {"until": "output > 11", "max_rounds": 9}}}
    },
    "loop without an end": {
        "nodes": {"a": {"script": ADD, "input": "${input.n}", "repeat": {"until": "output > 99", "max_rounds": 3}}}
    },
    "input schema": {"input_schema": COUNTS, "nodes": {"a": {"value": "${input.more}"}}},
    "input refused": {
        "input_schema": {"type": "object", "properties": {"n": {"type": "string"}}},
        "nodes": {"a": {"value": "${input.n}"}},
    },
    "deadline of a node": {"nodes": {"a": {**call("slow", seconds=30, key="a"), "deadline": "300ms"}}},
    "deadline of the graph": {"nodes": {"a": call("slow", seconds=30, key="a")}, "deadline": "300ms"},
    "time-out": {"nodes": {"a": {**call("slow", seconds=30, key="a"), "timeout": "300ms"}}},
    "a model": {"nodes": {"a": {"infer": {"model": "echo", "prompt": "say ${input.n}"}}}},
}


async def outcome(runs: Runs, graph: dict[str, Any], input: Any) -> tuple[Any, ...]:
    """A run's value, or how it failed; its history replays."""
    handle = await runs.start(graph, input)
    try:
        envelope = await handle.result()
    except WorkflowFailureError:
        error = (await runs.failure(handle)).envelope["error"]
        assert error["node"] == "work", error  # the graph as such is sound
        return ("failed", error["code"], error["class"])
    await runs.replays(handle)
    return ("value", envelope["result"])


@pytest.mark.parametrize("name", GRAPHS)
async def test_an_item_fares_as_a_child_run_does(runs: Runs, name: str) -> None:
    graph = GRAPHS[name]
    tag = f"{name}-{id(runs)}"
    child = {"nodes": {"work": {"graph": graph}}, "output": "${work}"}
    one = {"nodes": {"work": {"graph": graph, "over": "${[input]}"}}, "output": "${work.values[0]}"}
    found = await outcome(runs, one, {"run": f"{tag}-item", "n": 7})
    assert found == await outcome(runs, child, {"run": f"{tag}-child", "n": 7})
    for function in ("count", "script", "slow", "with_feedback"):
        mine, theirs = (runs.calls(function, f"{tag}-{way}") for way in ("item", "child"))
        assert sorted(call["key"] for call in mine) == sorted(call["key"] for call in theirs), function


async def test_an_item_whose_node_waits_comes_back_within_its_graph(runs: Runs) -> None:
    """What had concluded isn't called again, and other items go on meanwhile."""
    nodes = {
        "before": count("before ${input.n}", "${input.n}"),
        "poll": flaky(2, "${before}", key="poll ${input.n}", on_fail=[{"retry": {"times": 3, "delay": "300ms"}}]),
        "after": count("after ${input.n}", "${poll}"),
    }
    work = {"over": "${[{'run': run.id, 'n': n} for n in range(5)]}", "graph": {"nodes": nodes}}
    handle = await runs.start({"nodes": {"work": work}, "output": "${work.values}"})
    assert (await handle.result())["result"] == list(range(5))
    counted = Counter(call["key"] for call in runs.calls("count", handle.id))
    assert counted == Counter([f"{name} {n}" for name in ("before", "after") for n in range(5)])
    assert Counter(call["key"] for call in runs.calls("script", handle.id)) == {f"poll {n}": 3 for n in range(5)}
    map_run = await history_of(runs, f"{handle.id}/work/1.0")
    assert scheduled(await runs.replays(handle))["chunk"] == 1
    assert scheduled(map_run)["reroute_chunk"] >= 1
    await replayer().replay_workflow(map_run)


async def test_nodes_escalated_within_items_are_handed_over_together(runs: Runs) -> None:
    queue = f"within-{id(runs)}"
    nodes = {
        "a": {"value": {"n": "${input}"}},
        "b": {
            "script": "def run(input):\n    return input['n']\n",
            "input": "${a}",
            "accept": [{"expr": "output % 2 == 0"}],
            "on_fail": [{"retry": 1}, {"escalate": {"queue": queue}}],
        },
    }
    handle = await runs.start({"nodes": {"work": {"over": "${input}", "graph": {"nodes": nodes}}}}, [0, 1, 2, 3])
    output = (await handle.result())["result"]
    assert (output["values"], output["failed"]) == ([0, 2], 2)
    (entry,) = await queued(runs, handle.id, queue)
    assert (entry["node"], entry["count"]) == ("work", 2)
    told = await stored(runs, entry["ref"])
    assert [(each["index"], each["item"], each["node"], each["input"]) for each in told] == [
        (1, 1, "b", {"n": 1}),
        (3, 3, "b", {"n": 3}),
    ]
    assert [each["attempts"] for each in told] == [2, 2]
    assert [await stored(runs, each["rejected"]) for each in told] == [1, 3]
    await runs.replays(handle)


async def test_what_the_nodes_of_each_item_came_to_is_kept(runs: Runs) -> None:
    nodes = {
        "asked": {"infer": {"model": "echo", "prompt": "say ${input}"}},
        "checked": {
            "script": "def run(input):\n    if input == 'say b':\n        fail('B', 'no b')\n    return input\n"
        },
    }
    nodes["checked"]["input"] = "${asked}"
    handle = await runs.start({"nodes": {"work": {"over": "${input}", "graph": {"nodes": nodes}}}}, ["a", "b"])
    envelope = await handle.result()
    (execution,) = (await runs.query(handle.id, "state"))["nodes"]["work"]["executions"]
    first, second = await stored(runs, execution["passed"])
    assert (first["index"], second["index"]) == (0, 1)
    assert {name: node["status"] for name, node in first["nodes"].items()} == dict.fromkeys(nodes, "succeeded")
    assert second["nodes"]["checked"]["status"] == "failed"
    assert second["nodes"]["checked"]["error"]["code"] == "B"
    tokens = [each["nodes"]["asked"]["usage"]["input_tokens"] for each in (first, second)]
    assert sum(tokens) == envelope["usage"]["input_tokens"] == execution["usage"]["input_tokens"] > 0
    await runs.replays(handle)


async def test_no_more_items_than_allowed_are_within_their_graphs(runs: Runs) -> None:
    nodes = {
        "a": {
            **call("slow", seconds=0.05, key="a", value=1),
            "input": {"run": "${input.run}", "key": "a", "seconds": 0.05},
        },
        "b": {**call("slow", seconds=0.05, key="b", value=1), "after": ["a"]},
    }
    work = {"over": "${[{'run': run.id} for n in range(20)]}", "graph": {"nodes": nodes}, "concurrency": 3}
    handle = await runs.start({"nodes": {"work": work}})
    await handle.result()
    at_once, most = 0, 0
    for each in sorted(runs.calls("slow", handle.id), key=lambda each: each["time"]):
        at_once += 1 if each["event"] == "start" else -1
        most = max(most, at_once)
    assert most == 3
    await runs.replays(handle)


async def test_the_ladder_of_the_map_climbs_when_an_items_graph_fails(runs: Runs) -> None:
    nodes = {"a": {"script": "def run(input):\n    if input % 2:\n        fail('ODD', 'no')\n    return input\n"}}
    work = {
        "over": "${input}",
        "graph": {"nodes": nodes},
        "accept": [{"expr": "output != 2"}],
        "on_fail": [{"reroute": {"value": "instead ${item}", "on": ["ODD"]}}, "escalate"],
    }
    handle = await runs.start({"nodes": {"work": work}}, [0, 1, 2])
    output = (await handle.result())["result"]
    assert output["values"] == [0, "instead 1"]
    assert (output["failures"][0]["index"], output["escalated"]) == (2, 1)
    await runs.replays(handle)


@pytest.mark.parametrize("more", [{}, {"isolation": "item"}])
async def test_many_items_pass_through_a_long_graph_with_large_values(runs: Runs, more: dict[str, Any]) -> None:
    nodes: dict[str, Any] = {"n0": {"value": "${'x' * input}"}}
    for number in range(1, 10):
        nodes[f"n{number}"] = {"value": f"${{n{number - 1}}}"}
    nodes["size"] = {"script": "def run(input):\n    return len(input)\n", "input": "${n9}"}
    sizes = [1, 300_000, 1_000_000, 10, 40_000]
    handle = await runs.start({"nodes": {"work": {"over": "${input}", "graph": {"nodes": nodes}, **more}}}, sizes)
    assert (await handle.result())["result"]["values"] == sizes
    await runs.replays(handle)
