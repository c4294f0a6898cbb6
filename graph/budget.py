"""What a run's history can take at worst: events, bytes, and operations pending at once. Known from the graph alone,
before anything runs.

Temporal ends a workflow whose history grows beyond its limits, so a graph that can't fit is refused at load. The
estimate assumes that every rung of every ladder is used and that each step has a workflow task of its own;
`docs/limits.md` compares it with what runs really take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from graph.compiled import CompiledGraph, CompiledNode, Escalate, Reroute, Retry
from graph.limits import IN_FLIGHT, RESULTS_KEPT, TOLD
from graph.values import ANSWER_LIMIT, ARGUMENTS_LIMIT, DETAILS_LIMIT, INLINE_LIMIT, KIB, REASON_LIMIT

MOST_EVENTS: Final = 30_000
"""Events of one run at worst. Temporal's own limit is 51,200: room for losses and signals."""
MOST_BYTES: Final = 40 * KIB * KIB
"""Bytes of one run's history. Temporal's own limit is 50 MiB: room for losses and signals."""
MOST_PENDING: Final = 1_900
"""Activities that one run may have pending at once. Temporal's own limit is 2,000; a run that meets it stands still."""
PACKED: Final = ARGUMENTS_LIMIT - 4 * INLINE_LIMIT
"""Bytes of sources' values that an attempt carries itself; above, they are packed away, so many by one activity."""

REF: Final = 256
"""Bytes of a reference, at most."""
RUN_INPUT: Final = 2 * KIB
"""Bytes of the run's input that every attempt carries; a larger one lies in the store."""
NAMED: Final = 64
"""Bytes around a named value."""


@dataclass(frozen=True)
class Cost:
    """Events of history, and their bytes."""

    events: int = 0
    size: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.events + other.events, self.size + other.size)

    def __mul__(self, times: int) -> Cost:
        return Cost(self.events * times, self.size * times)

    def holding(self, size: int) -> Cost:
        """The same with ``size`` more bytes in it."""
        return Cost(self.events, self.size + size)


NOTHING: Final = Cost()
ACTIVITY: Final = Cost(6, 1400)
"""An activity's three events, and the three of the workflow task that follows; without what it is given and gives."""
TIMER: Final = Cost(5, 450)
UPDATE: Final = Cost(5, 1000)
"""An update's two events, and the three of the workflow task that takes it; without what it gives."""
SIGNAL: Final = Cost(4, 800)
"""A signal's event, and the three of the workflow task that takes it."""
CHILD: Final = Cost(9, 2000)
"""A child run's three events, and a workflow task after its start and after its end."""
RUN: Final = Cost(20, 5000)
"""Start, load, search attributes, output, end."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of what a graph alone doesn't tell: of a ``value`` that travels inline, the run's ``input``, a ``failure``
    (message and details), what passes ``through`` history whole (arguments and results of called activities, replies),
    and the run's own input and ``result``."""

    value: int = INLINE_LIMIT
    input: int = RUN_INPUT
    failure: int = 2 * REASON_LIMIT + DETAILS_LIMIT
    through: int = ARGUMENTS_LIMIT
    result: int = ANSWER_LIMIT


LARGEST: Final = Sizes()
EMPTY: Final = Sizes(0, 0, 0, 0, 0)
"""The least that there can be."""


def run_cost(graph: CompiledGraph, sizes: Sizes = LARGEST) -> Cost:
    """What a run of ``graph`` takes at worst, its child runs (which have histories of their own) left out."""
    names = sum(len(node.name) + NAMED for node in graph.nodes)
    packs, carried = scope_cost(graph.output_uses, sizes)
    # Input and result stand in two events each: the run's own, and the activity's that reads or makes it. What is in
    # flight when a run fails may fail, too.
    failures = 1 + min(len(graph.nodes), IN_FLIGHT)
    run = RUN.holding(4 * sizes.result + 2 * names + carried + failures * sizes.failure) + packs
    return sum((node_cost(node, graph, sizes) for node in graph.nodes), run)


