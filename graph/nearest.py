"""What did they mean? The known name nearest to a misspelt one. Only for messages, never for deciding."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_LONGEST = 80
"""Characters above which a name is no typing mistake and isn't compared."""
_FEW = 6
"""So many known names are listed when none is near."""


def nearest(name: str, known: Collection[str], likeness: float = 0.6) -> str | None:
    """The member of ``known`` nearest to ``name``, whatever their order; None if none is near (1 is the same)."""
    if len(name) > _LONGEST:
        return None
    plain = _plain(name)
    by_plain: dict[str, str] = {}
    for other in sorted(known):
        if len(other) <= _LONGEST and other != name:
            by_plain.setdefault(_plain(other), other)
    if plain in by_plain:
        return by_plain[plain]
    found = difflib.get_close_matches(plain, by_plain, n=1, cutoff=likeness)
    return by_plain[found[0]] if found else None


def suggest(name: str, known: Collection[str]) -> str:
    """A hint for a message: ``did you mean `x`?``; the known names if they are few; else the empty string."""
    found = nearest(name, known)
    if found is not None:
        return f"did you mean `{found}`?"
    names = sorted(known)
    if 0 < len(names) <= _FEW and all(len(n) <= _LONGEST for n in names):
        return "known: " + ", ".join(f"`{n}`" for n in names)
    return ""


def _plain(name: str) -> str:
    """Case and the kind of separator matter to no typing mistake."""
    return name.casefold().replace("-", "_").replace(" ", "_")
