"""An item that passes through a graph inside a chunk fares as a child run does: the same value or failure, the same
calls."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from runs import Runs

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
                "accept": ["output.feedback != None"],
                "on_fail": [{"retry": {"times": 1, "feedback": True}}],
            }
        }
    },
    "accept": {"nodes": {"a": {"value": "${input.n}", "accept": ["output < 7"]}}},
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
