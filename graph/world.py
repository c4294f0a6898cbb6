"""What the worker serves, as far as the compiler may know it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from graph.errors import Problem


@dataclass(frozen=True)
class FunctionInfo:
    """A function's keyword arguments: those it can't do without, and all it takes (None: any)."""

    required: tuple[str, ...] = ()
    accepted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class World:
    """The functions, activities and models there are, and a judge of scripts. None: unknown, not checked.

    ``script`` takes a script's text and returns what is wrong with it (the sandbox's Python decides, not the host's);
    what has another code than ``bad_script`` is a warning.
    ``function`` takes ``module:name`` and returns the function's arguments, or a text saying why it can't be called,
    with the mend after `` -> `` if one is known.
    ``activities`` are those of Ferrata's own task queue.
    ``readable`` takes a folder's absolute path and returns a text saying why no graph may be granted to read it, with
    the mend after `` -> ``; None: it may be.
    """

    script: Callable[[str], list[Problem]] | None = None
    function: Callable[[str], FunctionInfo | str] | None = None
    activities: Collection[str] | None = None
    models: Collection[str] | None = None
    readable: Callable[[str], str | None] | None = None
