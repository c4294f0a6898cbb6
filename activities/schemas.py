"""Is a value valid? `jsonschema-rs` says so for each item, hundreds of times faster; `jsonschema` says why not.

Both were made from the same specification, and `tests/test_schemas.py` proves that they agree on its test suite.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import jsonschema_rs
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry

from graph.spec_errors import json_type
from graph.values import JSON, canonical, trim

KEPT: Final = 512
"""Schemas that a process keeps compiled."""
SHORT: Final = 500
"""Bytes of a violation's message."""


@dataclass(frozen=True)
class Schema:
    """A compiled schema. ``fast`` is None if it uses what only `jsonschema` knows, such as a regular expression of
    Python's own."""

    fast: jsonschema_rs.Validator | None
    slow: Draft202012Validator

    def is_valid(self, value: JSON) -> bool:
        """Whether ``value`` is valid."""
        if self.fast is not None:
            try:
                return bool(self.fast.is_valid(value))
            except ValueError:  # a number beyond what it can hold
                pass
        return bool(self.slow.is_valid(value))

    def violations(self, value: JSON) -> Iterator[tuple[str, str]]:
        """Path and message of each violation, without the value itself."""
        for error in self.slow.iter_errors(value):
            yield error.json_path, trim(without_value(error), SHORT)


_compiled: OrderedDict[int, tuple[JSON, Schema]] = OrderedDict()
_by_text: OrderedDict[bytes, Schema] = OrderedDict()


def compiled(schema: JSON) -> Schema:
    """The compiled schema. ``schema`` is never changed afterwards: it is known again by being the same object, or else
    by its text. Remote references are never fetched."""
    found = _compiled.get(id(schema))
    if found is not None and found[0] is schema:
        return found[1]
    text = canonical(schema)
    made = _by_text.get(text)
    if made is None:
        made = Schema(fast_validator(text), Draft202012Validator(json.loads(text), registry=Registry()))
        keep(_by_text, text, made)
    keep(_compiled, id(schema), (schema, made))
    return made


def fast_validator(text: bytes) -> jsonschema_rs.Validator | None:
    """The fast validator of a schema's JSON text; None if it can't be had."""
    try:
        return jsonschema_rs.Draft202012Validator(json.loads(text), retriever=nowhere)
    except (ValueError, jsonschema_rs.ReferencingError):
        return None


def nowhere(uri: str) -> JSON:
    """Remote references are never fetched."""
    raise ValueError(f"{uri} is outside of the schema")


def keep(cache: OrderedDict, key: object, value: object) -> None:  # type: ignore[type-arg]
    """Put ``value`` into a cache that stays small."""
    cache[key] = value
    if len(cache) > KEPT:
        cache.popitem(last=False)


def without_value(error: ValidationError) -> str:
    """A violation's message with the kind of the value where the value itself stood: reasons stay in history for
    ever, rejected values never get there. Names of properties remain."""
    if "propertyNames" in error.relative_schema_path:
        return error.message
    if error.validator in ("items", "unevaluatedItems"):  # these list the items that are too many
        return re.split(r": | \(", error.message, maxsplit=1)[0]
    value, kind = repr(error.instance), json_type(error.instance)
    if error.message.startswith(value):
        return kind + error.message.removeprefix(value)
    return error.message.removesuffix(value) + kind if error.message.endswith(value) else error.message
