"""What a map's chunks gave becomes one list, whichever chunk each item came from; no more of it is held than needed."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.lists import ListWriter, read_list
from activities.merging import in_order, merge
from activities.store import Store
from graph.lists import PAGE_ITEMS, Index
from graph.values import Ref, encode


class Watched(Store):
    """A store that notes which blobs were read."""

    read: list[str]

    async def get(self, ref: Ref) -> bytes:
        """As the store does."""
        self.read.append(ref.digest)
        return await super().get(ref)


@pytest.fixture
def store() -> Watched:
    opened = Watched.open("memory:///")
    assert isinstance(opened, Watched)
    opened.read = []
    return opened


async def listed(store: Store, numbers: list[int], page: int = PAGE_ITEMS) -> Index:
    """A list whose items tell their numbers."""
    writer = ListWriter(store)
    for place, number in enumerate(numbers):
        if place and place % page == 0:
            await writer.flush()
        await writer.add(number, encode(f"item {number}"))
    return await writer.close()


@settings(deadline=None, max_examples=60)
@given(
    owners=st.lists(st.integers(0, 4), max_size=60),
    page=st.integers(1, 7),
)
def test_items_come_in_the_order_of_their_numbers_each_once(owners: list[int], page: int) -> None:
    async def compare() -> None:
        store = Store.open("memory:///")
        lists = [
            await listed(store, [number for number, mine in enumerate(owners) if mine == owner], page)
            for owner in range(4)  # the items of the fifth have no value
        ]
        wanted = [(number, f"item {number}") for number, owner in enumerate(owners) if owner < 4]
        assert [tuple(found) async for found in in_order(store, lists)] == wanted
        merged = await merge(store, lists)
        assert [tuple(found) async for found in read_list(store, merged)] == wanted
        assert merged.count == len(wanted)

    asyncio.run(compare())


async def test_pages_that_lie_by_themselves_are_not_read(store: Watched) -> None:
    first, second = await listed(store, list(range(2500, 5000))), await listed(store, list(range(2500)))
    store.read.clear()
    merged = await merge(store, [first, second])
    assert [page.first for page in merged.pages] == [0, 1000, 2000, 2500, 3500, 4500]
    assert store.read == []


async def test_small_pages_are_joined(store: Watched) -> None:
    lists = [await listed(store, list(range(start, start + 10))) for start in range(0, 3000, 10)]
    merged = await merge(store, lists)
    assert [page.count for page in merged.pages] == [1000, 1000, 1000]


async def test_a_page_is_read_once_the_items_before_it_were_taken(store: Watched) -> None:
    chunks = await listed(store, [number for number in range(6000) if number % 100])
    rerouted = await listed(store, list(range(0, 6000, 100)))
    store.read.clear()
    async for number, _ in in_order(store, [chunks, rerouted]):
        if number == 500:
            break
    values = {page.items.digest for page in [*chunks.pages, *rerouted.pages]}
    assert len(values & set(store.read)) == 2
