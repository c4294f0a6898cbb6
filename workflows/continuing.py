"""Continuing as new: a run whose history has grown long goes on from its own snapshot in a fresh one.

Only while nothing is in flight: Temporal would orphan activities and end child runs. Delays and waits carry absolute
times, so they end when they would have ended.
"""

from __future__ import annotations

from temporalio import workflow

from graph.paging import pages
from graph.snapshot import PAGE_LIMIT
from graph.values import JSON, Ref
from graph.wire import SAVE, Apart, Continued, LoadRequest, Page
from workflows.calls import AttemptFailed, call
from workflows.record import Record

SAVE_TIMEOUT = 120_000
GROWTH = 2
"""A history is left for a new one once it is so many times as long as it was when its run began: a large state takes
many events to restore."""


class Continuing:
    """When and how a run goes on in a fresh history. ``child``: whether it is another run's child; ``apart``: which
    item's it is, if it is one's."""

    def __init__(self, record: Record, *, child: bool, apart: Apart | None) -> None:
        self.record = record
        self.child = child
        self.apart = apart
        self._begun = workflow.info().get_current_history_length()

    def wanted(self) -> bool:
        """Whether the history is long enough."""
        info = workflow.info()
        return info.is_continue_as_new_suggested() and info.get_current_history_length() >= self._begun * GROWTH

    def due(self) -> bool:
        """Whether it is, and nothing is in flight: no attempt, child run, map or handler."""
        return self.wanted() and self.record.at_rest and workflow.all_handlers_finished()

    def stay(self) -> None:
        """Don't try again before the history has grown further."""
        self._begun = workflow.info().get_current_history_length()

    async def go_on(self) -> None:
        """Go on as a new run of the same id. Returns if something woke up before all was saved."""
        if not workflow.patched("continue-as-new"):  # a history from before this was possible
            self.stay()
            return
        saved: list[dict[str, JSON]] = []
        refs: list[Ref] = []
        while self.due():
            parts = pages(self.record.snapshot("running", None).to_json(), PAGE_LIMIT)
            if parts == saved:
                workflow.continue_as_new(
                    LoadRequest(continued=Continued(pages=refs, child=self.child), apart=self.apart)
                )
            try:
                refs = [
                    await call(SAVE, Page(page=part), Ref, summary="save for a fresh history", timeout=SAVE_TIMEOUT)
                    for part in parts
                ]
            except AttemptFailed as failure:  # the store is out of reach: go on here, and try again later
                workflow.logger.warning("the run can't be saved for a fresh history: %s", failure.error.message)
                self.stay()
                return
            saved = parts
