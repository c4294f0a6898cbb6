"""The activities `evaluate` (a run's output) and `pack` (inputs too many for an activity's arguments)."""

from __future__ import annotations

from temporalio import activity

from activities.evaluate import Environment
from activities.tools import Tools
from graph.compiled import Limits
from graph.limits import DEFAULT_FUEL, DEFAULT_MEMORY, DEFAULT_OUTPUT_BYTES, DEFAULT_TIMEOUT_MS
from graph.values import JSON, Ref, Value
from graph.wire import EVALUATE, PACK, EvaluateRequest, PackRequest

OUTPUT_LIMITS = Limits(
    timeout=DEFAULT_TIMEOUT_MS, fuel=DEFAULT_FUEL, memory=DEFAULT_MEMORY, output_bytes=DEFAULT_OUTPUT_BYTES
)


class OutputActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=EVALUATE)
    async def evaluate(self, request: EvaluateRequest) -> Value:
        """The run's output: its template, or an object of the nodes that have a value."""
        graph = await self._tools.graph(request.scope.graph)
        env = Environment(self._tools, request.scope, OUTPUT_LIMITS)
        output: JSON
        if graph.output is not None:
            output = await env.bind(graph.output)
        else:
            # Nodes packed away all have a value; among the others, None says that there is none.
            names = [name for name in graph.output_uses if request.scope.nodes.get(name, ...) is not None]
            values = await env.values(names)
            output = values if len(graph.output_uses) > 1 else next(iter(values.values()), None)
        return await self._tools.store.as_value(output, request.limit)

    @activity.defn(name=PACK)
    async def pack(self, request: PackRequest) -> Ref:
        """Store values as one object, by node."""
        return await self._tools.store.put_json({name: value.model_dump() for name, value in request.nodes.items()})
