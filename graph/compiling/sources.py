"""Where a map's items come from: a template, a file under the node's `read` grant, or a reference into the store."""

from __future__ import annotations

import posixpath
import re

from graph.compiled import FileSource, RefSource, Source
from graph.compiling.bindings import Bindings
from graph.compiling.context import Context
from graph.mends import quoted
from graph.problems import Path
from graph.shapes import short
from graph.sources import SHOWN, absolute, format_of, within
from graph.spec import OverSpec

NO_FOLDER = "a graph given as an object has no folder"


def compile_items(context: Context, spec: OverSpec, at: Path, allow_empty: bool) -> None:
    """See that the template of a list, at ``at``, can be one."""
    place, items = context.place, spec.items
    if not isinstance(items, list) and not (isinstance(items, str) and "${" in items):
        hint = _file_or_name(items) if isinstance(items, str) else 'write `over: "${node.list}"`'
        place.problem("wrong_type", "`over` is an expression that yields the list of items", at, hint)
    elif items == [] and not allow_empty:
        place.problem("bad_value", "this list of items is empty", at, "set `allow_empty: true` if it is meant")


def compile_source(context: Context, bindings: Bindings, spec: OverSpec, at: Path, read: list[str]) -> Source | None:
    """The source that stands at ``at`` as an object, where ``read`` are the folders granted. None if it is wrong."""
    place = context.place
    given = [key for key in ("file", "ref") if key in spec.model_fields_set]
    if len(given) != 1:
        if not context.is_broken(*at):
            message = "`over` has `file` and `ref`" if given else "`over` is an object with neither `file` nor `ref`"
            place.problem("wrong_type", message, at, 'write `{file: PATH}`, `{ref: "${...}"}` or `"${node.list}"`')
        return None
    if spec.file is not None:
        bindings.template(spec.file, (*at, "file"))
        return _file(context, spec, spec.file, at, read)
    bindings.template(spec.ref, (*at, "ref"))
    if spec.format is not None:
        place.problem("misplaced_key", "`format` belongs to `file`", (*at, "format"), "leave it out", key=True)
    if not isinstance(spec.ref, str | dict):
        place.problem(
            "wrong_type", "`ref` is a reference into the store", (*at, "ref"), 'write `{ref: "${input.ref}"}`'
        )
        return None
    return RefSource(ref=spec.ref)


def read_grants(context: Context, folders: list[str], at: Path) -> list[str]:
    """The granted ``folders``, listed at ``at``, that may be granted."""
    place, refuse = context.place, context.world.readable
    granted = []
    for number, folder in enumerate(folders):
        where = (*at, context.number(at, number))
        full = absolute(context.files.folder, folder)
        if "${" in folder:
            place.problem("bad_value", "a grant is never computed", where, "name the folder itself")
        elif folder.startswith("~"):
            place.problem("bad_value", "`~` has no meaning here", where, "write the whole path")
        elif full is None:
            place.problem("bad_file", f"`{short(folder)}` is relative, and {NO_FOLDER}", where, "give an absolute path")
        elif refuse is not None and (why := refuse(full)) is not None:
            message, _, hint = why.partition(" -> ")
            place.problem("denied_grant", message, where, hint or None)
        else:
            granted.append(folder)
    return granted


def _file(context: Context, spec: OverSpec, path: str, at: Path, read: list[str]) -> FileSource:
    place, folder, root = context.place, context.files.folder, context.session.folder
    where = (*at, "file")
    known = "${" not in path
    if spec.format is None and not context.is_broken(*at, "format"):
        ending = posixpath.splitext(path.lower().removesuffix(".gz"))[1]
        if format_of(path) is None and (known or ("}" not in ending and ending)):
            message = f"the format of `{short(path)}` isn't known: its ending is none of {SHOWN}"
            place.problem("missing_key", message, where, "add `format: json`, `jsonl` or `csv`")
    if known:
        _check_known(context, path, where, read)
    return FileSource(
        path=path,
        format=spec.format or format_of(path),
        read=read,
        base=posixpath.relpath(folder, root) if folder and root else ".",
        root=root,
    )


def _check_known(context: Context, path: str, where: Path, read: list[str]) -> None:
    """See that a path without expressions is in a granted folder, as far as its letters tell."""
    folder = context.files.folder
    full = absolute(folder, path)
    if full is None:
        context.place.problem(
            "bad_file", f"`{short(path)}` is relative, and {NO_FOLDER}", where, "give an absolute path"
        )
    elif read and not any(within(full, absolute(folder, granted) or "") for granted in read):
        message = f"`{short(path)}` is in none of the folders that the node may read"
        context.place.problem("missing_grant", message, where, f"add {_folder_of(path)} to `grants: {{read: [...]}}`")


def missing_grant(context: Context, path: str, at: Path) -> None:
    """Report that nothing is granted to a node whose items are in the file ``path``."""
    message = f"reading `{short(path)}` needs a grant"
    context.place.problem(
        "missing_grant", message, (*at, "file"), f"add `grants: {{read: [{_folder_of(path)}]}}` to the node"
    )


def _folder_of(path: str) -> str:
    """The folder to grant for ``path``, as it would be written."""
    path = (path[: path.index("${")] or "DIR/") if "${" in path else posixpath.normpath(path)
    folder = posixpath.dirname(path) or "."
    return folder if re.fullmatch(r"[\w./][\w./-]*", folder) else quoted(folder)


def _file_or_name(text: str) -> str:
    if format_of(text) is not None:
        return f"write `over: {{file: {short(text)}}}`"
    return f'write `over: "${{{text}}}"`'
