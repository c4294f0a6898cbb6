"""How many events a run's history can take at worst: known from the graph alone, before anything runs.

Temporal ends a workflow whose history grows beyond its limit, so a graph that could get there is refused at load.
The estimate assumes that every rung of every ladder is used and that each step has a workflow task of its own;
`docs/limits.md` compares it with what runs really take.
"""

from __future__ import annotations

from typing import Final

from graph.compiled import CompiledGraph, CompiledNode, Escalate, Retry

MOST_EVENTS: Final = 30_000
"""Events of one run at worst. Temporal's own limit is 51,200: room for losses and signals."""

ACTIVITY: Final = 6
"""An activity's three events, and the three of the workflow task that follows."""
TIMER: Final = 5
CHILD: Final = 6
RUN: Final = 20
"""Start, load, search attributes, output, end."""


def run_events(graph: CompiledGraph) -> int:
    """Events of a run of ``graph`` at worst, its child runs (which have histories of their own) left out."""
    return RUN + sum(node_events(node) for node in graph.nodes)


def node_events(node: CompiledNode) -> int:
    """Events that one node takes at worst."""
    retries = [rung for rung in node.ladder if isinstance(rung, Retry)]
    attempts = 1 + sum(r.times for r in retries) + sum(1 for r in node.ladder if not isinstance(r, Retry | Escalate))
    delays = sum(rung.times for rung in retries if rung.delay)
    escalation = ACTIVITY if any(isinstance(rung, Escalate) for rung in node.ladder) else 0
    deadline = 2 if node.limits.deadline else 0
    if node.over is not None:
        return map_events(node, retries) + escalation + deadline
    rounds = node.repeat.max_rounds if node.repeat else 1
    kind = node.implementations[0].kind
    attempt = {"activity": ACTIVITY + 2 * ACTIVITY * rounds, "graph": ACTIVITY + (CHILD + ACTIVITY) * rounds}
    return attempts * attempt.get(kind, ACTIVITY) + delays * TIMER + escalation + deadline


def map_events(node: CompiledNode, retries: list[Retry]) -> int:
    """Events of a map whose items fit in one chunk: pin, chunk, collect, and a chunk for each rung that comes back."""
    back = sum(rung.times for rung in retries if rung.delay) + len(node.implementations) - 1
    return (3 + back) * ACTIVITY + back * TIMER


def most_expensive(graph: CompiledGraph) -> CompiledNode:
    """The node that takes the most events, the first of several."""
    return max(graph.nodes, key=node_events)
