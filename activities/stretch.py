"""The activity `stretch`: consecutive pure nodes run one after the other, in one round trip.

Each is attempted as it would be by itself: its guard, its bindings, its work, its checks, its limits. What one gives,
the next reads without a way through history. Scripts share an instance of the sandbox, with a fresh namespace each.
"""

from __future__ import annotations

import time

from temporalio import activity

from activities.evaluate import Environment
from activities.implement import Means
from activities.perform import Outcome, Try, accepted, perform
from activities.tools import Tools
from graph.compiled import CompiledNode
from graph.values import ARGUMENTS_LIMIT, JSON
from graph.wire import STRETCH, Attempted, Stretched, StretchRequest

LONG = 1.0
"""Seconds after which no further node is begun: the others, if they are slow, had better run side by side."""


class StretchActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=STRETCH)
    async def stretch(self, request: StretchRequest) -> Stretched:
        """Attempt the nodes in order, until one fails or enough is done. One whose source was skipped isn't begun."""
        instance = self._tools.sandbox.shared()
        try:
            return await self._stretch(request, Means(instance=instance))
        finally:
            instance.close()

    async def _stretch(self, request: StretchRequest, means: Means) -> Stretched:
        begun, size = time.monotonic(), 0
        values: dict[str, JSON] = {}
        absent: set[str] = set()
        done: list[Attempted] = []
        for name in request.nodes:
            node = await self._tools.node(request.scope.graph, name)
            if absent.intersection([*node.uses, *node.after]):
                absent.add(name)
                continue
            env = Environment(self._tools, request.scope, node.limits, fetched=values)
            outcome = await perform(node, env, Try(), guard=True, default="input", means=means)
            attempted = await self._attempted(node, outcome)
            done.append(attempted)
            if attempted.failure is not None:
                break
            if outcome.skipped:
                absent.add(name)
            else:
                values[name] = outcome.output
            size += len(outcome.data) if len(outcome.data) <= node.inline else 0
            if time.monotonic() - begun > LONG or size > ARGUMENTS_LIMIT:
                break
        return Stretched(attempts=done)

    async def _attempted(self, node: CompiledNode, outcome: Outcome) -> Attempted:
        if outcome.failure is not None:
            return Attempted(node=node.name, failure=outcome.record(), code=outcome.failure.code)
        return Attempted(node=node.name, result=await accepted(self._tools, node, outcome))
