"""Whether a run of a graph fits in a history; and the shape that makes it fit: how large values may be that travel
inline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from graph.budget import (
    EMPTY,
    LARGEST,
    MOST_BYTES,
    MOST_EVENTS,
    MOST_PENDING,
    Cost,
    Sizes,
    node_cost,
    pending,
    run_cost,
)
from graph.compiled import CompiledGraph, CompiledNode
from graph.problems import Place
from graph.values import INLINE_LIMIT, KIB

INLINE: Final = tuple(INLINE_LIMIT >> halvings for halvings in range(8))
"""Bytes up to which values may travel inline, from the usual down to 128."""
NEAR: Final = 0.8
"""Part of a limit above which an author is warned."""
SHORT: Final = KIB
"""Bytes of a failure as most are."""
MENDS: Final = "shorten ladders or loops, map over items, or move nodes into child graphs"


def fit(place: Place, graph: CompiledGraph) -> bool:
    """Choose how large ``graph``'s values may be that travel inline. False, and a problem with the node that takes
    most, if its runs can't fit in a history even so; a warning if they nearly do."""
    inline = inline_limit(graph)
    for node in graph.nodes:
        node.inline = inline
    largest = replace(LARGEST, value=inline)
    most = run_cost(graph, largest)
    least = run_cost(graph, EMPTY)
    if most.events > MOST_EVENTS:
        took, limit = f"{most.events} events of history", str(MOST_EVENTS)
        dear, cost = dearest(graph, largest, lambda cost: cost.events)
        return refuse(place, dear, took, limit, str(cost.events))
    if least.size > MOST_BYTES:
        took, limit = f"{shown(least.size)} of history, even with small values", shown(MOST_BYTES)
        dear, cost = dearest(graph, EMPTY, lambda cost: cost.size)
        return refuse(place, dear, took, limit, shown(cost.size))
    for node, count in pending(graph):
        if count > MOST_PENDING:
            message = (
                f"a run of this graph could have more than {MOST_PENDING} operations pending at once: nodes that "
                f"escalate or wait don't stand in line, and `{node.name}` is one too many"
            )
            place.problem("too_large", message, ("nodes", node.name), "move nodes into child graphs", key=True)
            return False
    warn(place, graph, largest)
    return True


def inline_limit(graph: CompiledGraph) -> int:
    """The most bytes that every value of a run can have so that all of them fit in its history."""
    for value in INLINE:
        if run_cost(graph, replace(LARGEST, value=value, failure=SHORT, through=0)).size <= MOST_BYTES:
            return value
    return INLINE[-1]


def refuse(place: Place, dear: CompiledNode, took: str, limit: str, alone: str) -> bool:
    """Report what a run takes, and that ``dear`` takes most of it. False."""
    message = (
        f"a run of this graph could take {took}, if every rung is used; at most {limit} fit, "
        f"and `{dear.name}` alone takes {alone}"
    )
    place.problem("too_large", message, ("nodes", dear.name), MENDS, key=True)
    return False


def warn(place: Place, graph: CompiledGraph, largest: Sizes) -> None:
    """Warn of a run that may come near the limits, or beyond that of bytes if all there is has its ``largest`` size."""
    most = run_cost(graph, largest)
    if most.events > NEAR * MOST_EVENTS:
        dear, cost = dearest(graph, largest, lambda cost: cost.events)
        message = (
            f"a run of this graph could take {most.events} events of history if every rung is used, and at most "
            f"{MOST_EVENTS} fit; `{dear.name}` alone takes {cost.events}"
        )
        place.warn("near_limit", message, ("nodes", dear.name), MENDS, key=True)
    if most.size > MOST_BYTES:
        dear, cost = dearest(graph, largest, lambda cost: cost.size)
        message = (
            f"a run of this graph could take {shown(most.size)} of history if every attempt fails with large details, "
            f"and activities and replies pass as much as they may; {shown(MOST_BYTES)} fit surely, and `{dear.name}` "
            f"alone takes {shown(cost.size)}"
        )
        place.warn("near_limit", message, ("nodes", dear.name), MENDS, key=True)


def dearest(graph: CompiledGraph, sizes: Sizes, part: Callable[[Cost], int]) -> tuple[CompiledNode, Cost]:
    """The node that takes most, the first of several, and what it takes."""
    costs = [(node, node_cost(node, graph, sizes)) for node in graph.nodes]
    return max(costs, key=lambda found: part(found[1]))


def shown(size: int) -> str:
    """``size`` bytes as people read it."""
    return f"{size / KIB / KIB:.1f} MiB" if size >= KIB * KIB else f"{size / KIB:.1f} KiB"
