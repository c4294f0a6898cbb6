"""Checking graph files without a server: what ``ferrata check`` prints."""

from __future__ import annotations

import logging
import sys
from functools import cache, partial
from pathlib import Path

import typer

from activities.functions import Functions
from activities.grants import not_grantable
from activities.lookup import candidates, read, unknown
from activities.models import Models
from activities.registry import user_activities
from activities.sandbox import Sandbox
from activities.settings import Settings
from cli.supervisor import EXIT_CONFIG, EXIT_SOFTWARE
from graph.compile import compile_graph
from graph.errors import FerrataError, LoadError, Problem
from graph.nearest import nearest
from graph.problems import Report
from graph.source import Source
from graph.spec import GraphSpec
from graph.world import World


def check_graphs(names: list[str]) -> int:
    """Compile graphs and print all that is wrong with them, or with the settings. Returns the exit code."""
    for warning in Settings.warnings():
        typer.echo(f"warning: {warning}", err=True)
    settings, problems = Settings.read()
    report = Report(problems)
    world = world_of(settings, report)
    if report.problems:
        show(report.problems)
        return EXIT_CONFIG
    try:
        sound = [check_graph(name, settings.graphs, world) for name in names]
    except FerrataError as error:  # no sandbox
        typer.echo(f"error: [{error.code}] {error.message}" + (f" -> {error.hint}" if error.hint else ""), err=True)
        return EXIT_SOFTWARE
    return 0 if all(sound) else 1


def world_of(settings: Settings, report: Report) -> World:
    """What a worker with these settings would serve; what isn't set counts as unknown, and isn't checked.

    Modules that can't be imported and a wrong models file are problems of ``report``.
    """
    functions = report.gather(Functions, settings.functions)
    activities = report.gather(user_activities, settings.activities)
    models = report.gather(Models.open, settings.models)

    @cache
    def script(text: str) -> list[Problem]:
        return sandbox(settings.cache).check_syntax(text, "script.py")

    return World(
        script=script,
        function=functions.describe if functions and settings.functions else None,
        activities=frozenset(activities) if activities is not None and settings.activities else None,
        models=frozenset(models.names()) if models and settings.models else None,
        readable=partial(not_grantable, settings.readable) if settings.readable else None,
    )


@cache
def sandbox(folder: Path | None) -> Sandbox:
    """The workers' sandbox, made when the first script needs it. It says so if it must be built.

    Raises:
        FerrataError: it can't be built.
    """
    log = logging.getLogger("sandbox")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stderr))
    return Sandbox(cache_folder=folder)


def check_graph(name: str, folders: tuple[Path, ...], world: World) -> bool:
    """Compile one graph and print the outcome: problems to standard error. Returns whether it is sound.

    Raises:
        FerrataError: there is no sandbox to check its scripts with.
    """
    try:
        place = locate(name, folders)
        source, files = read(place.resolve(), str(place))
        if not looks_like_graph(source):
            message = "this doesn't look like a graph: it has no `nodes`"
            hint = "a file of models is checked by setting FERRATA_MODELS" if isinstance(source.data, dict) else None
            raise LoadError([Problem(code="no_nodes", message=message, file=str(place), hint=hint)])
        compilation = compile_graph(source, files, world)
    except LoadError as error:
        show(error.problems)
        show(error.warnings, "warning")
        return False
    show(compilation.warnings, "warning")
    graph = compilation.graph
    nodes = len(graph.nodes)
    typer.echo(f"{place}: ok, graph {graph.name} of {nodes} node{'' if nodes == 1 else 's'}, {graph.fingerprint}")
    return True


def locate(name: str, folders: tuple[Path, ...]) -> Path:
    """The graph file that ``name`` means: any file by its path, else as for a run, in the working folder first.

    Raises:
        LoadError: there is none.
    """
    if Path(name).is_file():
        return Path(name)
    for folder in (Path(), *folders):
        for candidate in candidates(folder, name):
            if candidate.is_file():
                return candidate
    raise unknown(folders, name)


def looks_like_graph(source: Source) -> bool:
    """Whether it has at least one key of a graph, or nearly `nodes`: what is wrong with it is then said in detail."""
    data = source.data
    return isinstance(data, dict) and bool(data.keys() & GraphSpec.model_fields.keys() or nearest("nodes", data))


def show(problems: list[Problem], kind: str = "error") -> None:
    """Print problems (or warnings), a line each."""
    for problem in problems:
        typer.echo(f"{kind}: {problem}", err=True)
