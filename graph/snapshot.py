"""A run's whole state as JSON: taken by a query, given to a new run, carried when a run continues as new.

It survives a JSON round trip. A large one is cut into pages: see :mod:`graph.paging`.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from graph.compiled import CompiledGraph
from graph.errors import LoadError, Problem
from graph.saved import SLACK, Number, SavedError, SavedIgnored, SavedNode, SavedUsage, faults
from graph.values import JSON, Ref, Value
from graph.wire import Entry

VERSION: Final = 1
MOST_FAULTS: Final = 10
PAGE_LIMIT: Final = 200 * 1024
"""Bytes of a page on its way through history."""


class Snapshot(BaseModel):
    """Everything a run knows. ``nodes`` are `NodeState.to_snapshot`, ``values`` the concluded nodes' values."""

    version: int = VERSION
    run: str
    graph: str
    fingerprint: str
    status: str
    started: str
    compiled: Ref
    input: Value
    last_id: Number
    usage: dict[str, Any]
    nodes: dict[str, dict[str, Any]]
    values: dict[str, Value]
    escalations: list[Entry] = []
    child_escalations: Number = 0
    child_failures: Number = 0
    failures: list[str] = []
    handlers: list[str] = []
    previous: list[str] = []
    """The runs that it goes on from, the latest first: child runs in flight may be known by their ids."""
    deadline: Number | None = None
    """When the run's time is over, in milliseconds since the epoch."""
    replies: dict[str, Value] = {}
    """Replies to `wait` nodes that came before these began to wait, by node."""
    ignored: dict[str, Any] = {}
    """What was sent and changed nothing, as `workflows.ignored.Ignored.to_json`."""
    warnings: list[str] = []
    error: dict[str, Any] | None = None
    """The run's own error, if it failed by no node's (its deadline, its output)."""

    def to_json(self) -> dict[str, JSON]:
        """As JSON."""
        return self.model_dump(mode="json")


def read_snapshot(data: JSON) -> Snapshot:
    """The snapshot in JSON that somebody gave.

    Raises:
        LoadError: ``bad_snapshot``.
    """
    try:
        snapshot = Snapshot.model_validate(data)
        for node in snapshot.nodes.values():
            SavedNode.model_validate(node)
        SavedUsage.model_validate(snapshot.usage)
        SavedIgnored.model_validate(snapshot.ignored)
        if snapshot.error is not None:
            SavedError.model_validate(snapshot.error)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise bad_snapshot(f"what `resume` gives isn't a snapshot: `{place}`: {first['msg']}") from error
    if snapshot.version != VERSION:
        raise bad_snapshot(f"the snapshot has version {snapshot.version}; this worker reads version {VERSION}")
    return snapshot


def bad_snapshot(message: str) -> LoadError:
    hint = 'give what the query `snapshot` answers (all pages joined), or {"run": ID}'
    return LoadError([Problem(code="bad_snapshot", message=message, hint=hint)])


def redriven(snapshot: Snapshot, graph: CompiledGraph) -> Snapshot:
    """The snapshot with a new allowance: what failed, was cancelled or never started runs again, and so does all that
    depended on it. Their executions stay in the state; new ones get new ids."""
    again = {name for name, node in snapshot.nodes.items() if node["status"] not in ("succeeded", "skipped")}
    while added := {n.name for n in graph.nodes if n.name not in again and again & {*n.uses, *n.after}}:
        again |= added
    nodes = dict(snapshot.nodes)
    for name in again:
        executions = [ended(execution) for execution in nodes[name]["executions"]]
        nodes[name] = {"status": "idle", "executions": executions}
    return snapshot.model_copy(
        update={
            "nodes": nodes,
            "values": {name: value for name, value in snapshot.values.items() if name not in again},
            "failures": [],
            "handlers": [],
            "deadline": None,
            "error": None,
            "status": "running",
        }
    )


def ended(execution: dict[str, Any]) -> dict[str, Any]:
    """An execution that a redrive leaves behind: what was in flight counts as cancelled."""
    attempts = [
        {**attempt, "status": "cancelled"} if attempt["status"] == "running" else attempt
        for attempt in execution["attempts"]
    ]
    status = execution["status"] if execution["status"] in ("failed", "succeeded") else "cancelled"
    return {**{k: v for k, v in execution.items() if k != "progress"}, "attempts": attempts, "status": status}


def check_nodes(snapshot: Snapshot, graph: CompiledGraph, now: int) -> None:
    """Raises LoadError if the snapshot's nodes aren't the graph's, or its parts don't fit together. ``now`` in
    milliseconds since the epoch."""
    names = {node.name for node in graph.nodes}
    if set(snapshot.nodes) != names:
        raise bad_snapshot("the snapshot's nodes aren't those of its graph")
    saved = {name: SavedNode.model_validate(node) for name, node in snapshot.nodes.items()}
    found = list(islice(faults(saved, graph.nodes, snapshot.values, snapshot.failures, now), MOST_FAULTS))
    last = max((execution.id for node in saved.values() for execution in node.executions), default=0)
    if snapshot.last_id < last:
        found.append(f"`last_id` is {snapshot.last_id}, but there is an execution {last}")
    if snapshot.deadline is not None and snapshot.deadline > now + (graph.deadline or 0) + SLACK:
        found.append("`deadline` isn't its graph's")
    if not names.issuperset(snapshot.handlers):
        found.append("`handlers` names nodes that the graph doesn't have")
    if found:
        raise bad_snapshot(f"the snapshot doesn't fit together: {'; '.join(found)}")
