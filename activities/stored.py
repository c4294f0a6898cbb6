"""Values that lie in the store in pages, read no further than needed: a map's output and stored lists.

To an expression they are what their author sees: an object of lists and counts, a list. :mod:`activities.lists` writes
them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

from activities.lists import TAG, get_list, get_map, item_at, numbers_of, read_page, texts_of
from activities.store import Store
from graph.errors import Failure
from graph.expressions import HostPlan
from graph.limits import MIB
from graph.lists import Index, MapOutput
from graph.resolve import apply, fold_of, path_text, position, step_into
from graph.values import JSON, Ref, Value, encode

WHOLE_LIMIT: Final = 64 * MIB
"""Bytes of JSON text that a stored value may have to be held as a whole."""
LISTS: Final = ("values", "indexes", "failures")
COUNTS: Final = ("succeeded", "failed", "escalated", "skipped")
KEYS: Final = (*LISTS, *COUNTS)
"""The keys of a map's output, in the order that its author sees."""
_TAGGED: Final = b'{"' + TAG.encode() + b'":"'


@dataclass(frozen=True)
class StoredList:
    """A list in pages. ``numbers``: of the items' numbers in ``index``, not of the items themselves."""

    store: Store
    index: Index
    numbers: bool = False

    @property
    def count(self) -> int:
        """How many items it has."""
        return self.index.count

    @property
    def size(self) -> int:
        """Bytes of its JSON text, about, and rather too many than too few."""
        if self.numbers:
            return 2 + sum(page.count * (len(str(page.last)) + 1) for page in self.index.pages)
        return 2 + self.index.size

    async def item(self, position: int) -> JSON:
        """The item at ``position``, counted from 0, of a list that is longer. Reads one page. Raises StoreError."""
        if not self.numbers:
            return await item_at(self.store, self.index, position)
        for page in self.index.pages:
            if position < page.count:
                return (await numbers_of(self.store, page))[position]
            position -= page.count
        raise IndexError(position)

    async def pages(self) -> AsyncIterator[Sequence[JSON]]:
        """The items, page by page. Raises StoreError."""
        for page in self.index.pages:
            yield await (numbers_of if self.numbers else read_page)(self.store, page)

    async def texts(self) -> AsyncIterator[bytes]:
        """Its JSON text, in parts. Raises StoreError."""
        if not self.numbers:
            async for part in texts_of(self.store, self.index):
                yield part
            return
        opening = b"["
        for page in self.index.pages:
            yield opening + encode(list(await numbers_of(self.store, page)))[1:-1]
            opening = b","
        yield b"[]" if opening == b"[" else b"]"


@dataclass(frozen=True)
class StoredMap:
    """A map's output."""

    store: Store
    output: MapOutput

    @property
    def size(self) -> int:
        """Bytes of its JSON text, about, and rather too many than too few."""
        return self.size_of(KEYS)

    @property
    def values(self) -> StoredList:
        """What its items gave."""
        return StoredList(self.store, self.output.values)

    def size_of(self, keys: Collection[str]) -> int:
        """The same for some of its keys."""
        parts = [self.part(key) for key in keys]
        return sum(24 + (part.size if isinstance(part, StoredList) else len(str(part))) for part in parts)

    def part(self, key: str) -> StoredList | int:
        """What lies under ``key``."""
        match key:
            case "values":
                return self.values
            case "indexes":
                return StoredList(self.store, self.output.values, numbers=True)
            case "failures":
                return StoredList(self.store, self.output.failures)
        count: int = getattr(self.output, key)
        return count

    async def texts(self, keys: Collection[str] = KEYS) -> AsyncIterator[bytes]:
        """The JSON text of an object with some of its keys, in parts. Raises StoreError."""
        opening = b"{"
        for key in (key for key in KEYS if key in keys):
            yield opening + encode(key) + b":"
            part = self.part(key)
            if isinstance(part, StoredList):
                async for text in part.texts():
                    yield text
            else:
                yield encode(part)
            opening = b","
        yield b"{}" if opening == b"{" else b"}"


Stored: TypeAlias = StoredList | StoredMap


