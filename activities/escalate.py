"""The activity `escalate`: complete an entry with the node's input and hand it to its queue.

Signal-with-start needs a client, which a workflow doesn't have; so an activity does it. The entry's id makes a
repeat harmless.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.common import WorkflowIDConflictPolicy

from activities.evaluate import Environment
from activities.perform import bind_input
from activities.tools import Tools
from graph.errors import Failure
from graph.values import KIB, Value
from graph.wire import ESCALATE, ESCALATION_QUEUE, Entry, EscalateRequest

HEADER_LIMIT = KIB
"""Bytes of an input that an entry carries itself; a larger one lies in the store."""


class EscalateActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=ESCALATE)
    async def escalate(self, request: EscalateRequest) -> Entry:
        """Hand over ``request.entry``; returns it complete."""
        entry = request.entry
        if entry.ref is None:
            entry.input = await self._input(request)
        await self._tools.client.start_workflow(
            ESCALATION_QUEUE,
            id=request.queue,
            task_queue=request.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="enqueue",
            start_signal_args=[entry],
            static_summary="escalations waiting for people",
        )
        return entry

    async def _input(self, request: EscalateRequest) -> Value | None:
        """The node's input, verbatim: of an activity with arguments, these. None if it has none (a map, a value), or
        if it couldn't be bound: that is why the node failed."""
        node = await self._tools.node(request.scope.graph, request.entry.node)
        own = node.implementations[0]
        if node.over is not None or own.kind == "value":
            return None
        env = Environment(self._tools, request.scope, node.limits)
        args = own.activity.args if own.activity else None
        try:
            input = await bind_input(node, env, "input") if args is None else await env.bind(args)
            return await self._tools.store.as_value(input, HEADER_LIMIT)
        except Failure:
            return None
