"""Values as they travel: inline JSON when small, a reference into the store when not."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from graph.errors import Failure

JSON: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list of JSON, or dict of str to JSON."""

KIB: Final = 1024
INLINE_LIMIT: Final = 16 * KIB
"""Bytes of JSON above which a value lives in the store and only its Ref in history."""
ARGUMENTS_LIMIT: Final = 256 * KIB
"""Bytes of inline values that one activity's arguments may hold."""
ANSWER_LIMIT: Final = 1024 * KIB
"""Bytes of a run's input, result, failure details, carried state or query answer."""
REASON_LIMIT: Final = 2 * KIB
"""Bytes of a reason (an error's message)."""
CODE_LIMIT: Final = 100
"""Bytes of a code that an author gave."""
DETAILS_LIMIT: Final = 16 * KIB
"""Bytes of an error's details that history keeps."""
DEPTH_LIMIT: Final = 100
"""Levels of lists and objects in a value. JSON readers on its way, people's included, give up at some depth."""


class Compact(BaseModel):
    """A message whose fields at their default are left out of its JSON: history stays small and reads well.

    So a default is part of what recorded histories mean, and never changes.
    """

    _defaults: ClassVar[dict[str, Any]] = {}

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        cls._defaults = {name: field.default for name, field in cls.model_fields.items() if not field.is_required()}

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = self._defaults
        return {key: value for key, value in handler(self).items() if key not in defaults or value != defaults[key]}


class Ref(Compact):
    """Where a blob lies in the store: ``digest`` is ``sha256:<hex>``, ``size`` in bytes,
    ``count`` the number of items if the blob is a list. ``form`` says that it stands for more than itself: it is the
    index of a ``list``, or a ``map``'s output, see :mod:`graph.lists`."""

    model_config = ConfigDict(frozen=True)

    digest: str
    size: int
    count: int | None = None
    form: Literal["list", "map"] | None = None


class Value(Compact):
    """A JSON value on its way through history: exactly one of ``inline`` and ``ref`` counts.

    ``size`` is the number of bytes of its JSON text.
    """

    inline: JSON = None
    ref: Ref | None = None
    size: int = 0


def encode(value: JSON) -> bytes:
    """The compact UTF-8 JSON text of ``value``; key order is kept.

    Raises:
        Failure: class ``invalid_output`` if it isn't JSON (NaN, bytes, sets, circular, lone surrogates).
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Failure("invalid_output", f"the value isn't JSON: {error}") from error


def check_depth(value: JSON, limit: int = DEPTH_LIMIT) -> None:
    """See that ``value`` nests no deeper than ``limit``.

    Raises:
        Failure: ``too_large``.
    """
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(limit):
        if not level:
            return
        level = [
            part
            for holder in level
            for part in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(part, dict | list | tuple)
        ]
    if level:
        raise Failure("too_large", f"the value nests deeper than {limit} levels", details={"limit": limit})


def digest(data: bytes) -> str:
    """``sha256:<hex>`` of ``data``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def canonical(value: JSON) -> bytes:
    """JSON text with sorted keys: equal for equal values whatever the key order. For fingerprints."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


def trim(text: str, limit: int = REASON_LIMIT) -> str:
    """``text`` cut to at most ``limit`` bytes of UTF-8; a cut says how much is missing. Lone surrogates: ``?``."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    kept = data[: limit - 40].decode(errors="ignore")
    return f"{kept}... ({len(data) - len(kept.encode())} more bytes)"


def within_limit(details: dict[str, JSON]) -> dict[str, JSON]:
    """``details``, or the parts of it that can be kept and the names of those that can't."""
    kept: dict[str, JSON] = {}
    left: list[str] = []
    room = DETAILS_LIMIT
    for key, value in details.items():
        try:
            size = len(encode(value))
            check_depth(value)
        except Failure:  # users' errors carry anything
            size = room + 1
        if size <= room:
            kept[key] = value
            room -= size
        else:
            left.append(key)
    return {**kept, "trimmed": f"too large to keep, or not JSON: {', '.join(left)}"} if left else kept
