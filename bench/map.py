"""Maps: items per second against one activity an item."""

from __future__ import annotations

from typing import Any

from bench.by_hand import SCRIPT, Items
from bench.harness import Bench, seconds

COUNT = 10_000
BY_HAND_COUNT = 300
"""One activity an item is so slow that fewer tell as much."""
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def mapped(**node: Any) -> dict[str, Any]:
    """A graph with one map over so many items as its input says."""
    over = "${[{'n': number} for number in range(input.count)]}"
    return {"name": "map", "nodes": {"work": {"over": over, **node}}, "output": "${work.succeeded}"}


async def items(on: Bench, rounds: int) -> dict[str, Any]:
    """Scripts with a schema check, and values; per second, the best round of each."""
    script = mapped(script=SCRIPT, output_schema=SCHEMA)
    value = mapped(value={"n": "${item.n + 1}"}, output_schema=SCHEMA)
    figures: dict[str, list[float]] = {"script": [], "value": [], "by_hand": []}
    for _ in range(rounds):
        for name, graph in (("script", script), ("value", value)):
            figures[name].append(COUNT / await seconds(lambda graph=graph: on.ferrata(graph, {"count": COUNT})))  # type: ignore[misc]
        figures["by_hand"].append(BY_HAND_COUNT / await seconds(lambda: on.by_hand(Items.__name__, BY_HAND_COUNT)))
    ratios = [ours / theirs for ours, theirs in zip(figures["script"], figures["by_hand"], strict=True)]
    return {
        "items": COUNT,
        "items_per_second": {name: [round(each) for each in sorted(found)] for name, found in figures.items()},
        "ratio": round(sorted(ratios)[len(ratios) // 2], 1),
    }
