"""EscalationQueue: one long-lived workflow per queue name, from which people drain what runs escalated.

Draining marks, never deletes. Signal handlers never raise: what is malformed or matches nothing is counted, and the
last of it is told by `all` with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.common import RawValue, VersioningBehavior

from graph.errors import OperateError
from graph.nearest import suggest
from graph.values import ANSWER_LIMIT, DEPTH_LIMIT, INLINE_LIMIT, JSON, encode, trim
from graph.wire import ESCALATION_QUEUE, Entry
from workflows.clock import now
from workflows.ignored import LONGEST_ID, Ignored, named
from workflows.requests import NOTHING, read_json

DEEPEST = DEPTH_LIMIT + 10
"""Levels of what comes in: a value that is as deep as values may be, and what is around it."""

SIGNALS = ("enqueue", "drain")


class Carried(BaseModel):
    """What one run of the queue hands to the next."""

    entries: list[Entry] = []
    ignored: dict[str, int] = {}
    last_ignored: list[dict[str, JSON]] = []


@workflow.defn(name=ESCALATION_QUEUE)
class EscalationQueue:
    """Entries by id, in the order they came. Input: the state carried from the run before, or nothing."""

    @workflow.init
    def __init__(self, carried: RawValue = NOTHING) -> None:
        wrong: ValueError | None = None
        try:
            state = Carried.model_validate(read_json(carried, DEEPEST) or {})
        except ValueError as error:
            # Somebody started it by hand; failing here would block it, and all its signals, for ever.
            state, wrong = Carried(), error
        self._entries = {entry.id: entry for entry in state.entries}
        self._ignored = Ignored(state.ignored, state.last_ignored)
        if wrong is not None:
            self._ignored.note("start", f"what it was started with is no state of a queue: {why(wrong)}")

    @workflow.run
    async def run(self, carried: RawValue = NOTHING) -> None:
        """Until it is terminated; continues as new when the server suggests and what it carries fits."""
        while True:
            await workflow.wait_condition(workflow.info().is_continue_as_new_suggested)
            state = Carried(entries=list(self._entries.values()), **self._ignored.to_json()).model_dump()
            if len(encode(state)) <= ANSWER_LIMIT:
                workflow.continue_as_new(state)
            await self._grown(len(self._entries))

    async def _grown(self, seen: int) -> None:
        await workflow.wait_condition(lambda: len(self._entries) > seen)

    @workflow.signal
    def enqueue(self, entry: RawValue) -> None:
        """Take an entry; the same id again changes nothing."""
        try:
            new = Entry.model_validate(read_json(entry, DEEPEST))
        except ValueError as error:
            self._ignored.note("enqueue", f"it is no entry: {why(error)}")
            return
        if not new.id or too_large(entry):
            self._ignored.note("enqueue", f"the entry has no id, or more than {INLINE_LIMIT} bytes")
            return
        self._entries.setdefault(new.id, new)

    @workflow.signal
    def drain(self, request: RawValue = NOTHING) -> None:
        """Mark entries as drained: ``{"ids": [...], "action"?, "value"?, "note"?, "by"?}``. All but the ids may take
        16 KiB of JSON together: the queue keeps it."""
        try:
            data = read_json(request)
        except ValueError as error:
            self._ignored.note("drain", str(error))
            return
        ids = data.get("ids") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(ids, list):
            self._ignored.note("drain", 'it must be an object with a list of ids: {"ids": ["ID"]}')
            return
        resolution = {key: data.get(key) for key in ("action", "value", "by", "note")}
        size = len(encode(resolution))
        if size > INLINE_LIMIT:
            told = f"action, value, note and by have {size} bytes; at most {INLINE_LIMIT} are kept"
            self._ignored.note("drain", told)
            return
        unknown: list[JSON] = []
        drained: list[JSON] = []
        for entry_id in ids:
            entry = self._entries.get(entry_id) if isinstance(entry_id, str) else None
            if entry is None:
                unknown.append(entry_id)
            elif entry.drained_at is not None:
                drained.append(entry_id)
            else:
                entry.drained_at = now()
                entry.resolution = {**resolution, "at": now()}
        if unknown or drained:
            parts = (("unknown", unknown), ("drained already", drained))
            told = "; ".join(named(text, which) for text, which in parts if which)
            self._ignored.note("drain", told, len(unknown) + len(drained))

    @workflow.signal(dynamic=True)
    def other(self, name: str, args: Sequence[RawValue]) -> None:
        """A signal that a queue doesn't have: a misspelt one, most likely."""
        self._ignored.note("unknown", f"a queue has no signal `{trim(name, LONGEST_ID)}`; {suggest(name, SIGNALS)}")

    @workflow.query
    def outstanding(self, cursor: RawValue = NOTHING) -> dict[str, JSON]:
        """Entries that nobody drained, oldest first; from ``cursor``, which is `next` of the answer before."""
        return self._answer([entry for entry in self._entries.values() if entry.drained_at is None], cursor)

    @workflow.query
    def all(self, cursor: RawValue = NOTHING) -> dict[str, JSON]:
        """All entries, as `outstanding`; how much was ignored because it matched nothing, and the last of it."""
        answer = self._answer(list(self._entries.values()), cursor)
        return {**answer, **self._ignored.to_json()}

    def _answer(self, entries: list[Entry], cursor: RawValue) -> dict[str, JSON]:
        """As many as fit in an answer; `total` counts them all.

        Raises:
            OperateError: the cursor is none.
        """
        try:
            start = read_json(cursor)
        except ValueError:
            start = -1
        start = 0 if start is None else start
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise OperateError("bad_cursor", "the cursor must be the number that the answer before gave as `next`")
        shown: list[JSON] = []
        size = 0
        for entry in entries[start:]:
            data = entry.to_json()
            size += len(encode(data))
            if size > ANSWER_LIMIT:
                break
            shown.append(data)
        following = start + len(shown)
        return {"entries": shown, "total": len(entries), "next": following if following < len(entries) else None}


@workflow.defn(name=ESCALATION_QUEUE, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class UpgradingEscalationQueue(EscalationQueue):
    """The same on a worker with a build id: a queue outlives every build, so it goes on in the current one.

    A class of its own, for the server refuses the behaviour from a worker without a build id.
    """

    @workflow.init
    def __init__(self, carried: RawValue = NOTHING) -> None:
        super().__init__(carried)

    @workflow.run
    async def run(self, carried: RawValue = NOTHING) -> None:
        """As the other."""
        await super().run(carried)


def why(error: ValueError) -> str:
    """What is wrong, in one line: of pydantic's many, the first."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def too_large(entry: RawValue) -> bool:
    """Whether this is more than any run sends: its header is small, and what is larger lies in the store."""
    return len(entry.payload.data) > INLINE_LIMIT
