"""Very large maps: time, events and memory at two sizes, and what reads their output."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bench.harness import Bench, seconds
from bench.map import SCHEMA

SIZES = (100_000, 1_000_000)
SCRIPT = 'def run(input):\n    return {"n": input["n"] + 1, "kind": input["kind"]}\n'


def graph(folder: Path) -> dict[str, Any]:
    """A map over the lines of a file in ``folder``, and two nodes that read all its values."""
    work = {
        "over": {"file": "${input.file}"},
        "grants": {"read": [str(folder)]},
        "script": SCRIPT,
        "output_schema": SCHEMA,
    }
    nodes = {
        "work": work,
        "kinds": {"value": "${count_by(work.values, 'kind')}"},
        "count": {"value": "${len(work.values)}"},
    }
    return {"name": "large", "nodes": nodes, "output": "${[count, kinds]}"}


async def large(on: Bench, rounds: int) -> dict[str, Any]:
    """Scripts with a schema check over the lines of a file, 100,000 and 1,000,000 of them; once each."""
    return {f"{size}": await measured(on, size) for size in SIZES}


async def measured(on: Bench, size: int) -> dict[str, Any]:
    """One run over ``size`` items: milliseconds of each node, events, and the peak of each process's memory."""
    file = on.folder / f"{size}.jsonl"
    with file.open("w") as lines:
        lines.writelines(json.dumps({"n": number, "kind": f"kind {number % 7}"}) + "\n" for number in range(size))
    processes = descendants(os.getpid())
    for pid in processes:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # its peak is what it has now
    run = ""

    async def work() -> None:
        nonlocal run
        run = (await on.ferrata(graph(on.folder), {"file": str(file)})).id

    taken = await seconds(work)
    peaks = {name: peak(pid) for pid, name in processes.items()}
    state = await on.client.get_workflow_handle(run).query("state")
    attempts = {name: node["executions"][-1]["attempts"] for name, node in state["nodes"].items()}
    events = await histories(on, run)
    return {
        "seconds": round(taken, 1),
        "items_per_second": round(size / taken),
        "node_milliseconds": {name: each[-1]["finished"] - each[0]["created"] for name, each in attempts.items()},
        "events": events,
        "most_events_per_1000_items": round(max(events.values()) * 1000 / size, 2),
        "peak_mib": peaks,
    }


async def histories(on: Bench, run: str) -> dict[str, int]:
    """Events of the run's history and of each of its map's."""
    found = {}
    query = f"WorkflowId = '{run}' OR ParentWorkflowId = '{run}'"
    async for each in on.client.list_workflows(query):
        found[f"{each.workflow_type} {each.run_id[:8]}"] = each.history_length or 0
    return found


def descendants(pid: int) -> dict[int, str]:
    """The processes below ``pid`` that do a part in a run, and what they are."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        named = [words[words.index(option) + 1] for option in ("--role", "--number") if option in words]
        if named or Path(words[0]).name == "temporal":
            found[int(child)] = "-".join(named) or "server"
        found |= descendants(int(child))
    return found


def peak(pid: int) -> int:
    """The most memory that a process has had resident, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024
