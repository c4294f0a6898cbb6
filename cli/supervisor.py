"""Keeps a fixed set of child processes running: starts, watches, restarts and drains them.

It knows nothing of Temporal; what the children do is their command line's business. A child gets the number of a
pipe (``--status-fd``) on which it says one JSON object a line: ``{"ready": true}`` once it serves,
``{"alive": true}`` every few seconds from then on, or ``{"stop": CODE, "message": TEXT}`` when starting it again
can't help.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

EXIT_UNAVAILABLE: Final = 69
"""Exit code when the server can't be reached at start (``EX_UNAVAILABLE``)."""

EXIT_SOFTWARE: Final = 70
"""Exit code when a child failed in an unforeseen way before it ever served (``EX_SOFTWARE``)."""

EXIT_CONFIG: Final = 78
"""Exit code when a setting is wrong (``EX_CONFIG``)."""

DRAIN_SECONDS: Final = 30.0
"""How long children may take to drain; longer than a worker's own grace of 10 s."""

LONGEST_WORD: Final = 16 * 1024 * 1024
"""Bytes of one line that a child says; its message may list many problems."""

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
LAST_WORD_SECONDS: Final = 1.0
"""How long what a child said before it ended may take to be read."""

ALIVE_SECONDS: Final = 5.0
"""How often a child says that it is alive."""

MOST_SILENCE: Final = 6
"""A child that has begun to say so and then misses it so often in a row is stuck (a function holds the interpreter's
lock, say): whatever it works on is lost already, so it is killed and started again."""

HEALTHY_SECONDS: Final = 60.0
"""A child that served this long starts again with the first delay."""

log = logging.getLogger("supervisor")


@dataclass(frozen=True)
class Child:
    """One process to keep: its name in log lines, and its command without ``--parent`` and ``--status-fd``."""

    name: str
    command: tuple[str, ...]


class Supervisor:
    """Runs ``children`` until SIGTERM or SIGINT (a second one kills), or until one can't ever start.

    A child that dies after all have served once is restarted, with a growing delay, whatever its exit code: what
    ran once may run again. One that ends by itself before that ends the whole: its first message is logged once.
    """

    def __init__(self, children: Sequence[Child], *, environment: Mapping[str, str], ready_message: str) -> None:
        self._children = children
        self._environment = dict(environment)
        self._ready_message = ready_message
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._ready: set[str] = set()
        self._heard: set[str] = set()
        self._served = False
        self._stopping = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Run until told to stop. Returns the exit code for this process. Call it in the main thread."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        keepers = [asyncio.create_task(self._keep(child)) for child in self._children]
        try:
            # A keeper that fails (the system can't start another process) ends the whole: it would never be noticed.
            told = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([told, *keepers], return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            self._signal_all(signal.SIGTERM)
            _, late = await asyncio.wait(keepers, timeout=DRAIN_SECONDS)
            if late:
                log.warning("not drained after %.0f s: killing %s", DRAIN_SECONDS, ", ".join(sorted(self._running)))
                self._signal_all(signal.SIGKILL)
            await asyncio.gather(*keepers)
        finally:
            self._signal_all(signal.SIGKILL)  # nothing is left unless something above failed
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)
        return self._exit_code

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stopping.is_set():
            log.warning("%s again: killing what still runs", name)
            self._signal_all(signal.SIGKILL)
            return
        log.info("%s: draining (once more to kill)", name)
        self._stopping.set()

    def _signal_all(self, number: int) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(number)

    def _give_up(self, code: int, message: str) -> None:
        """Stop everything for good. Only the first reason is said: the others mostly repeat it."""
        if not self._stopping.is_set():
            log.error("%s", message)
            self._exit_code = code
            self._stopping.set()

    async def _keep(self, child: Child) -> None:
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            started = time.monotonic()
            last_word, code = await self._run_once(child)
            if self._stopping.is_set():
                return
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
            reason = str(last_word["message"]) if "stop" in last_word else f"{child.name} {how}"
            if not self._served and code >= 0:
                self._give_up(int(last_word.get("stop", EXIT_SOFTWARE)), reason)
                return
            if time.monotonic() - started > HEALTHY_SECONDS:
                delay = FIRST_DELAY
            log.warning("%s: restarting %s in %.1f s", reason, child.name, delay)
            await self._sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _run_once(self, child: Child) -> tuple[dict[str, Any], int]:
        """Run the child to its end. Returns the last thing that it said, and its exit code (negative: a signal)."""
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                *("--parent", str(os.getpid()), "--status-fd", str(write_end)),
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment,
                pass_fds=[write_end],
                start_new_session=True,  # a terminal's Ctrl-C goes to the supervisor alone
            )
        finally:
            os.close(write_end)
        self._running[child.name] = process
        log.info("started %s as process %d", child.name, process.pid)
        if self._stopping.is_set():  # told to stop while it was being started
            process.terminate()
        said: dict[str, Any] = {}
        listening = asyncio.create_task(self._listen(child, read_end, said))
        watching = asyncio.create_task(self._watch(child, process))
        code = await process.wait()
        watching.cancel()
        # Its last word may still be in the pipe. Not until the pipe's end: what the child forked may hold it open.
        await asyncio.wait([listening], timeout=LAST_WORD_SECONDS)
        if not listening.cancel():
            listening.result()
        del self._running[child.name]
        self._ready.discard(child.name)
        return said, code

    async def _watch(self, child: Child, process: asyncio.subprocess.Process) -> None:
        """Kill the child when it falls silent. Silences are counted, not timed: this process may have been stopped."""
        self._heard.discard(child.name)
        begun, silences = False, 0
        while silences < MOST_SILENCE:
            await asyncio.sleep(ALIVE_SECONDS)
            heard = child.name in self._heard
            self._heard.discard(child.name)
            begun = begun or heard
            silences = silences + 1 if begun and not heard else 0
        log.warning("%s is stuck, it said nothing for %.0f s: killing it", child.name, MOST_SILENCE * ALIVE_SECONDS)
        if process.returncode is None:
            process.kill()

    async def _listen(self, child: Child, read_end: int, said: dict[str, Any]) -> None:
        """Keep the last thing that the child says in ``said``."""
        reader = asyncio.StreamReader(limit=LONGEST_WORD)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb")
        )
        try:
            while line := await reader.readline():
                said.clear()
                said.update(json.loads(line))
                if said.get("alive"):
                    self._heard.add(child.name)
                if said.get("ready"):
                    self._on_ready(child)
        finally:
            transport.close()

    def _on_ready(self, child: Child) -> None:
        self._ready.add(child.name)
        if len(self._ready) == len(self._children):
            log.info("worker ready%s: %s", " again" if self._served else "", self._ready_message)
            self._served = True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def configure_logging(name: str) -> None:
    """Log lines from INFO on to standard error, tagged with this process's part."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s %(levelname)-7s {name}: %(message)s"
    )
