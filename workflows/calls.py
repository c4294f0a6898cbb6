"""Calling one activity: what is a loss, what is a failure, what is a cancellation.

A *loss* (the worker died, a heartbeat was missed) is retried by the activity's own policy and costs no rung. A
*failure* comes back as :class:`AttemptFailed` and climbs. A worker that shuts down says so, and the same request
is scheduled again at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError, TimeoutType

from graph.state import Error, Usage
from graph.values import CODE_LIMIT, JSON, Ref, trim, within_limit
from graph.wire import WORKER_SHUTDOWN, FailureRecord
from workflows.requests import read_json

MOST_LOSSES = 10
HEARTBEAT = timedelta(seconds=5)
GRACE = timedelta(hours=1)
"""Added to an attempt's own timeout, which the activity enforces itself, off the clock while it waits for a place among
its process's scripts: the server's timeout is only a backstop. A worker that is lost is noticed by its heartbeat."""
LOSSES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=1.5,
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=MOST_LOSSES + 1,
    non_retryable_error_types=["NotFoundError"],
)
ONCE = RetryPolicy(maximum_attempts=1, non_retryable_error_types=["NotFoundError"])
OVERSIZED = "PayloadsTooLarge"
"""Type of the error that Temporal puts in place of a result that it can't carry."""

Result = TypeVar("Result", bound=BaseModel)


class AttemptFailed(Exception):
    """One attempt failed: the error as the state shows it, and what the attempt cost."""

    def __init__(self, error: Error, record: FailureRecord | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.usage = Usage.from_json(record.usage if record else None)
        self.fuel = record.fuel if record else None
        self.ran = record.ran if record else None
        self.input = record.input if record else None
        self.rejected: Ref | None = record.rejected if record else None


async def call(name: str, request: BaseModel, result: type[Result], *, summary: str, timeout: int | None) -> Result:
    """Run the activity ``name`` of our own; ``timeout`` in milliseconds (None: a week).

    Raises:
        AttemptFailed: it failed, or was lost more than `MOST_LOSSES` times.
        asyncio.CancelledError: the run (or this call) was cancelled.
    """
    limit = timedelta(days=7) if timeout is None else timedelta(milliseconds=timeout) + GRACE
    while True:
        done: RawValue | None = None
        try:
            done = await workflow.execute_activity(
                name,
                request,
                result_type=RawValue,
                start_to_close_timeout=limit,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=LOSSES,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=summary,
            )
        except ActivityError as error:
            if not shut_down(error):
                raise_failure(error)
        check_cancelled()
        if done is not None:
            return read_result(name, done, result)


def read_result(name: str, raw: RawValue, result: type[Result]) -> Result:
    """What an activity of ours gave. Somebody else may have completed it by hand, and with anything: read by the SDK,
    that would fail the workflow task for ever.

    Raises:
        AttemptFailed: it is no result of this activity.
    """
    try:
        return result.model_validate_json(raw.payload.data)
    except ValidationError as error:
        message = f"activity `{name}` was completed with what is no result of it"
        raise AttemptFailed(Error("invalid_output", "invalid_output", message)) from error


async def call_foreign(name: str, args: list[JSON], *, task_queue: str | None, summary: str, timeout: int) -> JSON:
    """Run any Temporal activity once; ``timeout`` in milliseconds. Missed heartbeats are retried and cost no rung.

    Raises:
        AttemptFailed, asyncio.CancelledError: as `call`.
    """
    losses = 0
    while True:
        try:
            raw = await workflow.execute_activity(
                name,
                args=args,
                result_type=RawValue,
                task_queue=task_queue,
                start_to_close_timeout=timedelta(milliseconds=timeout),
                # Only our own workers beat for every activity; another queue's may never beat at all.
                heartbeat_timeout=HEARTBEAT if task_queue is None else None,
                retry_policy=ONCE,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=summary,
            )
        except ActivityError as error:
            if is_loss(error) and losses < MOST_LOSSES:
                losses += 1
            elif not shut_down(error):
                raise_failure(error, foreign=True)
            check_cancelled()
            continue
        check_cancelled()
        try:
            return read_json(raw)
        except ValueError as error:
            message = trim(f"what activity `{name}` returned can't be read: {error}")
            raise AttemptFailed(Error("invalid_output", "invalid_output", message)) from error


def check_cancelled() -> None:
    """Raise CancelledError if this task was asked to stop, though what it awaited ended in another way: an activity
    that was just done, or that ignores it. Temporal's SDK then says nothing, and the task would go on."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def shut_down(error: ActivityError) -> bool:
    """Whether the activity ended because its worker was stopping."""
    cause = error.cause
    return isinstance(cause, ApplicationError) and cause.type == WORKER_SHUTDOWN and not cause.details


def is_loss(error: ActivityError) -> bool:
    """Whether nobody knows what became of the activity: its worker stopped beating."""
    return isinstance(error.cause, TimeoutError) and error.cause.type == TimeoutType.HEARTBEAT


def raise_failure(error: ActivityError, *, foreign: bool = False) -> NoReturn:
    """Raise what an activity's end means for the attempt."""
    cause = error.cause
    if isinstance(cause, CancelledError):
        raise asyncio.CancelledError from error
    if isinstance(cause, ApplicationError):
        if (failure := application_failure(cause)) is not None:
            raise failure from error
        if cause.type == OVERSIZED:
            message = trim(f"`{error.activity_type}` returned more than Temporal can carry: {cause.message}")
            raise AttemptFailed(Error("too_large", "too_large", message)) from error
        failure_class = "activity_error" if foreign else "lost"
        code = trim(cause.type or failure_class, CODE_LIMIT)
        details = within_limit({"details": list(cause.details)}) if foreign and cause.details else {}
        raise AttemptFailed(Error(code, failure_class, trim(cause.message), details)) from error
    if is_loss(error):
        message = f"the worker was lost {MOST_LOSSES + 1} times during this attempt"
        raise AttemptFailed(Error("lost", "lost", message)) from error
    raise AttemptFailed(Error("timeout", "timeout", trim(str(cause or error)))) from error


def application_failure(error: ApplicationError) -> AttemptFailed | None:
    """The failure that an error of ours tells of; None if it isn't one of ours."""
    record = failure_record(error)
    return None if record is None else recorded_failure(error.type or record.failure_class, record)


def recorded_failure(code: str, record: FailureRecord) -> AttemptFailed:
    """The failure that a record with this code tells of."""
    return AttemptFailed(Error(code, record.failure_class, record.message, record.details), record)


def failure_record(error: ApplicationError) -> FailureRecord | None:
    """The record in an attempt's error; None if the error isn't one of ours."""
    details = error.details[0] if error.details else None
    if isinstance(details, dict) and "failure_class" in details:
        with suppress(ValidationError):  # a user's activity, or who failed ours by hand, may give what only looks so
            return FailureRecord.model_validate(details)
    return None
