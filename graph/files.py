"""How the compiler reads the files that a graph names: an interface, and an implementation in memory.

The compiler itself does no I/O; the one that reads a disk is :mod:`activities.graph_files`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from graph.nearest import nearest


class FileProblem(Exception):
    """A file can't be read: missing, outside the graph's folder, too large, unreadable. The message says which, and
    ``hint`` (maybe) the mend."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def missing(path: str, beside: Collection[str]) -> FileProblem:
    """The problem that there is no file ``path``; ``beside`` are the names in the folder where it should be."""
    near = nearest(posixpath.basename(path), beside)
    hint = f"did you mean `{posixpath.join(posixpath.dirname(path), near)}`?" if near else None
    return FileProblem(f"there is no file `{path}`", hint)


@dataclass(frozen=True)
class GraphFile:
    """A graph file named by another graph: its bytes, how messages name it, and what it may read itself.

    ``identity`` is equal for equal files however they are named; inclusion cycles are found by it.
    """

    data: bytes
    identity: str
    files: Files


class Files(Protocol):
    """The files that one graph may read: those in the folder of its own file, and below it."""

    @property
    def folder(self) -> str | None:
        """The absolute path of that folder; None: the graph has none."""

    def read(self, path: str) -> bytes:
        """The content of ``path``, relative to the graph file. Raises FileProblem."""

    def child(self, path: str) -> GraphFile:
        """The graph file ``path``, relative to this graph file. Raises FileProblem."""


def inside(path: str) -> str:
    """``path`` normalised. Raises FileProblem if it is absolute, empty, or leaves the graph file's folder."""
    if not path or "\0" in path:
        raise FileProblem("a file needs a name")
    if path.startswith("/") or "\\" in path or (len(path) > 1 and path[1] == ":"):
        raise FileProblem(f"`{path}` isn't relative to the graph file, with `/` between folders")
    normal = posixpath.normpath(path)
    if normal == ".." or normal.startswith("../"):
        raise FileProblem(f"`{path}` is outside the graph file's folder")
    return normal


class MemoryFiles:
    """Files in memory, by path: for graphs that arrive as an object, and for tests."""

    def __init__(self, files: Mapping[str, str | bytes] | None = None, folder: str = "") -> None:
        self._files = files or {}
        self._folder = folder

    @property
    def folder(self) -> str:
        """The folder, as if it lay at the root of a disk."""
        return posixpath.join("/", self._folder)

    def read(self, path: str) -> bytes:
        """The content of ``path``. Raises FileProblem."""
        key = posixpath.join(self._folder, inside(path))
        if key not in self._files:
            folder = posixpath.dirname(key)
            beside = [posixpath.basename(name) for name in self._files if posixpath.dirname(name) == folder]
            raise missing(path, beside)
        content = self._files[key]
        return content.encode() if isinstance(content, str) else content

    def child(self, path: str) -> GraphFile:
        """The graph file ``path``, whose own files are in its folder. Raises FileProblem."""
        key = posixpath.join(self._folder, inside(path))
        return GraphFile(self.read(path), key, MemoryFiles(self._files, posixpath.dirname(key)))


class NoFiles:
    """No files at all: for a graph given as an object, without a folder of its own."""

    folder = None

    def read(self, path: str) -> bytes:
        """Always raises FileProblem."""
        raise FileProblem(f"`{path}` can't be read: a graph given as an object has no folder; give its content inline")

    def child(self, path: str) -> GraphFile:
        """Always raises FileProblem."""
        raise FileProblem(f"`{path}` can't be read: a graph given as an object has no folder; give the graph inline")
