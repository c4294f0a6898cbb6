"""The function that the nodes of the recovery benchmark call."""

from __future__ import annotations

import time


def pause(seconds: float) -> float:
    """Take ``seconds``."""
    time.sleep(seconds)
    return seconds
