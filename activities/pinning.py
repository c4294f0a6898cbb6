"""The activity `pin`: a map's items are fixed before the first one runs, as a stored list."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

from temporalio import activity

from activities.boundary import as_application_error
from activities.evaluate import Environment, stored_list
from activities.implement import Meter
from activities.lists import ListWriter, put_list, texts_of
from activities.perform import Outcome, in_time
from activities.sources import open_items
from activities.tools import Tools
from graph.compiled import CompiledNode, Over
from graph.errors import Failure
from graph.lists import Index
from graph.values import JSON, encode
from graph.wire import PIN, AttemptRequest, Pinned


class PinActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=PIN)
    async def pin(self, request: AttemptRequest) -> Pinned:
        """Evaluate the guard (unless it is per item) and the items, and store them. Raises ApplicationError."""
        node = await self._tools.node(request.scope.graph, request.node)
        env = Environment(self._tools, request.scope, node.limits)
        over = map_of(node)
        try:
            async with in_time(node):
                guarded = node.when is not None and not over.guard_per_item
                if guarded and not await env.condition(node.when or "", "the guard"):
                    return Pinned(skipped=True)
                index, hashed = await self._pin(node, over, env)
        except Failure as failure:
            raise as_application_error(failure.code, Outcome(Meter(), failure=failure).record()) from None
        return Pinned(items=await put_list(self._tools.store, index), count=index.count, digest=hashed)

    async def _pin(self, node: CompiledNode, over: Over, env: Environment) -> tuple[Index, str]:
        """The items, stored page by page; and the digest of the list's JSON text. Raises Failure, StoreError."""
        store = self._tools.store
        kept = None if over.source is not None or over.batch is not None else await stored_list(env, over.items)
        index = kept or await self._written(node, over, env)
        if not index.count and not over.allow_empty:
            message = f"`over` of `{node.name}` is an empty list; say `allow_empty: true` if that is right"
            raise Failure("invalid_input", message, code="empty_list")
        hashed = hashlib.sha256()
        async for part in texts_of(store, index):
            await asyncio.to_thread(hashed.update, part)
        return index, f"sha256:{hashed.hexdigest()}"

    async def _written(self, node: CompiledNode, over: Over, env: Environment) -> Index:
        """The items, stored page by page. Raises Failure, StoreError."""
        writer, count = ListWriter(self._tools.store), 0
        async for item in batched(self._items(node, over, env), over.batch):
            await writer.add(count, encode(item))
            count += 1
        return await writer.close()

    async def _items(self, node: CompiledNode, over: Over, env: Environment) -> AsyncIterator[JSON]:
        if over.source is not None:
            async for item in open_items(over.source, env):
                yield item
            return
        items = await env.bind(over.items)
        if not isinstance(items, list):
            shown = encode(items).decode()[:60]
            raise Failure("invalid_input", f"`over` of `{node.name}` must be a list; it is {shown}")
        for item in items:
            yield item


async def batched(items: AsyncIterator[JSON], size: int | None) -> AsyncIterator[JSON]:
    """Lists of up to ``size`` items each; or the items themselves, if it is None."""
    batch: list[JSON] = []
    async for item in items:
        if size is None:
            yield item
            continue
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def map_of(node: CompiledNode) -> Over:
    """The node's map. Raises ValueError if it has none."""
    if node.over is None:
        raise ValueError(f"`{node.name}` is no map")
    return node.over
