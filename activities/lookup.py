"""Finding a graph by name or path under the worker's graph folders, never outside of them."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from activities.graph_files import DiskFiles
from graph.errors import LoadError, Problem
from graph.files import FileProblem, Files, NoFiles
from graph.nearest import suggest
from graph.source import Source, from_object, read_source
from graph.values import JSON

ENDINGS = (".yaml", ".yml", ".json")
MOST_LISTED = 200
"""Graphs looked at for a suggestion, in each folder."""
MOST_ENTRIES = 5000
"""Files and folders looked at for that, in each folder."""
DEEPEST = 3
"""Levels of folders looked into for that."""
BEGINNING = 64 * 1024
"""Bytes of a file in which `nodes` is looked for; a JSON file that is larger isn't."""
_NODES = re.compile(rb"""^["']?nodes["']?\s*:""", re.MULTILINE)
"""What every graph has at its top, in YAML."""


def find_graph(folders: tuple[Path, ...], wanted: JSON) -> tuple[Source, Files]:
    """The source of a graph given as a name, a path or an object, and the files it may read.

    A name stands for ``NAME.yaml`` or ``NAME/graph.yaml`` (or .yml, .json) in one of ``folders``.

    Raises:
        LoadError: there is none, it can't be read, or it isn't YAML.
    """
    if isinstance(wanted, dict):
        return from_object(wanted, "graph"), NoFiles()
    if not isinstance(wanted, str):
        raise problem("bad_request", "`graph` must be a name, a path or a graph object", None)
    for folder in folders:
        root = folder.resolve()
        for candidate in candidates(root, wanted):
            place = file_inside(root, candidate)
            if place is not None:
                return read(place, str(place.relative_to(root)))
    raise unknown(folders, wanted)


def candidates(folder: Path, wanted: str) -> list[Path]:
    """Where a name or path may lie in ``folder``."""
    if not wanted or "\0" in wanted or len(wanted) > 1000:
        return []
    base = folder / wanted
    if wanted.endswith(ENDINGS):
        return [base]
    return [Path(f"{base}{ending}") for ending in ENDINGS] + [base / f"graph{ending}" for ending in ENDINGS]


def file_inside(root: Path, candidate: Path) -> Path | None:
    """The regular file ``candidate`` if it is inside ``root``, wherever `..` and links lead."""
    try:
        place = candidate.resolve()
        return place if place.is_file() and place.is_relative_to(root) else None
    except (OSError, RuntimeError):  # a name that the system can't hold, a loop of links
        return None


def read(place: Path, shown: str) -> tuple[Source, Files]:
    """The source in the file ``place``, which messages call ``shown``."""
    files = DiskFiles(place.parent)
    try:
        text = files.read(place.name).decode()
    except FileProblem as error:
        raise problem("unreadable_graph", f"{shown}: {error}", None) from error
    except UnicodeDecodeError as error:
        hint = "save the file as UTF-8"
        raise problem("unreadable_graph", f"{shown} isn't UTF-8 text: {error}", hint) from error
    return read_source(text, shown), files


def unknown(folders: tuple[Path, ...], wanted: str) -> LoadError:
    """The error that there is no such graph, with the nearest there is."""
    paths = [path for folder in folders for path in islice(graphs_below(folder), MOST_LISTED)]
    places = ", ".join(str(folder) for folder in folders)
    names = paths if wanted.endswith(ENDINGS) else [name_of(path) for path in paths]
    hint = suggest(wanted, names) or "give a path relative to one of the folders, or set FERRATA_GRAPHS"
    return problem("unknown_graph", f"there is no graph `{wanted[:200]}` in {places} (FERRATA_GRAPHS)", hint)


def graphs_below(folder: Path) -> Iterator[str]:
    """Paths, relative to ``folder``, of the graphs in it and a few levels below it, nearest first; for suggestions."""
    waiting = deque([(folder, 0)])
    left = MOST_ENTRIES
    while waiting:
        below, depth = waiting.popleft()
        try:
            with os.scandir(below) as entries:
                found = sorted(islice(entries, left), key=lambda entry: entry.name)
        except OSError:  # a folder that may not be read holds no suggestion
            continue
        left -= len(found)
        for entry in found:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST:
                    waiting.append((below / entry.name, depth + 1))
            elif entry.name.endswith(ENDINGS) and entry.is_file(follow_symlinks=False) and looks_like_graph(entry.path):
                yield str((below / entry.name).relative_to(folder))


def looks_like_graph(path: str) -> bool:
    """Whether a file that ends like one has what all graphs have: `nodes` at its top."""
    try:
        with open(path, "rb") as file:
            text = file.read(BEGINNING)
        if not path.endswith(".json"):
            return _NODES.search(text) is not None
        data = json.loads(text)
        return isinstance(data, dict) and "nodes" in data
    except (OSError, ValueError, RecursionError):
        return False


def name_of(path: str) -> str:
    """The shortest name that finds a graph: without its ending, and without `graph` in a folder of its own."""
    name = path[: path.rindex(".")]
    return name.removesuffix("/graph") if name.endswith("/graph") else name


def problem(code: str, message: str, hint: str | None) -> LoadError:
    return LoadError([Problem(code=code, message=message, hint=hint)])
