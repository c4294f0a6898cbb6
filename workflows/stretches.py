"""Stretches: consecutive pure nodes attempted in one activity, each still begun and concluded by itself.

The first node of a stretch calls the activity for itself and for those that can follow at once. What these gave is kept
until they begin, and is then their first attempt. A failure ends the stretch; its node climbs its own ladder.
"""

from __future__ import annotations

from graphlib import TopologicalSorter

from graph.plan import NodePlan
from graph.wire import STRETCH, Attempted, AttemptRequest, AttemptResult, Stretched, StretchRequest
from workflows.calls import call, recorded_failure
from workflows.record import Record

LONGEST = 100
"""Nodes of a stretch."""


class Stretches:
    """The stretches of one run."""

    def __init__(self, record: Record) -> None:
        self.record = record
        plans = {node.name: node for node in record.plan.nodes if node.pure}
        order = TopologicalSorter({name: [s for s in node.sources if s in plans] for name, node in plans.items()})
        self._order = [plans[name] for name in order.static_order()]
        self._ahead: dict[str, Attempted] = {}

    async def attempt(self, node: NodePlan, request: AttemptRequest) -> AttemptResult:
        """The first attempt of ``node``: made ahead, or made now together with those that can follow.

        Raises:
            AttemptFailed: it failed.
        """
        attempted = self._ahead.pop(node.name, None)
        if attempted is None:
            chosen = self._with_followers(node)
            more = f" and {len(chosen) - 1} more" if len(chosen) > 1 else ""
            wanted = StretchRequest(scope=await self.record.scope(_sources(chosen)), nodes=list(chosen))
            timeout = max(each.timeout for each in chosen.values())
            done = await call(STRETCH, wanted, Stretched, summary=f"{node.name}{more}", timeout=timeout)
            self._ahead.update({each.node: each for each in done.attempts})
            attempted = self._ahead.pop(node.name)
        if attempted.failure is not None:
            raise recorded_failure(attempted.code, attempted.failure)
        if attempted.result is None:
            raise RuntimeError("an attempt has a result or a failure")
        return attempted.result

    def _with_followers(self, first: NodePlan) -> dict[str, NodePlan]:
        """``first``, and the nodes that can be attempted once it and those before them have succeeded, in order."""
        chosen = {first.name: first}
        for node in self._order:
            sources = node.sources
            if (
                len(chosen) < LONGEST
                and self.record.nodes[node.name].status == "idle"
                and node.name not in self._ahead
                and any(name in chosen for name in sources)
                and all(self._has(name, needed, chosen) for name, needed in sources.items())
            ):
                chosen[node.name] = node
        return chosen

    def _has(self, name: str, needed: str, chosen: dict[str, NodePlan]) -> bool:
        """Whether a source is as it is needed, once those chosen have succeeded."""
        return needed == "succeeded" and (name in chosen or self.record.nodes[name].status == "succeeded")


def _sources(chosen: dict[str, NodePlan]) -> list[str]:
    """What the nodes of a stretch read of those outside of it."""
    sources = dict.fromkeys(source for node in chosen.values() for source in node.sources)
    return [name for name in sources if name not in chosen]
