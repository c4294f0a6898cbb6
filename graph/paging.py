"""Cutting what a run knows into pages that an answer or history can carry, and putting them together again.

Nothing is lost: a node that is larger than a page goes on on the next one, attempt by attempt. The first page also has
all that is of no node, entry or value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from graph.values import JSON, encode

LISTS: Final = ("escalations",)
"""Keys of lists, which are cut between their entries."""
OBJECTS: Final = ("replies", "values")
"""Keys of objects, which are cut between their keys."""
NODES: Final = "nodes"
PAGED: Final = (*LISTS, *OBJECTS, NODES)


def pages(whole: Mapping[str, JSON], limit: int) -> list[dict[str, JSON]]:
    """``whole`` (a snapshot or state as JSON) cut into parts of about ``limit`` bytes. Every part has the keys of
    `PAGED` that ``whole`` has. A single entry, value or attempt is never cut."""
    empty: dict[str, JSON] = {key: [] if key in LISTS else {} for key in whole if key in PAGED}
    rest = {key: value for key, value in whole.items() if key not in PAGED}
    found = [fresh(empty, rest)]
    size = len(encode(rest))
    anything = False
    for key, name, part, held in pieces(whole, limit):
        more = held + len(name) + 4
        if anything and size + more > limit:
            found.append(fresh(empty, {}))
            size = 0
        add(found[-1], key, name, part)
        size, anything = size + more, True
    return found


def join(parts: Iterable[Mapping[str, JSON]]) -> dict[str, JSON]:
    """What `pages` cut. Raises KeyError, TypeError or AttributeError if it didn't."""
    whole: dict[str, JSON] = {}
    for part in parts:
        for key, value in {NODES: part[NODES], **part}.items():
            if key in LISTS:
                whole[key] = [*whole.get(key, []), *value]
            elif key in PAGED:
                whole.setdefault(key, {})
                for name, inner in value.items():
                    add(whole, key, name, inner)
            else:
                whole[key] = value
    return whole


def fresh(empty: dict[str, JSON], rest: dict[str, JSON]) -> dict[str, JSON]:
    """A page with nothing on it yet but ``rest``."""
    return {**rest, **{key: type(value)() for key, value in empty.items()}}


def pieces(whole: Mapping[str, JSON], limit: int) -> Iterator[tuple[str, str, JSON, int]]:
    """What is put on pages, in order: the key it is of, its name there (empty in a list), itself, its size in bytes."""
    for key in LISTS:
        for entry in whole.get(key, []):
            yield key, "", entry, len(encode(entry))
    for name, node in whole[NODES].items():
        for part, size in node_parts(node, limit):
            yield NODES, name, part, size
    for key in OBJECTS:
        for name, value in whole.get(key, {}).items():
            yield key, name, value, len(encode(value))


def node_parts(node: dict[str, JSON], limit: int) -> Iterator[tuple[dict[str, JSON], int]]:
    """A node as it is if it fits on a page; else cut between its executions and attempts. Each part with its size."""
    heads = [len(encode({**execution, "attempts": []})) + 1 for execution in node["executions"]]
    sizes = [[len(encode(attempt)) + 1 for attempt in execution["attempts"]] for execution in node["executions"]]
    part: dict[str, JSON] = {**node, "executions": []}
    size = len(encode(part))
    whole = size + sum(heads) + sum(map(sum, sizes))
    if whole <= limit:
        yield node, whole
        return
    for execution, head, attempts in zip(node["executions"], heads, sizes, strict=True):
        if part["executions"] and size + head > limit:
            yield part, size
            part, size = {"executions": []}, 0
        bare = {**execution, "attempts": []}
        part["executions"].append(bare)
        size += head
        for attempt, more in zip(execution["attempts"], attempts, strict=True):
            if size + more > limit:
                yield part, size
                bare = {"id": execution["id"], "attempts": []}
                part, size = {"executions": [bare]}, 0
            bare["attempts"].append(attempt)
            size += more
    yield part, size


def add(page: dict[str, JSON], key: str, name: str, part: JSON) -> None:
    """Put ``part`` on a page, or go on with a node that is there already."""
    if key in LISTS:
        page[key].append(part)
    elif key == NODES and name in page[key]:
        page[key][name] = continued(page[key][name], part)
    else:
        page[key][name] = part


def continued(node: dict[str, JSON], part: dict[str, JSON]) -> dict[str, JSON]:
    """A node with what follows of it: attempts of its last execution, and further executions."""
    executions = list(node["executions"])
    for execution in part["executions"]:
        if executions and executions[-1]["id"] == execution["id"]:
            attempts = [*executions[-1]["attempts"], *execution["attempts"]]
            executions[-1] = {**executions[-1], **execution, "attempts": attempts}
        else:
            executions.append(execution)
    return {**node, **part, "executions": executions}
