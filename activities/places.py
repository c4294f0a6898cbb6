"""How many scripts run at once in one process, and what their attempts' clocks do while they wait.

A script keeps a core busy and may hold a lot of memory, so only a few run at once; the others wait for a place. An
attempt's timeout counts its own time, not the time it stands in line: the clock is stopped meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final

AT_ONCE: Final = 4
"""Scripts at once in a process. One would be enough to keep its core busy; more keep a long one from blocking it."""

clock: ContextVar[asyncio.Timeout | None] = ContextVar("clock", default=None)
"""The running attempt's timeout."""


STARTED: Final = 64
"""Scripts at once that have a thread, those that wait for a model included."""


class Places:
    """The places for scripts of one process; at most ``started`` scripts hold or have given up one."""

    def __init__(self, started: int = STARTED) -> None:
        self._started = asyncio.Semaphore(started)
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a place, waiting for it off the clock."""
        # In this order: a script that has a place but waits for one of the threads, all of them held by scripts that
        # want their places back, would wait for ever.
        await self._take(self._started)
        try:
            await self._take(self._free)
            try:
                yield
            finally:
                self._free.release()
        finally:
            self._started.release()

    @asynccontextmanager
    async def given_up(self) -> AsyncIterator[None]:
        """Let others have the held place meanwhile: for a script that waits for a model's answer."""
        self._free.release()
        try:
            yield
        finally:
            await self._take(self._free)

    @staticmethod
    async def _take(places: asyncio.Semaphore) -> None:
        if not places.locked():
            await places.acquire()
            return
        timeout, loop = clock.get(), asyncio.get_running_loop()
        when = timeout.when() if timeout is not None else None
        if timeout is None or when is None:
            await places.acquire()
            return
        left = when - loop.time()
        # The attempt may have ended (cancelled) while its script's call to a model was still being answered.
        with suppress(RuntimeError):
            timeout.reschedule(None)
        await places.acquire()
        with suppress(RuntimeError):
            timeout.reschedule(loop.time() + left)
