"""The activities `chunk` and `reroute_chunk`: some of a map's items, each up its own ladder.

Immediate retries happen here; an item that needs another implementation or a delay goes back to the workflow in a
stored list, with where it stands. What concluded is saved every second: a chunk that loses its worker goes on there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from temporalio import activity
from temporalio.client import AsyncActivityHandle
from temporalio.service import RPCError

from activities.boundary import worker_stops
from activities.bulk import MOST_AT_ONCE, OWN, Bulk, Case
from activities.evaluate import Environment
from activities.implement import ALONE, Means
from activities.items import Item
from activities.lists import get_list, pick, read_list
from activities.perform import Try, perform
from activities.pinning import map_of
from activities.results import Results
from activities.store import StoreError
from activities.subgraph import ItemGraph, Later, Passage
from activities.tools import Tools
from graph.compiled import CompiledNode
from graph.ladder import Attempt as Step
from graph.ladder import Escalation
from graph.limits import MIB
from graph.state import Usage
from graph.values import JSON, Ref, encode
from graph.wire import CHUNK, REROUTE_CHUNK, ChunkRequest, ChunkResult, FailureRecord

SAVED_EVERY: Final = 0.8
"""Seconds between two saves of what concluded."""
SAVED_SIZE: Final = MIB
"""Bytes that an item's input and the values of its graph's nodes may have together, to be saved while it is under way:
they are saved again and again."""
SAVES_KEPT: Final = 60
"""Saves after which they are made one."""
SLICE: Final = 0.25
"""Seconds that items may take together before other chunks of the process get their turn."""
BATCH: Final = 512
"""Items that are read for such a turn."""
LARGEST_RESULT: Final = 32 * MIB
"""Bytes of values after which a chunk begins no further item: they are held until it ends."""


class ChunkActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=CHUNK)
    async def chunk(self, request: ChunkRequest) -> ChunkResult:
        """Run a range of items. Only what hinders the whole chunk is raised; items' failures are results."""
        return await self._chunk(request)

    @activity.defn(name=REROUTE_CHUNK)
    async def reroute_chunk(self, request: ChunkRequest) -> ChunkResult:
        """Run gathered items on the implementation that their ladder reached."""
        return await self._chunk(request)

    async def _chunk(self, request: ChunkRequest) -> ChunkResult:
        node = await self._tools.node(request.scope.graph, request.node)
        chunk = Chunk(self._tools, node, request)
        await chunk.restore()
        try:
            await chunk.work()
        except asyncio.CancelledError:
            if not worker_stops():
                raise
            # What is done stays done: the rest goes on elsewhere.
        return await chunk.result()


