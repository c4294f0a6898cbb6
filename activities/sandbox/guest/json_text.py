"""JSON on the guest's side: what a script or an expression yields becomes text, or an error that says where not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

# Kept here because a script may replace them in the json module.
dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
loads: Callable[[str], Any] = json.JSONDecoder().decode


class NotJSON(Exception):
    """The value isn't JSON; the message says which part of it."""


def encode(value: Any, name: str) -> str:
    """Compact JSON text of ``value``, called ``name`` in messages.

    Raises:
        NotJSON: NaN, infinity, bytes, sets, other objects, keys that aren't strings, cycles, lone surrogates.
    """
    try:
        text = dumps(value)
        if not text.isascii():
            text.encode()
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NotJSON(_fault(value, name, ()) or f"{name} isn't JSON: {error}") from None
    # The encoder turns keys like 1 and None into strings; comparing with what comes back shows it at C speed.
    # Tuples differ too, and are fine.
    if loads(text) != value and (fault := _fault(value, name, ())):
        raise NotJSON(fault)
    return text


def _fault(value: Any, path: str, parents: tuple[int, ...]) -> str | None:
    """What in ``value`` isn't JSON, or None."""
    if value is None or isinstance(value, int):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"{path} isn't JSON: it holds half of a surrogate pair"
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path} isn't JSON: it is {value}"
    if id(value) in parents:
        return f"{path} isn't JSON: it contains itself"
    if len(parents) > 200:
        return None
    parents = (*parents, id(value))
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                return f"{path} isn't JSON: the key {short(key)} is no string but {article(key)}"
            if fault := _fault(key, f"a key of {path}", ()) or _fault(part, f"{path}[{key!r}]", parents):
                return fault
        return None
    if isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            if fault := _fault(part, f"{path}[{index}]", parents):
                return fault
        return None
    hint = ""
    if isinstance(value, (set, frozenset)):
        hint = ": use sorted(...) or list(...)"
    elif isinstance(value, (bytes, bytearray)):
        hint = ": decode it"
    elif callable(value):
        hint = ": call it"
    elif hasattr(value, "__await__"):
        hint = ": run can't be async"
    elif hasattr(value, "__next__") or type(value).__name__.startswith("dict_"):
        hint = ": use list(...)"
    return f"{path} isn't JSON: it is {article(value)}{hint}"


def article(value: object) -> str:
    """The type of ``value`` with its article: "a set", "an int"."""
    if value is None:
        return "null"
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def short(value: object, limit: int = 60) -> str:
    """A repr for messages, cut when long."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
