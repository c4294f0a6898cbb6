"""A real worker for tests: `python worker.py` as a subprocess, with its own task queue, store and log."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Self

from cli.processes import tied
from cli.server import DevServer, without_temporal

ROOT = Path(__file__).resolve().parent.parent
STARTED = re.compile(r"started (\S+) as process (\d+)$", re.MULTILINE)


def assert_gone(pids: Iterable[int], seconds: float = 5) -> None:
    """Fail if one of these processes is still there after some seconds."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        while _alive(pid):
            assert time.monotonic() < deadline, f"process {pid} is still there"
            time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class WorkerProcess:
    """`async with WorkerProcess(server, folder) as worker`: up and polling inside, drained after.

    Args:
        server: The development server to work for.
        folder: Where its log and (unless set) its store go.
        task_queue: A queue of its own by default.
        env: Further variables, such as FERRATA_GRAPHS, FERRATA_FUNCTIONS, FERRATA_MODELS. One attempt process unless
            FERRATA_PROCESSES says otherwise; no other FERRATA_* or TEMPORAL_* variable of this process is passed on.
        cwd: Its working folder.
    """

    recent: ClassVar[list[WorkerProcess]] = []
    """Those that ran during the current test: their logs are shown when it fails."""

    def __init__(
        self,
        server: DevServer,
        folder: Path,
        *,
        task_queue: str | None = None,
        env: dict[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.task_queue = task_queue or f"test-{uuid.uuid4().hex[:8]}"
        self.log = folder / f"worker-{self.task_queue}.log"
        self.cwd = cwd
        inherited = {k: v for k, v in without_temporal(os.environ).items() if not k.startswith("FERRATA_")}
        reach = {k: v for k, v in server.environment.items() if k.startswith("TEMPORAL_")}
        own = {
            "FERRATA_TASK_QUEUE": self.task_queue,
            "FERRATA_PROCESSES": "1",
            "FERRATA_STORE": str(folder / "store"),
        }
        self.env = inherited | reach | own | (env or {})
        self.process: subprocess.Popen[bytes] | None = None
        self._before = ""
        """Its log when it was last started."""

    def spawn(self) -> None:
        """Start it without waiting for anything."""
        if self not in WorkerProcess.recent:
            WorkerProcess.recent.append(self)
        self._before = self.read()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                tied([sys.executable, str(ROOT / "worker.py")]),
                cwd=self.cwd,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def start(self, timeout: float = 60) -> Self:
        """Start it and wait until all its children poll."""
        self.spawn()
        await self.wait_for("worker ready", timeout)
        return self

    async def wait_for(self, text: str, timeout: float = 60, count: int = 1) -> None:
        """Wait until its log holds `text` `count` times."""
        deadline = time.monotonic() + timeout
        while self.read().count(text) < count:
            assert self.process is not None
            if self.process.poll() is not None:
                if self.read().count(text) >= count:
                    return
                raise AssertionError(f"worker ended with {self.process.returncode} before {text!r}:\n{self.read()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {text!r} within {timeout} s:\n{self.read()}")
            await asyncio.sleep(0.02)

    def read(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def pids(self) -> dict[str, int]:
        """Process id by name (orchestrator, attempts-1, ..., supervisor), as last started."""
        assert self.process is not None
        log = self.read().removeprefix(self._before)
        return {name: int(pid) for name, pid in STARTED.findall(log)} | {"supervisor": self.process.pid}

    def kill(self, *names: str) -> None:
        """SIGKILL these processes (orchestrator, attempts-1, ...); without names the supervisor, and so all of them."""
        pids = self.pids()
        for name in names or ("supervisor",):
            os.kill(pids[name], signal.SIGKILL)

    async def wait(self, timeout: float = 40) -> int:
        """Wait for it to end. Returns its exit code."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, timeout)

    async def stop(self, timeout: float = 40) -> int:
        """Drain it with SIGTERM. Returns its exit code. Harmless when it has ended."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return await self.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.stop()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
