"""The licence example from start to end: a server, a worker, one run on what is really installed, its report.

    python -m examples.licenses.demo [--path FOLDER ...] [--keep]

Starts everything it needs and stops it again, also on Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":

    def at_once(number: int, _: object) -> None:
        """Ctrl-C before anything is started: imports take a second, and their traceback would tell nobody anything."""
        print("stopped", flush=True)
        sys.exit(128 + number)

    signal.signal(signal.SIGINT, at_once)

import argparse
import asyncio
import json
import os
import shlex
import site
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from cli.processes import tied
from cli.server import DEFAULT_PORT, DEFAULT_UI_PORT, DevServer, port_is_free, temporal_binary
from graph.errors import FerrataError

ROOT: Final = Path(__file__).resolve().parents[2]
GRAPH: Final = "examples/licenses/graph.yaml"
RUN_ID: Final = "licenses"
TASK_QUEUE: Final = "ferrata"
READY_SECONDS: Final = 180.0
"""The first start ever compiles the sandbox."""
STOP_SECONDS: Final = 45.0
"""Longer than the worker's own drain."""
POLL_SECONDS: Final = 0.2
BAR: Final = 20

STOPPING: Final = """
Server and worker stop now. `make demo DEMO_ARGS=--keep` keeps them up for these commands; `make dev` starts both for
runs of your own."""

Handle = WorkflowHandle[Any, Any]


class DemoFailed(Exception):
    """The demo can't go on; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Returns 0 if the run completed, 1 if not, 128 + the signal's number if one stopped it."""
    parser = argparse.ArgumentParser(prog="python -m examples.licenses.demo", description="Audit licences, for real.")
    parser.add_argument(
        "--path",
        nargs="+",
        default=environments(),
        help="site-packages folders or roots of virtual environments (default: this project's own, and the Python "
        "installation that it was made from)",
    )
    parser.add_argument("--keep", action="store_true", help="keep server and worker up after the report, until Ctrl-C")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        paths = [str(Path(path).absolute()) for path in options.path]
        return asyncio.run(until_told(console, demo(console, paths, options.keep)))
    except (DemoFailed, FerrataError, OSError) as error:
        console.print(f"[bold red]The demo failed:[/] {escaped(str(error))}", soft_wrap=True)
        return 1


def environments() -> list[str]:
    """This environment's packages, and those of the Python that it was made from, if anything is installed there."""
    prefix, version = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = [
        Path(sysconfig.get_path("purelib")),
        *map(Path, site.getsitepackages([sys.base_prefix])),
        prefix / "lib" / "python3" / "dist-packages",  # Debian's own
        prefix / "local" / "lib" / version / "dist-packages",
    ]
    distinct = {folder.resolve(): str(folder) for folder in reversed(folders)}
    return [
        shown
        for folder, shown in reversed(distinct.items())
        if any(next(folder.glob(pattern), None) for pattern in ("*.dist-info", "*.egg-info"))
    ]


