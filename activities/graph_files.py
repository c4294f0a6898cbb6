"""The files of a graph, read from disk and held inside the folder of the graph file, symbolic links included."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path

from graph.files import FileProblem, GraphFile, inside, missing

LARGEST_FILE = 8 * 1024 * 1024
"""Bytes; a script, schema or graph file above it is refused."""


MOST_NAMES = 1000
"""Files of a folder looked at for a suggestion."""


class DiskFiles:
    """What a graph file may read: regular files in ``folder`` and below it, wherever links may point."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    @property
    def folder(self) -> str:
        """The folder's path, absolute and without links."""
        return str(self._folder)

    def read(self, path: str) -> bytes:
        """The content of ``path``, relative to the folder. Raises FileProblem."""
        return self._read(path, self._locate(path))

    def child(self, path: str) -> GraphFile:
        """The graph file ``path``; its own files are those of its own folder. Raises FileProblem."""
        place = self._locate(path)
        return GraphFile(self._read(path, place), str(place), DiskFiles(place.parent))

    def _locate(self, path: str) -> Path:
        try:
            place = (self._folder / inside(path)).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name the system can't hold
            raise FileProblem(f"`{path}` can't be read: {error}") from error
        if not place.is_relative_to(self._folder):
            raise FileProblem(f"`{path}` is outside the graph file's folder")
        return place

    @staticmethod
    def _read(path: str, place: Path) -> bytes:
        # Opened without following a last link and without blocking: the file may have changed since it was located.
        try:
            with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise FileProblem(f"`{path}` isn't a regular file")
                data = file.read(LARGEST_FILE + 1)
        except FileNotFoundError:
            raise missing(path, _names(place.parent)) from None
        except OSError as error:
            raise FileProblem(f"`{path}` can't be read: {error.strerror or error}") from error
        if len(data) > LARGEST_FILE:
            raise FileProblem(f"`{path}` is larger than {LARGEST_FILE // 1024 // 1024} MiB")
        return data


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MOST_NAMES) if entry.is_file()]
    except OSError:  # no such folder either: nothing to suggest
        return []
