"""RunMap: one workflow works through the items of a large map, a child of the run that has it."""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from graph.limits import TOLD
from graph.values import JSON
from graph.views import pace
from graph.wire import RUN_MAP, FailureRecord, ItemsTold, MapProgress, MapRequest
from workflows.calls import AttemptFailed
from workflows.chunks import Chunks
from workflows.clock import now
from workflows.item_runs import ItemRuns
from workflows.requests import NOTHING

TOLD_EVERY = 2_000
"""Milliseconds before the parent is told again how far the map is: one that is soon done has nothing to tell."""


@workflow.defn(name=RUN_MAP)
class RunMap:
    """Works through a map's items. Started by `RunGraph` alone."""

    @workflow.init
    def __init__(self, request: MapRequest) -> None:
        self._request = request
        self._chunks: Chunks | ItemRuns = (ItemRuns if request.apart else Chunks)(request, self._changed)
        self._stopped = False
        self._told, self._told_at = self._done(), now()
        self._telling: set[asyncio.Task[None]] = set()

    @workflow.run
    async def run(self, request: MapRequest) -> MapProgress:
        """What the chunks gave.

        Raises:
            ApplicationError: a chunk couldn't be worked on; as the chunk's own error.
        """
        try:
            await self._chunks.run()
        except AttemptFailed as failure:
            error = failure.error
            record = FailureRecord(failure_class=error.failure_class, message=error.message, details=error.details)
            raise ApplicationError(error.message, record, type=error.code, non_retryable=True) from None
        if self._telling:
            await workflow.wait(list(self._telling))
        if self._chunks.pause and not self._stopped:
            workflow.continue_as_new(self._request)
        return self._chunks.progress

    def _changed(self) -> None:
        """A chunk ended: tell the parent now and then, and leave a history that has grown long."""
        if workflow.info().is_continue_as_new_suggested():
            progress = self._chunks.progress
            self._chunks.pause = self._stopped or bool(progress.ranges or progress.back)
        further = self._done() - self._told >= self._request.count // TOLD
        if further and now() - self._told_at >= TOLD_EVERY:
            self._told, self._told_at = self._done(), now()
            task = asyncio.create_task(self._tell())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self) -> None:
        parent = workflow.info().parent
        if parent is None:
            return
        told = ItemsTold(node=self._request.node, counts=dict(self._chunks.progress.counts))
        handle = workflow.get_external_workflow_handle(parent.workflow_id)
        try:
            await handle.signal("items", told)
        except ApplicationError as error:  # the parent has just ended, and so will this run
            workflow.logger.info("the parent can't be told of %s: %s", self._request.node, error)

    @workflow.signal
    def stop(self, request: RawValue = NOTHING) -> None:
        """The parent is failing: nothing else is begun. Chunks in flight finish; runs of items are broken off."""
        self._stopped = self._chunks.pause = True
        if isinstance(self._chunks, ItemRuns):
            self._chunks.stop()

    def _done(self) -> int:
        return sum(self._request.progress.counts.values())

    @workflow.query
    def progress(self) -> dict[str, JSON]:
        """Items by status, and those that wait for another attempt."""
        progress = self._chunks.progress
        return {
            "node": self._request.node,
            **pace(self._request.count, self._done(), now() - self._request.progress.begun),
            **progress.counts,
            "waiting": sum(back.items.count for back in progress.back),
            "at": now(),
        }
