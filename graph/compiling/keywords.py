"""Misspelt keywords of JSON Schema: such a schema is sound, and checks less than was meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from graph.nearest import nearest
from graph.problems import Path

LIKENESS: Final = 0.75
"""Other unknown keywords may well be the author's own."""

ONE: Final = (
    *("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
    *("not", "if", "then", "else", "contentSchema"),
)
"""Keywords that hold a schema."""
SEVERAL: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords that hold a list of schemas."""
NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords that hold schemas by name."""
PLAIN: Final = (
    *("type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength"),
    *("minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains", "maxProperties"),
    *("minProperties", "required", "dependentRequired", "format", "title", "description", "default", "deprecated"),
    *("readOnly", "writeOnly", "examples", "contentEncoding", "contentMediaType", "dependencies", "additionalItems"),
    *("$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary", "$comment"),
)
KEYWORDS: Final = frozenset((*ONE, *SEVERAL, *NAMED, *PLAIN))
LONG: Final = frozenset(keyword for keyword in KEYWORDS if len(keyword) > 3)
"""Those worth suggesting: `note` is hardly meant as `not`."""


def misspelt_keywords(schema: Any) -> Iterator[tuple[Path, str, str]]:
    """Where a sound schema has such a keyword, a message and the mend."""
    pending: list[tuple[Path, Any]] = [((), schema)]
    while pending:
        path, here = pending.pop()
        if not isinstance(here, dict):
            continue
        for key, value in here.items():
            at = (*path, key)
            if key in ONE:
                pending.append((at, value))
            elif key in SEVERAL:
                pending += [((*at, number), entry) for number, entry in enumerate(value)]
            elif key in NAMED and isinstance(value, dict):
                pending += [((*at, name), entry) for name, entry in value.items()]
            elif key not in KEYWORDS and (near := nearest(key, LONG, LIKENESS)):
                yield (
                    at,
                    f"`{key[:60]}` isn't a keyword of JSON Schema, so it checks nothing",
                    f"did you mean `{near}`?",
                )
