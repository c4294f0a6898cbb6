"""One execution of a node: attempts and rungs until it concludes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import workflow

from graph.durations import format_duration
from graph.ladder import Attempt as Step
from graph.ladder import Climb, Escalation
from graph.plan import NodePlan
from graph.state import Ending, Error, Execution, Progress, Usage
from graph.values import JSON, Ref, trim
from graph.wire import ESCALATE, AttemptRequest, AttemptResult, Entry, EscalateRequest, Feedback
from workflows import logs
from workflows.attempts import Below, Child, Interruptible, make_attempt
from workflows.calls import AttemptFailed, call, check_cancelled
from workflows.clock import now
from workflows.record import Record
from workflows.stretches import Stretches
from workflows.waiting import Waits


class Stopped(Exception):
    """The run is failing: this node's ladder goes no further."""


class NodeFailed(Exception):
    """The node used up its ladder."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class Climber:
    """Climbs nodes' ladders. ``slots`` bounds attempts in flight; ``ladder_stops`` says whether the failing run
    ends this node's ladder; ``rest`` is awaited where a node stands between two steps, so that the run may go on in a
    fresh history."""

    def __init__(
        self,
        record: Record,
        slots: asyncio.Semaphore,
        interruptible: Interruptible,
        ladder_stops: Callable[[NodePlan], bool],
        waits: Waits,
        rest: Callable[[NodePlan], Awaitable[None]],
    ) -> None:
        self.record = record
        self.slots = slots
        self.interruptible = interruptible
        self.ladder_stops = ladder_stops
        self.waits = waits
        self.stretches = Stretches(record)
        self.rest = rest

    async def climb(self, node: NodePlan, execution: Execution) -> AttemptResult:
        """Attempt ``node`` until an attempt succeeds (or its guard skips it).

        Raises:
            NodeFailed: no rung is left, or the last one escalated.
            Stopped: the run is failing and the node was between attempts.
        """
        progress = execution.progress = execution.progress or first_step(node)
        ladder = Climb.from_json(node.ladder, progress.standing)
        await self.resume_ending(node, execution)
        while True:
            try:
                async with asyncio.timeout(None if progress.deadline is None else (progress.deadline - now()) / 1000):
                    if progress.due is not None and progress.due > now():
                        await self.delay(node, progress.due - now())
                    return await self._attempt(node, execution, progress)
            except AttemptFailed as caught:
                failure = caught
                check_cancelled()
                if self.ladder_stops(node):
                    raise NodeFailed(failure.error) from failure
                step = ladder.next(failure.error.failure_class, failure.error.code)
            except TimeoutError:
                failure = self._past_deadline(node, execution)
                step = ladder.give_up()
            if isinstance(step, Escalation):
                await self.escalate(node, execution, failure, step.queue)
            if not isinstance(step, Step):
                raise NodeFailed(failure.error)
            progress = execution.progress = Progress(
                standing=ladder.to_json(),
                step=vars(step),
                index=len(execution.attempts),
                feedback=feedback_of(failure) if step.feedback else None,
                due=now() + step.delay if step.delay else None,
                deadline=progress.deadline,
            )

    async def resume_ending(self, node: NodePlan, execution: Execution) -> None:
        """Go on with what was being escalated in a snapshot, if anything was. Raises NodeFailed if so."""
        ending = execution.progress.ending if execution.progress else None
        error = Error.from_json(ending.error) if ending else None
        if ending is None or error is None:
            return
        failure = AttemptFailed(error)
        failure.rejected = Ref.model_validate(ending.rejected) if ending.rejected else None
        await self.escalate(node, execution, failure, ending.queue)
        raise NodeFailed(error)

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

    async def _attempt(self, node: NodePlan, execution: Execution, progress: Progress) -> AttemptResult:
        if node.kinds[progress.step["implementation"]] == "wait":
            if self.ladder_stops(node):
                raise Stopped
            return await self._make(node, execution, progress)
        if len(execution.attempts) > progress.index:  # in flight in a snapshot: it counts, even if the run is failing
            await self.slots.acquire()
        else:
            await self.rest(node)
            await self.take_slot(node)
        try:
            return await self._make(node, execution, progress)
        finally:
            self.slots.release()

    async def _make(self, node: NodePlan, execution: Execution, progress: Progress) -> AttemptResult:
        """Make the attempt that ``progress`` says, or go on with it."""
        step = Step(**progress.step)
        before = self.record.previous if len(execution.attempts) > progress.index else []
        if len(execution.attempts) == progress.index:
            self.record.begin_attempt(execution, node.implementations[step.implementation])
        attempt = execution.attempts[progress.index]
        place = f"/{node.name}/{execution.id}.{attempt.index}"
        child = Child(f"{self.record.run.id}{place}", tuple(f"{run}{place}" for run in before))
        below = Below()
        try:
            request = AttemptRequest(
                scope=await self.record.scope(list(node.sources)),
                node=node.name,
                implementation=step.implementation,
                feedback=Feedback(**progress.feedback) if progress.feedback else None,
                fuel=step.fuel,
                memory=step.memory,
            )
            if node.pure and step.rung == "first":
                result = await self.stretches.attempt(node, request)
            elif node.kinds[step.implementation] == "wait":
                result = await self.waits.attempt(node, request, attempt, progress)
            else:
                result = await make_attempt(
                    node, request, attempt, child, below, progress, interruptible=self.interruptible, rest=self.rest
                )
        except AttemptFailed as failure:
            self.record.end_attempt(execution, attempt, failure.usage, failure)
            raise
        finally:
            self.record.child_escalations += below.escalations
            self.record.child_failures += below.failures
        attempt.learn(ran=result.ran, input=result.input, fuel=result.fuel)
        attempt.output = result.digest
        self.record.end_attempt(execution, attempt, Usage.from_json(result.usage), None)
        return result

    def _past_deadline(self, node: NodePlan, execution: Execution) -> AttemptFailed:
        """The node took longer than its deadline: the attempt in flight, if any, failed by that."""
        failure = past_deadline(node)
        if execution.attempts and execution.attempts[-1].status == "running":
            self.record.end_attempt(execution, execution.attempts[-1], Usage(), failure)
        return failure

    async def escalate(self, node: NodePlan, execution: Execution, failure: AttemptFailed, queue: str) -> None:
        """Hand the node over to people, with its reason, its input and its last rejected output."""
        if execution.progress is not None:
            rejected = failure.rejected.model_dump(mode="json") if failure.rejected else None
            execution.progress.ending = Ending(failure.error.to_json(), queue, rejected)
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


def first_step(node: NodePlan) -> Progress:
    """Where a new execution stands."""
    deadline = None if node.deadline is None else now() + node.deadline
    return Progress(Climb(node.ladder).to_json(), vars(Step("first", 0)), 0, deadline=deadline)


def feedback_of(failure: AttemptFailed) -> dict[str, JSON]:
    """What the next attempt is told of a failed one."""
    return Feedback(code=failure.error.code, reason=failure.error.message, rejected=failure.rejected).model_dump(
        mode="json"
    )


def past_deadline(node: NodePlan) -> AttemptFailed:
    """The failure of a node that took longer than its deadline."""
    message = f"`{node.name}` did not conclude within its deadline of {format_duration(node.deadline or 0)}"
    return AttemptFailed(Error("timeout", "timeout", message, {"deadline": node.deadline}))
