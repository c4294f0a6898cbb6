"""RunGraph: one workflow runs one graph. Load, schedule, conclude; and answer queries meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

from graph import views
from graph.errors import OperateError
from graph.nearest import suggest
from graph.paging import join, pages
from graph.snapshot import Snapshot
from graph.state import Error
from graph.values import ANSWER_LIMIT, JSON, Value, trim
from graph.wire import (
    EVALUATE,
    LOAD,
    RESTORE,
    RUN_GRAPH,
    EvaluateRequest,
    ItemsTold,
    Loaded,
    LoadRequest,
    Page,
    RunInfo,
)
from workflows import logs
from workflows.calls import AttemptFailed, call
from workflows.clock import now
from workflows.continuing import Continuing
from workflows.ignored import LONGEST_ID
from workflows.record import Record
from workflows.replies import Replies
from workflows.requests import NOTHING, read_json, read_reply, read_request, refused
from workflows.schedule import Schedule

GRAPH = SearchAttributeKey.for_keyword("FerrataGraph")
STATUS = SearchAttributeKey.for_keyword("FerrataStatus")
ESCALATIONS = SearchAttributeKey.for_int("FerrataEscalations")
LONGEST_KEYWORD = 250
"""Bytes; the server ends a run that sets a longer one, or can't find it afterwards."""

SIGNALS = ("reply",)
LOAD_TIMEOUT = 120_000
EVALUATE_TIMEOUT = 300_000