async def until_told(console: Console, work: Coroutine[Any, Any, int]) -> int:
    """Await ``work``, cancelling it on SIGINT, SIGTERM and SIGHUP."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    told: list[int] = []

    def stop(number: int) -> None:
        told.append(number)
        console.print("stopping ...")
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        return 128 + told[0] if told else 1


async def demo(console: Console, paths: list[str], keep: bool) -> int:
    """One whole demo. Returns its exit code.

    Raises:
        DemoFailed: worker or run couldn't be started, or the worker ended too soon.
        ServerError: the server couldn't be started.
    """
    state = ROOT / ".ferrata"
    state.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="demo-", dir=state) as folder:
        console.print("starting a Temporal server ...")
        # The usual ports, unless `make dev` has them: then the commands to look further need no address.
        port, ui_port = (port if port_is_free(port) else None for port in (DEFAULT_PORT, DEFAULT_UI_PORT))
        async with DevServer(port=port, ui=True, ui_port=ui_port, log=Path(folder, "server.log")) as server:
            console.print(f"server at {server.address}, web UI at {server.ui_url}")
            console.print("starting the worker ...")
            async with worker(server, Path(folder)) as process:
                client = await Client.connect(server.address)
                handle: Handle = await client.start_workflow(
                    "RunGraph",
                    {"graph": GRAPH, "input": {"path": paths}},
                    id=RUN_ID,
                    task_queue=TASK_QUEUE,
                )
                console.print(f"run `{RUN_ID}` of {GRAPH} on {' and '.join(paths)}", soft_wrap=True, markup=False)
                result = await outcome(console, handle, process, Path(folder, "worker.log"))
                entries: list[dict[str, Any]] = await handle.query("escalations") or []
                if result is not None:
                    show_report(console, result)
                show_escalations(console, entries)
                show_commands(console, server, entries, keep)
                if keep:
                    await stay(console)
                else:
                    console.print(STOPPING, soft_wrap=True)
    return 0 if result is not None else 1


@asynccontextmanager
async def worker(server: DevServer, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """``python worker.py`` with this example's functions, serving ``server``; drained at the end.

    Raises:
        DemoFailed: it didn't get ready; the message holds the end of its log.
    """
    log = folder / "worker.log"
    kept = {name: value for name, value in server.environment.items() if not name.startswith("FERRATA_")}
    settings = {
        "FERRATA_FUNCTIONS": "examples.licenses.functions",
        "FERRATA_GRAPHS": str(ROOT),
        "FERRATA_STORE": str(folder / "store"),
        "FERRATA_TASK_QUEUE": TASK_QUEUE,
        "FERRATA_CACHE": os.environ.get("FERRATA_CACHE", ""),
    }
    with log.open("wb") as output:
        # A session of its own, so that Ctrl-C in the terminal reaches it once, through us.
        process = await asyncio.create_subprocess_exec(
            *tied([sys.executable, str(ROOT / "worker.py")]),
            cwd=ROOT,
            env={**kept, **settings},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        await ready(process, log)
        yield process
    finally:
        await stop(process)


async def ready(process: asyncio.subprocess.Process, log: Path) -> None:
    """Wait until the worker says that it serves."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            while "worker ready" not in log.read_text(errors="replace"):
                if process.returncode is not None:
                    raise DemoFailed(f"the worker ended with exit code {process.returncode}:\n{tail(log)}")
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise DemoFailed(f"the worker wasn't ready after {READY_SECONDS:.0f} s:\n{tail(log)}") from None


