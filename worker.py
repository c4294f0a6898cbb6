"""The worker: `python worker.py` serves one task queue until it is told to stop.

The process that is started only supervises. Its children are one orchestrator (workflow tasks and local activities)
and some attempt processes (all other activities): processes, because scripts fight over one interpreter's lock.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from activities.settings import VARIABLES, Settings
from cli.processes import die_with_parent
from cli.supervisor import (
    ALIVE_SECONDS,
    EXIT_CONFIG,
    EXIT_UNAVAILABLE,
    Child,
    Supervisor,
    configure_logging,
)
from graph.errors import LoadError

if TYPE_CHECKING:
    # The supervisor itself does no Temporal work and stays small: roles import what they need when they run.
    from temporalio.client import Client
    from temporalio.worker import Worker

DEFAULT_ADDRESS: Final = "localhost:7233"
CONNECT_SECONDS: Final = 20.0
GRACE: Final = timedelta(seconds=10)
"""How long attempts in flight may go on once the worker is told to stop."""
HEARTBEAT_THROTTLE: Final = timedelta(seconds=0.5)
"""Longest that the SDK holds a heartbeat back: what a cancellation and a lost worker's last word depend on."""

log = logging.getLogger("worker")


class CannotServe(Exception):
    """This worker can't start and starting it again won't help. Carries the exit code and one clear message."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message


async def connect(name: str) -> Client:
    """A client from Temporal's own settings: ``TEMPORAL_*`` variables and ``temporal.toml``.

    Args:
        name: What this process is, for the identity that the server shows.

    Raises:
        CannotServe: The settings can't be read, or no server answers.
    """
    from temporalio.client import Client
    from temporalio.envconfig import ClientConfig
    from temporalio.service import RPCError

    from workflows.failures import DATA_CONVERTER

    try:
        config = ClientConfig.load_client_connect_config()
    except Exception as error:  # the bridge's ConfigError has no public name
        raise CannotServe(EXIT_CONFIG, f"Temporal's connection settings can't be read: {error}") from error
    config.setdefault("target_host", DEFAULT_ADDRESS)
    address = config["target_host"]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await Client.connect(
                **config,
                data_converter=DATA_CONVERTER,
                identity=f"{os.getpid()}@{socket.gethostname()} {name}",
            )
    except ValueError as error:
        raise CannotServe(EXIT_CONFIG, f"TEMPORAL_ADDRESS {address!r} is no address: {error}") from error
    except (RuntimeError, RPCError, OSError, TimeoutError) as error:
        raise CannotServe(
            EXIT_UNAVAILABLE,
            f"can't reach a Temporal server at {address}: {_reason(error)}. "
            "Start one (`make dev` starts one with its own worker), or set TEMPORAL_ADDRESS",
        ) from error


def _reason(error: BaseException) -> str:
    """The innermost message of a connection error, which the SDK wraps in Rust's debug output."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_SECONDS:.0f} s"
    found = re.findall(r'(?:message|error): "([^"]+)"', str(error))
    return (found[-1] if found else str(error)).rstrip(".")


async def serve_orchestrator(settings: Settings, client: Client, ready: asyncio.Event, stop: asyncio.Event) -> None:
    """Serve workflow tasks, and the local activities that they ask for, until ``stop`` is set."""
    from temporalio import workflow
    from temporalio.worker import Worker

    from activities.registry import local_activities
    from cli.deployment import deployment_config, tell_routing
    from workflows import INTERCEPTORS, VERSIONED_WORKFLOWS, WORKFLOWS, workflow_runner

    workflow.logger.workflow_info_on_message = False  # our lines name the run; ten more fields would hide it
    worker = Worker(
        client,
        task_queue=settings.task_queue,
        workflows=VERSIONED_WORKFLOWS if settings.build_id else WORKFLOWS,
        activities=local_activities(settings),
        no_remote_activities=True,
        workflow_runner=workflow_runner(),
        interceptors=INTERCEPTORS,
        deployment_config=deployment_config(settings),
        graceful_shutdown_timeout=GRACE,
    )
    await tell_routing(settings, client)
    await _run(worker, client, ready, stop)


async def serve_attempts(settings: Settings, client: Client, ready: asyncio.Event, stop: asyncio.Event) -> None:
    """Serve every activity that isn't local, until ``stop`` is set and what was in flight has ended."""
    from temporalio.worker import Worker

    from activities.boundary import Boundary
    from activities.registry import attempt_activities
    from cli.deployment import deployment_config

    activities = attempt_activities(settings, client)
    # For users' activities that are plain functions; ours are all coroutines.
    threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="activity")
    try:
        worker = Worker(
            client,
            task_queue=settings.task_queue,
            activities=activities.all(),
            activity_executor=threads,
            max_concurrent_activities=settings.slots,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            graceful_shutdown_timeout=GRACE,
            interceptors=[Boundary()],
            deployment_config=deployment_config(settings),
        )
        await _run(worker, client, ready, stop)
    finally:
        await activities.close()
        threads.shutdown(wait=False, cancel_futures=True)


async def _run(worker: Worker, client: Client, ready: asyncio.Event, stop: asyncio.Event) -> None:
    running = asyncio.create_task(worker.run())
    stopped = asyncio.create_task(stop.wait())
    # Running means that the server has confirmed the namespace; the SDK has no event for it.
    while not running.done() and not worker.is_running:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    if worker.is_running:
        ready.set()
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await worker.shutdown()
    stopped.cancel()
    try:
        await running
    except RuntimeError as error:
        if ready.is_set():
            raise
        raise CannotServe(
            EXIT_CONFIG, f"namespace {client.namespace!r} can't be served: {_reason(error)}; set TEMPORAL_NAMESPACE"
        ) from error


