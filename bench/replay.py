"""Replay of a long history: a chain of nodes beside a hand-written chain of typed activities with payloads as large."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.worker import Replayer

from bench.by_hand import Chain
from bench.harness import Bench, spread
from workflows import INTERCEPTORS, WORKFLOWS, workflow_runner
from workflows.failures import DATA_CONVERTER

NODES = 1650
"""About 10,000 events."""


def graph() -> dict[str, Any]:
    """Nodes that each add one to the value of the one before."""
    nodes: dict[str, Any] = {"n0": {"value": {"n": "${input.n + 1}"}}}
    for number in range(1, NODES):
        nodes[f"n{number}"] = {"value": {"n": f"${{n{number - 1}.n + 1}}"}}
    return {"name": "chain", "nodes": nodes}


class Side:
    """One history, and the speed at which it was replayed, round by round: events per second of time, and of this
    process's processor time."""

    def __init__(self, workflows: list[type]) -> None:
        self.replayer = Replayer(
            workflows=workflows,
            workflow_runner=workflow_runner(),
            interceptors=INTERCEPTORS,
            data_converter=DATA_CONVERTER,
        )
        self.speeds: list[float] = []
        self.processor_speeds: list[float] = []

    async def fetch(self, run: WorkflowHandle[Any, Any]) -> None:
        self.history = await run.fetch_history()
        self.events = len(self.history.events)
        self.bytes = sum(event.ByteSize() for event in self.history.events)

    async def replay(self) -> None:
        start, processor = time.perf_counter(), time.process_time()
        await self.replayer.replay_workflow(self.history)
        self.speeds.append(self.events / (time.perf_counter() - start))
        self.processor_speeds.append(self.events / (time.process_time() - processor))

    def figures(self) -> dict[str, Any]:
        return {
            "events": self.events,
            "bytes": self.bytes,
            "events_per_second": spread(self.speeds[1:]),
            "events_per_processor_second": spread(self.processor_speeds[1:]),
        }


async def replay(on: Bench, rounds: int) -> dict[str, Any]:
    """Replay of a history of about 10,000 events."""
    ours, theirs = Side(WORKFLOWS), Side([Chain])
    runs = await asyncio.gather(on.ferrata(graph(), {"n": 0}), on.by_hand(Chain.__name__, NODES))
    await ours.fetch(runs[0])
    await theirs.fetch(runs[1])
    for _ in range(rounds + 1):  # the first isn't counted
        await ours.replay()
        await theirs.replay()
    return {
        "ferrata": ours.figures(),
        "by_hand": theirs.figures(),
        "ratio": ratio(ours.speeds, theirs.speeds),
        "processor_ratio": ratio(ours.processor_speeds, theirs.processor_speeds),
        "rounds": rounds,
    }


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the ratios, round by round, without the first."""
    return round(statistics.median(a / b for a, b in zip(ours[1:], theirs[1:], strict=True)), 3)
