"""Collecting what is wrong with a graph: every problem with its place, all at once, in file order."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from graph.errors import LoadError, Problem
from graph.expressions import ExpressionError
from graph.source import Source, show_path

T = TypeVar("T")

Path: TypeAlias = tuple[str | int, ...]
"""Where something is in a graph file: the keys and list positions that lead to it."""

MOST_PROBLEMS = 200
"""More than anybody reads; the rest is counted."""


@dataclass
class Report:
    """The problems and warnings of one compilation, child graphs included."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def gather(self, make: Callable[..., T], *arguments: Any) -> T | None:
        """What ``make(*arguments)`` returns. If it raises a LoadError, its problems join these, and there is None."""
        try:
            return make(*arguments)
        except LoadError as error:
            self.problems += error.problems
            return None

    def raise_if_any(self) -> None:
        """Raises LoadError with all problems and warnings, in file order and without repetitions."""
        if not self.problems:
            return
        found = in_file_order(self.problems)
        rest = len(found) - MOST_PROBLEMS
        if rest > 0:
            found = [*found[:MOST_PROBLEMS], Problem(code="too_large", message=f"and {rest} more problems")]
        raise LoadError(found, in_file_order(self.warnings))


def in_file_order(problems: list[Problem]) -> list[Problem]:
    """Distinct problems by line and column; those of the same file stay together, first seen first."""
    files = {file: number for number, file in enumerate(dict.fromkeys(p.file for p in problems))}
    distinct = {str(p): p for p in problems}
    return sorted(distinct.values(), key=lambda p: (files[p.file], p.line or 0, p.column or 0))


@dataclass(frozen=True)
class Place:
    """A graph within its source: turns paths of the graph into lines and columns of the file."""

    source: Source
    report: Report
    base: Path = ()

    def at(self, *path: str | int) -> Place:
        """The graph below ``path``: its paths count from there."""
        return Place(self.source, self.report, (*self.base, *path))

    def silent(self) -> Place:
        """The same place, whose problems nobody sees."""
        return Place(self.source, Report(), self.base)

    def line_column(self, path: Path, key: bool = False) -> tuple[int | None, int | None]:
        """Line and column of what is at ``path``, or of the nearest thing around it that the file has."""
        full = (*self.base, *path)
        for end in range(len(full), -1, -1):
            found = self.source.place(full[:end], key=key and end > 0)
            if found is not None:
                return found
        return None, None

    def problem(self, code: str, message: str, path: Path, hint: str | None = None, key: bool = False) -> None:
        """Records what is wrong at ``path`` (at its key, with ``key``)."""
        self.report.problems.append(self._make(code, message, path, hint, key))

    def warn(self, code: str, message: str, path: Path, hint: str | None = None, key: bool = False) -> None:
        """Records what works but is hardly meant at ``path`` (at its key, with ``key``)."""
        self.report.warnings.append(self._make(code, message, path, hint, key))

    def expression(self, error: ExpressionError, path: Path) -> None:
        """Records a wrong expression within the text at ``path``."""
        self.in_text(path, error.line, error.column, error.code, error.message, error.hint)

    def in_text(
        self,
        path: Path,
        line: int,
        column: int,
        code: str,
        message: str,
        hint: str | None = None,
        warning: bool = False,
    ) -> None:
        """Records what is wrong (or hardly meant) at a line and column (from 1) of the text at ``path``."""
        row, col = self.text_place(path, line, column)
        found = self.report.warnings if warning else self.report.problems
        found.append(self._made(code, message, path, row, col, hint))

    def text_place(self, path: Path, line: int, column: int) -> tuple[int | None, int | None]:
        """Line and column in the file of a place within the text at ``path``."""
        full = (*self.base, *path)
        return self.source.text_place(full, line, column) or self.line_column(path)

    def in_file(
        self,
        file: str,
        code: str,
        message: str,
        line: int | None,
        column: int | None,
        hint: str | None,
        warning: bool = False,
    ) -> None:
        """Records what is wrong (or hardly meant) in another file that the graph names."""
        found = self.report.warnings if warning else self.report.problems
        found.append(Problem(code=code, message=message, file=self.beside(file), line=line, column=column, hint=hint))

    def beside(self, file: str) -> str:
        """How messages name a file that is relative to the graph file."""
        return posixpath.join(posixpath.dirname(self.source.file or ""), file)

    def _make(self, code: str, message: str, path: Path, hint: str | None, key: bool) -> Problem:
        return self._made(code, message, path, *self.line_column(path, key), hint)

    def _made(
        self, code: str, message: str, path: Path, line: int | None, column: int | None, hint: str | None
    ) -> Problem:
        if line is None:  # a graph given as an object: its path says where
            message = f"{message} (at {show_path((*self.base, *path))})"
        return Problem(code=code, message=message, file=self.source.file, line=line, column=column, hint=hint)
