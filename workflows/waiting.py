"""One attempt of a `wait` node: until a time, or for a reply. It holds no place among the attempts in flight."""

from __future__ import annotations

import asyncio

from graph.durations import format_duration
from graph.plan import NodePlan
from graph.state import Attempt, Error, Progress
from graph.values import Value, digest
from graph.wire import BIND, AttemptRequest, AttemptResult, Bound
from workflows.attempts import Interruptible
from workflows.calls import AttemptFailed, call
from workflows.clock import now
from workflows.record import Record
from workflows.replies import Replies

BIND_TIMEOUT = 60_000
NULL = Value(inline=None, size=4)
"""What waiting for a time yields."""
NULL_DIGEST = digest(b"null")


class Waits:
    """Waits of one run."""

    def __init__(self, record: Record, replies: Replies, interruptible: Interruptible) -> None:
        self.record = record
        self.replies = replies
        self.interruptible = interruptible

    async def attempt(
        self, node: NodePlan, request: AttemptRequest, attempt: Attempt, progress: Progress
    ) -> AttemptResult:
        """Wait as ``node`` says. ``progress.until`` is set once it is known, so that another run can go on.

        Raises:
            AttemptFailed: its time can't be bound, or its `timeout` was over first.
            Stopped: the run is failing.
        """
        limit = attempt.created + node.timeout
        if progress.until is None:
            timeout = min(node.timeout, BIND_TIMEOUT)
            bound = await call(BIND, request, Bound, summary=f"{node.name}: bind", timeout=timeout)
            if bound.skipped:
                return AttemptResult(skipped=True)
            attempt.learn(input=bound.input)
            if bound.duration is not None:
                progress.until = now() + bound.duration
            else:
                progress.until = limit if bound.until is None else bound.until
        until = min(progress.until, limit)
        if node.wait == "reply":
            try:
                return await self.interruptible(node, lambda: self.replies.wait(node, until))
            except TimeoutError:
                raise timed_out(node, "no reply came") from None
        await self.interruptible(node, lambda: self._sleep(node, until))
        if progress.until > limit:
            raise timed_out(node, "what it waits for lies further off")
        return AttemptResult(output=NULL, digest=NULL_DIGEST)

    async def _sleep(self, node: NodePlan, until: int) -> None:
        self.record.mark(node.name, "waiting")
        if until > now():
            await asyncio.sleep((until - now()) / 1000)
        self.record.mark(node.name, "active")


def timed_out(node: NodePlan, why: str) -> AttemptFailed:
    """The failure of a wait that took longer than its `timeout`."""
    message = f"{why} within the timeout of {format_duration(node.timeout)}"
    return AttemptFailed(Error("timeout", "timeout", message, {"timeout": node.timeout}))
