"""A run's whole state as JSON: taken by a query, given to a new run, carried when a run continues as new.

It survives a JSON round trip. A large one is cut into pages of nodes; the first also has all that is of no node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from graph.compiled import CompiledGraph
from graph.errors import LoadError, Problem
from graph.state import NodeState, Usage
from graph.values import JSON, Ref, Value, encode
from graph.wire import Entry

VERSION: Final = 1
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
    last_id: int
    usage: dict[str, Any]
    nodes: dict[str, dict[str, Any]]
    values: dict[str, Value]
    escalations: list[Entry] = []
    child_escalations: int = 0
    child_failures: int = 0
    failures: list[str] = []
    handlers: list[str] = []
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
            NodeState.from_snapshot(node)
        Usage.from_json(snapshot.usage)
    except (ValidationError, TypeError, KeyError, AttributeError) as error:
        first = str(error).split("\n")[0]
        raise bad_snapshot(f"what `resume` gives isn't a snapshot: {first}") from error
    if snapshot.version != VERSION:
        raise bad_snapshot(f"the snapshot has version {snapshot.version}; this worker reads version {VERSION}")
    return snapshot


def bad_snapshot(message: str) -> LoadError:
    hint = 'give what the query `snapshot` answers (all pages joined), or {"run": ID}'
    return LoadError([Problem(code="bad_snapshot", message=message, hint=hint)])


def pages(snapshot: dict[str, JSON], limit: int) -> list[dict[str, JSON]]:
    """The snapshot's JSON cut into parts of about ``limit`` bytes; a node is never cut."""
    rest = {key: value for key, value in snapshot.items() if key not in ("nodes", "values")}
    found: list[dict[str, JSON]] = []
    page: dict[str, JSON] = {**rest, "nodes": {}, "values": {}}
    size = len(encode(rest))
    for name, node in snapshot["nodes"].items():
        value = {name: snapshot["values"][name]} if name in snapshot["values"] else {}
        more = len(encode(node)) + len(encode(value)) + len(name) + 8
        if page["nodes"] and size + more > limit:
            found.append(page)
            page, size = {"nodes": {}, "values": {}}, 0
        page["nodes"][name] = node
        page["values"] |= value
        size += more
    return [*found, page]


def join(parts: Iterable[dict[str, JSON]]) -> dict[str, JSON]:
    """What `pages` cut."""
    whole: dict[str, JSON] = {}
    for part in parts:
        nodes = {**whole.get("nodes", {}), **part["nodes"]}
        values = {**whole.get("values", {}), **part["values"]}
        whole = {**whole, **part, "nodes": nodes, "values": values}
    return whole


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


def check_nodes(snapshot: Snapshot, graph: CompiledGraph) -> None:
    """Raises LoadError if the snapshot's nodes aren't the graph's."""
    if set(snapshot.nodes) != {node.name for node in graph.nodes}:
        raise bad_snapshot("the snapshot's nodes aren't those of its graph")
