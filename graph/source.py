"""A graph file as data, with the place of every part: YAML 1.2 (core schema) or JSON, or an object that has no file.

What it says is for `graph.spec` and the compiler; here it only has to be plain JSON, unambiguous and bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final, Protocol

from graph.errors import LoadError, Problem
from graph.json_source import read_json
from graph.values import JSON
from graph.yaml_source import MAX_BITS, MAX_DEPTH, MAX_NODES, read_yaml

MAX_JSON: Final = 8 * 1024 * 1024
"""Characters of a JSON file."""
MAX_YAML: Final = 1024 * 1024
"""Characters of a YAML file; reading one of this size takes about ten seconds."""

Path = tuple[str | int, ...]

_SURROGATE = re.compile("[\ud800-\udfff]")


class _Places(Protocol):
    def place(self, path: Path, key: bool) -> tuple[int, int] | None: ...

    def text_place(self, path: Path, value: str, line: int, column: int) -> tuple[int, int] | None: ...


class Source:
    """Plain JSON ``data`` read from ``file``. Lines and columns count from 1, columns in characters."""

    def __init__(self, data: JSON, file: str, places: _Places | None) -> None:
        self.data = data
        self.file = file
        self._places = places

    def place(self, path: Path, key: bool = False) -> tuple[int, int] | None:
        """Line and column of the value at ``path``, or with ``key`` of the key that holds it.

        None if there is no such value, or no file. A value that an anchor or a merge brought in is where it is written.
        """
        return None if self._places is None else self._places.place(path, key)

    def text_place(self, path: Path, line: int, column: int) -> tuple[int, int] | None:
        """Line and column in the file of the place ``line``, ``column`` within the text at ``path``.

        Indentation, folding, quotes and escapes are seen through. None if there is no such text, or no file.
        """
        value = self._value(path)
        if self._places is None or not isinstance(value, str):
            return None
        return self._places.text_place(path, value, line, column)

    def _value(self, path: Path) -> JSON:
        value = self.data
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value


def read_source(text: str, file: str) -> Source:
    """Read ``text``: as JSON if ``file`` ends in ``.json`` or the text is JSON, else as YAML.

    Raises:
        LoadError: with all problems that can be found, each with its place in ``file``. Codes: ``bad_yaml``,
            ``bad_json``, ``duplicate_key``, ``bad_key``, ``bad_value``, ``too_large``, ``empty_file``.
    """
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise LoadError([Problem(code="empty_file", message="the file is empty", file=file)])
    if len(text) > MAX_JSON:
        raise LoadError([_too_large(file, MAX_JSON)])
    if file.endswith(".json"):
        return _from_json(text, file)
    if text.lstrip()[0] in "{[":
        try:
            return _from_json(text, file)
        except LoadError as error:
            if error.code != "bad_json":
                raise
    if len(text) > MAX_YAML:
        raise LoadError([_too_large(file, MAX_YAML)])
    data, places = read_yaml(text, file)
    return Source(data, file, places)


def from_object(data: JSON, name: str) -> Source:
    """A source of data that came without a file; messages call it ``name``, and there are no places.

    Raises:
        LoadError: it isn't plain JSON (``bad_value``, ``bad_key``), or is too large or too deep (``too_large``).
    """
    source = Source(data, name, None)
    _check(source)
    return source


def show_path(path: Path) -> str:
    """``path`` as people write it: ``nodes.work.accept[0]``."""
    text = ""
    for step in path:
        if isinstance(step, str) and step.replace("-", "_").isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"
    return text or "the whole"


def _from_json(text: str, file: str) -> Source:
    data, places = read_json(text, file)
    source = Source(data, file, places)
    _check(source)
    return source


def _too_large(file: str, limit: int) -> Problem:
    return Problem(
        code="too_large",
        message=f"the file is longer than {limit} characters",
        file=file,
        hint="put scripts, schemas and subgraphs in files of their own",
    )


def _check(source: Source) -> None:
    """Raise LoadError with everything in the data that isn't plain, bounded JSON."""
    problems: list[Problem] = []
    for count, (path, code, message) in enumerate(_parts(source.data)):
        if count >= MAX_NODES:
            code, message = "too_large", f"it has more than {MAX_NODES} values"
        if code is not None:
            line, column = source.place(path) or (None, None)
            problems.append(Problem(code=code, message=message, file=source.file, line=line, column=column))
        if code == "too_large" or len(problems) > 100:
            break
    if problems:
        raise LoadError(problems)


def _parts(data: JSON) -> Iterator[tuple[Path, str | None, str]]:
    """Every part of ``data`` with its path, and the code and message of what is wrong with it."""
    waiting: list[tuple[Path, JSON]] = [((), data)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > MAX_DEPTH:
            yield path, "too_large", f"it nests deeper than {MAX_DEPTH}"
            continue
        yield path, *_fault(path, value)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str) or _lone_surrogate(key):
                    yield path, "bad_key", f"`{show_path(path)}` has a key that isn't a text: {key!r}"
            waiting += [((*path, key), item) for key, item in reversed(value.items()) if isinstance(key, str)]
        elif isinstance(value, list):
            waiting += [((*path, index), item) for index, item in reversed(list(enumerate(value)))]


def _fault(path: Path, value: JSON) -> tuple[str | None, str]:
    if isinstance(value, float) and not math.isfinite(value):
        return "bad_value", f"`{show_path(path)}` is {value}: JSON's numbers are finite"
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return "bad_value", f"`{show_path(path)}` is a whole number of more than {MAX_BITS} bits"
    if isinstance(value, str):
        if _lone_surrogate(value):
            return "bad_value", f"`{show_path(path)}` holds half a character (a lone surrogate)"
    elif value is not None and not isinstance(value, bool | int | float | list | dict):
        return "bad_value", f"`{show_path(path)}` isn't JSON but {type(value).__name__}"
    return None, ""


def _lone_surrogate(text: str) -> bool:
    return _SURROGATE.search(text) is not None
