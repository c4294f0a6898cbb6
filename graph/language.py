"""Which version of the language this is, and the refusal of others: nothing of theirs would be understood."""

from __future__ import annotations

from typing import Final, TypeGuard

from graph.errors import LoadError, Problem
from graph.values import JSON

LANGUAGE_VERSION: Final = 1
"""Part of every fingerprint; raised when the meaning of the same file changes."""

MEND: Final = "use a worker whose Ferrata speaks it"


def is_unknown(language: JSON) -> TypeGuard[int]:
    """Whether this is a version, and another one than ours."""
    return isinstance(language, int) and not isinstance(language, bool) and language != LANGUAGE_VERSION


def said(what: str, language: int) -> str:
    """That ``what`` needs a version which isn't spoken here."""
    return f"{what} version {language} of the language; this worker speaks version {LANGUAGE_VERSION}"


def check_language(what: str, language: int | None) -> None:
    """Raises LoadError ``unknown_language`` if ``language`` is another than ours; ``what`` asks for it."""
    if language is not None and is_unknown(language):
        raise LoadError([Problem(code="unknown_language", message=said(what, language), hint=MEND)])
