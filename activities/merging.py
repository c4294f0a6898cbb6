"""Stored lists made one, in the order of their items' numbers. Pages that lie by themselves stay as they are."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable, Iterator

from activities.lists import ListWriter, Numbered, numbers_of, read_page
from activities.store import Store
from graph.lists import PAGE_BYTES, PAGE_ITEMS, Index, Page
from graph.values import encode


async def merge(store: Store, lists: Iterable[Index]) -> Index:
    """One list of the items of several. Raises StoreError."""
    writer = ListWriter(store)
    for pages in overlapping(lists):
        if len(pages) == 1 and not small(pages[0]):
            await writer.add_page(pages[0])
            continue
        async for number, value in interleaved(store, pages):
            await writer.add(number, encode(value))
    return await writer.close()


def small(page: Page) -> bool:
    """Whether a page is better joined to its neighbours."""
    return page.count * 4 < PAGE_ITEMS and page.items.size * 4 < PAGE_BYTES


async def in_order(store: Store, lists: Iterable[Index]) -> AsyncIterator[Numbered]:
    """The items of several lists, as one list. Raises StoreError."""
    for pages in overlapping(lists):
        async for numbered in interleaved(store, pages):
            yield numbered


def overlapping(lists: Iterable[Index]) -> Iterator[list[Page]]:
    """The pages of all lists in order, those together whose numbers lie among one another's."""
    together: list[Page] = []
    last = -1
    for page in sorted((page for index in lists for page in index.pages), key=lambda page: page.first):
        if together and page.first > last:
            yield together
            together = []
        together.append(page)
        last = max(last, page.last)
    if together:
        yield together


async def interleaved(store: Store, pages: Iterable[Page]) -> AsyncIterator[Numbered]:
    """The items of pages that begin in this order. Holds those pages alone that it is in the midst of. Raises
    StoreError."""
    open_pages: list[tuple[int, int, Iterator[Numbered], Numbered]] = []
    for place, page in enumerate(pages):
        while open_pages and open_pages[0][0] < page.first:
            yield take(open_pages)
        numbered = map(Numbered, await numbers_of(store, page), await read_page(store, page))
        first = next(numbered)
        heapq.heappush(open_pages, (first.number, place, numbered, first))
    while open_pages:
        yield take(open_pages)


def take(open_pages: list[tuple[int, int, Iterator[Numbered], Numbered]]) -> Numbered:
    """The item with the lowest number, off its page."""
    _, place, page, lowest = open_pages[0]
    following = next(page, None)
    if following is None:
        heapq.heappop(open_pages)
    else:
        heapq.heapreplace(open_pages, (following.number, place, page, following))
    return lowest