async def play(role: str, name: str, settings: Settings, status_fd: int) -> None:
    """Play one role to its end, telling the supervisor once it serves.

    Raises:
        CannotServe: It can't start, for a reason that needs a person.
    """
    ready, stop = asyncio.Event(), asyncio.Event()
    client = await connect(name)
    serve = serve_orchestrator if role == "orchestrator" else serve_attempts
    serving = asyncio.create_task(serve(settings, client, ready, stop))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    if ready.is_set():
        # Not sooner: until it serves there is nothing to drain, and SIGTERM may end it at once.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        say(status_fd, {"ready": True})
        beating = asyncio.create_task(beat(status_fd))
    waiting.cancel()
    try:
        await serving
    finally:
        if ready.is_set():
            beating.cancel()


async def beat(status_fd: int) -> None:
    """Tell the supervisor again and again that this process's event loop still runs."""
    while True:
        await asyncio.sleep(ALIVE_SECONDS)
        say(status_fd, {"alive": True})


def say(status_fd: int, word: Mapping[str, object]) -> None:
    """Tell the supervisor something, as one line of JSON."""
    os.write(status_fd, json.dumps(word).encode() + b"\n")


def child_main(role: str, number: int, parent: int, status_fd: int) -> NoReturn:
    """A child process: dies with its supervisor, plays its role, and ends."""
    die_with_parent(parent)
    os.set_inheritable(status_fd, False)  # nothing that a function starts is to speak for this process
    name = role if role == "orchestrator" else f"{role}-{number}"
    configure_logging(name)
    try:
        asyncio.run(play(role, name, Settings.from_env(), status_fd))
    except CannotServe as error:
        say(status_fd, {"stop": error.exit_code, "message": error.message})
        leave(error.exit_code)
    except LoadError as error:
        say(status_fd, {"stop": EXIT_CONFIG, "message": error.message})
        leave(EXIT_CONFIG)
    leave(0)


def leave(exit_code: int) -> NoReturn:
    """End this process without taking the interpreter apart: threads of Temporal's bridge and of the store may still be
    on their way out, and would abort it. What users registered with `atexit` runs."""
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


async def supervise(environ: Mapping[str, str]) -> int:
    """Run the whole worker with these environment variables until it is told to stop. Returns the exit code.

    Call it in the main thread: it handles SIGTERM, SIGINT and SIGHUP, and the children die with that thread.
    """
    for warning in Settings.warnings(environ):
        log.warning("%s", warning)
    settings, problems = Settings.read(environ)
    if problems:
        # What else is wrong the children would find, but there won't be any.
        from activities.registry import problems_of

        for problem in problems + problems_of(settings):
            log.error("%s", problem)
        return EXIT_CONFIG
    this = (sys.executable, str(Path(__file__).absolute()))
    children = [Child("orchestrator", (*this, "--role", "orchestrator"))] + [
        Child(f"attempts-{i}", (*this, "--role", "attempts", "--number", str(i)))
        for i in range(1, settings.processes + 1)
    ]
    build = f"build {settings.build_id} of {settings.deployment}, " if settings.build_id else ""
    count = f"{settings.processes} attempt process{'es' if settings.processes > 1 else ''}"
    return await Supervisor(
        children,
        environment=environ,
        ready_message=f"{build}task queue {settings.task_queue!r}, "
        f"one orchestrator and {count} of {settings.slots} slots",
    ).run()


def parser() -> argparse.ArgumentParser:
    """The command line: nothing for people to set but the environment, which the help explains."""
    width = max(len(v.name) for v in VARIABLES)
    table = "\n".join(f"  {v.name:<{width}}  {_plain(v.meaning)} Default: {_plain(v.default)}." for v in VARIABLES)
    result = argparse.ArgumentParser(
        prog="python worker.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Serve Ferrata's runs: one orchestrator process and some attempt processes on one task queue.\n"
        "SIGTERM or Ctrl-C drains (attempts in flight get 10 s); a second one kills.",
        epilog=f"environment variables:\n{table}\n\n"
        "The connection is Temporal's own: TEMPORAL_ADDRESS (default localhost:7233), TEMPORAL_NAMESPACE (default\n"
        "default), TEMPORAL_API_KEY, TEMPORAL_TLS_*, or a profile of temporal.toml (TEMPORAL_PROFILE).\n\n"
        "exit codes: 0 stopped as told, 69 no server in reach at start, 78 a setting is wrong.",
    )
    for option in ("--role", "--number", "--parent", "--status-fd"):  # how the supervisor starts its children
        result.add_argument(option, help=argparse.SUPPRESS)
    return result


def importable_working_folder() -> None:
    """Let users' modules be imported from the working folder, after everything that is installed."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\(([^)]*)\)", r"docs/\2", markdown).replace("`", "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the supervisor, or a child if the supervisor says so. Returns the exit code."""
    options = parser().parse_args(arguments)
    importable_working_folder()
    if options.role:
        child_main(options.role, int(options.number or 0), int(options.parent), int(options.status_fd))
    configure_logging("supervisor")
    return asyncio.run(supervise(os.environ))


if __name__ == "__main__":
    sys.exit(main())
