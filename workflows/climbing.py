"""One execution of a node: attempts and rungs until it concludes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow

from graph.durations import format_duration
from graph.ladder import Attempt as Step
from graph.ladder import Climb, Escalation
from graph.plan import NodePlan
from graph.state import Error, Execution, Usage
from graph.values import trim
from graph.wire import ESCALATE, AttemptRequest, AttemptResult, Entry, EscalateRequest, Feedback
from workflows import logs
from workflows.attempts import Below, Interruptible, make_attempt
from workflows.calls import AttemptFailed, call, check_cancelled
from workflows.record import Record, now


class Stopped(Exception):
    """The run is failing: this node's ladder goes no further."""


class NodeFailed(Exception):
    """The node used up its ladder."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class Climber:
    """Climbs nodes' ladders. ``slots`` bounds attempts in flight; ``ladder_stops`` says whether the failing run
    ends this node's ladder."""

    def __init__(
        self,
        record: Record,
        slots: asyncio.Semaphore,
        interruptible: Interruptible,
        ladder_stops: Callable[[NodePlan], bool],
    ) -> None:
        self.record = record
        self.slots = slots
        self.interruptible = interruptible
        self.ladder_stops = ladder_stops

    async def climb(self, node: NodePlan, execution: Execution) -> AttemptResult:
        """Attempt ``node`` until an attempt succeeds (or its guard skips it).

        Raises:
            NodeFailed: no rung is left, or the last one escalated.
            Stopped: the run is failing and the node was between attempts.
        """
        ladder = Climb(node.ladder)
        step = Step("first", 0)
        feedback: Feedback | None = None
        deadline = None if node.deadline is None else workflow.time() + node.deadline / 1000
        while True:
            try:
                async with asyncio.timeout(None if deadline is None else deadline - workflow.time()):
                    if step.delay:
                        await self.delay(node, step.delay)
                    return await self._attempt(node, execution, step, feedback)
            except AttemptFailed as caught:
                failure = caught
                check_cancelled()
                if self.ladder_stops(node):
                    raise NodeFailed(failure.error) from failure
                next_step = ladder.next(failure.error.failure_class, failure.error.code)
            except TimeoutError:
                failure = self._past_deadline(node, execution)
                next_step = ladder.give_up()
            if isinstance(next_step, Escalation):
                await self.escalate(node, execution, failure, next_step.queue)
            if not isinstance(next_step, Step):
                raise NodeFailed(failure.error)
            step = next_step
            feedback = (
                Feedback(code=failure.error.code, reason=failure.error.message, rejected=failure.rejected)
                if step.feedback
                else None
            )

    async def delay(self, node: NodePlan, milliseconds: int) -> None:
        self.record.mark(node.name, "waiting")
        await self.interruptible(node, lambda: asyncio.sleep(milliseconds / 1000))
        self.record.mark(node.name, "active")

    async def take_slot(self, node: NodePlan) -> None:
        """Wait for a place among the attempts in flight; a failing run breaks that off. Raises Stopped."""
        if not self.slots.locked() and not self.ladder_stops(node):
            await self.slots.acquire()
            return
        taken = False

        async def take() -> None:
            nonlocal taken
            await self.slots.acquire()
            taken = True

        try:
            await self.interruptible(node, take)
        except asyncio.CancelledError:
            if taken:  # in the very moment that a deadline passed
                self.slots.release()
            raise

    async def _attempt(
        self, node: NodePlan, execution: Execution, step: Step, feedback: Feedback | None
    ) -> AttemptResult:
        await self.take_slot(node)
        try:
            attempt = self.record.begin_attempt(execution, node.implementations[step.implementation])
            child_id = f"{self.record.run.id}/{node.name}/{execution.id}.{attempt.index}"
            below = Below()
            try:
                request = AttemptRequest(
                    scope=await self.record.scope(list(node.sources)),
                    node=node.name,
                    implementation=step.implementation,
                    feedback=feedback,
                    fuel=step.fuel,
                    memory=step.memory,
                )
                result = await make_attempt(node, request, child_id, self.interruptible, below)
            except AttemptFailed as failure:
                self.record.end_attempt(execution, attempt, failure.usage, failure)
                raise
            finally:
                self.record.child_escalations += below.escalations
                self.record.child_failures += below.failures
            attempt.fuel, attempt.input, attempt.output = result.fuel, result.input, result.digest
            self.record.end_attempt(execution, attempt, Usage.from_json(result.usage), None)
            return result
        finally:
            self.slots.release()

    def _past_deadline(self, node: NodePlan, execution: Execution) -> AttemptFailed:
        """The node took longer than its deadline: the attempt in flight, if any, failed by that."""
        failure = past_deadline(node)
        if execution.attempts and execution.attempts[-1].status == "running":
            self.record.end_attempt(execution, execution.attempts[-1], Usage(), failure)
        return failure

    async def escalate(self, node: NodePlan, execution: Execution, failure: AttemptFailed, queue: str) -> None:
        """Hand the node over to people, with its reason, its input and its last rejected output."""
        check = failure.error.details.get("check")
        entry = Entry(
            id=str(workflow.uuid4()),
            run=self.record.run.id,
            node=node.name,
            code=failure.error.code,
            reason=failure.error.message,
            check=check if isinstance(check, str) else None,
            rejected=failure.rejected,
            attempts=len(execution.attempts),
            at=now(),
        )
        await self.enqueue(node, entry, queue)

    async def enqueue(self, node: NodePlan, entry: Entry, queue: str) -> None:
        """Complete an entry and send it to its queue; keep it in the run."""
        try:
            request = EscalateRequest(
                scope=await self.record.scope(list(node.sources)),
                entry=entry,
                queue=queue,
                task_queue=workflow.info().task_queue,
            )
            entry = await call(ESCALATE, request, Entry, summary=f"{node.name}: escalate", timeout=None)
        except AttemptFailed as failure:
            check_cancelled()
            # The run still answers for it, though the queue never heard of it.
            entry.reason = trim(f"{entry.reason} (not handed to queue `{queue}`: {failure.error.message})")
        self.record.escalations.append(entry)
        logs.escalated(entry, queue)


def past_deadline(node: NodePlan) -> AttemptFailed:
    """The failure of a node that took longer than its deadline."""
    message = f"`{node.name}` did not conclude within its deadline of {format_duration(node.deadline or 0)}"
    return AttemptFailed(Error("timeout", "timeout", message, {"deadline": node.deadline}))
