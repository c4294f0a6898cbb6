"""What every part of the compiler works with: the graph's place, its files, the world, and the node at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

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

    def reading(self, broken: frozenset[Path]) -> Context:
        """The same, once the graph was read."""
        return replace(self, broken=broken)

    def is_broken(self, *path: str | int) -> bool:
        """Whether what is at ``path``, or something inside it, was cut out."""
        return any(cut[: len(path)] == path for cut in self.broken)

    @property
    def world(self) -> World:
        return self.session.world
