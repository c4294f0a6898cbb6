"""What queries cost: time and size of the answers of a run that goes on, 1,000 of its nodes concluded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowHandle

from bench.harness import FERRATA, Bench, new_id, spread
from graph.values import JSON, encode

NODES = 1000
LAST = "last"
"""Waits for a reply, so that the run goes on and stays in its worker's cache."""

Ask = Callable[[WorkflowHandle[Any, Any]], Awaitable[list[JSON]]]


def graph() -> dict[str, Any]:
    """Nodes side by side, each with a small value, and one that waits for them all to conclude."""
    nodes: dict[str, Any] = {f"n{number}": {"value": {"n": number}} for number in range(NODES)}
    nodes[LAST] = {"wait": {"reply": {}}, "after": list(nodes)}
    return {"name": "queried", "nodes": nodes, "output": f"${{{LAST}}}"}


async def progress(run: WorkflowHandle[Any, Any]) -> list[JSON]:
    return [await run.query("progress")]


async def state(run: WorkflowHandle[Any, Any]) -> list[JSON]:
    return [await run.query("state")]


async def snapshot(run: WorkflowHandle[Any, Any]) -> list[JSON]:
    """All pages."""
    answers = [await run.query("snapshot")]
    answers += [await run.query("snapshot", page) for page in range(1, answers[0]["pages"])]
    return answers


QUERIES: dict[str, Ask] = {"progress": progress, "state": state, "snapshot": snapshot}


async def measured(run: WorkflowHandle[Any, Any], ask: Ask, rounds: int) -> dict[str, Any]:
    """Milliseconds of a query, all its pages together, and bytes of its answers; one more round isn't counted."""
    milliseconds: list[float] = []
    answers: list[JSON] = []
    for number in range(rounds + 1):
        start = time.perf_counter()
        answers = await ask(run)
        if number:
            milliseconds.append(1000 * (time.perf_counter() - start))
    return {
        "milliseconds": spread(milliseconds),
        "bytes": sum(len(encode(answer)) for answer in answers),
        "pages": len(answers),
    }


async def queries(on: Bench, rounds: int) -> dict[str, Any]:
    """Queries on a run in its worker's cache; and after its end, when each begins with a replay."""
    run = await on.client.start_workflow("RunGraph", {"graph": graph()}, id=new_id(), task_queue=FERRATA)
    try:
        while (await run.query("progress")).get("nodes", {}).get("succeeded") != NODES:
            await asyncio.sleep(0.2)
        cached = {name: await measured(run, ask, rounds) for name, ask in QUERIES.items()}
    finally:
        await run.signal("reply", {"node": LAST, "value": None})
    await run.result()
    ended = {name: await measured(run, ask, rounds) for name, ask in QUERIES.items()}
    return {"nodes": NODES, "going_on": cached, "ended": ended}
