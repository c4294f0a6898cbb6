"""What the worker serves, as far as the compiler may know it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class FunctionInfo:
    """A function's keyword arguments: those it can't do without, and all it takes (None: any)."""

    required: tuple[str, ...] = ()
    accepted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class World:
    """The functions, activities and models there are. None: unknown, not checked.

    ``function`` takes ``module:name`` and returns the function's arguments, or a text saying why it can't be called.
    ``activities`` are those of Ferrata's own task queue.
    """

    function: Callable[[str], FunctionInfo | str] | None = None
    activities: Collection[str] | None = None
    models: Collection[str] | None = None
