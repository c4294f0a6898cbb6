"""The activity `collect`: what a map's chunks gave, made its output: in the order of the items, whichever chunk each
came from."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio import activity

from activities.items import SHORT
from activities.lists import ListWriter, get_list, pick, put_map, put_plain
from activities.merging import in_order, merge
from activities.pinning import map_of
from activities.results import Part, Results
from activities.store import Store
from activities.stored import StoredMap, load_value
from activities.tools import Tools
from graph.compiled import CompiledNode
from graph.limits import MIB
from graph.lists import Index, MapOutput
from graph.state import ITEM_STATUSES
from graph.values import JSON, KIB, Ref, Value, digest, encode, trim
from graph.wire import COLLECT, FOLD, GATHER, Collected, CollectRequest, FoldRequest, GatherRequest, ItemDone

SAMPLE: Final = 3
"""Escalated items that an entry shows itself."""
SAMPLE_LIMIT: Final = KIB
"""Bytes of JSON that they take together, at most."""
PLAIN_LIMIT: Final = MIB
"""Bytes of JSON up to which a map's output is a plain value."""
FAILURE_KEYS: Final = ("index", "item", "code", "reason")
ESCALATED_KEYS: Final = ("index", "code", "reason", "check", "attempts", "rejected", "history", "item")


class CollectActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @activity.defn(name=FOLD)
    async def fold(self, request: FoldRequest) -> Ref:
        """Store references to results as one list, since they grow many."""
        return await self._tools.store.put_json([ref.model_dump(mode="json") for ref in request.refs])

    @activity.defn(name=GATHER)
    async def gather(self, request: GatherRequest) -> Ref:
        """Store how items' own runs ended as the results of a chunk. Raises StoreError, Failure."""
        store, results = self._tools.store, Results()
        lost = sorted(done.number for done in request.done if done.error is not None)
        items = {found.number: found.value async for found in pick(store, await get_list(store, request.items), lost)}
        for done in request.done:
            if done.error is not None:
                results.lost(done.number, ended(done, items[done.number]))
            elif done.output is None:
                results.skipped(done.number)
            else:
                results.succeeded(done.number, encode(await load_value(store, done.output)))
        return await results.part(store)

    @activity.defn(name=COLLECT)
    async def collect(self, request: CollectRequest) -> Collected:
        """The map's output: values in input order, failures, counts; escalated items by queue."""
        store = self._tools.store
        node = await self._tools.node(request.scope.graph, request.node)
        folded = [ref for stored in request.folded for ref in await store.get_json(stored)]
        refs = [*map(Ref.model_validate, folded), *request.results]
        parts = [Part.model_validate_json(await store.get(ref)) for ref in refs]
        lost = await Lost.of(store, [part.lost for part in parts], [part.escalated for part in parts])
        passed = await merge(store, [part.passed for part in parts])
        values = await merge(store, [part.values for part in parts])
        output = MapOutput(
            values=values,
            failures=lost.failures,
            succeeded=values.count,
            failed=lost.counts["failed"],
            escalated=lost.counts["escalated"],
            skipped=sum(part.skipped for part in parts),
        )
        value, hashed = await kept(store, output, node.inline)
        counts = {status: getattr(output, status) for status in ITEM_STATUSES}
        return Collected(
            output=value,
            counts=counts,
            digest=hashed,
            error=map_error(node, counts, lost),
            escalated={name: await put_plain(store, queue) for name, queue in lost.queues.items()},
            samples=lost.samples,
            passed=await put_plain(store, passed) if passed.pages else None,
        )


def ended(done: ItemDone, item: JSON) -> dict[str, JSON]:
    """What people may want to know of an item whose run failed. It was handed over by that run, if at all."""
    error = done.error or {}
    return {
        "status": "escalated" if done.escalated else "failed",
        "queue": None,
        "class": error.get("failure_class"),
        "code": error.get("code"),
        "reason": error.get("message"),
        "check": (error.get("details") or {}).get("check"),
        "attempts": done.attempts,
        "rejected": None,
        "history": [],
        "item": item,
    }