async def stop(process: asyncio.subprocess.Process) -> None:
    """Drain the worker; kill it if that takes too long, or on a second Ctrl-C. Its children die with it."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except (TimeoutError, asyncio.CancelledError) as error:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise


async def outcome(
    console: Console, handle: Handle, process: asyncio.subprocess.Process, log: Path
) -> dict[str, Any] | None:
    """Follow the run to its end. Returns what RunGraph returns, or None once the failure is shown."""
    result = asyncio.ensure_future(handle.result())
    ended = asyncio.ensure_future(process.wait())
    following = asyncio.ensure_future(follow(console, handle))
    try:
        await asyncio.wait({result, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise DemoFailed(f"the worker ended with exit code {process.returncode} during the run:\n{tail(log)}")
        await following
        found: dict[str, Any] = result.result()
        return found
    except WorkflowFailureError as failure:
        cause = failure.cause
        why = f"{cause.type}: {cause.message}" if isinstance(cause, ApplicationError) else repr(cause)
        console.print(f"[bold red]The run failed:[/] {escaped(why)}", soft_wrap=True)
        return None
    finally:
        for task in (result, ended, following):
            task.cancel()
        await asyncio.gather(result, ended, following, return_exceptions=True)


async def follow(console: Console, handle: Handle) -> None:
    """Show the run's own `progress` until it is over: a bar in a terminal, else a line whenever something changed."""
    shown = ""
    columns = (TextColumn("{task.description}"), BarColumn(BAR), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("loading", total=None)
        while True:
            try:
                progress: dict[str, Any] = await handle.query("progress")
            except (RPCError, WorkflowQueryFailedError):  # not started yet
                progress = {"status": "loading"}
            if "nodes" not in progress:  # nothing is known of a graph that isn't loaded
                if progress["status"] == "failed":
                    return
                await asyncio.sleep(POLL_SECONDS)
                continue
            nodes, items = progress["nodes"], progress["items"]
            concluded = sum(nodes.get(key, 0) for key in ("succeeded", "failed", "skipped", "cancelled"))
            done = sum(items.get(key, 0) for key in ("succeeded", "failed", "escalated", "skipped"))
            text = f"{concluded}/{nodes['total']} nodes concluded"
            if progress["running"]:
                text += f", running: {', '.join(progress['running'])}"
            bar.update(task, description=text, total=items.get("items"), completed=done)
            line = f"{text}; {done}/{items['items']} distributions" if items.get("items") else text
            if not console.is_terminal and line != shown:
                console.print(line)
                shown = line
            if progress["status"] != "running":
                return
            await asyncio.sleep(POLL_SECONDS)


def show_report(console: Console, envelope: dict[str, Any]) -> None:
    """The report by SPDX identifier, most frequent first, and what told."""
    report = envelope["result"]
    totals, licences = report["totals"], report["licences"]
    console.print()
    table = Table(title=f"Licences of {totals['distributions']} distributions", title_justify="left")
    table.add_column("SPDX", overflow="fold")
    table.add_column("distributions", justify="right")
    table.add_column("")
    most = max(licences.values(), default=1)
    for spdx, count in sorted(licences.items(), key=lambda pair: (-pair[1], pair[0])):
        table.add_row(spdx, str(count), "█" * max(1, round(BAR * count / most)))
    if report["unresolved"]:
        table.add_row("[yellow]a person decides[/]", f"[yellow]{len(report['unresolved'])}[/]", "")
    console.print(table)
    sources = ", ".join(f"{source} {count}" for source, count in report["sources"].items())
    with_failures = f" with {envelope['failures']} failures" if envelope["failures"] else ""
    console.print(f"completed{with_failures}; told by: {sources}", soft_wrap=True)
    if report["unresolved"]:
        console.print()
        table = Table(title="Left to a person", title_justify="left", show_lines=True)
        for heading in ("distribution", "version", "why"):
            table.add_column(heading)
        for item in report["unresolved"]:
            table.add_row(escaped(item["name"]), escaped(item["version"] or ""), escaped(item["reason"]))
        console.print(table)


def show_escalations(console: Console, entries: list[dict[str, Any]]) -> None:
    """The run's entries in the escalation queue: one for each batch of a map's items."""
    if not entries:
        console.print("nothing was escalated: no distribution was left to a person")
    for entry in entries:
        console.print(f"escalation {entry['id']}: {escaped(entry['reason'])}", soft_wrap=True)


def show_commands(console: Console, server: DevServer, entries: list[dict[str, Any]], keep: bool) -> None:
    """How to look further with the `temporal` command, while the server is up."""
    temporal = f"{os.path.relpath(temporal_binary())} workflow"
    where = "--workflow-id" if server.port == DEFAULT_PORT else f"--address {server.address} --workflow-id"
    commands = [
        f"{temporal} show {where} {RUN_ID}",
        f"{temporal} query {where} {RUN_ID} --type state",
    ]
    if entries:
        drain = json.dumps({"ids": [entry["id"] for entry in entries], "note": "read the licences", "by": "me"})
        commands += [
            f"{temporal} query {where} {RUN_ID} --type escalations",
            f"{temporal} signal {where} escalations --name drain --input {shlex.quote(drain)}",
            f"{temporal} query {where} escalations --type all",
        ]
    console.print(f"\nLook further, in another terminal{'' if keep else ', while server and worker are up'}:")
    for command in commands:
        console.print(f"  {command}", soft_wrap=True, markup=False)


async def stay(console: Console) -> None:
    """Keep everything up until the person has seen enough."""
    console.print("\nServer and worker stay up until Ctrl-C.")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def escaped(text: str) -> str:
    """``text`` without meaning for the console: metadata may hold brackets and control characters."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text).replace("[", "\\[")


if __name__ == "__main__":
    sys.exit(main())
