"""Pure items done many at once come to the same as each in a sandbox of its own."""

from __future__ import annotations

from typing import Any

import pytest

from graph.values import JSON
from mapped import execution
from observing import queued
from runs import Runs

ODD = """
import json
SEEN = []
def run(input):
    SEEN.append(input)
    if len(SEEN) > 1:
        fail('LEAK', 'the namespace is not fresh')
    kind = input['kind']
    if kind == 'fail':
        fail('TOLD', f"number {input['n']}")
    if kind == 'raise':
        raise ValueError(input['n'])
    if kind == 'spin':
        while True:
            pass
    if kind == 'memory':
        return [0] * (1 << 28)
    if kind == 'deep':
        return eval('[' * 90 + ']' * 90) if input['n'] % 2 else json.loads('[' * 150 + ']' * 150)
    if kind == 'nan':
        return {'n': float('nan')}
    if kind == 'large':
        return 'x' * 40_000
    if kind == 'file':
        open('/etc/passwd')
    if kind == 'print':
        print('working on', input['n'])
        fail('PRINTED', 'after a line')
    if kind == 'infer':
        infer('who are you?')
    if kind == 'exit':
        import os
        os._exit(3)
    return {'n': input['n'] * 2, 'text': 'naïve 日本 \\u2028'}
"""


def items(*kinds: str, count: int = 40) -> list[dict[str, JSON]]:
    """So many items, of these kinds among plain ones."""
    return [{"n": n, "kind": kinds[n // 3 % len(kinds)] if kinds and n % 3 == 0 else "plain"} for n in range(count)]


async def come_to(runs: Runs, node: dict[str, Any], input: JSON) -> tuple[JSON, JSON, JSON]:
    """A map's output (or failure), its counts and what was escalated."""
    graph = {"nodes": {"work": node}, "output": "${work}", "on_failure": "continue"}
    handle = await runs.start(graph, input)
    try:
        output: JSON = (await handle.result())["result"]
    except Exception as error:  # whatever it is, both must raise the same
        output = str(error.__cause__)
    await runs.replays(handle)
    found = await execution(runs, handle.id)
    entries = [(entry["count"], entry["reason"], entry["sample"]) for entry in await queued(runs, handle.id)]
    return output, found.get("items"), entries


async def both(runs: Runs, node: dict[str, Any], input: JSON) -> JSON:
    """Run a map both ways; what it came to."""
    together = await come_to(runs, node, input)
    alone = await come_to(runs, {**node, "isolation": "item"}, input)
    assert together == alone
    return together[0]


@pytest.mark.parametrize("kind", ["fail", "raise", "deep", "nan", "large", "file", "print", "infer", "exit"])
async def test_items_that_fail_among_others_fail_as_they_do_alone(runs: Runs, kind: str) -> None:
    node = {"over": "${input.items}", "script": ODD, "output_bytes": 30_000}
    output = await both(runs, node, {"items": items(kind)})
    assert output["succeeded"] >= 26
    assert all("LEAK" not in failure["code"] for failure in output["failures"])


async def test_an_item_that_spins_and_one_that_fills_the_memory_cost_their_neighbours_nothing(runs: Runs) -> None:
    node = {"over": "${input.items}", "script": ODD, "fuel": 300_000_000, "memory": "64MiB"}
    output = await both(runs, node, {"items": [*items(count=20), *items("spin", "memory", count=5), *items(count=5)]})
    assert {failure["code"] for failure in output["failures"]} == {"out_of_fuel", "out_of_memory"}
    assert output["succeeded"] == 28


async def test_bindings_guards_and_checks_of_many_items(runs: Runs) -> None:
    node = {
        "over": "${input.items}",
        "when": "item.n % 5 != 1 or item.n / (item.n - 6) > 0",  # fails for the sixth
        "input": {"kind": "${item.kind}", "n": "${item.n + input.more + index}", "all": "${len(input.items)}"},
        "script": ODD,
        "output_schema": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 90}}},
        "accept": [{"expr": "output.n % 3 != 0"}, {"expr": "output.n < input.limit and index < 100"}],
        "on_fail": [{"retry": 1}, {"reroute": {"value": {"n": "${item.n}", "again": "${index}"}}}, "escalate"],
    }
    output = await both(runs, node, {"items": items("fail"), "more": 3, "limit": 80})
    assert all(output[status] for status in ("succeeded", "escalated", "skipped"))


async def test_values_of_many_items(runs: Runs) -> None:
    values = {"a": "${item.n}", "b": "${item.n * 2}", "c": "n=${item.n} of ${len(input.items)}", "d": "${item.m}"}
    output = await both(runs, {"over": "${input.items}", "value": values}, {"items": [{"n": 1}, {"n": 2, "m": []}]})
    assert output["values"] == [{"a": 2, "b": 4, "c": "n=2 of 2", "d": []}]


async def test_a_binding_that_fails_for_every_item_says_so_for_each(runs: Runs) -> None:
    node = {"over": "${input.items}", "value": "${input.missing + item.n}"}
    output = await both(runs, node, {"items": items(count=3)})
    assert "input.missing" in output


async def test_what_a_script_does_to_its_modules_stays_with_isolation_item(runs: Runs) -> None:
    script = "import json\ndef run(input):\n    json.seen = getattr(json, 'seen', 0) + 1\n    return json.seen\n"
    node = {"over": [1, 2, 3, 4], "script": script, "isolation": "item"}
    envelope = await runs.complete({"nodes": {"work": node}, "output": "${work.values}"})
    assert envelope["result"] == [1, 1, 1, 1]


async def test_large_items_and_many_small_ones(runs: Runs) -> None:
    node = {"over": "${['x' * size for size in input.sizes]}", "script": "def run(input): return len(input)"}
    sizes = [1, 1_000_000, 2, 400_000, 400_000, 3, *([1] * 1500)]
    envelope = await runs.complete({"nodes": {"work": node}, "output": "${work.values}"}, {"sizes": sizes})
    assert envelope["result"] == sizes
