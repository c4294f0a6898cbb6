"""What a graph may read: files in the folders that its node is granted, within those that the worker's settings allow.

Whoever asks for anything else is denied with one and the same message, whether or not there is such a file. Files and
folders whose names begin with a dot are never read, unless the settings name the folder itself.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from graph.errors import Failure
from graph.files import FileProblem, missing
from graph.sources import absolute, within

MOST_NAMES = 1000
"""Files of a folder looked at for a suggestion."""
_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How folders on the way are opened."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def not_grantable(readable: Sequence[Path], folder: str) -> str | None:
    """Why no graph may be granted to read ``folder`` (an absolute path), with the mend after `` -> ``; None: it may be.
    ``readable`` are the folders that the worker's settings allow."""
    real = _real(folder) if _is_name(folder) else None
    if real is not None and _is_allowed(readable, real):
        return None
    places = ", ".join(str(path) for path in readable)
    return f"`{folder}` is outside of what this worker lets graphs read, {places}, or hidden -> set FERRATA_READ"


def open_granted(path: str, folder: str | None, granted: Sequence[str], readable: Sequence[Path]) -> BinaryIO:
    """Open a regular file for reading. ``path`` and the ``granted`` folders may be relative to ``folder``, the graph
    file's (None: the graph has none); ``readable`` are the folders that the worker's settings allow.

    Raises:
        Failure: ``denied``: it isn't in a granted folder, or that one isn't in a readable one. ``invalid_input`` with
            the code ``bad_file``: there is no such file, or it can't be read.
    """
    full = absolute(folder, path)
    if full is None:
        raise bad_file(path, "is relative, and a graph given as an object has no folder; give an absolute path")
    if not _is_name(full):
        raise bad_file(ascii(path), "has characters that no file's name has")
    roots = _roots(folder, granted, readable)
    # By the letter first: nothing outside of what is granted is looked at, not even to see where its links lead.
    if not any(within(full, way) for ways in roots for way in ways):
        raise _denied(path)
    place = _real(full)
    if place is None or not _is_allowed(readable, place):
        raise _denied(path)
    root = next((real for _, real in roots if within(place, real)), None)
    if root is None:
        raise _denied(path)
    try:
        return _open(root, place)
    except _MissingError as error:
        problem = missing(path, error.beside)
        mend = f"; {problem.hint}" if problem.hint else ""
        raise bad_file(path, f"{problem}{mend}", whole=True) from None
    except FileProblem as problem:
        raise bad_file(path, str(problem)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link where there was none a moment ago
            raise _denied(path) from None
        raise bad_file(path, f"can't be read: {error.strerror or error}") from None


def bad_file(path: str, wrong: str, *, whole: bool = False) -> Failure:
    """The failure that a file which may be read can't be: ``wrong`` goes on after its name, or is the ``whole``
    message."""
    return Failure("invalid_input", wrong if whole else f"`{path}` {wrong}", code="bad_file", details={"file": path})


def _open(root: str, place: str) -> BinaryIO:
    """Open ``place``, which is below ``root``, both without links.

    Step by step, and no step through a link: between the look at where the path leads and here, somebody who may write
    to a granted folder could have put a link in the place of a folder or of the file.
    """
    *folders, name = os.path.relpath(place, root).split("/")
    here = os.open(root, _THROUGH)
    try:
        for folder in folders:
            below = os.open(folder, _THROUGH, dir_fd=here)
            os.close(here)
            here = below
        # Looked at before it is opened, since opening a device may do something, and again after, since it may have
        # been replaced; without blocking, since a pipe would wait for somebody to write to it.
        _check_regular(os.stat(name, dir_fd=here, follow_symlinks=False))
        file = os.fdopen(os.open(name, _READ, dir_fd=here), "rb")
    except FileNotFoundError:
        raise _MissingError(_names(here)) from None
    finally:
        os.close(here)
    try:
        _check_regular(os.fstat(file.fileno()))
    except FileProblem:
        file.close()
        raise
    return file


def _check_regular(found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if stat.S_ISDIR(found.st_mode):
        raise FileProblem("is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise FileProblem("isn't a regular file")


def _roots(folder: str | None, granted: Sequence[str], readable: Sequence[Path]) -> list[tuple[str, str]]:
    """The granted folders that the settings allow: as written, and without links."""
    named = [full for one in granted if (full := absolute(folder, one)) is not None and _is_name(full)]
    reals = [(full, _real(full)) for full in named]
    return [(full, real) for full, real in reals if real is not None and _is_allowed(readable, real)]


def _is_allowed(readable: Sequence[Path], real: str) -> bool:
    """Whether a path without links is in a readable folder, and nothing on the way there is hidden: folders that hold
    graphs often hold `.env`, `.git` and `.ferrata` too."""
    for one in readable:
        folder = os.path.realpath(one)
        if within(real, folder):
            parts = PurePosixPath(real).relative_to(folder).parts
            if not any(part.startswith(".") for part in parts):
                return True
    return False


def _real(path: str) -> str | None:
    """``path`` without links; None if a link went away while it was looked at."""
    try:
        return os.path.realpath(path)
    except OSError:
        return None


def _denied(path: str) -> Failure:
    message = (
        f"`{path}` is in no folder that this node may read, or hidden; its `grants: {{read: [...]}}` and the worker's "
        "FERRATA_READ say which folders those are"
    )
    return Failure("denied", message, details={"file": path})


def _is_name(path: str) -> bool:
    """Whether the system can be asked about a path at all."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


class _MissingError(Exception):
    """There is no such file; ``beside`` are those in the folder where it would be."""

    def __init__(self, beside: list[str]) -> None:
        super().__init__()
        self.beside = beside


def _names(folder: int) -> list[str]:
    """The names of the regular files in an open folder."""
    try:
        again = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:  # it may be passed through, but not read
        return []
    try:
        with os.scandir(again) as entries:
            return [entry.name for entry in islice(entries, MOST_NAMES) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
    finally:
        os.close(again)
