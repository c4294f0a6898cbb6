"""What the path of a file of items tells by itself: its format, and whether it lies in a folder. Touches no disk."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath
from typing import Final

from graph.compiled import Format

ENDINGS: Final[dict[str, Format]] = {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
"""The formats by a file's ending; `.gz` may follow."""

SHOWN: Final = "`.json`, `.jsonl`, `.ndjson` or `.csv` (and maybe `.gz`)"
"""The endings as messages name them."""


def format_of(path: str) -> Format | None:
    """The format that a path's ending means; None if it means none."""
    name = posixpath.basename(path).lower().removesuffix(".gz")
    return ENDINGS.get(posixpath.splitext(name)[1])


def absolute(folder: str | None, path: str) -> str | None:
    """``path``, taken from ``folder``, without `.` and `..`; None if it is relative and there is no folder. What `..`
    stands behind is dropped by the letter: nothing outside is ever looked at to find out where a link leads."""
    if not path.startswith("/"):
        if folder is None:
            return None
        path = posixpath.join(folder, path)
    # Two slashes in front are kept by `normpath`: POSIX lets them mean something else.
    return "/" + posixpath.normpath(path).lstrip("/")


def within(path: str, folder: str) -> bool:
    """Whether an absolute path is ``folder`` or below it, by the letter: `/database` isn't in `/data`."""
    return PurePosixPath(path).is_relative_to(folder)
