"""A map in its run: pin the items, work through them in chunks, collect the results.

The ladder is per item: immediate retries happen inside a chunk; items that need another implementation or a
delay come back as pending lists, and are sent out again as chunks of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError
from temporalio.workflow import ChildWorkflowHandle

from graph.ladder import Climb, Escalation
from graph.plan import NodePlan
from graph.state import ITEM_STATUSES, MOST_RAN, Attempt, Error, Execution, Usage
from graph.values import JSON, Ref, Value, trim
from graph.wire import (
    CHUNK,
    COLLECT,
    PIN,
    REROUTE_CHUNK,
    RUN_MAP,
    AttemptRequest,
    Back,
    ChunkRequest,
    ChunkResult,
    Collected,
    CollectRequest,
    Entry,
    MapProgress,
    MapRequest,
    PendingItems,
    Pinned,
    Scope,
)
from workflows.attempts import start_child
from workflows.calls import AttemptFailed, application_failure, call, check_cancelled
from workflows.chunks import TIME, first_ranges
from workflows.climbing import Climber, NodeFailed, Stopped, first_step, past_deadline
from workflows.clock import now

CHUNK_ITEMS = 1000
"""Items up to which a map is begun in its run, by a chunk of that size."""

SEPARATOR = ", "
"""Between the implementations that a map's attempt names."""


