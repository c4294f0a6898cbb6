"""Run benchmarks, all by default or those named, and print one JSON object."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable
from typing import Any

from bench.by_hand import SCRIPT, FanOut, Sequence
from bench.harness import EAGER, Bench, bench, machine, paired, seconds
from bench.large import large
from bench.map import items, subgraphs
from bench.queries import queries
from bench.recovery import recovery
from bench.replay import replay

NODES = 50
WIDTH = 500


def chain(count: int) -> dict[str, Any]:
    """``count`` script nodes, each fed by the one before."""
    nodes: dict[str, Any] = {"n0": {"script": SCRIPT, "input": "${input}"}}
    for number in range(1, count):
        nodes[f"n{number}"] = {"script": SCRIPT, "input": f"${{n{number - 1}}}"}
    return {"name": "chain", "nodes": nodes}


def fan(count: int) -> dict[str, Any]:
    """``count`` script nodes on the run's input, and a node that adds up their results."""
    nodes: dict[str, Any] = {f"n{number}": {"script": SCRIPT, "input": "${input}"} for number in range(count)}
    parts = [f"n{number}.n" for number in range(count)]
    return {"name": "fan", "nodes": nodes, "output": "${sum([" + ", ".join(parts) + "])}"}


async def sequence(on: Bench, rounds: int) -> dict[str, Any]:
    """Nodes one after another."""
    graph = chain(NODES)
    figures = await paired(lambda: on.ferrata(graph, {"n": 0}), lambda: on.by_hand(Sequence.__name__, NODES), rounds)
    eager = [await seconds(lambda: on.by_hand(Sequence.__name__, NODES, queue=EAGER)) for _ in range(rounds)]
    per_node = 1000 / NODES
    return {
        **figures,
        "nodes": NODES,
        "ferrata_ms_per_node": round(figures["ferrata_seconds"]["median"] * per_node, 2),
        "by_hand_ms_per_node": round(figures["by_hand_seconds"]["median"] * per_node, 2),
        "by_hand_eager_single_process_ms_per_node": round(statistics.median(eager) * per_node, 2),
    }


async def stretch(on: Bench, rounds: int) -> dict[str, Any]:
    """The same nodes in a graph that wants stretches. A run of one node shows what doesn't grow with the nodes."""
    graph, one = ({**chain(count), "stretch": True} for count in (NODES, 1))
    single = statistics.median([await seconds(lambda: on.ferrata(one, {"n": 0})) for _ in range(rounds)])
    figures = await paired(lambda: on.ferrata(graph, {"n": 0}), lambda: on.by_hand(Sequence.__name__, NODES), rounds)
    ours, theirs = (figures[f"{side}_seconds"]["median"] * 1000 / NODES for side in ("ferrata", "by_hand"))
    return {
        **figures,
        "nodes": NODES,
        "ferrata_ms_per_node": round(ours, 2),
        "ferrata_ms_of_one_node_alone": round(single * 1000, 1),
        "ferrata_ms_per_further_node": round((ours * NODES - single * 1000) / (NODES - 1), 2),
        "by_hand_ms_per_node": round(theirs, 2),
        "times_faster": round(1 / figures["ratio"], 1),
    }


async def fanout(on: Bench, rounds: int) -> dict[str, Any]:
    """Nodes side by side."""
    graph = fan(WIDTH)
    figures = await paired(lambda: on.ferrata(graph, {"n": 0}), lambda: on.by_hand(FanOut.__name__, WIDTH), rounds)
    return {**figures, "width": WIDTH}


CASES: dict[str, Callable[[Bench, int], Awaitable[dict[str, Any]]]] = {
    "sequence": sequence,
    "stretch": stretch,
    "fanout": fanout,
    "replay": replay,
    "map": items,
    "subgraphs": subgraphs,
    "large": large,
    "queries": queries,
    "recovery": recovery,
}


async def run(names: list[str], rounds: int) -> dict[str, Any]:
    """The figures of the named cases."""
    async with bench() as on:
        return {"machine": machine(), **{name: await CASES[name](on, rounds) for name in names}}


def parser() -> argparse.ArgumentParser:
    """The command line. Each case is told of by the first line of its docstring."""
    told = "\n".join(f"  {name:<10} {(case.__doc__ or '').splitlines()[0]}" for name, case in CASES.items())
    result = argparse.ArgumentParser(
        prog="python -m bench.run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog=f"cases:\n{told}\n\nAll of them start a development server and workers of their own. Sequence, fanout "
        "and replay\ncompare with hand-written workflows (bench/by_hand.py), as ratios of rounds that alternate.",
    )
    result.add_argument("cases", nargs="*", metavar="CASE", help="the cases to run; all by default")
    result.add_argument("--rounds", type=int, default=5, help="timed rounds of each case (default 5)")
    return result


def main() -> None:
    options = parser().parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser().error(f"there is no case {unknown[0]!r}; cases are {', '.join(CASES)}")
    print(json.dumps(asyncio.run(run(options.cases or list(CASES), options.rounds)), indent=2))


if __name__ == "__main__":
    main()
