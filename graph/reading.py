"""Reads a graph's JSON into its models and reports everything that doesn't fit, each with its place.

A wrong part is reported, cut out, and the rest read again, so one mistake hides no other. What was cut out is
remembered: later stages say nothing about it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
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
    """The readable part of a graph.

    ``broken`` are the paths that were cut out; ``kept`` says for lists that lost entries which numbers the rest had.
    """

    spec: GraphSpec
    broken: frozenset[Path]
    kept: dict[Path, list[int]]


def read_graph(data: JSON, place: Place) -> Reading | None:
    """The graph in ``data``; problems go to ``place``. None if there is nothing to work with."""
    return _Reader(data, place).read()


class _Reader:
    """Reads, reports and cuts until the rest is readable. Paths are those of the file throughout."""

    def __init__(self, data: JSON, place: Place) -> None:
        self._rest: Any = copy.deepcopy(data)
        self._place = place
        self._broken: set[Path] = set()
        self._kept: dict[Path, list[int]] = {}

    def read(self) -> Reading | None:
        for _ in range(MOST_ROUNDS):
            try:
                return Reading(GraphSpec.model_validate(self._rest), frozenset(self._broken), self._kept)
            except ValidationError as error:
                cuts = [cut for one in error.errors(include_url=False) for cut in self._report(one)]
                done = [self._cut(cut) for cut in cuts]
                if True not in done:
                    return None
        return None

    def _report(self, error: ErrorDetails) -> list[Path]:
        """Reports one error; what to cut for it."""
        path = self._path(error["loc"])
        if error["type"] == "missing" and any(cut[:-1] == path for cut in self._broken):
            return [path]  # what is missing was cut out before, or written with an unknown key
        cuts = []
        for finding in _findings(error):
            at = path if finding.key is None else (*path, finding.key)
            self._place.problem(finding.code, finding.message, at, finding.hint, key=finding.key is not None)
            cuts.append(at)
        return cuts

    def _path(self, loc: tuple[int | str, ...]) -> Path:
        """The part of pydantic's location that exists: it also names union members and normalised keys."""
        path: list[str | int] = []
        here = self._rest
        for step in loc:
            if isinstance(here, dict) and step in here:
                path.append(step)
            elif isinstance(here, list) and isinstance(step, int) and step < len(here):
                path.append(self._numbers(tuple(path), here)[step])
            else:
                break
            here = here[step]
        return tuple(path)

    def _numbers(self, path: Path, entries: list[Any]) -> list[int]:
        """The numbers in the file of what is left of the list at ``path``."""
        return self._kept.get(path) or list(range(len(entries)))

    def _cut(self, path: Path) -> bool:
        """Removes what is at ``path``. False if there is no such thing."""
        here = self._rest
        for number, step in enumerate(path):
            last = number == len(path) - 1
            if isinstance(here, dict) and step in here:
                if last:
                    del here[step]
                    self._broken.add(path)
                    return True
                here = here[step]
            elif isinstance(here, list) and isinstance(step, int):
                numbers = self._numbers(path[:number], here)
                if step not in numbers:
                    return False
                if last:
                    del here[numbers.index(step)]
                    numbers.remove(step)
                    self._kept[path[:number]] = numbers
                    self._broken.add(path)
                    return True
                here = here[numbers.index(step)]
            else:
                return False
        return False


def _findings(error: ErrorDetails) -> tuple[Finding, ...]:
    """Our findings within one of pydantic's errors."""
    context = error.get("ctx", {})
    if error["type"] == "findings":
        found: tuple[Finding, ...] = context["findings"]
        key = error["loc"][-1] if error["loc"] else None
        if isinstance(key, str):  # a small type doesn't know which key it is for
            return tuple(replace(f, message=f.message.replace("this must", f"`{key}` must", 1)) for f in found)
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
        return Finding("wrong_type", f"{name} must be {expected[kind]}, not {_shown(found)}", _mend(kind, name, found))
    bounds = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}
    if kind in bounds:
        word, key = bounds[kind]
        limit = context[key]
        return Finding("bad_value", f"{name} must be {word} {limit:g}, not {_shown(found)}")
    if kind == "too_short":
        return Finding("bad_value", f"{name} is empty", "give it an entry, or leave it out")
    return Finding("bad_value", f"{name} can't be {_shown(found)}")


def _mend(kind: str, name: str, found: Any) -> str | None:
    if kind == "list_type" and isinstance(found, str):
        return f"write `{name.strip('`')}: [{found[:60]}]`"
    if kind == "int_type" and isinstance(found, float) and found.is_integer():
        return f"write `{found:.0f}`"
    if kind == "bool_type" and isinstance(found, str) and found.lower() in ("yes", "no", "on", "off"):
        return f"write `{'true' if found.lower() in ('yes', 'on') else 'false'}`: YAML 1.2 has no other words for it"
    return None


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
