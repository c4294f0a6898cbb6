"""Checking graph files without a server: what ``ferrata check`` prints."""

from __future__ import annotations

from pathlib import Path

import typer

from activities.functions import Functions
from activities.lookup import read
from activities.models import Models
from activities.registry import user_activities
from activities.settings import Settings
from graph.compile import compile_graph
from graph.errors import LoadError
from graph.world import World


def world_of(settings: Settings) -> World:
    """What a worker with these settings would serve; what isn't set counts as unknown, and isn't checked.

    Raises:
        LoadError: a module can't be imported, or the models file is wrong.
    """
    return World(
        function=Functions(settings.functions).describe if settings.functions else None,
        activities=frozenset(user_activities(settings.activities)) if settings.activities else None,
        models=frozenset(Models.open(settings.models).names()) if settings.models else None,
    )


def check_graph(path: Path, world: World) -> bool:
    """Compile one graph file and print the outcome: problems to standard error. Returns whether it is sound."""
    try:
        compilation = compile_graph(*read(path.resolve(), str(path)), world)
    except LoadError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        return False
    for warning in compilation.warnings:
        typer.echo(f"warning: {warning}", err=True)
    graph = compilation.graph
    nodes = len(graph.nodes)
    typer.echo(f"{path}: ok, graph {graph.name} of {nodes} node{'' if nodes == 1 else 's'}, {graph.fingerprint}")
    return True
