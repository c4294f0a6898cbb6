"""Maps: items per second against one activity an item."""

from __future__ import annotations

from typing import Any

from bench.by_hand import SCRIPT, Children, Items
from bench.harness import Bench, seconds

COUNT = 10_000
BY_HAND_COUNT = 300
"""One activity an item is so slow that fewer tell as much."""
GRAPH_COUNT = 5_000
CHILDREN_COUNT = 150
"""One child workflow an item is slower still."""
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def mapped(**node: Any) -> dict[str, Any]:
    """A graph with one map over so many items as its input says."""
    over = "${[{'n': number} for number in range(input.count)]}"
    return {"name": "map", "nodes": {"work": {"over": over, **node}}, "output": "${work.succeeded}"}


async def items(on: Bench, rounds: int) -> dict[str, Any]:
    """Maps: scripts with a schema check, and values; items per second, of some rounds."""
    graphs = {
        "script": mapped(script=SCRIPT, output_schema=SCHEMA),
        "value": mapped(value={"n": "${item.n + 1}"}, output_schema=SCHEMA),
    }
    return await compared(on, rounds, graphs, COUNT, Items.__name__, BY_HAND_COUNT)


async def subgraphs(on: Bench, rounds: int) -> dict[str, Any]:
    """Maps over a graph of three scripts; items per second, of some rounds."""
    nodes = {
        "one": {"script": SCRIPT},
        "two": {"script": SCRIPT, "input": "${one}"},
        "three": {"script": SCRIPT, "input": "${two}"},
    }
    graphs = {"graph": mapped(graph={"nodes": nodes})}
    return await compared(on, rounds, graphs, GRAPH_COUNT, Children.__name__, CHILDREN_COUNT)


async def compared(
    on: Bench, rounds: int, graphs: dict[str, dict[str, Any]], count: int, by_hand: str, by_hand_count: int
) -> dict[str, Any]:
    """Each of ``graphs`` over ``count`` items beside the hand-written workflow; the ratio is the first one's."""
    figures: dict[str, list[float]] = {name: [] for name in (*graphs, "by_hand")}
    for _ in range(rounds):
        for name, graph in graphs.items():
            figures[name].append(count / await seconds(lambda graph=graph: on.ferrata(graph, {"count": count})))  # type: ignore[misc]
        figures["by_hand"].append(by_hand_count / await seconds(lambda: on.by_hand(by_hand, by_hand_count)))
    ratios = [ours / theirs for ours, theirs in zip(figures[next(iter(graphs))], figures["by_hand"], strict=True)]
    return {
        "items": count,
        "items_per_second": {name: [round(each) for each in sorted(found)] for name, found in figures.items()},
        "ratio": round(sorted(ratios)[len(ratios) // 2], 1),
    }
