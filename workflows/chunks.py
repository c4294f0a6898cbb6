"""A map's chunks: which are under way, and what comes next. By counts and times alone: items never get here.

A chunk ends by itself after a while and says where; what it left is put back. So chunks are as large as items are fast,
and none has to be measured first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from temporalio import workflow

from graph.limits import RESULTS_KEPT
from graph.state import MOST_RAN, Usage
from graph.values import Ref
from graph.wire import (
    CHUNK,
    FOLD,
    REROUTE_CHUNK,
    Back,
    ChunkRequest,
    ChunkResult,
    FoldRequest,
    MapRequest,
)
from workflows.calls import call
from workflows.clock import now

WINDOW = 16
"""Chunks under way at once, at most."""
TIME = 3_000
"""Milliseconds after which a chunk begins no further item."""
MOST_CHUNKS = 500
"""So many chunks are enough for any map: the more items there are, the more each takes in any case."""
LARGEST = 10_000
"""Items of a chunk."""
GATHERED = 1_000
"""Items that come back are sent out again once there are so many, or nothing else is left to do."""


class Chunks:
    """The chunks of one map, from where ``request.progress`` stands. ``changed`` is called after each."""

    def __init__(self, request: MapRequest, changed: Callable[[], None]) -> None:
        self.request = request
        self.progress = request.progress
        self.changed = changed
        self.pause = False
        """Begin no further chunk."""
        self._shares = shares(request.concurrency)
        self._least = request.count // MOST_CHUNKS
        self._under_way: dict[asyncio.Task[None], int] = {}

    async def run(self) -> None:
        """Until all items concluded; or, once ``pause`` is set, until no chunk is under way.

        Raises:
            AttemptFailed: a chunk couldn't be worked on at all.
        """
        try:
            while True:
                self._begin()
                if self._under_way:
                    await self._one_ends()
                elif self.pause or not self.progress.back:
                    return
                else:
                    await self._wait_for_back()
        finally:
            for task in self._under_way:
                task.cancel()
            if self._under_way:
                await workflow.wait(list(self._under_way))

    async def _wait_for_back(self) -> None:
        """Wait until some of the items that come back may go on."""
        with suppress(TimeoutError):
            left = (min(back.due for back in self.progress.back) - now()) / 1000
            await workflow.wait_condition(lambda: self.pause, timeout=max(left, 0.001))

    async def _one_ends(self) -> None:
        """Wait until a chunk ends, or items that wait may go on. Raises AttemptFailed."""
        due = [back.due for back in self.progress.back if back.due > now()]
        idle = due and self._shares and not self.progress.ranges
        timeout = (min(due) - now()) / 1000 if idle else None
        done, _ = await workflow.wait(list(self._under_way), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            self._shares.append(self._under_way.pop(task))
        for task in done:
            task.result()

    def _begin(self) -> None:
        """Send out as many chunks as may be under way."""
        while self._shares and not self.pause:
            request = self._back() or self._range()
            if request is None:
                return
            request.concurrency = self._shares.pop()
            task = asyncio.create_task(self._chunk(request))
            self._under_way[task] = request.concurrency

    def _range(self) -> ChunkRequest | None:
        """The next items that weren't begun yet, if there are any."""
        ranges = self.progress.ranges
        if not ranges:
            return None
        start, count = ranges.pop(0)
        return self._request(start=start, count=count)

    def _back(self) -> ChunkRequest | None:
        """Items that come back, if it is time to send them out again."""
        due = [back for back in self.progress.back if back.due <= now()]
        if not due:
            return None
        rung = due[0].items.rung
        due = [back for back in due if back.items.rung == rung]
        if self.progress.ranges and sum(back.items.count for back in due) < GATHERED:
            return None
        taken: list[Back] = []
        while due and (not taken or sum(back.items.count for back in taken) < GATHERED):
            taken.append(due.pop(0))
        self.progress.back = [back for back in self.progress.back if back not in taken]
        return self._request(pending=[back.items.ref for back in taken], count=sum(b.items.count for b in taken))

    def _request(self, *, start: int = 0, count: int = 0, pending: list[Ref] | None = None) -> ChunkRequest:
        return ChunkRequest(
            scope=self.request.scope,
            node=self.request.node,
            items=self.request.items,
            start=start,
            count=count,
            pending=pending or [],
            time=TIME,
            least=self._least,
        )

    async def _chunk(self, request: ChunkRequest) -> None:
        """Send out one chunk, and take what it gives. Raises AttemptFailed."""
        name, again = self.request.node, bool(request.pending)
        if again:
            summary = f"{name}: {request.count} items again"
        else:
            summary = f"{name}: items {request.start} to {request.start + request.count - 1}"
        done = await call(REROUTE_CHUNK if again else CHUNK, request, ChunkResult, summary=summary, timeout=None)
        progress = self.progress
        progress.results.append(done.results)
        if done.rest is not None and not again:
            self._put_back(done.rest, request.start + request.count - done.rest)
        progress.back += [Back(items=pending, due=now() + pending.delay) for pending in done.pending]
        for status, count in done.counts.items():
            progress.counts[status] = progress.counts.get(status, 0) + count
        usage = Usage.from_json(progress.usage)
        usage.add(Usage.from_json(done.usage))
        progress.usage = usage.to_json()
        progress.fuel += done.fuel or 0
        progress.ran = list(dict.fromkeys([*progress.ran, *done.ran]))[:MOST_RAN]
        if len(progress.results) >= RESULTS_KEPT:
            refs, progress.results = progress.results, []
            progress.folded.append(await call(FOLD, FoldRequest(refs=refs), Ref, summary="fold", timeout=60_000))
        self.changed()

    def _put_back(self, start: int, count: int) -> None:
        """Put a range back; in pieces, if there is too little else to do for all that may be under way."""
        ranges = self.progress.ranges
        pieces = max(1, len(self._shares) + 1 - len(ranges))
        ranges += split(start, count, max(-(-count // pieces), self._least, 1))


def first_ranges(count: int, concurrency: int) -> list[tuple[int, int]]:
    """All items of a map, in ranges for as many chunks as may be under way."""
    return split(0, count, min(-(-count // len(shares(concurrency))), LARGEST)) if count else []


def split(start: int, count: int, size: int) -> list[tuple[int, int]]:
    """A range in ranges of up to ``size``."""
    return [(first, min(size, start + count - first)) for first in range(start, start + count, size)]


def shares(concurrency: int) -> list[int]:
    """How many items at once each of the chunks under way may have: together as many as the map."""
    window = min(WINDOW, concurrency)
    return [concurrency // window + (number < concurrency % window) for number in range(window)]
