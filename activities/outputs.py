"""The activities `evaluate` (a run's output) and `pack` (inputs too many for an activity's arguments)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable

from temporalio import activity

from activities.evaluate import Environment
from activities.lists import dense, put_list
from activities.stored import Stored, StoredList
from activities.tools import Tools
from graph.compiled import Limits
from graph.limits import DEFAULT_FUEL, DEFAULT_MEMORY, DEFAULT_OUTPUT_BYTES, DEFAULT_TIMEOUT_MS
from graph.values import Ref, Value
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
        if graph.output is not None:
            found = await env.find(graph.output)
            if found is None:
                return await self._tools.store.as_value(await env.bind(graph.output), request.limit)
            if isinstance(found, StoredList) and not found.numbers and not request.limit:  # for a parent run
                return Value(ref=await put_list(self._tools.store, dense(found.index)), size=found.size)
            return await self._plain(found, request.limit)
        # Nodes packed away all have a value; among the others, None says that there is none.
        names = [name for name in graph.output_uses if request.scope.nodes.get(name, ...) is not None]
        if len(graph.output_uses) == 1 and names:
            only = await env.handle(names[0])
            if isinstance(only, Stored):
                return await self._plain(only, request.limit)
        values = await env.values(names)
        output = values if len(graph.output_uses) > 1 else next(iter(values.values()), None)
        return await self._tools.store.as_value(output, request.limit)

    async def _plain(self, stored: Stored, limit: int) -> Value:
        """A stored value as plain JSON: inline if it has at most ``limit`` bytes, else a blob that anybody can read."""
        begun, size = [], 0
        texts = stored.texts()
        async for part in texts:
            begun.append(part)
            size += len(part)
            if size > limit:
                break
        else:
            return Value(inline=json.loads(b"".join(begun)), size=size)
        count = stored.count if isinstance(stored, StoredList) else None
        ref = await self._tools.store.put_parts(following(begun, texts), count)
        return Value(ref=ref, size=ref.size)

    @activity.defn(name=PACK)
    async def pack(self, request: PackRequest) -> Ref:
        """Store values as one object, by node."""
        return await self._tools.store.put_json({name: value.model_dump() for name, value in request.nodes.items()})


async def following(begun: Iterable[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The parts that were taken already, and the others."""
    for part in begun:
        yield part
    async for part in rest:
        yield part
