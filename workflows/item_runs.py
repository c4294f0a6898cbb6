"""A map's items as runs of their own, for work that no chunk can do: child graphs that wait, called activities.

Each is a child run of one node, the map's, with its whole ladder. A bounded number is under way; what they came to is
stored as the results of a chunk, some at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError

from graph.limits import RESULTS_KEPT
from graph.state import Error, Usage
from graph.values import ARGUMENTS_LIMIT, Ref, Value, trim
from graph.wire import (
    FOLD,
    GATHER,
    RUN_GRAPH,
    Apart,
    FoldRequest,
    GatherRequest,
    ItemAt,
    ItemDone,
    LoadRequest,
    MapRequest,
)
from workflows.attempts import start_child
from workflows.calls import call, check_cancelled

MOST_AT_ONCE = 100
"""Runs under way at once, at most."""
GATHERED = 100
"""Ended runs whose results are stored together."""
GATHER_TIMEOUT = 120_000


class ItemRuns:
    """The runs of one map's items, from where ``request.progress`` stands. ``changed`` is called after each."""

    def __init__(self, request: MapRequest, changed: Callable[[], None]) -> None:
        self.request = request
        self.progress = request.progress
        self.changed = changed
        self.pause = False
        """Begin no further run."""
        self._places = min(request.concurrency, MOST_AT_ONCE)
        self._under_way: dict[asyncio.Task[ItemDone], None] = {}
        self._done: list[ItemDone] = []
        self._held = 0

    async def run(self) -> None:
        """Until all items concluded; or, once ``pause`` is set, until no run is under way.

        Raises:
            AttemptFailed: results can't be stored.
        """
        try:
            while True:
                self._begin()
                if not self._under_way:
                    break
                done, _ = await workflow.wait(list(self._under_way), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del self._under_way[task]
                    if not task.cancelled():  # broken off
                        self._take(task.result())
                if len(self._done) >= GATHERED or self._held >= ARGUMENTS_LIMIT // 2:
                    await self._gather()
                self.changed()
            await self._gather()
        finally:
            await self._end_all()

    def stop(self) -> None:
        """The map's run is failing: no item that is under way counts any more."""
        self.pause = True
        for task in self._under_way:
            task.cancel()

    async def _end_all(self) -> None:
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await workflow.wait(list(self._under_way))

    def _begin(self) -> None:
        ranges = self.progress.ranges
        while ranges and not self.pause and len(self._under_way) < self._places:
            start, count = ranges[0]
            ranges[:1] = [(start + 1, count - 1)] if count > 1 else []
            self._under_way[asyncio.create_task(self._one(start))] = None

    async def _one(self, number: int) -> ItemDone:
        """Run one item. Raises asyncio.CancelledError."""
        request = self.request
        scope = request.scope.model_copy(update={"item": ItemAt(items=request.items, number=number)})
        wanted = LoadRequest(apart=Apart(scope=scope, node=request.node))
        id = f"{workflow.info().workflow_id}/{number}"
        try:
            running = await start_child(RUN_GRAPH, wanted, id, summary=f"item {number}", timeout=None)
            return self._ended(number, await running)
        except ChildWorkflowError as error:
            check_cancelled()
            if isinstance(error.cause, CancelledError):
                return ItemDone(number=number, error=ended_by_somebody("it was cancelled"))
            cause = error.cause
            envelope = cause.details[0] if isinstance(cause, ApplicationError) and cause.details else None
            if isinstance(envelope, dict) and "error" in envelope:
                return self._ended(number, envelope)
            return ItemDone(number=number, error=ended_by_somebody(str(cause or error)))

    def _ended(self, number: int, envelope: dict[str, Any]) -> ItemDone:
        """What a run's result, or its failure's details, tell of its item."""
        usage = Usage.from_json(self.progress.usage)
        usage.add(Usage.from_json(envelope.get("usage")))
        self.progress.usage = usage.to_json()
        status = envelope.get("nodes", {}).get(self.request.node)
        item = envelope.get("item") or {}
        return ItemDone(
            number=number,
            output=Value.model_validate(envelope["output"]) if status == "succeeded" else None,
            error=envelope.get("error"),
            escalated=bool(item.get("escalated")),
            attempts=item.get("attempts", 0),
        )

    def _take(self, done: ItemDone) -> None:
        self._done.append(done)
        self._held += len(done.model_dump_json())
        status = "escalated" if done.escalated else "failed"
        if done.error is None:
            status = "succeeded" if done.output is not None else "skipped"
        self.progress.counts[status] = self.progress.counts.get(status, 0) + 1

    async def _gather(self) -> None:
        """Store what ended since the last time. Raises AttemptFailed."""
        if not self._done:
            return
        done, self._done, self._held = self._done, [], 0
        request = GatherRequest(items=self.request.items, done=done)
        summary = f"{self.request.node}: {len(done)} results"
        self.progress.results.append(await call(GATHER, request, Ref, summary=summary, timeout=GATHER_TIMEOUT))
        if len(self.progress.results) >= RESULTS_KEPT:
            refs, self.progress.results = self.progress.results, []
            folded = await call(FOLD, FoldRequest(refs=refs), Ref, summary="fold", timeout=GATHER_TIMEOUT)
            self.progress.folded.append(folded)


def ended_by_somebody(how: str) -> dict[str, Any]:
    """The error of an item whose run ended by no failure of its own."""
    return Error("child_failed", "child_failed", trim(f"the item's run ended: {how}")).to_json()
