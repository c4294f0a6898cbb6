"""When nodes run: each waits for its sources, starts if their statuses allow, and settles once.

When a node fails, nothing new starts but what handles failures; attempts in flight finish and count; what was
merely waiting (delays, child runs, places in line) is broken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow

from graph.limits import IN_FLIGHT
from graph.plan import NodePlan
from graph.readiness import decide
from graph.state import Execution
from graph.views import CONCLUDED
from workflows.climbing import Climber, NodeFailed, Stopped
from workflows.continuing import Continuing
from workflows.maps import MapRun
from workflows.record import Record
from workflows.replies import Replies
from workflows.waiting import Waits

T = TypeVar("T")


class Schedule:
    """Runs all nodes of a run. ``concluded`` is called after each change that progress should show."""

    def __init__(self, record: Record, replies: Replies, continuing: Continuing, concluded: Callable[[], None]) -> None:
        self.record = record
        self.continuing = continuing
        self.concluded = concluded
        self.stopping = bool(record.failures) and record.plan.on_failure == "stop"
        self._unsettled = len(record.plan.nodes)
        self._settled = {node.name: asyncio.Event() for node in record.plan.nodes}
        self._optional = frozenset(node.name for node in record.plan.nodes if node.optional)
        self._breakable: dict[asyncio.Task[Any], str] = {}
        self._climber = Climber(
            record,
            asyncio.Semaphore(IN_FLIGHT),
            self._interruptible,
            self._ladder_stops,
            Waits(record, replies, self._interruptible),
            self._rest,
        )

    async def run(self) -> None:
        """Until every node is settled, or the run goes on in a fresh history. Cancelling it cancels all nodes, waits
        for them, and raises on."""
        lives = [asyncio.create_task(self._live(node), name=node.name) for node in self.record.plan.nodes]
        lives.append(asyncio.create_task(self._continue(), name="continuing as new"))
        try:
            # An exception that nobody foresaw must fail the workflow task, not leave the others waiting for ever.
            done, _ = await workflow.wait(lives, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            for life in lives:
                life.cancel()
            await workflow.wait(lives)
            raise
        for life in done:
            life.result()

    async def _continue(self) -> None:
        """Until every node is settled: leave a history that has grown long for a fresh one, whenever that can be."""
        while self._unsettled:
            await workflow.wait_condition(lambda: not self._unsettled or self.continuing.due())
            if self._unsettled:
                await self.continuing.go_on()

    async def _rest(self, node: NodePlan) -> None:
        """A node stands between two steps: let the run go on in a fresh history here, if it is time for that."""
        if not self.continuing.wanted():
            return
        self.record.mark(node.name, "waiting")
        if self.continuing.due():
            await workflow.wait_condition(lambda: not self.continuing.due())
        self.record.mark(node.name, "active")

    async def _live(self, node: NodePlan) -> None:
        """A node's whole life, until it is settled. One that a snapshot gave as concluded has none left."""
        state = self.record.nodes[node.name]
        if state.status in CONCLUDED:
            self._conclude(node)
            return
        if state.status != "idle":
            self.record.mark(node.name, "active")  # its delay may be over
            await self._work(node, state.executions[-1])
            self._settle(node)
            return
        for source in node.sources:
            await self._settled[source].wait()
        statuses = {source: self.record.nodes[source].status for source in node.sources}
        decision = decide(node, statuses, self._optional, self.record.handlers, self.stopping)
        if decision.action == "start":
            if decision.handles and self.stopping:
                self.record.handlers |= {node.name}
            await self._work(node, self.record.begin(node))
        else:
            self.record.mark(node.name, "skipped" if decision.action == "skip" else "idle", decision.reason)
        self._settle(node)

    def _settle(self, node: NodePlan) -> None:
        self._conclude(node)
        self.concluded()

    def _conclude(self, node: NodePlan) -> None:
        self._unsettled -= 1
        self._settled[node.name].set()

    async def _work(self, node: NodePlan, execution: Execution) -> None:
        """Bring an execution of a node to its end and conclude it."""
        self.concluded()
        try:
            if node.map:
                value = await MapRun(self._climber, node, execution).run()
            else:
                value = (await self._climber.climb(node, execution)).output
        except NodeFailed as failed:
            self.record.conclude(node, execution, "failed", failed.error)
            if not node.optional and self.record.plan.on_failure == "stop":
                self._stop()
        except Stopped:
            self.record.conclude(node, execution, "cancelled")
            self.record.mark(node.name, "cancelled", "the run was already failing")
        except asyncio.CancelledError:
            self.record.conclude(node, execution, "cancelled")
            raise
        else:
            if value is None:
                self.record.forget(node, "its guard was false")
            else:
                self.record.values[node.name] = value
                self.record.conclude(node, execution, "succeeded")

    def _stop(self) -> None:
        """The run is failing: break off whatever only waits."""
        self.stopping = True
        for task, name in self._breakable.items():
            if name not in self.record.handlers:
                task.cancel()

    def _ladder_stops(self, node: NodePlan) -> bool:
        return self.stopping and node.name not in self.record.handlers

    async def _interruptible(self, node: NodePlan, waiting: Callable[[], Awaitable[T]]) -> T:
        """Await what a failing run breaks off.

        Raises:
            Stopped: the run is failing.
        """
        task = asyncio.create_task(_await(waiting), name=f"{node.name}: waiting")
        if self._ladder_stops(node):
            task.cancel()
        self._breakable[task] = node.name
        try:
            await workflow.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await workflow.wait([task])
            raise
        finally:
            del self._breakable[task]
        if task.cancelled():
            raise Stopped
        return task.result()


async def _await(waiting: Callable[[], Awaitable[T]]) -> T:
    return await waiting()
