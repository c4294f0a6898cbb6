"""JSON text to data, fast, with the place of every part found only when somebody asks."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from graph.errors import LoadError, Problem
from graph.positions import Lines, offset_in, offset_of_character
from graph.values import JSON

_DECODER: Final = json.JSONDecoder()
_BLANKS: Final = " \t\n\r"


class _Member(NamedTuple):
    value: int
    """Offset of the value."""
    key: int | None
    """Offset of its key; None in a list."""


class JsonPlaces:
    """Where each part of a JSON text stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = Lines(text)
        self._members: dict[int, dict[str | int, _Member]] = {}

    def place(self, path: tuple[str | int, ...], key: bool) -> tuple[int, int] | None:
        """Line and column of the value at ``path`` (or of its key); None if there is no such value."""
        member = self._find(path)
        if member is None:
            return None
        return self._lines.place(member.value if member.key is None or not key else member.key)

    def text_place(self, path: tuple[str | int, ...], value: str, line: int, column: int) -> tuple[int, int] | None:
        """Line and column in the file of a place within the string ``value`` at ``path``."""
        member = self._find(path)
        if member is None:
            return None
        _, end = _DECODER.raw_decode(self._text, member.value)
        index = offset_in(value, line, column)
        return self._lines.place(offset_of_character(self._text, member.value, end, '"', value, index))

    def duplicates(self) -> list[tuple[str, int, int]]:
        """Every repeated key, with line and column of the repetition."""
        found: list[tuple[str, int, int]] = []
        waiting = [self._skip(0)]
        while waiting:
            offset = waiting.pop()
            if self._text[offset] in "{[":
                waiting += [member.value for member in self._scan(offset, found).values()]
        return sorted(found, key=lambda item: item[1:])

    def _find(self, path: tuple[str | int, ...]) -> _Member | None:
        member = _Member(self._skip(0), None)
        for step in path:
            if member.value not in self._members:
                self._members[member.value] = self._scan(member.value, [])
            following = self._members[member.value].get(step)
            if following is None:
                return None
            member = following
        return member

    def _scan(self, offset: int, repeated: list[tuple[str, int, int]]) -> dict[str | int, _Member]:
        """The members of the object or list at ``offset``; repeated keys are added to ``repeated``."""
        members: dict[str | int, _Member] = {}
        if self._text[offset] not in "{[":
            return members
        listing = self._text[offset] == "["
        position = self._skip(offset + 1)
        while self._text[position] not in "}]":
            if listing:
                members[len(members)] = _Member(position, None)
            else:
                key = position
                name, position = _DECODER.raw_decode(self._text, position)
                position = self._skip(self._skip(position) + 1)
                if name in members:
                    repeated.append((name, *self._lines.place(key)))
                members[name] = _Member(position, key)
            _, position = _DECODER.raw_decode(self._text, position)
            position = self._skip(position)
            if self._text[position] == ",":
                position = self._skip(position + 1)
        return members

    def _skip(self, position: int) -> int:
        while position < len(self._text) and self._text[position] in _BLANKS:
            position += 1
        return position


class _RepeatedKeyError(Exception):
    """Some object names a key twice; `JsonPlaces.duplicates` finds where."""


def read_json(text: str, file: str) -> tuple[JSON, JsonPlaces]:
    """The data of a JSON text and its places.

    ``NaN`` and ``Infinity`` are read, so that the caller can tell where they are.

    Raises:
        LoadError: it isn't JSON (code ``bad_json``), names a key twice (``duplicate_key``), holds a number of thousands
            of digits (``bad_value``) or nests too deeply (``too_large``).
    """
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        message = f"this isn't JSON: {error.msg[0].lower()}{error.msg[1:]}"
        raise LoadError([_problem("bad_json", message, file, error.lineno, error.colno)]) from None
    except _RepeatedKeyError:
        problems = [
            _problem("duplicate_key", f"the key `{key}` is there twice", file, line, column, "leave one out")
            for key, line, column in JsonPlaces(text).duplicates()
        ]
        raise LoadError(problems) from None
    except RecursionError:
        raise LoadError([_problem("too_large", "this JSON nests too deeply", file)]) from None
    except ValueError:  # Python reads no whole number of more than some 4300 digits
        raise LoadError([_problem("bad_value", "a number has too many digits", file)]) from None
    return data, JsonPlaces(text)


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedKeyError
    return found


def _problem(
    code: str, message: str, file: str, line: int | None = None, column: int | None = None, hint: str | None = None
) -> Problem:
    return Problem(code=code, message=message, file=file, line=line, column=column, hint=hint)
