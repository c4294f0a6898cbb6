"""`python -m bench.run [sequence] [fanout] [replay]`: run benchmarks (all by default) and print one JSON object."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from bench.by_hand import SCRIPT, FanOut, Sequence
from bench.harness import EAGER, Bench, bench, machine, paired, seconds, spread
from workflows import INTERCEPTORS, WORKFLOWS, workflow_runner

NODES = 50
WIDTH = 500
REPLAYS = 7


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


async def fanout(on: Bench, rounds: int) -> dict[str, Any]:
    """Nodes side by side."""
    graph = fan(WIDTH)
    figures = await paired(lambda: on.ferrata(graph, {"n": 0}), lambda: on.by_hand(FanOut.__name__, WIDTH), rounds)
    return {**figures, "width": WIDTH}


async def replay(on: Bench, rounds: int) -> dict[str, Any]:
    """Replay of a chain's history, events per second."""
    ours = await on.ferrata(chain(NODES * 4), {"n": 0})
    theirs = await on.by_hand(Sequence.__name__, NODES * 4)
    mine, hand = await speed(ours, WORKFLOWS), await speed(theirs, [Sequence])
    return {
        "ferrata_events_per_second": mine,
        "by_hand_events_per_second": hand,
        "ratio": round(mine["median"] / hand["median"], 3),
    }


async def speed(handle: WorkflowHandle[Any, Any], workflows: list[type]) -> dict[str, float]:
    """Events per second over some replays of one history."""
    history: WorkflowHistory = await handle.fetch_history()
    replayer = Replayer(
        workflows=workflows,
        workflow_runner=workflow_runner(),
        interceptors=INTERCEPTORS,
        data_converter=pydantic_data_converter,
    )
    figures = []
    for number in range(REPLAYS + 1):
        start = time.perf_counter()
        await replayer.replay_workflow(history)
        if number:
            figures.append(len(history.events) / (time.perf_counter() - start))
    return {**spread(figures), "events": len(history.events)}


CASES: dict[str, Callable[[Bench, int], Awaitable[dict[str, Any]]]] = {
    "sequence": sequence,
    "fanout": fanout,
    "replay": replay,
}


async def run(names: list[str], rounds: int) -> dict[str, Any]:
    """The figures of the named cases."""
    async with bench() as on:
        return {"machine": machine(), **{name: await CASES[name](on, rounds) for name in names}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each pair (default 5)")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]!r}; cases are {', '.join(CASES)}")
    print(json.dumps(asyncio.run(run(options.cases or list(CASES), options.rounds)), indent=2))


if __name__ == "__main__":
    main()
