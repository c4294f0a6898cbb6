"""Stretches: consecutive pure nodes in one activity give what they give one by one, and are told so."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from graph.values import JSON
from nodes import keys
from observing import history, queued, scheduled, until
from runs import Runs

DOUBLE = "def run(input):\n    return {'n': input['n'] * 2}\n"


def script(text: str, **more: JSON) -> dict[str, Any]:
    return {"script": text, **more}


def chain(length: int) -> dict[str, Any]:
    """Pure nodes one after the other, scripts and values in turn."""
    nodes: dict[str, Any] = {"n0": {"value": {"n": "${input.n}"}}}
    for number in range(1, length):
        before = f"n{number - 1}"
        if number % 2:
            nodes[f"n{number}"] = script(DOUBLE, input=f"${{{before}}}")
        else:
            nodes[f"n{number}"] = {"value": {"n": f"${{{before}.n % 1000 + 1}}"}}
    return {"nodes": nodes, "stretch": True}


def told(state: dict[str, Any]) -> dict[str, Any]:
    """A run's state without its times."""
    for node in state["nodes"].values():
        for execution in node["executions"]:
            for attempt in execution["attempts"]:
                del attempt["created"], attempt["finished"]
                attempt["fuel"] = attempt["fuel"] is not None
    return state


async def both(runs: Runs, graph: dict[str, Any], input: JSON = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a graph in stretches and node by node: result or failure, and state, are the same. Gives the histories."""
    found = []
    for stretch in (True, False):
        handle = await runs.start({**graph, "stretch": stretch}, input)
        try:
            envelope = await handle.result()
        except WorkflowFailureError as error:
            envelope = {"message": str(error.cause)}
        done = await runs.replays(handle)
        found.append((envelope, told(await runs.query(handle.id, "state")), scheduled(done)))
    (one, state, stretched), (other, expected, single) = found
    assert one == other
    assert state == expected
    return {"activities": stretched, "state": state, **one}, {"activities": single}


async def test_a_chain_runs_in_one_activity(runs: Runs) -> None:
    stretched, single = await both(runs, chain(20), {"n": 3})
    assert stretched["activities"] == ["load", "stretch"]
    assert len(single["activities"]) == 21
    nodes = stretched["state"]["nodes"]
    assert all(node["status"] == "succeeded" for node in nodes.values())
    assert all(node["executions"][0]["attempts"][0]["output"].startswith("sha256:") for node in nodes.values())


async def test_only_a_graph_that_says_so_has_stretches(runs: Runs) -> None:
    envelope = await runs.complete({**chain(3), "stretch": False}, {"n": 1})
    assert "stretch" not in scheduled(await history(runs, envelope["id"]))


async def test_stretches_change_no_fingerprint(runs: Runs) -> None:
    one = await runs.complete(chain(3), {"n": 1})
    other = await runs.complete({**chain(3), "stretch": False}, {"n": 1})
    prints = [(await runs.query(each["id"], "state"))["fingerprint"] for each in (one, other)]
    assert prints[0] == prints[1]


async def test_a_diamond_in_a_stretch(runs: Runs) -> None:
    nodes = {
        "a": {"value": 1},
        "b": {"value": "${a + 1}"},
        "c": {"value": "${a + 2}"},
        "d": {"value": ["${b}", "${c}"]},
    }
    stretched, _ = await both(runs, {"nodes": nodes})
    assert stretched["result"] == [2, 3]
    assert stretched["activities"] == ["load", "stretch"]


async def test_a_stretch_ends_where_a_node_is_not_pure_and_another_begins_after_it(runs: Runs) -> None:
    nodes = {
        "a": {"value": 1},
        "b": {"value": "${a + 1}"},
        "c": {"function": "functions_for_tests:echo", "input": {"value": "${b + 1}"}},
        "d": {"value": "${c + 1}"},
        "e": {"value": "${d + b}"},
    }
    stretched, _ = await both(runs, {"nodes": nodes})
    assert stretched["result"] == 6
    assert stretched["activities"] == ["load", "stretch", "attempt", "stretch"]


async def test_a_false_guard_skips_within_a_stretch(runs: Runs) -> None:
    nodes = {
        "a": {"value": 1},
        "b": {"value": "${a}", "when": "a > 1"},
        "c": {"value": "${b}"},
        "d": {"value": "${a + 1}"},
        "e": {"value": {"b": "${b}", "d": "${d}"}, "after": {"b": "any"}},
    }
    stretched, _ = await both(runs, {"nodes": nodes, "output": {"d": "${d}", "e": "${e}"}})
    assert stretched["result"] == {"d": 2, "e": {"b": None, "d": 2}}
    assert stretched["nodes"]["c"] == "skipped"


async def test_a_failure_ends_a_stretch_and_climbs_its_own_ladder(runs: Runs) -> None:
    bad = script("def run(input):\n    fail('ODD', 'it is odd')\n", on_fail=[{"reroute": {"value": 7}}])
    nodes = {"a": {"value": 1}, "b": {**bad, "after": ["a"]}, "c": {"value": "${b + 1}"}, "d": {"value": "${c + 1}"}}
    stretched, _ = await both(runs, {"nodes": nodes})
    assert stretched["result"] == 9
    assert stretched["activities"] == ["load", "stretch", "reroute", "stretch"]
    first, second = stretched["state"]["nodes"]["b"]["executions"][0]["attempts"]
    assert (first["error"]["code"], second["implementation"]) == ("ODD", "value")


async def test_checks_reject_within_a_stretch(runs: Runs) -> None:
    nodes = {
        "a": {"value": 1},
        "b": {"value": "${a}", "accept": [{"expr": "output > 1"}], "on_fail": ["escalate"]},
        "c": {"value": "${b}"},
    }
    handle = await runs.start({"nodes": nodes, "stretch": True})
    failed = await runs.failure(handle)
    assert failed.code == "rejected"
    assert failed.envelope["nodes"] == {"a": "succeeded", "b": "failed", "c": "idle"}
    [entry] = await queued(runs, handle.id)
    assert entry["node"] == "b"


async def test_an_expression_that_fails_is_invalid_input(runs: Runs) -> None:
    nodes = {"a": {"value": "${input}"}, "b": {"value": "${a['y']}", "on_fail": ["escalate"]}}
    stretched, _ = await both(runs, {"nodes": nodes}, {"x": 1})
    assert "node `b`" in stretched["message"]
    assert stretched["state"]["nodes"]["b"]["executions"][0]["error"]["code"] == "invalid_input"


@pytest.mark.parametrize("size", [10_000, 300_000])
async def test_large_values_pass_through_a_stretch(runs: Runs, size: int) -> None:
    nodes = {
        "a": {"value": "${'x' * input.size}"},
        "b": {"value": {"text": "${a}"}},
        "c": {"value": {"text": "${b.text + a}"}},
        "d": {"value": "${len(c.text)}"},
    }
    stretched, _ = await both(runs, {"nodes": nodes, "output": "${d}"}, {"size": size})
    assert stretched["result"] == 2 * size


async def test_a_loop_in_a_stretch(runs: Runs) -> None:
    loop = script(DOUBLE, input="${a}", repeat={"until": "output.n > 50", "max_rounds": 10})
    stretched, _ = await both(runs, {"nodes": {"a": {"value": {"n": 1}}, "b": loop, "c": {"value": "${b.n}"}}})
    assert stretched["result"] == 64
    assert stretched["activities"] == ["load", "stretch"]


async def test_slow_nodes_of_a_fan_out_are_left_for_activities_of_their_own(runs: Runs) -> None:
    spin = script("def run(input):\n    for _ in range(20_000_000):\n        pass\n    return input\n", input="${a}")
    stretched, _ = await both(runs, {"nodes": {"a": {"value": 1}, "b": spin, "c": spin, "d": spin}})
    assert stretched["activities"][:2] == ["load", "stretch"]
    assert len(stretched["activities"]) > 2


async def test_a_stretch_of_a_failing_run_goes_no_further(runs: Runs) -> None:
    nodes = {"bad": {"value": "${1 / input.zero}"}, "a": {"value": 1}, "b": {"value": "${a}"}}
    handle = await runs.start({"nodes": nodes, "stretch": True}, {"zero": 0})
    failed = await runs.failure(handle)
    assert failed.code == "invalid_input"
    state = await runs.query(handle.id, "state")
    for name in ("a", "b"):
        node = state["nodes"][name]
        assert node["status"] in ("succeeded", "idle", "cancelled")
        assert (node["status"] == "idle") == (not node["executions"])


async def test_a_restored_run_runs_again_only_what_had_not_concluded(runs: Runs) -> None:
    graph = chain(6)
    graph["nodes"]["ask"] = {"wait": {"reply": {"type": "integer"}}, "after": ["n5"]}
    graph["nodes"]["end"] = {"value": "${ask + n5.n}"}
    first = await runs.start(graph, {"n": 1})

    async def waits() -> bool:
        return bool((await runs.query(first.id, "progress")).get("waiting"))

    await until(waits)
    snapshot = await runs.query(first.id, "snapshot")
    await first.terminate()
    second = await runs.start_raw({"resume": snapshot})
    await second.execute_update("reply", {"node": "ask", "value": 5})
    result = (await second.result())["result"]
    assert isinstance(result, int)
    assert scheduled(await runs.replays(second)).count("stretch") == 1
    assert keys(runs, second.id) == []


async def test_what_a_script_does_to_its_modules_makes_no_other_fail(runs: Runs) -> None:
    """Scripts of a stretch share an instance; one that fails there is run again in one of its own."""
    nodes = {
        "meddling": script("import json\ndef run(input):\n    json.dumps = None\n    return 1\n"),
        "other": script("import json\ndef run(input):\n    return json.dumps([input])\n", input="${meddling}"),
    }
    await both(runs, {"nodes": nodes})
    done = await runs.complete({"nodes": nodes, "stretch": True})
    assert done["result"] == "[1]"


async def test_a_script_that_runs_out_of_fuel_leaves_the_next_one_a_fresh_instance(runs: Runs) -> None:
    nodes = {
        "before": script(DOUBLE, input={"n": 1}),
        "spinning": script(
            "def run(input):\n    while True:\n        pass\n",
            input="${before}",
            fuel=100_000_000,
            on_fail=[{"reroute": {"value": {"n": 3}}}],
        ),
        "after": script(DOUBLE, input="${spinning}"),
    }
    found, _ = await both(runs, {"nodes": nodes})
    assert found["result"] == {"n": 6}
