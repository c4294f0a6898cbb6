"""Our own errors from within pydantic's validation: code, message, mend, and what they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError

from graph.mends import CODE, looks_like_code
from graph.nearest import suggest


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a value. ``key`` set: about that key of the object, not about the whole value."""

    code: str
    message: str
    hint: str | None = None
    key: str | None = None


def refuse(*findings: Finding) -> PydanticCustomError:
    """The error that carries ``findings`` through pydantic; :mod:`graph.reading` takes them out again."""
    return PydanticCustomError("findings", "refused", {"findings": findings})


def wrong_type(about: str, expected: str, found: Any, mend: str | None = None) -> PydanticCustomError:
    """The error for a value of another JSON type than expected."""
    return refuse(Finding("wrong_type", f"{about} must be {expected}, not {json_type(found)}", mend))


def json_type(value: Any) -> str:
    """What people call a JSON value: `a text`, `a list`, ..."""
    if value is None:
        return "null"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "something that isn't JSON")


def unknown_keys(
    about: str,
    data: Mapping[str, Any],
    known: Sequence[str],
    later: Mapping[str, str],
    mends: Mapping[str, str],
    overview: str | None,
) -> list[Finding]:
    """A finding for every key of ``data`` that ``about`` doesn't have: refused on purpose for now, or unknown.

    ``overview`` is what there is, if ``known`` is too long to be listed.
    """
    findings = []
    for key in data:
        if key in known:
            continue
        if key in later:
            findings.append(Finding("unsupported", f"`{key}` isn't available in this version", later[key] or None, key))
            continue
        hint = CODE if looks_like_code(key) else mends.get(key) or suggest(key, known)
        hint = hint or overview or f"{about} has {', '.join(f'`{k}`' for k in known)}"
        findings.append(Finding("unknown_key", f"`{key}` isn't a key of {about}", hint, key))
    return findings
