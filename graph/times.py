"""Points in time as people write them (RFC 3339, ``2030-01-31T08:00:00Z``) and as the program counts them: whole
milliseconds since the epoch."""

from __future__ import annotations

from datetime import datetime
from typing import Final

EXAMPLE: Final = "2030-01-31T08:00:00Z"


def parse_time(text: str) -> int:
    """The milliseconds since the epoch of a time like ``2030-01-31T08:00:00+01:00``; one before the epoch is 0.

    Raises:
        ValueError: it's no time, or has no offset. The message says what is wrong and the mend.
    """
    shown = text if len(text) <= 40 else text[:40] + "..."
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"`{shown}` isn't a time: write `{EXAMPLE}`") from error
    if time.tzinfo is None:
        whole = text if len(text) > len("2030-01-31") else f"{text}T00:00:00"
        raise ValueError(f"`{shown}` has no offset: write `{whole[:40]}Z`, or its offset as `+01:00` in place of `Z`")
    return max(0, round(time.timestamp() * 1000))
