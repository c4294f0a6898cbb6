"""Scripts at once in one process are few, and waiting for a place is off the attempt's clock."""

from __future__ import annotations

import asyncio

import pytest

from activities.places import AT_ONCE, Places, clock


async def hold(places: Places, seconds: float, timeout: float) -> None:
    async with asyncio.timeout(timeout) as limit:
        clock.set(limit)
        async with places.one():
            await asyncio.sleep(seconds)


async def test_waiting_for_a_place_costs_no_time_of_the_attempt() -> None:
    places, tasks = Places(), []
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE * 4):  # the last ones wait for longer than their timeout
            tasks.append(group.create_task(hold(places, 0.2, 0.5)))
    assert all(task.exception() is None for task in tasks)


async def test_an_attempt_that_has_its_place_still_times_out() -> None:
    with pytest.raises(TimeoutError):
        await hold(Places(), 5, 0.05)


async def test_no_more_than_so_many_at_once() -> None:
    places, now, most = Places(), 0, 0

    async def one() -> None:
        nonlocal now, most
        async with places.one():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1

    await asyncio.gather(*(one() for _ in range(AT_ONCE * 5)))
    assert most == AT_ONCE


async def test_a_place_given_up_while_a_model_answers_goes_to_others() -> None:
    places, order = Places(), []

    async def asking() -> None:
        async with places.one():
            async with places.given_up():
                await asyncio.sleep(0.1)
            order.append("asked")

    async def computing() -> None:
        async with places.one():
            order.append("computed")

    await asyncio.gather(*(asking() for _ in range(AT_ONCE)), computing())
    assert order[0] == "computed"
    assert order.count("asked") == AT_ONCE


async def test_a_cancelled_attempt_leaves_all_places_free() -> None:
    places = Places()
    tasks = [asyncio.create_task(hold(places, 5, 10)) for _ in range(AT_ONCE * 2)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(hold(places, 0.01, 1) for _ in range(AT_ONCE * 2)))
