"""Places in a text: offsets to lines and columns, and from the value of a quoted or folded text back to the file."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r?\n[ \t]*|.)", re.DOTALL)
_BLANK_ESCAPES: Final = frozenset("nrtvfNLP_ ")
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")


class Lines:
    """The lines of a text, to turn offsets (in characters, from 0) into lines and columns (from 1)."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of ``offset``."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def offset_in(text: str, line: int, column: int) -> int:
    """The offset of ``line`` and ``column`` (from 1) in ``text``, at most its end."""
    start = 0
    for _ in range(line - 1):
        following = text.find("\n", start) + 1
        if following == 0:
            return len(text)
        start = following
    return min(start + column - 1, len(text))


def offset_of_character(source: str, start: int, end: int, style: str | None, value: str, index: int) -> int:
    """Where in ``source`` the character ``index`` of ``value`` is written.

    ``value`` is the text of a scalar that stands at ``source[start:end]`` in a YAML ``style`` (``"``, ``'``, ``|``,
    ``>``, or None for plain; JSON strings are ``"``). Folding, indentation and escapes only add or change blanks, so
    the characters that aren't blank are counted.
    """
    start = _PROPERTIES.match(source, start).end()  # type: ignore[union-attr]  # it matches the empty text too
    if style in ("|", ">"):
        start = source.find("\n", start) + 1 or end
    elif style is not None:
        start += 1
    target = index
    while target > 0 and (target == len(value) or value[target].isspace()):
        target -= 1
    wanted = sum(not character.isspace() for character in value[:target])
    position, blank, width = start, True, 1
    while position < end:
        blank, width = _unit(source, position, style)
        if not blank:
            if wanted == 0:
                break
            wanted -= 1
        position += width
    return min(position + index - target, max(end - 1, start))


def _unit(source: str, position: int, style: str | None) -> tuple[bool, int]:
    """Whether the character written at ``position`` is blank, and how many characters it takes to write it."""
    character = source[position]
    if style == '"' and character == "\\":
        escape = _ESCAPE.match(source, position)
        if escape is None:
            return False, 1
        text = escape[0]
        if text[1] in "xuU" and len(text) > 2:
            return chr(int(text[2:], 16) % 0x110000).isspace(), len(text)
        return text[1] in _BLANK_ESCAPES or text[1].isspace(), len(text)
    if style == "'" and source.startswith("''", position):
        return False, 2
    return character.isspace(), 1
