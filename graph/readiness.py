"""May a node start? Decided from the statuses of its sources alone: catch, finally, compensation and join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from graph.plan import NodePlan
from graph.state import NodeStatus


@dataclass(frozen=True)
class Decision:
    """``start`` it, ``skip`` it, or ``never`` start it (it stays idle). ``reason`` is for people.

    ``handles`` says that it starts because something failed, so a failing run lets it.
    """

    action: Literal["start", "skip", "never"]
    reason: str | None = None
    handles: bool = False


def decide(
    node: NodePlan,
    statuses: Mapping[str, NodeStatus],
    optional: frozenset[str],
    handlers: frozenset[str],
    stopping: bool,
) -> Decision:
    """What becomes of ``node`` now that all its sources are settled.

    ``statuses`` of all nodes (an idle source is one that will never start); ``optional`` nodes whose failure is
    forgiven; ``handlers``: nodes that started because something failed; ``stopping``: the run is failing.
    """
    handles = False
    for source, needed in node.sources.items():
        status = statuses[source]
        if needed == "any":
            handles = handles or status == "failed" or source in handlers
        elif needed == "failed":
            if status in ("succeeded", "skipped"):
                return Decision("skip", f"`{source}` did not fail")
            if status != "failed":
                return Decision("never", f"`{source}` never ran")
            handles = True
        elif status == "succeeded":
            handles = handles or source in handlers
        elif status == "skipped":
            return Decision("skip", f"`{source}` was skipped")
        elif status == "failed" and source in optional:
            return Decision("skip", f"`{source}` failed, which is allowed")
        else:
            return Decision("never", f"`{source}` did not succeed")
    if stopping and not handles:
        return Decision("never", "the run was already failing")
    return Decision("start", handles=handles)