@workflow.defn(name=RUN_GRAPH)
class RunGraph:
    """Runs a graph. Input: ``{"graph": NAME or PATH or object, "input": JSON}``."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._status = "loading"
        self._registered: list[str] = []
        self._describing = False
        self._escalated = 0
        self._replies: Replies | None = None
        self._error: Error | None = None
        """The run's own error, if it failed by no node's."""

    @workflow.run
    async def run(self, request: RawValue = NOTHING) -> dict[str, Any]:
        """Run the graph to its end.

        Returns:
            ``{"status": "completed", "result": JSON, "usage", "escalations", "failures", "nodes"}``.

        Raises:
            ApplicationError: type = code; details hold the same envelope with status ``failed`` and ``error``.
        """
        wanted = read_request(request)
        loaded, record = await self._load(wanted)
        self._registered = loaded.search_attributes
        self._show("running")
        child = wanted.compiled is not None or wanted.apart is not None
        if wanted.apart is not None:
            record.outer = wanted.apart.scope
        if wanted.continued is not None:
            child = wanted.continued.child
        else:
            logs.started(record.run.graph, len(loaded.plan.nodes))
        if self._error is not None:
            raise self._fail(record, self._error)
        self._replies = Replies(record)
        schedule = Schedule(record, self._replies, Continuing(record, child=child, apart=wanted.apart), self._changed)
        left = None if record.deadline is None else max(0, record.deadline - now()) / 1000
        try:
            async with asyncio.timeout(left):
                await schedule.run()
                output = None if record.failures else await self._output(record, child=child)
        except TimeoutError:
            raise self._fail(record, views.deadline_error(record.plan)) from None
        except AttemptFailed as failure:
            raise self._fail(record, failure.error) from None
        except asyncio.CancelledError:
            self._show("cancelled")
            logs.cancelled()
            raise
        if output is None:
            raise self._fail(record, None)
        self._show("completed")
        envelope = self._envelope(record, "completed")
        logs.completed(envelope["failures"], envelope["escalations"])
        if child:
            return {**envelope, "output": output.model_dump()}
        if output.ref is not None:
            return {**envelope, "result": None, "result_ref": output.ref.model_dump()}
        return {**envelope, "result": output.inline}

    async def _load(self, wanted: LoadRequest) -> tuple[Loaded, Record]:
        """Load the graph, and begin its record. Raises ApplicationError if there is nothing to run."""
        try:
            loaded = await call(LOAD, wanted, Loaded, summary="load the graph", timeout=LOAD_TIMEOUT)
            self._record = await self._begin(loaded, continued=wanted.continued is not None)
        except AttemptFailed as failure:
            raise self._unloaded(failure.error) from None
        except asyncio.CancelledError:
            self._status = "cancelled"
            logs.cancelled()
            raise
        return loaded, self._record

    async def _begin(self, loaded: Loaded, *, continued: bool) -> Record:
        """The record of a new run, or of one that goes on from a snapshot; ``continued``: from its own."""
        info = workflow.info()
        run = RunInfo(
            id=info.workflow_id,
            graph=loaded.plan.name,
            started=info.workflow_start_time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        )
        if loaded.pages:
            pages = [
                (await call(RESTORE, ref, Page, summary="restore", timeout=LOAD_TIMEOUT)).page for ref in loaded.pages
            ]
            snapshot = Snapshot.model_validate(join(pages))
            if continued:
                run.started = snapshot.started
            record = Record.restored(snapshot, loaded.plan, loaded.graph, run)
            self._error = Error.from_json(snapshot.error)
        else:
            record = Record(loaded.plan, loaded.graph, loaded.input, run)
            record.warnings = loaded.warnings
        return record

    def _unloaded(self, error: Error) -> ApplicationError:
        """The failure of a run that never began."""
        self._status = "failed"
        logs.failed(error.code, error.message)
        envelope = {"status": "failed", "error": {**error.to_json(), "node": None}}
        return ApplicationError(error.message, envelope, type=error.code, non_retryable=True)

    async def _output(self, record: Record, *, child: bool) -> Value:
        """The run's output: a node's value as it is, or evaluated."""
        plan = record.plan
        node = plan.output_node
        value = record.values.get(node) if node else None
        if record.outer is not None:
            return value or Value()
        if value is not None and (child or value.ref is None):
            return value
        if value is not None and value.ref is not None and value.ref.form is None and value.size > ANSWER_LIMIT:
            return value  # one in pages is made plain first: whoever reads the result knows nothing of them
        names = plan.output_uses or ([node] if node else [])
        request = EvaluateRequest(scope=await record.scope(names), limit=0 if child else ANSWER_LIMIT)
        return await call(EVALUATE, request, Value, summary="output", timeout=EVALUATE_TIMEOUT)

    def _fail(self, record: Record, error: Error | None) -> ApplicationError:
        """The run's failure: `error`, or the first failed node's."""
        node = None
        self._error = error
        if error is None:
            node = record.failures[0]
            error = record.nodes[node].executions[-1].error
            assert error is not None, "a failed node has an error"
        self._show("failed")
        logs.failed(error.code, error.message, node)
        envelope = self._envelope(record, "failed")
        envelope["error"] = {**error.to_json(), "node": node}
        envelope["failed"] = record.failures
        message = f"node `{node}`: {error.message}" if node else error.message
        return ApplicationError(message, envelope, type=error.code, non_retryable=True)

    def _envelope(self, record: Record, status: str) -> dict[str, Any]:
        envelope = {
            "status": status,
            "usage": record.usage.to_json(),
            "escalations": record.escalated,
            "failures": record.failed,
            "nodes": dict(record.statuses),
        }
        return envelope if record.outer is None else {**envelope, "item": record.item()}

    def _show(self, status: str) -> None:
        """Make a change of status visible: search attributes and current details."""
        self._status = status
        record = self._record
        if record is None:
            return
        self._escalated = record.escalated
        values: list[SearchAttributeUpdate[Any]] = [
            GRAPH.value_set(trim(record.plan.name, LONGEST_KEYWORD)),
            STATUS.value_set(status),
            ESCALATIONS.value_set(record.escalated),
        ]
        updates = [value for value in values if value.key.name in self._registered]
        if updates:
            workflow.upsert_search_attributes(updates)
        self._changed()

    def _changed(self) -> None:
        """Describe the run anew, once for all that changes in this workflow task."""
        if not self._describing:
            self._describing = True
            asyncio.get_running_loop().call_soon(self._describe)

    def _describe(self) -> None:
        self._describing = False
        workflow.set_current_details(self._progress()["markdown"])
        record = self._record
        if record is not None and record.escalated != self._escalated and ESCALATIONS.name in self._registered:
            self._escalated = record.escalated
            workflow.upsert_search_attributes([ESCALATIONS.value_set(record.escalated)])

    def _progress(self) -> dict[str, JSON]:
        record = self._record
        if record is None:
            return {"status": self._status}
        return views.progress(
            self._status,
            record.plan,
            record.counts,
            list(record.running),
            record.map_items(),
            record.escalated,
            record.failed,
            record.warnings,
            views.waiting(record.waits, record.nodes, record.running) if record.counts["waiting"] else [],
            record.ignored.to_json() if record.ignored.counts else {},
            record.paces(),
        )

    async def _reply(self, request: RawValue) -> dict[str, JSON]:
        """Give a reply to its node, once the graph is loaded. Raises OperateError."""
        await workflow.wait_condition(lambda: self._replies is not None)
        if self._replies is None:
            raise RuntimeError("a run that is loaded takes replies")
        return await self._replies.give(read_reply(request))

    @workflow.signal(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def reply(self, request: RawValue = NOTHING) -> None:
        """Answer a `wait` node: ``{"node": NAME, "value": JSON}``. What can't be taken is counted in `progress`."""
        try:
            await self._reply(request)
        except OperateError as error:
            if self._record is not None:
                self._record.ignored.note("reply", error.message)
        self._changed()

    @workflow.update(name="reply", unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def reply_update(self, request: RawValue = NOTHING) -> dict[str, JSON]:
        """The same, answering ``{"node", "status": "taken" or "kept"}``; or an error, and nothing changed."""
        try:
            return await self._reply(request)
        except OperateError as error:
            raise refused(error) from None

    @reply_update.validator
    def _check_reply(self, request: RawValue = NOTHING) -> None:
        if self._replies is not None:
            try:
                self._replies.addressee(read_reply(request))
            except OperateError as error:
                raise refused(error) from None

    @workflow.signal
    def items(self, request: RawValue = NOTHING) -> None:
        """How far the items of a map are: from the run that works through them."""
        if self._record is None:
            return
        try:
            told = ItemsTold.model_validate_json(request.payload.data)
        except ValidationError:
            self._record.ignored.note("items", "only the run of a map's items sends this signal")
        else:
            self._record.count_items(told.node, told.counts)
        self._changed()

    @workflow.signal(dynamic=True)
    async def other(self, name: str, args: Sequence[RawValue]) -> None:
        """A signal that a run doesn't have: a misspelt one, most likely."""
        await workflow.wait_condition(lambda: self._record is not None)
        if self._record is not None:
            told = f"a run has no signal `{trim(name, LONGEST_ID)}`; {suggest(name, SIGNALS)}"
            self._record.ignored.note("unknown", told)

    @workflow.query
    def progress(self) -> dict[str, JSON]:
        """Counts of nodes and items by status, what runs now, and the same as markdown."""
        return self._progress()

    @workflow.query
    def state(self, wanted: RawValue = NOTHING) -> dict[str, JSON]:
        """Every node with its executions, attempts, errors and usage; or a part: ``{"nodes": [NAME], "page": 0}``.

        Raises:
            OperateError: there is no such node or page.
        """
        record = self._record
        if record is None:
            return {"status": self._status}
        return views.state(record.plan, self._status, record.usage, record.nodes, read_json(wanted))

    @workflow.query
    def snapshot(self, page: RawValue = NOTHING) -> dict[str, JSON]:
        """The whole state, for a new run to `resume` from: page ``page`` of ``pages``, counted from 0.

        Raises:
            OperateError: the graph is still being loaded, or there is no such page.
        """
        if self._record is None:
            raise OperateError("no_value", "the graph is still being loaded, or couldn't be")
        error = self._error.to_json() if self._error else None
        parts = pages(self._record.snapshot(self._status, error).to_json(), views.PAGE)
        return views.numbered(parts, read_json(page) or 0)

    @workflow.query
    def escalations(self) -> list[JSON]:
        """What this run escalated, oldest first."""
        return views.escalations(self._record.escalations) if self._record else []

    @workflow.query
    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart, each node coloured by its status."""
        record = self._record
        return views.mermaid(record.plan, record.statuses) if record else "flowchart TD\n"

    @workflow.query
    def output(self, node: RawValue = NOTHING) -> dict[str, JSON]:
        """The value of a concluded node: ``{"node", "value"}``, or ``{"node", "ref"}`` if it lies in the store.

        Raises:
            OperateError: there is no such node, or it has no value (yet).
        """
        name = read_json(node)
        if self._record is None:
            raise OperateError("no_value", "the graph is still being loaded")
        return views.output(self._record.nodes, self._record.values, name)
