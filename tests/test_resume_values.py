"""What a restored run shows of concluded nodes is what the first one showed, byte for byte."""

from __future__ import annotations

from typing import Any

from graph.values import ANSWER_LIMIT, encode
from runs import Runs


async def restored(runs: Runs, graph: dict[str, Any], id: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Run a graph, go on from its end; the second run's id, and the snapshots of both but for their names and times."""
    first = await runs.complete(graph, {"some": "input"}, id=id)
    again = await runs.start_raw({"resume": {"run": first["id"]}})
    await again.result()
    await runs.replays(again)
    before, after = [await runs.query(run, "snapshot") for run in (first["id"], again.id)]
    for snapshot in (before, after):
        del snapshot["run"], snapshot["started"]
    return again.id, before, after


async def test_state_output_and_snapshot_of_a_restored_run_are_equal_byte_for_byte(runs: Runs) -> None:
    nodes: dict[str, Any] = {
        "empty": {"value": None},
        "little": {"value": {"b": 1.0, "a": [1, None, "ü"], "c": 1e300}},
        "medium": {"value": "${'x' * 5000}"},
        "nearly": {"value": "${'x' * 16000}"},
        "large": {"value": "${'x' * 50000}"},
        "listed": {"value": "${list(range(9000))}"},
        "mapped": {
            "over": "${list(range(20))}",
            "value": "${item}",
            "accept": [{"expr": "output != 3"}],
            "on_fail": ["escalate"],
        },
        "below": {"graph": {"nodes": {"inner": {"value": "${input}"}}}, "input": {"deep": 1}},
        "forgiven": {
            "value": 1,
            "accept": [{"expr": "False"}],
            "on_fail": [{"retry": 1}, "escalate"],
            "optional": True,
        },
        "never": {"value": "${forgiven}"},
    }
    nodes["called"] = {"activity": {"name": "add", "args": [1, 2]}}
    graph = {"nodes": nodes, "output": "${medium}"}
    run, before, after = await restored(runs, graph, "all-kinds-restored")
    assert encode(after) == encode(before)
    assert encode(await runs.query(run, "state")) == encode(await runs.query("all-kinds-restored", "state"))
    for name in before["values"]:
        shown = [await runs.query(id, "output", name) for id in ("all-kinds-restored", run)]
        assert encode(shown[0]) == encode(shown[1])


async def test_values_too_large_together_go_to_the_store_the_largest_first(runs: Runs) -> None:
    nodes: dict[str, Any] = {f"n{i}": {"value": f"${{'x' * {14000 if i % 2 else 15000}}}"} for i in range(80)}
    nodes["little"] = {"value": "y"}
    run, _, _ = await restored(runs, {"nodes": nodes, "output": "${little}"}, "many-values-restored")
    values: dict[str, Any] = {}
    for page in range((await runs.query(run, "snapshot"))["pages"]):
        values |= (await runs.query(run, "snapshot", page))["values"]
    inline = {name: len(encode(value["inline"])) for name, value in values.items() if value.get("ref") is None}
    lowered = {name for name, value in values.items() if value.get("ref") is not None}
    assert ANSWER_LIMIT - 16_000 < sum(inline.values()) <= ANSWER_LIMIT
    assert lowered
    assert all(int(name[1:]) % 2 == 0 for name in lowered)
    assert await runs.query(run, "output", "n1") == await runs.query("many-values-restored", "output", "n1")
