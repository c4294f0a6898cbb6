"""A server and a worker that survive: whatever of them is killed is started again, as an operator's system would."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

from cli.server import DevServer
from worker_process import WorkerProcess

T = TypeVar("T")

KINDS = {"orchestrator": 6, "attempts-1": 4, "attempts-2": 4, "supervisor": 3, "server": 3}
"""What may be killed, and how often in proportion."""
SPARED = 3
"""Kills of one process under the same supervisor. That waits twice as long each time before it starts it again, and
from then on is killed itself."""
ABSENT = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN)


class World:
    """A development server that keeps its state in a file, and one worker of two attempt processes."""

    def __init__(self, folder: Path, env: dict[str, str], dynamic_config: dict[str, Any]) -> None:
        self.folder = folder
        self._env = {"FERRATA_PROCESSES": "2", "TEST_LOG": str(folder), **env}
        self._config = dynamic_config
        self._killed: set[int] = set()
        self._under_one: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.server = DevServer(db=folder / "server.db", dynamic_config=dynamic_config)

    async def __aenter__(self) -> Self:
        await self.server.start()
        self.client = await Client.connect(self.server.address, data_converter=pydantic_data_converter)
        self.worker = WorkerProcess(self.server, self.folder, env=self._env)
        await self.worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.worker.stop()
        await self.server.stop()

    async def mend(self) -> None:
        """Start again what isn't there any more."""
        if self.server.pid is None:
            port = self.server.port
            await self.server.stop()
            self.server = DevServer(db=self.folder / "server.db", port=port, dynamic_config=self._config)
            await self.server.start()
        assert self.worker.process is not None
        if self.worker.process.poll() is not None:
            self._under_one.clear()
            self.worker.spawn()

    def kill(self, chance: random.Random) -> None:
        """SIGKILL something; nothing if what was drawn is just dead."""
        (kind,) = chance.choices(list(KINDS), list(KINDS.values()))
        if self._under_one[kind] >= SPARED:
            kind = "supervisor"
        pid = self.server.pid if kind == "server" else self.worker.pids().get(kind)
        if pid is None or pid in self._killed:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._killed.add(pid)
            self._under_one[kind] += kind not in ("supervisor", "server")
            self.kills[kind] += 1

    async def patiently(self, ask: Callable[[], Awaitable[T]], seconds: float = 120) -> T:
        """The answer to a request that is repeated for as long as the server is away, and mended on the way."""
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await ask()
                except RPCError as error:
                    if error.status not in ABSENT:
                        raise
                    await self.mend()
                    await asyncio.sleep(0.2)
