"""A map's activities: `pin` its items, work through them in chunks, `collect` the results.

Every item climbs its own ladder. Immediate retries happen here; an item that needs another implementation or a
delay goes back to the workflow in a stored list, with where it stands.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity

from activities.boundary import as_application_error
from activities.evaluate import Environment
from activities.implement import Feedback, Meter
from activities.perform import Outcome, Try, in_time, perform
from activities.sources import open_items
from activities.tools import Tools
from graph.compiled import CompiledNode, Over
from graph.errors import Failure
from graph.ladder import Attempt as Step
from graph.ladder import Climb, Escalation
from graph.state import ITEM_STATUSES
from graph.values import JSON, KIB, digest, encode, trim
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
    FailureRecord,
    PendingItems,
    Pinned,
)

HISTORY = 10
"""Attempts of an item, the last ones, whose reasons are kept."""
SAMPLE = 3
"""Escalated items that an entry shows itself."""
SAMPLE_LIMIT = KIB
"""Bytes of JSON that they take together, at most."""
SHORT = 200
"""Bytes of a reason in an item's history or a sample, and of an item in a sample."""


@dataclass
class Item:
    """One item on its way up the ladder. ``next`` is set while it has not concluded; ``history`` is why its last
    attempts failed."""

    index: int
    value: JSON
    climb: Climb
    next: Step = field(default_factory=lambda: Step("first", 0))
    feedback: Feedback | None = None
    attempts: int = 0
    history: list[JSON] = field(default_factory=list)

    def note(self, code: str, reason: str) -> None:
        """Remember why an attempt failed."""
        self.history = [*self.history, {"code": code, "reason": trim(reason, SHORT)}][-HISTORY:]

    def waiting(self) -> dict[str, JSON]:
        """As the stored list of pending items keeps it."""
        return {
            "index": self.index,
            "standing": self.climb.to_json(),
            "step": vars(self.next),
            "feedback": vars(self.feedback) if self.feedback else None,
            "attempts": self.attempts,
            "history": self.history,
        }


class ChunkActivities:
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
                if over.source is None:
                    items = listed(node, over, await env.bind(over.items))
                else:
                    items = listed(node, over, [item async for item in open_items(over.source, env)])
        except Failure as failure:
            raise as_application_error(failure.code, Outcome(Meter(), failure=failure).record()) from None
        return Pinned(items=await self._tools.store.put_json(items), count=len(items))

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
        env = Environment(self._tools, request.scope, node.limits)
        items = await self._items(node, request)
        places = asyncio.Semaphore(map_of(node).concurrency)
        meter = Meter()

        async def run(item: Item) -> dict[str, JSON] | None:
            async with places:
                return await self._climb(node, env, item, meter)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run(item)) for item in items]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # a store that is down, mostly, and then for many items at once
        results = [result for task in tasks if (result := task.result()) is not None]
        pending = [item for item, task in zip(items, tasks, strict=True) if task.result() is None]
        counts: dict[str, int] = {}
        for result in results:
            counts[result["status"]] = counts.get(result["status"], 0) + 1
        return ChunkResult(
            results=await self._tools.store.put_json(results),
            counts=counts,
            pending=await self._put_pending(pending),
            usage=meter.usage.to_json() or None,
            fuel=meter.fuel or None,
        )

    async def _items(self, node: CompiledNode, request: ChunkRequest) -> list[Item]:
        values = await self._tools.store.get_json(request.items)
        if request.pending is None:
            numbers = range(request.start, request.start + request.count)
            return [Item(index, values[index], Climb(node.ladder)) for index in numbers]
        return [
            Item(
                data["index"],
                values[data["index"]],
                Climb.from_json(node.ladder, data["standing"]),
                Step(**data["step"]),
                Feedback(**data["feedback"]) if data["feedback"] else None,
                data["attempts"],
                data.get("history", []),  # a list that an older worker wrote has none
            )
            for data in await self._tools.store.get_json(request.pending)
        ]

    async def _put_pending(self, items: list[Item]) -> list[PendingItems]:
        """Items by what they wait for: the same rung and delay go out together."""
        groups: dict[tuple[Any, int, int], list[Item]] = {}
        for item in items:
            groups.setdefault((item.next.rung, item.next.implementation, item.next.delay), []).append(item)
        return [
            PendingItems(
                rung=rung,
                ref=await self._tools.store.put_json([item.waiting() for item in group]),
                count=len(group),
                delay=delay,
            )
            for (rung, _, delay), group in groups.items()
        ]

    async def _climb(self, node: CompiledNode, env: Environment, item: Item, meter: Meter) -> dict[str, JSON] | None:
        """Attempt an item until it concludes (its result) or must wait (None)."""
        scope = env.within(item=item.value, index=item.index)
        guard = map_of(node).guard_per_item and item.attempts == 0
        while True:
            step = item.next
            outcome = await perform(
                node,
                scope,
                Try(step.implementation, item.feedback, step.fuel, step.memory),
                guard=guard,
                default="item",
            )
            item.attempts += 1
            meter.usage.add(outcome.meter.usage)
            meter.fuel += outcome.meter.fuel
            if outcome.skipped:
                return {"index": item.index, "status": "skipped"}
            if outcome.failure is None:
                return {"index": item.index, "status": "succeeded", "value": outcome.output}
            failed = outcome.record()
            item.note(outcome.failure.code, failed.message)
            following = item.climb.next(failed.failure_class, outcome.failure.code)
            if not isinstance(following, Step):
                error = {"code": outcome.failure.code, "reason": failed.message, "check": failed.check}
                queue = following.queue if isinstance(following, Escalation) else None
                return {
                    "index": item.index,
                    "status": "escalated" if queue else "failed",
                    "queue": queue,
                    "class": failed.failure_class,
                    "attempts": item.attempts,
                    "rejected": failed.rejected.model_dump() if failed.rejected else None,
                    "history": item.history,
                    **error,
                }
            item.next = following
            item.feedback = await self._feedback(following, outcome.failure.code, failed)
            if following.rung == "reroute" or following.delay:
                return None

    async def _feedback(self, step: Step, code: str, failed: FailureRecord) -> Feedback | None:
        if not step.feedback:
            return None
        rejected = await self._tools.store.get_json(failed.rejected) if failed.rejected else None
        return Feedback(code, failed.message, rejected)

    @activity.defn(name=COLLECT)
    async def collect(self, request: CollectRequest) -> Collected:
        """The map's output: values in input order, failures, counts; escalated items by queue."""
        node = await self._tools.node(request.scope.graph, request.node)
        items = await self._tools.store.get_json(request.items)
        results = [result for ref in request.results for result in await self._tools.store.get_json(ref)]
        results.sort(key=lambda result: result["index"])
        counts = dict.fromkeys(ITEM_STATUSES, 0)
        for result in results:
            counts[result["status"]] += 1
        lost = [result for result in results if result["status"] in ("failed", "escalated")]
        done = [result for result in results if result["status"] == "succeeded"]
        output = {
            "values": [result["value"] for result in done],
            "indexes": [result["index"] for result in done],
            "failures": [
                {"index": r["index"], "item": items[r["index"]], "code": r["code"], "reason": r["reason"]} for r in lost
            ],
            **counts,
        }
        escalated = by_queue(items, lost)
        return Collected(
            output=await self._tools.store.as_value(output),
            counts=counts,
            digest=digest(encode(output)),
            error=map_error(node, len(items), done, lost),
            escalated={queue: await self._tools.store.put_json(entries) for queue, entries in escalated.items()},
            samples={queue: sample(entries) for queue, entries in escalated.items()},
        )


