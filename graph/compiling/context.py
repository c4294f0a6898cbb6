"""What every part of the compiler works with: the graph's place, its files, the world, and the node at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graph.compiled import CompiledGraph
from graph.files import Files
from graph.problems import Path, Place
from graph.values import JSON
from graph.world import World


@dataclass(frozen=True)
class Included:
    """One graph on the way from the outermost to this one."""

    identity: str
    shown: str


@dataclass
class Session:
    """What all graphs of one compilation share: the world, and the child graphs already compiled, by identity."""

    world: World
    compile: Callable[[Context, JSON], CompiledGraph | None]
    """Compiles a child graph."""
    folder: str | None = None
    """The folder of the outermost graph's file."""
    children: dict[str, CompiledGraph | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """One graph being compiled."""

    session: Session
    place: Place
    files: Files
    trail: tuple[Included, ...]
    name: str

    broken: frozenset[Path] = frozenset()
    """What :mod:`graph.reading` cut out: nothing more is said about it."""

    kept: Mapping[Path, list[int]] = field(default_factory=dict)
    """The numbers that the entries of a list had in the file, for lists that lost some."""
    outer: frozenset[str] = frozenset()
    """The nodes of the graphs around this one, which it can't see."""

    def number(self, path: Path, index: int) -> int:
        """The number in the file of entry ``index`` of the list at ``path``."""
        numbers = self.kept.get(path)
        return index if numbers is None else numbers[index]

    def is_broken(self, *path: str | int) -> bool:
        """Whether what is at ``path``, or something inside it, was cut out."""
        return any(cut[: len(path)] == path for cut in self.broken)

    @property
    def world(self) -> World:
        return self.session.world
