"""The activity `collect`: what a map's chunks gave, made its output: in the order of the items, whichever chunk each
came from."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from temporalio import activity

from activities.items import SHORT
from activities.lists import Numbered, read_list
from activities.pinning import map_of
from activities.results import Part
from activities.store import Store
from activities.tools import Tools
from graph.compiled import CompiledNode
from graph.lists import Index
from graph.state import ITEM_STATUSES
from graph.values import JSON, KIB, Ref, digest, encode, trim
from graph.wire import COLLECT, FOLD, Collected, CollectRequest, FoldRequest

SAMPLE: Final = 3
"""Escalated items that an entry shows itself."""
SAMPLE_LIMIT: Final = KIB
"""Bytes of JSON that they take together, at most."""


class CollectActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=FOLD)
    async def fold(self, request: FoldRequest) -> Ref:
        """Store references to results as one list, since they grow many."""
        return await self._tools.store.put_json([ref.model_dump(mode="json") for ref in request.refs])

    @activity.defn(name=COLLECT)
    async def collect(self, request: CollectRequest) -> Collected:
        """The map's output: values in input order, failures, counts; escalated items by queue."""
        store = self._tools.store
        node = await self._tools.node(request.scope.graph, request.node)
        folded = [ref for stored in request.folded for ref in await store.get_json(stored)]
        refs = [*map(Ref.model_validate, folded), *request.results]
        parts = [Part.model_validate_json(await store.get(ref)) for ref in refs]
        done = [found async for found in merged(store, [part.values for part in parts])]
        lost = [found.value async for found in merged(store, [part.lost for part in parts])]
        counts = dict.fromkeys(ITEM_STATUSES, 0)
        counts["succeeded"] = len(done)
        counts["skipped"] = sum(part.skipped for part in parts)
        for each in lost:
            counts[each["status"]] += 1
        output = {
            "values": [value for _, value in done],
            "indexes": [number for number, _ in done],
            "failures": [{key: each[key] for key in ("index", "item", "code", "reason")} for each in lost],
            **counts,
        }
        escalated = by_queue(lost)
        data = encode(output)
        return Collected(
            output=await store.as_value(output, node.inline, data=data),
            counts=counts,
            digest=digest(data),
            error=map_error(node, sum(counts.values()), counts["succeeded"], lost),
            escalated={queue: await store.put_json(entries) for queue, entries in escalated.items()},
            samples={queue: sample(entries) for queue, entries in escalated.items()},
        )


async def merged(store: Store, lists: Sequence[Index]) -> AsyncIterator[Numbered]:
    """The items of several lists, each in order, as one in order. Raises StoreError."""
    streams = [read_list(store, index) for index in lists]
    heads: list[tuple[int, int, JSON]] = []
    for place, stream in enumerate(streams):
        async for number, value in stream:
            heads.append((number, place, value))
            break
    heapq.heapify(heads)
    while heads:
        number, place, value = heads[0]
        yield Numbered(number, value)
        async for following, next_value in streams[place]:
            heapq.heapreplace(heads, (following, place, next_value))
            break
        else:
            heapq.heappop(heads)


def by_queue(lost: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What people need to know of each escalated item, by the queue that it goes to."""
    queues: dict[str, list[dict[str, Any]]] = {}
    keys = ("index", "code", "reason", "check", "attempts", "rejected", "history", "item")
    for each in lost:
        if each["status"] == "escalated":
            queues.setdefault(each["queue"], []).append({key: each[key] for key in keys})
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


def map_error(node: CompiledNode, count: int, done: int, lost: list[dict[str, Any]]) -> dict[str, Any] | None:
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
