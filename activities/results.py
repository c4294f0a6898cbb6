"""What a chunk's items came to: gathered, saved now and then while the chunk goes on, and stored when it ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from activities.items import Item
from activities.lists import ListWriter
from activities.store import Store, StoreError
from graph.lists import Index
from graph.state import MOST_RAN, Usage
from graph.values import JSON, Compact, Ref, encode
from graph.wire import PendingItems


class Part(Compact):
    """A chunk's results in the store: the values of items that succeeded, what is to be told of those that failed or
    were escalated, both in the order of their numbers, and how many were skipped. Of items that pass through a graph:
    what its nodes came to (``passed``), and those of its nodes that were ``escalated``, a list for each item."""

    values: Index
    lost: Index
    skipped: int = 0
    passed: Index = Index()
    escalated: Index = Index()


class Results:
    """Of one chunk. What was added since the last save is kept apart."""

    def __init__(self) -> None:
        self._values: dict[int, bytes] = {}
        self._lost: dict[int, dict[str, JSON]] = {}
        self._skipped: list[int] = []
        self._back: dict[int, dict[str, JSON]] = {}
        self._passed: dict[int, dict[str, JSON]] = {}
        self._escalated: dict[int, list[dict[str, JSON]]] = {}
        self.under_way: dict[int, dict[str, JSON]] = {}
        """Where items stand within their graphs that were in the midst of them when the chunk was lost."""
        self._moved = False
        self.usage = Usage()
        self.fuel = 0
        self.ran: dict[str, None] = {}
        self.size = 0
        """Bytes of the values."""
        self._unsaved: list[int] = []
        self._under_way: list[dict[str, JSON]] = []

    @property
    def concluded(self) -> frozenset[int]:
        """The items that this chunk is done with."""
        return frozenset([*self._values, *self._lost, *self._skipped, *self._back])

    @property
    def counts(self) -> dict[str, int]:
        """Items by status; those that come back have none yet."""
        counts: Counter[str] = Counter()
        counts["succeeded"] = len(self._values)
        counts["skipped"] = len(self._skipped)
        counts.update(str(each["status"]) for each in self._lost.values())
        return {status: count for status, count in counts.items() if count}

    def succeeded(self, number: int, text: bytes) -> None:
        """An item's accepted output, as JSON text."""
        self._values[number] = text
        self.size += len(text)
        self._unsaved.append(number)

    def lost(self, number: int, told: dict[str, JSON]) -> None:
        """An item failed or was escalated; ``told`` is what people may want to know of it."""
        self._lost[number] = {"index": number, **told}
        self._unsaved.append(number)

    def passed(self, number: int, nodes: dict[str, JSON]) -> None:
        """What the nodes of an item's graph came to, in its last attempt."""
        self._passed[number] = {"index": number, "nodes": nodes}

    def escalated(self, number: int, told: Sequence[dict[str, JSON]]) -> None:
        """What people may want to know of nodes of an item's graph that were escalated."""
        if told:
            self._escalated.setdefault(number, []).extend({"index": number, **each} for each in told)

    def changed(self) -> None:
        """An item got further within its graph."""
        self._moved = True

    def skipped(self, number: int) -> None:
        """An item's guard was false."""
        self._skipped.append(number)
        self._unsaved.append(number)

    def back(self, item: Item) -> None:
        """An item goes on in another chunk."""
        self._back[item.number] = item.standing()
        self._unsaved.append(item.number)

    def spend(self, usage: Usage, fuel: int, ran: str | None) -> None:
        """Add what an attempt cost, and note the implementation that ``ran``, if any did."""
        self.usage.add(usage)
        self.fuel += fuel
        if ran is not None and len(self.ran) < MOST_RAN:
            self.ran[ran] = None

    async def save(self, store: Store, under_way: Sequence[dict[str, JSON]] = ()) -> Ref | None:
        """Store what was added since the last time, and how far the items ``under_way`` are; None if nothing changed.
        Raises StoreError."""
        numbers = list(self._unsaved)
        if not numbers and not self._moved:
            return None
        self._moved = False
        self._under_way = list(under_way)
        try:
            saved = await self._save(store, numbers)
        except StoreError:
            self._moved = True
            raise
        del self._unsaved[: len(numbers)]
        return saved

    async def save_all(self, store: Store) -> Ref:
        """Store all there is, in place of all saves before. Raises StoreError."""
        newer = len(self._unsaved)
        saved = await self._save(store, [*self._values, *self._lost, *self._skipped, *self._back])
        del self._unsaved[:newer]
        return saved

    async def _save(self, store: Store, numbers: list[int]) -> Ref:
        skipped = set(self._skipped)
        values = [b"[%d,%b]" % (number, self._values[number]) for number in numbers if number in self._values]
        rest = {
            "lost": [self._lost[number] for number in numbers if number in self._lost],
            "back": [self._back[number] for number in numbers if number in self._back],
            "skipped": [number for number in numbers if number in skipped],
            "passed": [self._passed[number] for number in numbers if number in self._passed],
            "escalated": [told for number in numbers for told in self._escalated.get(number, [])],
            "under_way": self._under_way,
            "usage": self.usage.to_json(),
            "fuel": self.fuel,
            "ran": list(self.ran),
        }
        return await store.put(b'{"values":[' + b",".join(values) + b"]," + encode(rest)[1:])

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over what `save` stored; in the order of the saves."""
        for number, value in saved["values"]:
            self.succeeded(number, encode(value))
        for told in saved["lost"]:
            self._lost[told["index"]] = told
        for standing in saved["back"]:
            self._back[standing["index"]] = standing
        self._skipped += saved["skipped"]
        for told in saved.get("passed", []):
            self._passed[told["index"]] = told
        for told in saved.get("escalated", []):
            self._escalated.setdefault(told["index"], []).append(told)
        self.under_way = {told["index"]: told for told in saved.get("under_way", [])}
        self.usage, self.fuel = Usage.from_json(saved["usage"]), saved["fuel"]
        self.ran = dict.fromkeys(saved["ran"])
        self._unsaved = []

    async def part(self, store: Store) -> Ref:
        """Store all that concluded. Raises StoreError."""
        values = ListWriter(store)
        for number in sorted(self._values):
            await values.add(number, self._values[number])
        part = Part(
            values=await values.close(),
            lost=await written(store, self._lost),
            skipped=len(self._skipped),
            passed=await written(store, self._passed),
            escalated=await written(store, self._escalated),
        )
        return await store.put(part.model_dump_json().encode())

    async def pending(self, store: Store) -> list[PendingItems]:
        """Store the items that go on elsewhere, by what they wait for. Raises StoreError."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for _, standing in sorted(self._back.items()):
            step: dict[str, Any] = standing["step"]
            groups.setdefault(json.dumps([step["rung"], step["implementation"], step["delay"]]), []).append(standing)
        return [
            PendingItems(
                rung="reroute" if group[0]["step"]["rung"] == "reroute" else "retry",
                ref=await store.put_json(group),
                count=len(group),
                delay=group[0]["step"]["delay"],
            )
            for group in groups.values()
        ]


async def written(store: Store, told: Mapping[int, JSON]) -> Index:
    """What is told of some items, as a list. Raises StoreError."""
    writer = ListWriter(store)
    for number in sorted(told):
        await writer.add(number, encode(told[number]))
    return await writer.close()