def map_of(node: CompiledNode) -> Over:
    """The node's map. Raises ValueError if it has none."""
    if node.over is None:
        raise ValueError(f"`{node.name}` is no map")
    return node.over


def listed(node: CompiledNode, over: Over, items: JSON) -> list[JSON]:
    """The items, in batches if asked for.

    Raises:
        Failure: ``invalid_input`` if they aren't a list, or there are none and `allow_empty` isn't set.
    """
    if not isinstance(items, list):
        shown = encode(items).decode()[:60]
        raise Failure("invalid_input", f"`over` of `{node.name}` must be a list; it is {shown}")
    if not items and not over.allow_empty:
        message = f"`over` of `{node.name}` is an empty list; say `allow_empty: true` if that is right"
        raise Failure("invalid_input", message, code="empty_list")
    if over.batch is None:
        return items
    return [items[start : start + over.batch] for start in range(0, len(items), over.batch)]


def by_queue(items: list[JSON], lost: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What people need to know of each escalated item, by the queue that it goes to."""
    queues: dict[str, list[dict[str, Any]]] = {}
    for result in lost:
        if result["status"] == "escalated":
            entry = {key: result[key] for key in ("index", "code", "reason", "check", "attempts", "rejected")}
            # Results that an older worker wrote have no history.
            entry |= {"history": result.get("history", []), "item": items[result["index"]]}
            queues.setdefault(result["queue"], []).append(entry)
    return queues


def sample(entries: list[dict[str, Any]]) -> list[dict[str, JSON]]:
    """The first few of a queue's escalated items, as far as they fit in an entry. A large item is left out."""
    shown: list[dict[str, JSON]] = []
    room = SAMPLE_LIMIT
    for entry in entries[:SAMPLE]:
        short = {"index": entry["index"], "code": entry["code"], "reason": trim(entry["reason"], SHORT)}
        if len(encode(entry["item"])) <= SHORT:
            short["item"] = entry["item"]
        room -= len(encode(short)) + 1
        if room < 0:
            break
        shown.append(short)
    return shown


def map_error(
    node: CompiledNode, count: int, done: list[dict[str, Any]], lost: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """Why the map fails, quoting its first failed item; None if it doesn't. Failed and escalated items both count."""
    if not lost:
        return None
    over, first = map_of(node), lost[0]
    if not done:
        why = f"all {count} items failed" if len(lost) == count else f"no item succeeded and {len(lost)} failed"
    elif over.tolerate_failures is not None and len(lost) > over.tolerate_failures:
        why = f"{len(lost)} of {count} items failed, {over.tolerate_failures} are tolerated"
    elif over.tolerate_percent is not None and len(lost) * 100 > over.tolerate_percent * count:
        why = f"{len(lost)} of {count} items failed, {over.tolerate_percent:g}% are tolerated"
    else:
        return None
    return {
        "code": first["code"],
        "failure_class": first["class"],
        "message": trim(f"{why}; the first was item {first['index']}: {first['reason']}"),
        "details": {"item": first["index"], "failed": len(lost), "items": count},
    }