async def open_stored(store: Store, ref: Ref) -> Stored:
    """What a reference with a form stands for. Raises StoreError."""
    if ref.form == "map":
        return StoredMap(store, await get_map(store, ref))
    return StoredList(store, await get_list(store, ref))


async def load_value(store: Store, value: Value) -> JSON:
    """What ``value`` stands for, whole. Raises StoreError, and Failure ``too_large`` if it lies in too many pages."""
    if value.ref is None or value.ref.form is None:
        return await store.load(value)
    return await whole(await open_stored(store, value.ref), "the value")


async def recognise(store: Store, ref: Ref) -> Stored | None:
    """What a blob stands for that says so itself, for who has its digest alone; None if it is a plain value.

    Raises:
        StoreError: any of its codes.
    """
    async with aclosing(store.stream(ref)) as blocks:
        if not (await anext(blocks, b"")).startswith(_TAGGED):
            return None
    data = await store.get(ref)
    for form, kind in (("list", Index), ("map", MapOutput)):
        if data.startswith(_TAGGED + form.encode() + b'"'):
            try:
                found = kind.model_validate_json(data)
                if found.model_fields_set | {TAG} != json.loads(data).keys():
                    return None
            except ValueError:  # pydantic's and json's: somebody's own object that has this key too
                return None
            return StoredList(store, found) if isinstance(found, Index) else StoredMap(store, found)
    return None


async def resolve_stored(plan: HostPlan, stored: Stored) -> JSON:
    """The value of a host-resolvable expression whose root is ``stored``.

    Raises:
        Failure: as `graph.resolve.resolve` of the plain value, with the same message; ``too_large`` if what it gives
            can't be held.
        StoreError: any of its codes.
    """
    value = await find(plan, stored)
    if plan.function is None:
        return await whole(value, written(plan)) if isinstance(value, Stored) else value
    if isinstance(value, StoredMap):
        return apply(plan, dict.fromkeys(KEYS))
    if not isinstance(value, StoredList):
        return apply(plan, value)
    if plan.function == "len":
        return value.count
    if plan.function == "group_by":  # it keeps every item
        check_whole(value.size, written(plan))
    fold, plucked = fold_of(plan), 0
    async for page in value.pages():
        before = fold.taken
        fold.take(page)
        if fold.done:
            break
        if plan.function == "pluck" and value.size > WHOLE_LIMIT:
            plucked += len(encode(fold.result()[before:]))
            check_whole(plucked, f"the beginning of {written(plan)}")
    return fold.result()


async def find(plan: HostPlan, stored: Stored) -> Stored | JSON:
    """What lies at the plan's path in ``stored``: still in the store, or a value. Raises as `resolve_stored`."""
    value: Stored | JSON = stored
    for place, step in enumerate(plan.path):
        if isinstance(value, StoredMap):
            step_into(plan, dict.fromkeys(KEYS), place)  # sees that there is such a key
            value = value.part(str(step))
        elif isinstance(value, StoredList):
            value = await value.item(position(plan, place, value.count))
        else:
            value = step_into(plan, value, place)
    return value


async def whole(stored: Stored, name: str) -> JSON:
    """The plain value, which messages call ``name``. Raises Failure ``too_large``, StoreError."""
    check_whole(stored.size, name)
    if isinstance(stored, StoredMap):
        parts = {key: stored.part(key) for key in KEYS}
        return {k: await whole(p, name) if isinstance(p, StoredList) else p for k, p in parts.items()}
    return [item async for page in stored.pages() for item in page]


def check_whole(size: int, name: str) -> None:
    """See that a stored value of ``size`` bytes of JSON may be held as a whole. Raises Failure ``too_large``."""
    if size > WHOLE_LIMIT:
        message = (
            f"{name} is {size} bytes of JSON, too large to be held as a whole (at most {WHOLE_LIMIT}); "
            "take one item, or `len`, `first`, `sum`, `count_by` or `pluck` of its list, which read it piece by piece, "
            "or map over it"
        )
        raise Failure("too_large", message, details={"size": size, "limit": WHOLE_LIMIT})


def written(plan: HostPlan) -> str:
    """The plan as messages name it."""
    path = f"`{path_text(plan)}`"
    return path if plan.function is None else f"`{plan.function}` of {path}"
