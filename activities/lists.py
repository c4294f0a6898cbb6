"""Stored lists: written page by page, read page by page, in the order of their numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal, NamedTuple

from activities.store import Store
from graph.lists import PAGE_BYTES, PAGE_ITEMS, Index, MapOutput, Page
from graph.values import JSON, Ref

TAG: Final = "ferrata"


class Numbered(NamedTuple):
    """One item of a list and its number."""

    number: int
    value: JSON


class ListWriter:
    """Collects items into pages. Give it their JSON text, in the order of their numbers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: list[Page] = []
        self._texts: list[bytes] = []
        self._numbers: list[int] = []
        self._size = 0

    async def add(self, number: int, text: bytes) -> None:
        """Take the item ``number``, whose JSON is ``text``. Raises StoreError."""
        self._texts.append(text)
        self._numbers.append(number)
        self._size += len(text) + 1
        if len(self._texts) >= PAGE_ITEMS or self._size >= PAGE_BYTES:
            await self.flush()

    async def add_page(self, page: Page) -> None:
        """Take a page as it is in the store. Raises StoreError."""
        await self.flush()
        self._pages.append(page)

    async def flush(self) -> None:
        """End the page. Raises StoreError."""
        if not self._texts:
            return
        numbers = self._numbers
        items = await self._store.put(b"[" + b",".join(self._texts) + b"]", len(numbers))
        whole = numbers[-1] - numbers[0] == len(numbers) - 1
        kept = None if whole else await self._store.put_json(numbers)
        self._pages.append(Page(items=items, first=numbers[0], last=numbers[-1], numbers=kept))
        self._texts, self._numbers, self._size = [], [], 0

    async def close(self) -> Index:
        """The whole list. Raises StoreError."""
        await self.flush()
        return Index(pages=self._pages)


async def put_list(store: Store, index: Index) -> Ref:
    """Keep the index of a list. Raises StoreError."""
    return await _put(store, index, "list", index.count)


async def put_plain(store: Store, index: Index) -> Ref:
    """Keep the items alone, without their numbers: as a plain JSON array if they are one page. Raises StoreError."""
    if len(index.pages) == 1:
        return index.pages[0].items
    return await put_list(store, dense(index)) if index.pages else await store.put_json([])


def dense(index: Index) -> Index:
    """The same list, its items numbered from 0 without holes. Its pages stay as they are in the store."""
    pages, first = [], 0
    for page in index.pages:
        pages.append(Page(items=page.items, first=first, last=first + page.count - 1))
        first += page.count
    return Index(pages=pages)


async def put_map(store: Store, output: MapOutput) -> Ref:
    """Keep a map's output. Raises StoreError."""
    return await _put(store, output, "map", output.values.count)


async def _put(store: Store, kept: Index | MapOutput, form: Literal["list", "map"], count: int) -> Ref:
    ref = await store.put_json({TAG: form, **kept.model_dump(mode="json")})  # the tag: for who has a digest alone
    return Ref(digest=ref.digest, size=ref.size, count=count, form=form)


async def get_list(store: Store, ref: Ref) -> Index:
    """The index of a list. Raises StoreError."""
    return Index.model_validate_json(await store.get(ref))


async def get_map(store: Store, ref: Ref) -> MapOutput:
    """A map's output. Raises StoreError."""
    return MapOutput.model_validate_json(await store.get(ref))


async def read_page(store: Store, page: Page) -> list[JSON]:
    """The items of a page. Raises StoreError."""
    items: list[JSON] = await store.get_json(page.items)
    return items


async def numbers_of(store: Store, page: Page) -> Sequence[int]:
    """The numbers of a page's items. Raises StoreError."""
    if page.numbers is None:
        return range(page.first, page.last + 1)
    numbers: list[int] = await store.get_json(page.numbers)
    return numbers


async def read_list(store: Store, index: Index, start: int = 0) -> AsyncIterator[Numbered]:
    """The items from number ``start`` on. Holds one page at a time. Raises StoreError."""
    first = bisect_left(index.pages, start, key=lambda page: page.last)
    for page in index.pages[first:]:
        for number, value in zip(await numbers_of(store, page), await read_page(store, page), strict=True):
            if number >= start:
                yield Numbered(number, value)


async def pick(store: Store, index: Index, numbers: Sequence[int]) -> AsyncIterator[Numbered]:
    """The items with these numbers, which are in order. Reads their pages alone. Raises StoreError."""
    wanted = deque(numbers)
    for page in index.pages:
        if not wanted:
            return
        if wanted[0] > page.last:
            continue
        for number, value in zip(await numbers_of(store, page), await read_page(store, page), strict=True):
            if wanted and number == wanted[0]:
                wanted.popleft()
                yield Numbered(number, value)


async def item_at(store: Store, index: Index, position: int) -> JSON:
    """The item at ``position`` (from 0) of a list that is longer. Reads one page. Raises StoreError."""
    for page in index.pages:
        if position < page.count:
            return (await read_page(store, page))[position]
        position -= page.count
    raise IndexError(position)


async def texts_of(store: Store, index: Index) -> AsyncIterator[bytes]:
    """The list's JSON text, in parts of a page each. Raises StoreError."""
    opening = b"["
    for page in index.pages:
        yield opening + (await store.get(page.items))[1:-1]
        opening = b","
    yield b"[]" if opening == b"[" else b"]"
