"""Finding a graph by name or path under the worker's graph folders, never outside of them."""

from __future__ import annotations

from pathlib import Path

from activities.graph_files import DiskFiles
from graph.errors import LoadError, Problem
from graph.files import FileProblem, Files, NoFiles
from graph.nearest import suggest
from graph.source import Source, from_object, read_source
from graph.values import JSON

ENDINGS = (".yaml", ".yml", ".json")
MOST_LISTED = 200
"""Graph names looked at for a suggestion."""


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
    names: list[str] = []
    for folder in folders:
        for pattern in ("*.y*ml", "*.json", "*/graph.y*ml", "*/*/graph.y*ml"):
            names += [str(path.relative_to(folder)) for path in sorted(folder.glob(pattern))[:MOST_LISTED]]
    places = ", ".join(str(folder) for folder in folders)
    hint = suggest(wanted, names) or "give a path relative to one of the folders, or set FERRATA_GRAPHS"
    return problem("unknown_graph", f"there is no graph `{wanted[:200]}` in {places} (FERRATA_GRAPHS)", hint)


def problem(code: str, message: str, hint: str | None) -> LoadError:
    return LoadError([Problem(code=code, message=message, hint=hint)])
