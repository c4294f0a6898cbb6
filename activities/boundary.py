"""The boundary with Temporal: heartbeats, worker shutdown, and errors as Temporal carries them.

One interceptor does it for every activity, users' own included.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from activities.store import StoreError
from graph.errors import Failure, FerrataError, LoadError
from graph.values import ARGUMENTS_LIMIT, trim, within_limit
from graph.wire import WORKER_SHUTDOWN, FailureRecord

BEAT = 0.5
"""Seconds between heartbeats; short activities end before the first."""


def as_application_error(code: str, record: FailureRecord) -> ApplicationError:
    """A failed attempt as it ends its activity: the workflow decides what comes next, so Temporal doesn't retry."""
    record.message = trim(record.message)
    record.details = within_limit(record.details)
    return ApplicationError(
        record.message,
        record.model_dump(),
        type=code,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


class Boundary(Interceptor):
    """Install it on the worker that runs activities."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next)


class _Outbound(ActivityOutboundInterceptor):
    """Remembers the last heartbeat's details, so that ours repeat a user's instead of erasing them."""

    details: tuple[Any, ...] = ()

    def heartbeat(self, *details: Any) -> None:
        if details:
            self.details = details
        super().heartbeat(*self.details)


class _Inbound(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._outbound = _Outbound(outbound)
        super().init(self._outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        beating = asyncio.create_task(beat(self._outbound)) if activity.info().heartbeat_timeout else None
        try:
            return await super().execute_activity(input)
        except (asyncio.CancelledError, CancelledError):  # the second by an activity in a thread
            if worker_stops():
                raise ApplicationError(
                    "the worker is shutting down",
                    type=WORKER_SHUTDOWN,
                    non_retryable=True,
                    category=ApplicationErrorCategory.BENIGN,
                ) from None
            raise
        except FerrataError as error:
            raise translated(error) from None  # what it says is all there is to say
        except Exception as error:  # whatever a user's activity raised
            if size_of(error) > ARGUMENTS_LIMIT:
                raise shortened(error) from None
            raise
        finally:
            if beating is not None:
                beating.cancel()
                with suppress(asyncio.CancelledError):
                    await beating


def worker_stops() -> bool:
    """Whether the activity was cancelled because its worker is shutting down, and not because anybody asked for it."""
    details = activity.cancellation_details()
    return activity.is_worker_shutdown() and not (details and details.cancel_requested)


async def beat(outbound: ActivityOutboundInterceptor) -> None:
    """Heartbeat for ever: cancellation and pause reach an activity by the answers.

    Not by ``activity.heartbeat()``: for an activity in a thread, that waits for the event loop, which this runs on.
    """
    while True:
        await asyncio.sleep(BEAT)
        outbound.heartbeat()


def size_of(error: BaseException | None) -> int:
    """About how many characters an error takes as Temporal carries it: its whole chain of causes."""
    size, seen = 0, set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        details = error.details if isinstance(error, ApplicationError) else ()
        size += len(str(error)) + sum(len(repr(part)) for part in details)
        error = error.__cause__ or error.__context__
    return size


def shortened(error: Exception) -> ApplicationError:
    """An error that is too large to carry: without its details and causes. As it is, it would never arrive, and the
    activity would count as lost."""
    message = trim(str(error))
    if not isinstance(error, ApplicationError):
        return ApplicationError(message, type=type(error).__name__)
    return ApplicationError(message, type=error.type, non_retryable=error.non_retryable, category=error.category)


def translated(error: FerrataError) -> ApplicationError:
    """One of our errors as Temporal carries it. Only a store that is down for now is worth Temporal's retry."""
    if isinstance(error, StoreError) and error.transient:
        return ApplicationError(error.message, type=error.code)
    details: dict[str, Any] = {}
    if isinstance(error, LoadError):
        details = {"problems": [problem.model_dump(exclude_none=True) for problem in error.problems]}
    failure_class = error.failure_class if isinstance(error, Failure) else "invalid_input"
    record = FailureRecord(
        failure_class=failure_class,
        message=error.message,
        details=error.details if isinstance(error, Failure) else details,
    )
    return as_application_error(error.code, record)
