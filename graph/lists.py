"""Lists too long for one blob, as the store keeps them: an index of pages. A map's items and results are such lists.

A page is the JSON array of some items. Whoever wants one item, or some in a row, reads the index and their pages alone.
"""

from __future__ import annotations

from typing import Final

from graph.values import Compact, Ref

PAGE_ITEMS: Final = 1000
"""Items of a page, at most."""
PAGE_BYTES: Final = 1024 * 1024
"""Bytes after which a page ends. One item may be larger."""


class Page(Compact):
    """Items with numbers from ``first`` to ``last``, in order. If there isn't one for every number in between,
    ``numbers`` is the stored array of those there are. ``items`` knows how many."""

    items: Ref
    first: int
    last: int
    numbers: Ref | None = None

    @property
    def count(self) -> int:
        """How many items it has."""
        return self.items.count or 0


class Index(Compact):
    """A whole list: its pages, in order."""

    pages: list[Page] = []

    @property
    def count(self) -> int:
        """How many items it has."""
        return sum(page.count for page in self.pages)

    @property
    def size(self) -> int:
        """Bytes of its JSON text, about."""
        return sum(page.items.size for page in self.pages)


class MapOutput(Compact):
    """A map's output: stored lists instead of lists, else as its author sees it."""

    values: Index
    failures: Index
    succeeded: int
    failed: int
    escalated: int
    skipped: int

    @property
    def size(self) -> int:
        """Bytes of its JSON text, about."""
        return self.values.size + self.failures.size
