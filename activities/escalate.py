"""The activity `escalate`: complete an entry with the node's input and hand it to its queue.

Signal-with-start needs a client, which a workflow doesn't have; so an activity does it. The entry's id makes a
repeat harmless.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.evaluate import Environment
from activities.perform import bind_input
from activities.tools import Tools
from graph.compiled import CompiledNode
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
        """Hand over ``request.entry``; returns it complete. Raises ApplicationError: no queue can have that name."""
        await self._see_queue(request.queue)
        entry = request.entry
        if entry.ref is None:
            node = await self._tools.node(request.scope.graph, request.entry.node)
            entry.input = await input_for_people(node, Environment(self._tools, request.scope, node.limits))
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

    async def _see_queue(self, name: str) -> None:
        """See that no other workflow runs under the queue's name: it would swallow the entry without a word.

        Raises:
            Failure: ``invalid_input``, code ``not_a_queue``.
        """
        try:
            found = await self._tools.client.get_workflow_handle(name).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # the entry will start the queue
                return
            raise
        if found.status is WorkflowExecutionStatus.RUNNING and found.workflow_type != ESCALATION_QUEUE:
            message = f"the workflow `{name}` is no escalation queue but a {found.workflow_type}"
            raise Failure(
                "invalid_input", f"{message}: give it another id, or the queue another name", code="not_a_queue"
            )


async def input_for_people(node: CompiledNode, env: Environment) -> Value | None:
    """The node's input, verbatim: of an activity with arguments, these. None if it has none (a map, a value), or if it
    couldn't be bound: that is why the node failed. Raises StoreError."""
    own = node.implementations[0]
    if (node.over is not None and env.scope.item is None) or own.kind == "value":
        return None
    args = own.activity.args if own.activity else None
    try:
        input = await bind_input(node, env, env.default) if args is None else await env.bind(args)
        return await env.tools.store.as_value(input, HEADER_LIMIT)
    except Failure:
        return None