class Chunk:
    """One chunk at work."""

    def __init__(self, tools: Tools, node: CompiledNode, request: ChunkRequest) -> None:
        self._tools = tools
        self._node = node
        self._request = request
        self._env = Environment(tools, request.scope, node.limits)
        self._results = Results()
        self._saves: list[Ref] = []
        self._places = asyncio.Semaphore(request.concurrency or map_of(node).concurrency)
        self._bulks: dict[int, Bulk | None] = {}
        self._graphs: dict[int, ItemGraph] = {}
        self._passages: dict[int, Passage] = {}
        self._all_begun = False
        self._under_way: dict[int, Item] = {}
        """Items that were begun and have not concluded."""
        self._begun = 0
        self._started = time.monotonic()
        self._spent = 0.0
        """Seconds that items done together took; items done one by one take the chunk's own time."""

    async def restore(self) -> None:
        """Take over what an earlier try of this activity saved. Raises StoreError."""
        for data in activity.info().heartbeat_details[:1]:
            self._saves = [Ref.model_validate(saved) for saved in data]
        for ref in self._saves:
            self._results.restore(await self._tools.store.get_json(ref))
        self._begun = len(self._results.concluded)
        own = self._node.implementations[0]
        if own.kind == "graph" and (await self._graph(0)).pure:
            self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def work(self) -> None:
        """Attempt the items until all are done or it is time to end. Raises StoreError."""
        saving = asyncio.create_task(self._save_often())
        try:
            async with asyncio.TaskGroup() as group:
                await self._begin_all(group)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # a store that is down, mostly, and then for many items at once
        finally:
            saving.cancel()
            with suppress(asyncio.CancelledError):
                await saving
            for graph in self._graphs.values():
                await graph.close()
            for bulk in self._bulks.values():
                if bulk is not None:
                    bulk.close()

    async def result(self) -> ChunkResult:
        """What came of the chunk. Raises StoreError."""
        rest = None if self._all_begun else await self._leave()
        for item in self._under_way.values():
            self._note_passage(item)
            self._results.back(item)
        return ChunkResult(
            results=await self._results.part(self._tools.store),
            counts=self._results.counts,
            pending=await self._results.pending(self._tools.store),
            rest=rest,
            usage=self._results.usage.to_json() or None,
            fuel=self._results.fuel or None,
            ran=list(self._results.ran),
        )

    async def _leave(self) -> int | None:
        """Leave what wasn't begun for another chunk: the first item of a range; pending items go back one by one."""
        begun = self._results.concluded | self._under_way.keys()
        async for item in self._items():
            if item.number in begun:
                continue
            if not self._request.pending:
                return item.number
            self._results.back(item)
        return None

    async def _begin_all(self, group: asyncio.TaskGroup) -> None:
        """Begin the items, in order: many at once where they allow it, the others as there are places."""
        async for items in self._batches():
            while items:
                if self._over():
                    return
                bulk = await self._bulk(items[0])
                if bulk is None:
                    await self._begin([items.pop(0)], group)
                else:
                    items = await self._together(bulk, items, group)
        self._all_begun = True

    def _over(self) -> bool:
        """Whether no further item is begun."""
        if activity.is_worker_shutdown() or self._results.size > LARGEST_RESULT:
            return True
        limit = self._request.time
        taken = self._spent or time.monotonic() - self._started
        return limit is not None and taken * 1000 >= limit and self._begun >= max(1, self._request.least)

    async def _batches(self) -> AsyncIterator[list[Item]]:
        """The items that have not concluded, in order, some at a time."""
        done = self._results.concluded
        batch: list[Item] = []
        async for item in self._items():
            if item.number in done:
                continue
            batch.append(item)
            if len(batch) >= BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    async def _items(self) -> AsyncIterator[Item]:
        request, store = self._request, self._tools.store
        index = await get_list(store, request.items)
        if not request.pending:
            end = request.start + request.count
            async for number, value in read_list(store, index, request.start):
                if number >= end:
                    return
                told = self._results.under_way.get(number)
                yield Item.restored(self._node, value, told) if told else Item.fresh(self._node, number, value)
            return
        standing: dict[int, dict[str, Any]] = {}
        for ref in request.pending:
            standing.update({each["index"]: each for each in await store.get_json(ref)})
        standing.update({number: told for number, told in self._results.under_way.items() if number in standing})
        async for number, value in pick(store, index, sorted(standing)):
            yield Item.restored(self._node, value, standing[number])

    async def _bulk(self, item: Item) -> Bulk | None:
        """What attempts items together as ``item`` is to be attempted; None if it must be alone."""
        node, step, over = self._node, item.at.next, map_of(self._node)
        if over.isolation == "item" or item.at.feedback is not None or (step.fuel, step.memory) != (1.0, 1.0):
            return None
        number = step.implementation
        if number not in self._bulks:
            guard = node.when if over.guard_per_item else None
            self._bulks[number] = await Bulk.prepare(
                node, node.implementations[number], self._env, own=OWN, guard=guard, default="item"
            )
        return self._bulks[number]

    async def _graph(self, number: int) -> ItemGraph:
        """The graph that implementation ``number`` is."""
        if number not in self._graphs:
            parent = await self._tools.graph(self._request.scope.graph)
            ref = parent.refs[self._node.implementations[number].graph or ""]
            shared = map_of(self._node).isolation == "shared"
            self._graphs[number] = await ItemGraph.prepare(self._tools, ref, self._spend, shared=shared)
        return self._graphs[number]

    def _spend(self, usage: Usage, fuel: int) -> None:
        self._results.spend(usage, fuel, None)

    async def _begin(self, items: Sequence[Item], group: asyncio.TaskGroup) -> None:
        """Begin items by themselves, each once there is a place for it."""
        self._under_way.update((item.number, item) for item in items)
        self._begun += len(items)
        for item in items:
            await self._places.acquire()
            group.create_task(self._alone(item))

    async def _together(self, bulk: Bulk, items: list[Item], group: asyncio.TaskGroup) -> list[Item]:
        """Attempt items at once; gives those that weren't begun."""
        async with self._tools.bulks:
            begun = time.monotonic()
            cases = [Case({"item": item.value, "index": item.number}, len(encode(item.value))) for item in items]
            settled = await self._tools.in_guest_thread(lambda cancel: bulk.attempt(cases, SLICE, cancel))
            self._spent += time.monotonic() - begun
        ran = any(outcome is not None and outcome.text is not None for outcome in settled)
        self._results.spend(Usage(), bulk.take_fuel(), bulk.implementation.id if ran else None)
        alone: list[Item] = []
        for item, outcome in zip(items, settled, strict=False):
            if outcome is None:
                alone.append(item)
                continue
            self._begun += 1
            if outcome.text is None:
                self._results.skipped(item.number)
            else:
                self._results.succeeded(item.number, outcome.text)
        await self._begin(alone, group)
        return items[len(settled) :]

    async def _alone(self, item: Item) -> None:
        """Attempt an item until it concludes or must wait; it holds a place."""
        try:
            await self._climb(item)
            del self._under_way[item.number]
        finally:
            self._places.release()

    async def _climb(self, item: Item) -> None:
        node, results = self._node, self._results
        scope = self._env.within(item=item.value, index=item.number)
        guard = map_of(node).guard_per_item and item.at.attempts == 0
        while True:
            step = item.at.next
            attempt = Try(step.implementation, item.at.feedback, step.fuel, step.memory)
            means = ALONE
            if node.implementations[step.implementation].kind == "graph":
                means = Means(graph=(await self._passage(item, step.implementation)).run)
            try:
                outcome = await perform(node, scope, attempt, guard=guard, default="item", means=means)
            except Later as later:
                item.at.next = replace(step, delay=rounded(later.delay))
                self._note_passage(item)
                results.back(item)
                return
            item.at.attempts += 1
            self._leave_passage(item)
            ran = outcome.meter.ran or node.implementations[step.implementation].id
            results.spend(outcome.meter.usage, outcome.meter.fuel, ran if outcome.input is not None else None)
            if outcome.skipped:
                results.skipped(item.number)
                return
            if outcome.failure is None:
                results.succeeded(item.number, outcome.data)
                return
            failed, code, following = await item.at.failed(outcome, self._tools.store)
            if not isinstance(following, Step):
                queue = following.queue if isinstance(following, Escalation) else None
                results.lost(item.number, told(item, code, failed, queue))
                return
            if following.rung == "reroute" or following.delay:
                results.back(item)
                return

    async def _passage(self, item: Item, implementation: int) -> Passage:
        """The way of an item through its graph, from where it stands."""
        run = self._request.scope.run
        passage = Passage(
            await self._graph(implementation),
            run.model_copy(update={"id": f"{run.id}/{self._node.name}/{item.number}"}),
            item.within,
            settled=self._results.changed,
        )
        self._passages[item.number] = passage
        return passage

    def _note_passage(self, item: Item) -> None:
        """Keep where an item is within its graph, for whoever goes on with it."""
        passage = self._passages.pop(item.number, None)
        item.within = passage.to_json() if passage is not None else None
        self._results.size += passage.size if passage is not None else 0

    def _leave_passage(self, item: Item) -> None:
        """An item's attempt at its graph ended."""
        passage = self._passages.pop(item.number, None)
        item.within = None
        if passage is not None:
            self._results.passed(item.number, passage.told())
            self._results.escalated(item.number, [{**told, "item": item.value} for told in passage.escalated])

    async def _save_often(self) -> None:
        """Save what concluded, again and again, so that the next try of this activity knows it. A heartbeat of our own,
        awaited: the usual ones may not have left when the process dies."""
        handle = self._tools.client.get_async_activity_handle(task_token=activity.info().task_token)
        while True:
            await asyncio.sleep(SAVED_EVERY)
            try:
                await self._save(handle)
            except StoreError as error:
                if not error.transient:
                    raise
                activity.logger.warning("what concluded will be saved later: %s", error.message)

    async def _save(self, handle: AsyncActivityHandle) -> None:
        under_way = [
            {**item.standing(), "within": passage.to_json()}
            for item in self._under_way.values()
            if (passage := self._passages.get(item.number)) is not None and passage.saves and passage.size <= SAVED_SIZE
        ]
        saved = await self._results.save(self._tools.store, under_way)
        if saved is None:
            return
        self._saves.append(saved)
        if len(self._saves) > SAVES_KEPT:
            self._saves = [await self._results.save_all(self._tools.store)]
        details = [save.model_dump(mode="json") for save in self._saves]
        activity.heartbeat(details)
        with suppress(RPCError):  # the server is away, or takes this try for lost; the usual heartbeats find out
            await handle.heartbeat(details)


def told(item: Item, code: str, failed: FailureRecord, queue: str | None) -> dict[str, JSON]:
    """What people may want to know of an item that used up its ladder."""
    return {
        "status": "escalated" if queue else "failed",
        "queue": queue,
        "class": failed.failure_class,
        "code": code,
        "reason": failed.message,
        "check": failed.check,
        "attempts": item.at.attempts,
        "rejected": failed.rejected.model_dump() if failed.rejected else None,
        "history": item.at.history,
        "item": item.value,
    }


def rounded(delay: int) -> int:
    """A delay of so many milliseconds, somewhat longer: so that items that wait about as long come back together."""
    step = max(100, int(10 ** (len(str(delay)) - 1)) // 4)
    return -(-delay // step) * step
