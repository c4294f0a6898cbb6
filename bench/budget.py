"""How well a run's history is foreseen: events and bytes, at load and in truth, for graphs of some shapes.

    python -m bench.budget

Prints JSON. ``bytes_at_most`` is foreseen as if each value and failure were as large as it may be, ``bytes_if_empty``
as if all of them were empty.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from temporalio.client import WorkflowFailureError

from bench.harness import FERRATA, Bench, bench, machine, new_id
from graph.budget import EMPTY, run_cost
from graph.compile import compile_graph
from graph.files import NoFiles
from graph.source import from_object

LARGE = "${'x' * 16000}"
FAILS = "def run(input): fail('BAD', 'm' * input['message'], {'text': 'd' * input['details']})"
RETRIES = [{"retry": {"times": 9, "feedback": True}}, "escalate"]


def failing(message: int, details: int) -> dict[str, Any]:
    return {"script": FAILS, "input": {"message": message, "details": details}, "on_fail": RETRIES}


SHAPES: dict[str, dict[str, Any]] = {
    "chain of 100": {f"n{i}": {"value": f"${{n{i - 1}}}" if i else 0} for i in range(100)},
    "chain of 100, values of 16 KB": {f"n{i}": {"value": f"${{n{i - 1}}}" if i else LARGE} for i in range(100)},
    "fan-out of 100, then one": {
        **{f"n{i}": {"value": i} for i in range(100)},
        "last": {"value": [f"${{n{i}}}" for i in range(100)]},
    },
    "fan-out of 100, then one, values of 16 KB": {
        **{f"n{i}": {"value": LARGE} for i in range(100)},
        "last": {"value": [f"${{len(n{i})}}" for i in range(100)]},
    },
    "ladders of 10 attempts, all used, 10 nodes": {f"n{i}": {**failing(20, 20), "optional": True} for i in range(10)},
    "the same with the largest failures": {f"n{i}": {**failing(2000, 16000), "optional": True} for i in range(10)},
    "ladders of 10 attempts, none used, 100 nodes": {f"n{i}": {"value": i, "on_fail": RETRIES} for i in range(100)},
    "delayed retries, 10 nodes of 5": {
        f"n{i}": {
            "script": FAILS,
            "input": {"message": 20, "details": 20},
            "on_fail": [{"retry": {"times": 4, "delay": "10ms"}}],
            "optional": True,
        }
        for i in range(10)
    },
    "child runs, 20": {f"n{i}": {"graph": {"nodes": {"inner": {"value": "${input}"}}}, "input": i} for i in range(20)},
    "loop of 20 child runs": {
        "looped": {
            "graph": {"nodes": {"inner": {"value": "${input + 1}"}}},
            "input": 0,
            "repeat": {"until": "output >= 20", "max_rounds": 20},
        }
    },
    "map of 10,000 items": {"mapped": {"over": "${list(range(10000))}", "value": "${item}"}},
    "map of 10,000 items, as its schema says": {
        "items_of_it": {"value": "${list(range(10000))}", "output_schema": {"type": "array", "maxItems": 10000}},
        "mapped": {"over": "${items_of_it}", "value": "${item}"},
    },
    "waits, 20": {f"n{i}": {"wait": {"for": "50ms"}} for i in range(20)},
}


async def compared(on: Bench, nodes: dict[str, Any]) -> dict[str, Any]:
    """What was foreseen of a run of ``nodes``, and what it took."""
    graph = compile_graph(from_object({"nodes": nodes}, "graph"), NoFiles()).graph
    most, least = run_cost(graph), run_cost(graph, EMPTY)
    request = {"graph": {"nodes": nodes}}
    handle = await on.client.start_workflow("RunGraph", request, id=new_id(), task_queue=FERRATA)
    with suppress(WorkflowFailureError):
        await handle.result()
    info = (await handle.describe()).raw_description.workflow_execution_info
    return {
        "events": info.history_length,
        "events_foreseen": most.events,
        "events_ratio": round(most.events / info.history_length, 2),
        "bytes": info.history_size_bytes,
        "bytes_if_empty": least.size,
        "bytes_at_most": most.size,
    }


async def main() -> None:
    async with bench() as on:
        shapes = {name: await compared(on, nodes) for name, nodes in SHAPES.items()}
    print(json.dumps({"machine": machine(), "shapes": shapes}, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
