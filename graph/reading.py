"""Reads a graph's JSON into its models and reports everything that doesn't fit, each with its place.

A wrong part is reported, cut out, and the rest read again, so one mistake hides no other. What was cut out is
remembered: later stages say nothing about it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from graph.nearest import suggest
from graph.problems import Path, Place
from graph.spec import GraphSpec
from graph.spec_errors import Finding, json_type
from graph.values import JSON

MOST_ROUNDS = 60


@dataclass(frozen=True)
class Reading:
    """The readable part of a graph, and the paths that were cut out of it."""

    spec: GraphSpec
    broken: frozenset[Path]


def read_graph(data: JSON, place: Place) -> Reading | None:
    """The graph in ``data``; problems go to ``place``. None if there is nothing to work with."""
    rest: Any = copy.deepcopy(data)
    broken: set[Path] = set()
    for _ in range(MOST_ROUNDS):
        try:
            return Reading(GraphSpec.model_validate(rest), frozenset(broken))
        except ValidationError as error:
            if not _report_and_cut(error.errors(include_url=False), data, rest, place, broken):
                return None
    return None


def _report_and_cut(
    errors: list[ErrorDetails], data: JSON, rest: JSON, place: Place, broken: set[Path]
) -> bool:
    """Reports ``errors`` and cuts what they are about out of ``rest``. False if nothing could be cut."""
    cuts: list[Path] = []
    for error in errors:
        path = _real_path(error["loc"], rest)
        if error["type"] == "missing" and any(cut[:-1] == path for cut in broken):
            cuts.append(_cut_at(path))  # what is missing was cut out before, or written with an unknown key
            continue
        for finding in _findings(error):
            at = path if finding.key is None else (*path, finding.key)
            place.problem(finding.code, finding.message, at, finding.hint, key=finding.key is not None)
            cuts.append(at if finding.key is not None else _cut_at(path))
    done = False
    for cut in cuts:
        broken.add(cut)
        done = _cut(rest, cut) or done
    return done


def _real_path(loc: tuple[int | str, ...], data: JSON) -> Path:
    """The part of pydantic's location that exists in ``data``: it also names union members and normalised keys."""
    path: list[str | int] = []
    here = data
    for step in loc:
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and isinstance(step, int) and 0 <= step < len(here):
            here = here[step]
        else:
            break
        path.append(step)
    return tuple(path)


def _cut_at(path: Path) -> Path:
    """What to cut for a wrong value: the key that holds it; inside a list, the list (so that no number shifts)."""
    for number, step in enumerate(path):
        if isinstance(step, int):
            return path[:number]
    return path


def _cut(data: JSON, path: Path) -> bool:
    here = data
    for step in path[:-1]:
        if isinstance(here, dict) and step in here or isinstance(here, list) and isinstance(step, int):
            here = here[step]
        else:
            return False
    return bool(path) and isinstance(here, dict) and here.pop(path[-1], _cut) is not _cut


def _findings(error: ErrorDetails) -> tuple[Finding, ...]:
    """Our findings within one of pydantic's errors."""
    context = error.get("ctx", {})
    if error["type"] == "findings":
        found: tuple[Finding, ...] = context["findings"]
        return found
    return (_translate(error, context),)


def _translate(error: ErrorDetails, context: dict[str, Any]) -> Finding:
    """Pydantic's own errors in the words of the language."""
    kind, found = error["type"], error["input"]
    name = f"`{error['loc'][-1]}`" if error["loc"] and isinstance(error["loc"][-1], str) else "this"
    expected = {
        "string_type": "a text",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "an object",
        "finite_number": "a finite number",
        "int_parsing_size": "a smaller number",
    }
    if kind == "missing":
        return Finding("missing_key", f"{name} is missing")
    if kind == "literal_error":
        return _one_of(name, found, str(context.get("expected", "")))
    if kind in expected:
        return Finding("wrong_type", f"{name} must be {expected[kind]}, not {_shown(found)}")
    bounds = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}
    if kind in bounds:
        word, key = bounds[kind]
        limit = context[key]
        return Finding("bad_value", f"{name} must be {word} {limit:g}, not {_shown(found)}")
    if kind == "too_short":
        return Finding("bad_value", f"{name} is empty", "give it an entry, or leave it out")
    return Finding("bad_value", f"{name} can't be {_shown(found)}")


def _one_of(name: str, found: Any, expected: str) -> Finding:
    known = expected.replace(" or ", ", ").replace("'", "").split(", ")
    choice = ", ".join(f"`{word}`" for word in known)
    hint = suggest(found, known) if isinstance(found, str) else None
    return Finding("bad_value", f"{name} must be one of {choice}, not {_shown(found)}", hint or f"write `{known[0]}`")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"`{value[:60]}`"
    if isinstance(value, int | float):
        return str(value)[:40]
    return json_type(value)
