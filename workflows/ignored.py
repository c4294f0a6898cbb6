"""What was sent and changed nothing: counted, and the last of it told with the reason. Signal handlers never raise."""

from __future__ import annotations

from typing import Any

from graph.values import JSON, encode, trim
from workflows.clock import now

TOLD = 10
"""Ignored signals, the last ones, that are told with a reason."""
WORDS = 200
"""Bytes of such a reason."""
IDS = 3
"""Ids that such a reason names before it only counts."""
LONGEST_ID = 60
"""Bytes of what was given as an id, or as a signal's name, in such a reason."""


class Ignored:
    """``counts`` by signal; ``last`` the last few, as ``{"signal", "at", "reason"}``."""

    def __init__(self, counts: dict[str, int] | None = None, last: list[dict[str, JSON]] | None = None) -> None:
        self.counts = dict(counts or {})
        self.last = list(last or [])[-TOLD:]

    def note(self, signal: str, reason: str, count: int = 1) -> None:
        """One more that changed nothing."""
        self.counts[signal] = self.counts.get(signal, 0) + count
        told: dict[str, JSON] = {"signal": signal, "at": now(), "reason": trim(reason, WORDS)}
        self.last = [*self.last, told][-TOLD:]

    def to_json(self) -> dict[str, Any]:
        """As answers and carried state have it."""
        return {"ignored": self.counts, "last_ignored": self.last}


def named(text: str, ids: list[JSON]) -> str:
    """``text`` and the first of ``ids``, which may be anything."""
    shown = [trim(which if isinstance(which, str) else encode(which).decode(), LONGEST_ID) for which in ids[:IDS]]
    more = f" and {len(ids) - IDS} more" if len(ids) > IDS else ""
    return f"{text}: {', '.join(shown)}{more}"
