"""The plan: all that the workflow may know of a graph. Structure only, small enough for history."""

from __future__ import annotations

from typing import Literal

from graph.compiled import AfterStatus, Kind, Rung
from graph.values import Compact, Ref


class NodePlan(Compact):
    """One node as the workflow sees it. Times in milliseconds."""

    name: str
    kinds: list[Kind]
    """The kind of each implementation."""
    implementations: list[str]
    """What the state calls each implementation."""
    uses: list[str] = []
    after: dict[str, AfterStatus] = {}
    ladder: list[Rung] = []
    timeout: int
    deadline: int | None = None
    optional: bool = False
    map: bool = False
    concurrency: int | None = None
    """Items of a map at once, at most."""
    apart: bool = False
    """Whether each item of a map is a run of its own."""
    max_rounds: int | None = None
    task_queue: str | None = None
    child: Ref | None = None
    pure: bool = False
    """Whether it may run in a stretch: it is pure, and the graph wants stretches."""
    wait: Literal["time", "reply"] | None = None
    """What a `wait` node waits for."""

    @property
    def sources(self) -> dict[str, AfterStatus]:
        """Every node this one waits for, with the status it needs."""
        return {**dict.fromkeys(self.uses, "succeeded"), **self.after}


class Plan(Compact):
    """A graph as the workflow sees it, in file order."""

    name: str
    fingerprint: str
    nodes: list[NodePlan]
    output_node: str | None = None
    """The run's output is this node's value, as it is. None: `evaluate` makes it from `output_uses`."""
    output_uses: list[str] = []
    on_failure: str = "stop"
    deadline: int | None = None
