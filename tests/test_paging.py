"""Pages of a run's state: small enough to be carried, and nothing is lost between them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.paging import join, pages
from graph.values import encode

LIMIT = 20_000


def attempt(index: int, size: int = 3000) -> dict[str, Any]:
    return {"index": index, "error": {"code": "BAD", "details": {"text": "x" * size}}}


def execution(number: int, attempts: int, size: int = 3000) -> dict[str, Any]:
    return {
        "id": number,
        "from": [{"node": "before", "execution": 1}],
        "status": "active",
        "attempts": [attempt(index, size) for index in range(attempts)],
        "error": None,
        "progress": {"index": attempts},
    }


def whole(**nodes: Any) -> dict[str, Any]:
    return {"version": 1, "escalations": [], "nodes": nodes, "values": {}, "replies": {}}


def test_a_node_with_hundreds_of_large_attempts_is_cut_between_them_and_joins_byte_for_byte() -> None:
    node = {"status": "active", "executions": [execution(1, 300), execution(2, 0), execution(3, 200)], "reason": "r"}
    data = whole(a={"status": "idle", "executions": []}, work=node, z={"status": "idle", "executions": []})
    before = copy.deepcopy(data)
    cut = pages(data, LIMIT)
    assert len(cut) > 60
    assert max(len(encode(page)) for page in cut) < LIMIT * 1.1
    joined = join(json.loads(json.dumps(cut)))
    assert encode(joined["nodes"]) == encode(data["nodes"])
    assert joined == data == before


def test_an_attempt_larger_than_a_page_has_one_of_its_own() -> None:
    data = whole(work={"status": "active", "executions": [execution(1, 3, LIMIT * 2)]})
    cut = pages(data, LIMIT)
    assert max(len(encode(page)) for page in cut) < LIMIT * 2.2
    assert join(cut) == data


def test_values_and_replies_are_cut_too() -> None:
    data = whole()
    data["values"] = {f"v{i}": {"inline": "y" * 9000} for i in range(30)}
    data["replies"] = {f"r{i}": {"inline": "z" * 9000} for i in range(30)}
    cut = pages(data, LIMIT)
    assert max(len(encode(page)) for page in cut) < LIMIT * 1.1
    assert join(cut) == data


def test_what_fits_is_one_page_as_it_is() -> None:
    data = whole(work={"status": "active", "executions": [execution(1, 3)]})
    assert pages(data, LIMIT) == [data]


@given(
    st.lists(st.lists(st.lists(st.integers(0, 900), max_size=6), max_size=4), max_size=6),
    st.lists(st.integers(0, 900), max_size=5),
    st.integers(50, 2000),
)
def test_whatever_is_cut_joins_to_the_whole(nodes: list[list[list[int]]], entries: list[int], limit: int) -> None:
    numbers = iter(range(1, 1000))
    data = whole(
        **{
            f"n{place}": {
                "status": "active",
                "executions": [
                    {"id": next(numbers), "attempts": [attempt(i, size) for i, size in enumerate(sizes)], "usage": {}}
                    for sizes in executions
                ],
            }
            for place, executions in enumerate(nodes)
        }
    )
    data["escalations"] = [{"id": str(i), "reason": "y" * size} for i, size in enumerate(entries)]
    assert join(pages(data, limit)) == data


@pytest.mark.parametrize("part", [None, 5, "x", [], {}, {"nodes": 5}, {"nodes": {"a": 1, "b": 2}, "values": []}])
def test_what_is_no_page_is_no_part_of_anything(part: Any) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        join([part])