class MapRun:
    """One execution of a map node."""

    def __init__(self, climber: Climber, node: NodePlan, execution: Execution) -> None:
        self.climber = climber
        self.record = climber.record
        self.node = node
        self.execution = execution
        self._ran: list[str] = []

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
        try:
            async with asyncio.timeout(None if progress.deadline is None else (progress.deadline - now()) / 1000):
                pinned, collected = await self._work(attempt)
        except AttemptFailed as failed:
            check_cancelled()
            raise await self._give_up(attempt, failed) from failed
        except TimeoutError:
            raise await self._give_up(attempt, past_deadline(self.node)) from None
        if collected is None:
            return None
        self.execution.items = {"items": pinned, **collected.counts}
        self.execution.passed = collected.passed.model_dump(mode="json") if collected.passed else None
        await self._escalate(collected)
        if collected.error is not None:
            error = Error(**collected.error)
            self.record.end_attempt(self.execution, attempt, Usage(), AttemptFailed(error))
            raise NodeFailed(error)
        attempt.output = collected.digest
        self.record.end_attempt(self.execution, attempt, Usage(), None)
        return collected.output

    async def _work(self, attempt: Attempt) -> tuple[int, Collected | None]:
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
        attempt.learn(input=pinned.digest or pinned.items.digest)
        done = await self._items(scope, pinned.items, pinned.count, attempt)
        request = CollectRequest(
            scope=scope, node=self.node.name, items=pinned.items, results=done.results, folded=done.folded
        )
        collected = await call(
            COLLECT, request, Collected, summary=f"{self.node.name}: collect", timeout=self.node.timeout
        )
        return pinned.count, collected

    async def _items(self, scope: Scope, items: Ref, count: int, attempt: Attempt) -> MapProgress:
        """Run every item up its ladder: what that gave. What one chunk can't do in time is a run of its own."""
        if self.node.apart:
            done = MapProgress(ranges=[(0, count)] if count else [])
        elif count > CHUNK_ITEMS and workflow.patched("run-map"):
            done = MapProgress(ranges=first_ranges(count, self.node.concurrency or 1))
        else:
            done = await self._chunks(scope, items, count, attempt)
        if done.ranges or done.back:
            done.begun = attempt.created
            request = MapRequest(
                scope=scope,
                node=self.node.name,
                items=items,
                count=count,
                concurrency=self.node.concurrency or 1,
                progress=done,
                apart=self.node.apart,
            )
            id = f"{self.record.run.id}/{self.node.name}/{self.execution.id}.{attempt.index}"
            done = await self._run_map(request, id, attempt)
        return done

    async def _run_map(self, request: MapRequest, id: str, attempt: Attempt) -> MapProgress:
        """Work through items in a workflow of its own, ended with this one: what that gave.

        Raises:
            AttemptFailed: a chunk couldn't be worked on at all, or the run was ended by somebody.
            Stopped: the run is failing; what was in flight has finished.
        """
        summary = f"items of {self.node.name}"
        child = await start_child(RUN_MAP, request, id, summary=summary, timeout=None, result=MapProgress)
        try:
            await self.climber.interruptible(self.node, partial(workflow.wait, [child]))
        except Stopped:
            with suppress(ApplicationError):  # it has just ended
                await child.signal("stop")
            self._spend(attempt, await map_progress(child))
            raise
        except asyncio.CancelledError:
            child.cancel()
            await workflow.wait([child])
            raise
        done = await map_progress(child)
        self._spend(attempt, done)
        return done

    async def _chunks(self, scope: Scope, items: Ref, count: int, attempt: Attempt) -> MapProgress:
        """Run items, one chunk after another, until all are done or time is up: what that gave, and what is left.
        ``attempt`` learns of each chunk once it is done."""
        results: list[Ref] = []
        waiting: deque[tuple[int, int] | PendingItems] = deque(
            (start, min(CHUNK_ITEMS, count - start)) for start in range(0, count, CHUNK_ITEMS)
        )
        while waiting:
            part = waiting.popleft()
            if isinstance(part, PendingItems):
                name = REROUTE_CHUNK if part.rung == "reroute" else CHUNK
                summary = f"{self.node.name}: {part.rung} {part.count} items"
                request = ChunkRequest(scope=scope, node=self.node.name, items=items, pending=[part.ref])
                if part.delay:
                    await self.climber.delay(self.node, part.delay)
            else:
                name, (start, size) = CHUNK, part
                summary = f"{self.node.name}: items {start} to {start + size - 1}"
                request = ChunkRequest(
                    scope=scope, node=self.node.name, items=items, start=start, count=size, time=TIME
                )
            await self.climber.take_slot(self.node)
            try:
                done = await call(name, request, ChunkResult, summary=summary, timeout=None)
            finally:
                self.climber.slots.release()
            results.append(done.results)
            waiting.extend(done.pending)
            self._count(done.counts)
            self._spend(attempt, done)
            rest = (
                [] if done.rest is None or isinstance(part, PendingItems) else [(done.rest, start + size - done.rest)]
            )
            if rest or (
                done.pending and self.node.kinds[0] == "graph"
            ):  # items within graphs wait for times of their own
                ranges = [*rest, *(each for each in waiting if isinstance(each, tuple))]
                back = [Back(items=e, due=now() + e.delay) for e in waiting if isinstance(e, PendingItems)]
                counts = {key: n for key, n in (self.execution.items or {}).items() if key != "items"}
                return MapProgress(ranges=ranges, back=back, results=results, counts=counts)
        return MapProgress(results=results)

    def _count(self, counts: dict[str, int]) -> None:
        items = self.execution.items or {}
        self.execution.items = {**items, **{key: items.get(key, 0) + value for key, value in counts.items()}}

    def _spend(self, attempt: Attempt, done: ChunkResult | MapProgress) -> None:
        """Add what chunks cost, and note what ran."""
        self.record.spend(self.execution, attempt, Usage.from_json(done.usage))
        if done.fuel:
            attempt.learn(fuel=(attempt.fuel or 0) + done.fuel)
        if done.ran:  # a worker of before this was told says nothing
            self._ran = list(dict.fromkeys([*self._ran, *done.ran]))[:MOST_RAN]
            attempt.learn(ran=SEPARATOR.join(self._ran))

    async def _give_up(self, attempt: Attempt, failure: AttemptFailed) -> NodeFailed:
        """The items couldn't be had, or time is up: no attempt can mend it, but a person may still be asked."""
        self.record.end_attempt(self.execution, attempt, failure.usage, failure)
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


async def map_progress(child: ChildWorkflowHandle[Any, Any]) -> MapProgress:
    """What the run of a map's items gave. Raises AttemptFailed, asyncio.CancelledError."""
    try:
        done: MapProgress = await child
        return done
    except ChildWorkflowError as error:
        check_cancelled()
        cause = error.cause
        if isinstance(cause, ApplicationError) and (failure := application_failure(cause)) is not None:
            raise failure from error
        message = f"the run of the items ended: {cause or error}"
        raise AttemptFailed(Error("child_failed", "child_failed", trim(message))) from error


def used_up(node: str, count: int, sample: list[dict[str, JSON]]) -> str:
    """The reason of an entry for ``count`` items, quoting the first."""
    items, ladders = ("item", "its ladder") if count == 1 else ("items", "their ladders")
    whose = f"{count} {items} of `{node}` used up {ladders}"
    if not sample:
        return whose
    first = sample[0]
    return trim(f"{whose}; the first: item {first.get('index')}: {first.get('reason')}")
