"""Durations as people write them (``90s``, ``1h30m``, ``2d``) and as the program counts them: whole milliseconds."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds per unit, from the largest to the smallest: the order in which they may be written."""

LONGEST: Final = 3650 * _UNITS["d"]
"""Milliseconds of the longest duration: ten years."""

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[dhms])")
_BARE = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
_LONG_UNITS = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?)\s*(milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)\s*",
    re.IGNORECASE,
)
_EXAMPLES = "write `90s`, `1h30m` or `2d` (units ms, s, m, h, d)"


def parse_duration(text: object) -> int:
    """The milliseconds of a duration like ``1h30m``, ``1.5s`` or ``250ms``.

    Units are ms, s, m, h and d, each at most once and the larger first; a fraction may not go below a millisecond.

    Raises:
        ValueError: it's no duration (a bare number, an unknown unit, ...), or longer than ten years. The message
            says what is wrong and the mend.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"a duration is a text like `90s`, not {_kind(text)}")
    if not isinstance(text, str) or _BARE.fullmatch(text.strip()):
        raise ValueError(f"`{_shown(str(text))}` has no unit: {_unit_hint(str(text).strip())}")
    total = Fraction(0)
    position = 0
    order = list(_UNITS)
    while position < len(text) and len(text) <= 64:
        part = _PART.match(text, position)
        if part is None:
            break
        number, unit = part.groups()
        if unit not in order:
            raise ValueError(f"`{_shown(text)}` isn't in order: each unit once, the larger first, like `1h30m`")
        order = order[order.index(unit) + 1 :]
        total += Fraction(number) * _UNITS[unit]
        position = part.end()
    if position == 0 or position < len(text):
        known = understood(text)
        raise ValueError(f"`{_shown(text)}` isn't a duration: {f'write `{known}`' if known else _EXAMPLES}")
    if total.denominator != 1:
        raise ValueError(f"`{text}` isn't a whole number of milliseconds")
    if total > LONGEST:
        raise ValueError(f"`{text}` is longer than ten years (3650d)")
    return int(total)


def format_duration(ms: int) -> str:
    """The shortest usual text of so many milliseconds (not negative); `parse_duration` reads it back exactly.

    Raises:
        ValueError: ``ms`` is negative.
    """
    if ms < 0:
        raise ValueError("a duration isn't negative")
    if ms == 0:
        return "0s"
    text = ""
    for unit in ("d", "h", "m"):
        count, ms = divmod(ms, _UNITS[unit])
        if count:
            text += f"{count}{unit}"
    seconds, rest = divmod(ms, 1000)
    if rest and seconds:
        text += f"{seconds}.{rest:03}".rstrip("0") + "s"
    elif rest:
        text += f"{rest}ms"
    elif seconds:
        text += f"{seconds}s"
    return text


def _unit_hint(number: str) -> str:
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", number):
        return f"write `{number}s` for seconds or `{number}m` for minutes"
    return _EXAMPLES


def understood(text: str) -> str | None:
    """How a duration such as `5 min` or `2 Hours` is written here; None if it means nothing."""
    parts: list[str] = []
    position = 0
    while position < len(text) <= 64 and (part := _LONG_UNITS.match(text, position)):
        word = part[2].lower()
        parts.append(part[1] + ("ms" if word.startswith(("ms", "mil")) else word[0]))
        position = part.end()
    return "".join(parts) if parts and position == len(text) else None


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."


def _kind(value: object) -> str:
    names = {bool: "a boolean", dict: "an object", list: "a list", type(None): "null"}
    return names.get(type(value), type(value).__name__)
