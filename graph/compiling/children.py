"""Child graphs: inline, or another file, compiled in turn; a graph that includes itself is refused."""

from __future__ import annotations

import posixpath
from collections.abc import Collection

from graph.compiled import CompiledGraph
from graph.compiling.context import Context, Included
from graph.errors import LoadError
from graph.files import FileProblem
from graph.problems import Path, Place
from graph.source import read_source
from graph.spec_errors import json_type
from graph.values import JSON

MOST_NESTED = 20
"""Graphs within graphs."""
ENDINGS = (".yaml", ".yml", ".json")


def compile_child(
    context: Context, node: str, given: JSON, path: Path, siblings: Collection[str]
) -> CompiledGraph | None:
    """The child graph of ``node``, given at ``path`` as an object or as the path of a file. None if it has problems.

    ``siblings`` are the nodes beside it.
    """
    place = context.place
    if len(context.trail) > MOST_NESTED:
        place.problem("too_large", f"graphs nest at most {MOST_NESTED} deep", path)
        return None
    if isinstance(given, dict):
        file = next((given[key] for key in ("file", "path", "name") if key in given), None)
        if isinstance(file, str) and file.endswith(ENDINGS) and "nodes" not in given:
            message = "`graph` is the path itself, or an object with `nodes`"
            place.problem("wrong_type", message, path, f"write `graph: {file[:100]}`")
            return None
        inner = Context(
            context.session,
            place.at(*path),
            context.files,
            (*context.trail, Included("", f"{context.name}.{node}")),
            f"{context.name}.{node}",
            outer=context.outer | frozenset(siblings),
        )
        return context.session.compile(inner, given)
    if not isinstance(given, str):
        place.problem("wrong_type", f"`graph` must be a path or an object, not {json_type(given)}", path)
        return None
    return _from_file(context, given, path)


def _from_file(context: Context, given: str, path: Path) -> CompiledGraph | None:
    place, session = context.place, context.session
    try:
        file = context.files.child(given)
    except FileProblem as problem:
        place.problem("bad_file", str(problem), path, problem.hint)
        return None
    trail = [included.identity for included in context.trail]
    if file.identity in trail:
        start = trail.index(file.identity)
        names = [i.shown for i in context.trail[start:] if i.identity] + [given]
        place.problem("cycle", f"a graph includes itself: {' -> '.join(f'`{name}`' for name in names)}", path)
        return None
    if file.identity in session.children:
        return session.children[file.identity]
    shown = place.beside(given)
    compiled = None
    try:
        source = read_source(file.data.decode("utf-8-sig"), shown)
    except UnicodeDecodeError:
        place.problem("bad_yaml", f"`{given}` isn't UTF-8 text", path)
    except LoadError as error:
        place.report.problems.extend(error.problems)
    else:
        inner = Context(
            session,
            Place(source, place.report),
            file.files,
            (*context.trail, Included(file.identity, given)),
            graph_name(given),
        )
        compiled = session.compile(inner, source.data)
    session.children[file.identity] = compiled
    return compiled


def graph_name(file: str) -> str:
    """What a graph without a `name` is called: its file's name, or its folder's if that is just `graph`."""
    stem = posixpath.basename(file).split(".")[0]
    folder = posixpath.basename(posixpath.dirname(file))
    return folder if stem == "graph" and folder else stem or "graph"
