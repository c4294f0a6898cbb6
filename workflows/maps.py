"""A map in its run: pin the items, work through them in chunks, collect the results.

The ladder is per item: immediate retries happen inside a chunk; items that need another implementation or a
delay come back as pending lists, and are sent out again as chunks of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque

from temporalio import workflow

from graph.ladder import Climb, Escalation
from graph.plan import NodePlan
from graph.state import ITEM_STATUSES, Attempt, Error, Execution, Usage
from graph.values import JSON, Ref, Value, trim
from graph.wire import (
    CHUNK,
    COLLECT,
    PIN,
    REROUTE_CHUNK,
    AttemptRequest,
    ChunkRequest,
    ChunkResult,
    Collected,
    CollectRequest,
    Entry,
    PendingItems,
    Pinned,
    Scope,
)
from workflows.calls import AttemptFailed, call, check_cancelled
from workflows.climbing import Climber, NodeFailed, Stopped, first_step, past_deadline
from workflows.clock import now

CHUNK_ITEMS = 1000
"""Items per chunk. Chunks run one after another, so that `concurrency` holds for the whole map."""


class MapRun:
    """One execution of a map node."""

    def __init__(self, climber: Climber, node: NodePlan, execution: Execution) -> None:
        self.climber = climber
        self.record = climber.record
        self.node = node
        self.execution = execution

    async def run(self) -> Value | None:
        """The map's output; None if its guard was false.

        Raises:
            NodeFailed: no item succeeded, more failed than tolerated, the items couldn't be had, or time was up.
            Stopped: the run is failing.
        """
        progress = self.execution.progress = self.execution.progress or first_step(self.node)
        await self.climber.resume_ending(self.node, self.execution)
        if not self.execution.attempts:  # else taken over from a snapshot: all items run again, in place
            self.record.begin_attempt(self.execution, self.node.implementations[0])
        attempt = self.execution.attempts[-1]
        usage = Usage()
        try:
            async with asyncio.timeout(None if progress.deadline is None else (progress.deadline - now()) / 1000):
                pinned, collected = await self._work(usage)
        except AttemptFailed as failed:
            check_cancelled()
            raise await self._give_up(attempt, usage, failed) from failed
        except TimeoutError:
            raise await self._give_up(attempt, usage, past_deadline(self.node)) from None
        except (Stopped, asyncio.CancelledError):
            self.record.spend(self.execution, attempt, usage)
            raise
        if collected is None:
            return None
        self.execution.items = {"items": pinned, **collected.counts}
        await self._escalate(collected)
        if collected.error is not None:
            error = Error(**collected.error)
            self.record.end_attempt(self.execution, attempt, usage, AttemptFailed(error))
            raise NodeFailed(error)
        attempt.output = collected.digest
        self.record.end_attempt(self.execution, attempt, usage, None)
        return collected.output

    async def _work(self, usage: Usage) -> tuple[int, Collected | None]:
        """Pin the items, run them, collect: how many there are, and what came of them (None: the guard was false)."""
        scope = await self.record.scope(list(self.node.sources))
        pinned = await call(
            PIN,
            AttemptRequest(scope=scope, node=self.node.name),
            Pinned,
            summary=f"{self.node.name}: items",
            timeout=self.node.timeout,
        )
        if pinned.skipped or pinned.items is None:
            return 0, None
        self.execution.items = {"items": pinned.count, **dict.fromkeys(ITEM_STATUSES, 0)}
        results = await self._chunks(scope, pinned.items, pinned.count, usage)
        request = CollectRequest(scope=scope, node=self.node.name, items=pinned.items, results=results)
        collected = await call(
            COLLECT, request, Collected, summary=f"{self.node.name}: collect", timeout=self.node.timeout
        )
        return pinned.count, collected

    async def _chunks(self, scope: Scope, items: Ref, count: int, usage: Usage) -> list[Ref]:
        """Run every item up its ladder; the stored results."""
        results: list[Ref] = []
        waiting: deque[tuple[int, int] | PendingItems] = deque(
            (start, min(CHUNK_ITEMS, count - start)) for start in range(0, count, CHUNK_ITEMS)
        )
        while waiting:
            part = waiting.popleft()
            if isinstance(part, PendingItems):
                name = REROUTE_CHUNK if part.rung == "reroute" else CHUNK
                summary = f"{self.node.name}: {part.rung} {part.count} items"
                request = ChunkRequest(scope=scope, node=self.node.name, items=items, pending=part.ref)
                if part.delay:
                    await self.climber.delay(self.node, part.delay)
            else:
                name, (start, size) = CHUNK, part
                summary = f"{self.node.name}: items {start} to {start + size - 1}"
                request = ChunkRequest(scope=scope, node=self.node.name, items=items, start=start, count=size)
            await self.climber.take_slot(self.node)
            try:
                done = await call(name, request, ChunkResult, summary=summary, timeout=None)
            finally:
                self.climber.slots.release()
            results.append(done.results)
            waiting.extend(done.pending)
            usage.add(Usage.from_json(done.usage))
            self._count(done.counts)
        return results

    def _count(self, counts: dict[str, int]) -> None:
        items = self.execution.items or {}
        self.execution.items = {**items, **{key: items.get(key, 0) + value for key, value in counts.items()}}

    async def _give_up(self, attempt: Attempt, usage: Usage, failure: AttemptFailed) -> NodeFailed:
        """The items couldn't be had, or time is up: no attempt can mend it, but a person may still be asked."""
        usage.add(failure.usage)
        self.record.end_attempt(self.execution, attempt, usage, failure)
        step = Climb(self.node.ladder).give_up()
        if isinstance(step, Escalation):
            await self.climber.escalate(self.node, self.execution, failure, step.queue)
        return NodeFailed(failure.error)

    async def _escalate(self, collected: Collected) -> None:
        """Hand over the escalated items, as one entry for each queue."""
        handed = {entry.ref for entry in self.record.escalations if entry.node == self.node.name}
        for queue, ref in collected.escalated.items():
            if ref in handed:  # by the run that this one goes on from
                continue
            sample = collected.samples.get(queue, [])
            entry = Entry(
                id=str(workflow.uuid4()),
                run=self.record.run.id,
                node=self.node.name,
                code="items_escalated",
                reason=used_up(self.node.name, ref.count or 0, sample),
                ref=ref,
                count=ref.count,
                sample=sample,
                resolved=0,
                attempts=1,
                at=now(),
            )
            await self.climber.enqueue(self.node, entry, queue)


def used_up(node: str, count: int, sample: list[dict[str, JSON]]) -> str:
    """The reason of an entry for ``count`` items, quoting the first."""
    items, ladders = ("item", "its ladder") if count == 1 else ("items", "their ladders")
    whose = f"{count} {items} of `{node}` used up {ladders}"
    if not sample:
        return whose
    first = sample[0]
    return trim(f"{whose}; the first: item {first.get('index')}: {first.get('reason')}")