async def kept(store: Store, output: MapOutput, inline: int) -> tuple[Value, str]:
    """A map's output as it travels: plain if it is small, else in its pages; and the digest of its JSON text. Raises
    StoreError."""
    stored = StoredMap(store, output)
    if stored.size <= PLAIN_LIMIT:
        data = b"".join([part async for part in stored.texts()])
        return await store.as_value(json.loads(data), inline, data=data), digest(data)
    hashed = hashlib.sha256()
    async for part in stored.texts():
        await asyncio.to_thread(hashed.update, part)
    return Value(ref=await put_map(store, output), size=stored.size), f"sha256:{hashed.hexdigest()}"


@dataclass
class Lost:
    """What is told of the items that failed or were escalated: ``failures`` as the map's output has them, ``queues``
    what people need to know of each escalated item, by the queue it goes to, and ``samples`` the first few of those.
    """

    failures: Index
    queues: dict[str, Index]
    samples: dict[str, list[dict[str, JSON]]]
    counts: Counter[str]
    first: dict[str, Any] | None

    @classmethod
    async def of(cls, store: Store, lists: Sequence[Index], within: Sequence[Index]) -> Lost:
        """Of the lists that the chunks kept: of items, and of nodes ``within`` items' graphs. Raises StoreError."""
        failures = ListWriter(store)
        queues = Queues(store)
        counts: Counter[str] = Counter()
        first: dict[str, Any] | None = None
        async for number, each in in_order(store, lists):
            first = first or each
            counts[each["status"]] += 1
            await failures.add(number, encode({key: each[key] for key in FAILURE_KEYS}))
            if each["queue"] is None:
                continue
            await queues.add(each["queue"], {key: each[key] for key in ESCALATED_KEYS})
        async for _, told in in_order(store, within):
            for each in told:
                await queues.add(each.pop("queue"), each)
        return cls(
            failures=await failures.close(),
            queues=await queues.close(),
            samples={name: sample(beginning) for name, beginning in queues.beginnings.items()},
            counts=counts,
            first=first,
        )


class Queues:
    """What is handed over to each queue, written as lists; ``beginnings`` are the first few of each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writers: dict[str, ListWriter] = {}
        self._counts: Counter[str] = Counter()
        self.beginnings: dict[str, list[dict[str, Any]]] = {}

    async def add(self, queue: str, entry: dict[str, Any]) -> None:
        """Hand something over to ``queue``. Raises StoreError."""
        writer = self._writers.setdefault(queue, ListWriter(self._store))
        await writer.add(self._counts[queue], encode(entry))
        self._counts[queue] += 1
        beginning = self.beginnings.setdefault(queue, [])
        if len(beginning) < SAMPLE:
            beginning.append(entry)

    async def close(self) -> dict[str, Index]:
        """The lists. Raises StoreError."""
        return {queue: await writer.close() for queue, writer in self._writers.items()}


def sample(entries: list[dict[str, Any]]) -> list[dict[str, JSON]]:
    """Some escalated items, as far as they fit in a queue's entry. A large item is left out."""
    shown: list[dict[str, JSON]] = []
    room = SAMPLE_LIMIT
    for entry in entries:
        short = {"index": entry["index"], "code": entry["code"], "reason": trim(entry["reason"], SHORT)}
        if len(encode(entry["item"])) <= SHORT:
            short["item"] = entry["item"]
        room -= len(encode(short)) + 1
        if room < 0:
            break
        shown.append(short)
    return shown


def map_error(node: CompiledNode, counts: dict[str, int], lost: Lost) -> dict[str, Any] | None:
    """Why the map fails, quoting its first failed item; None if it doesn't. Failed and escalated items both count."""
    if lost.first is None:
        return None
    over, first, count, failed = map_of(node), lost.first, sum(counts.values()), lost.counts.total()
    if not counts["succeeded"]:
        why = f"all {count} items failed" if failed == count else f"no item succeeded and {failed} failed"
    elif over.tolerate_failures is not None and failed > over.tolerate_failures:
        why = f"{failed} of {count} items failed, {over.tolerate_failures} are tolerated"
    elif over.tolerate_percent is not None and failed * 100 > over.tolerate_percent * count:
        why = f"{failed} of {count} items failed, {over.tolerate_percent:g}% are tolerated"
    else:
        return None
    return {
        "code": first["code"],
        "failure_class": first["class"],
        "message": trim(f"{why}; the first was item {first['index']}: {first['reason']}"),
        "details": {"item": first["index"], "failed": failed, "items": count},
    }