def node_cost(node: CompiledNode, graph: CompiledGraph, sizes: Sizes = LARGEST) -> Cost:
    """What one node of ``graph`` takes at worst."""
    packs, carried = scope_cost({*node.uses, *node.after}, sizes)
    step = ACTIVITY.holding(carried + len(node.name))
    extra = packs
    if any(isinstance(rung, Escalate) for rung in node.ladder):
        extra += step.holding(4 * REASON_LIMIT if sizes.failure else 0)
    if node.limits.deadline:
        extra += Cost(2, 100)
    wait = node.implementations[0].wait
    if wait is not None and wait.what == "reply":
        # However often the node waits, it takes one reply, checked when it comes and again when a kept one is used.
        # Those that are refused aren't counted: nothing but people bounds them.
        extra += UPDATE.holding(sizes.through) + step.holding(sizes.through) * 2
    retries = [rung for rung in node.ladder if isinstance(rung, Retry)]
    if node.over is not None:
        return extra + map_cost(node, retries, step, sizes)
    attempts = 1 + sum(r.times for r in retries) + sum(1 for r in node.ladder if isinstance(r, Reroute))
    fed = sum(r.times if isinstance(r, Retry) else 1 for r in node.ladder if not isinstance(r, Escalate) and r.feedback)
    delays = sum(rung.times for rung in retries if rung.delay)
    told = Cost(0, fed * (sizes.failure and REASON_LIMIT + REF))
    # Each attempt but the last ends with a failure; the last one with a value, for a failure would end the run.
    goes_on = graph.on_failure == "continue" or node.optional or {"failed", "any"} & set(node.after.values())
    ends = (attempts - 1) * sizes.failure + max(sizes.value, sizes.failure if goes_on else 0)
    return extra + attempt_cost(node, graph, step, sizes) * attempts + TIMER * delays + told.holding(ends)


def scope_cost(sources: Collection[str], sizes: Sizes) -> tuple[Cost, int]:
    """What it takes to pack the values of ``sources`` away, once; and the bytes that each step then carries."""
    count, names = len(sources), sum(map(len, sources)) + len(sources) * NAMED
    held = count * sizes.value + names
    # An activity packs until it holds so many bytes, where a reference counts as `REF`.
    packs = (count * max(sizes.value, REF)) // PACKED
    carried = min(held, PACKED + sizes.value + NAMED) if packs else held
    return (ACTIVITY * packs).holding(held if packs else 0), sizes.input + carried + packs * REF


def attempt_cost(node: CompiledNode, graph: CompiledGraph, step: Cost, sizes: Sizes) -> Cost:
    """One attempt without its end; ``step`` is an activity of the node's."""
    own = node.implementations[0]
    rounds = node.repeat.max_rounds if node.repeat else 1
    if own.kind == "activity":  # bound; then called and checked, round by round
        call = ACTIVITY.holding(2 * sizes.through)
        return step.holding(sizes.through) + (call + step.holding(2 * sizes.through)) * rounds
    if own.kind == "graph":
        below = graph.graphs[own.graph].nodes if own.graph in graph.graphs else []
        child = CHILD.holding(2 * sizes.value + sum(len(part.name) + NAMED for part in below))
        return step.holding(sizes.value) + (child + step.holding(2 * sizes.value)) * rounds
    if own.wait is not None:
        return step + TIMER
    return step


def map_cost(node: CompiledNode, retries: list[Retry], step: Cost, sizes: Sizes) -> Cost:
    """A map: pin, chunk, collect, and a chunk for each rung that its items climb outside of it. More items than one
    chunk does in time run in a child, whose history is its own, and which tells how far it is."""
    back = sum(rung.times for rung in retries if rung.delay) + len(node.implementations) - 1
    steps = 3 + back
    queues = sum(1 for rung in node.ladder if isinstance(rung, Escalate))
    ends = max(sizes.value + queues * KIB, sizes.failure)
    own_run = CHILD.holding(step.size + 2 * RESULTS_KEPT * REF) + SIGNAL * TOLD
    return (step.holding(2 * REF)) * steps + TIMER * back + own_run + Cost(0, ends + (1 + back) * REF)


def pending(graph: CompiledGraph) -> Iterator[tuple[CompiledNode, int]]:
    """Each node, and how many activities can be pending at once with it and those before it: attempts stand in line,
    but escalations, and what binds a `wait`, don't."""
    beside = 0
    for number, node in enumerate(graph.nodes):
        waits = node.implementations[0].wait is not None
        beside += waits + any(isinstance(rung, Escalate) for rung in node.ladder)
        yield node, min(number + 1, IN_FLIGHT) + beside
