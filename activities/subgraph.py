"""Graphs that a map's items pass through, inside a chunk: a small executor whose semantics are those of a run.

A node starts when its sources allow, climbs its own ladder, and settles once, as in `workflows.schedule`. Pure nodes of
many items are attempted together. What settled is told in JSON, so that an item goes on within its graph wherever it
is taken up again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from activities.bulk import Bulk, Case, Settled
from activities.escalate import input_for_people
from activities.evaluate import Environment
from activities.implement import Meter
from activities.inputs import check_input
from activities.items import Standing
from activities.outputs import OUTPUT_LIMITS
from activities.perform import Outcome, Try, perform
from activities.tools import Tools
from graph.compiled import CompiledGraph, CompiledNode
from graph.durations import format_duration
from graph.errors import FAILURE_CLASSES, Failure, LoadError
from graph.ladder import Attempt as Step
from graph.ladder import Escalation, Exhausted
from graph.planning import is_pure, plan_of
from graph.readiness import decide
from graph.state import NodeStatus, Usage
from graph.values import JSON, Ref, Value, encode, trim
from graph.wire import FailureRecord, RunInfo, Scope

SLICE: Final = 0.25
"""Seconds that attempts made together may take before others of the process get their turn."""
SETTLED: Final = frozenset({"succeeded", "failed", "skipped", "cancelled"})


class Later(Exception):
    """Nothing of an item's graph can go on for ``delay`` milliseconds."""

    def __init__(self, delay: int) -> None:
        super().__init__(f"{delay} ms")
        self.delay = delay


class Pool:
    """Attempts of one pure node, for many items: gathered into few calls of the sandbox."""

    def __init__(self, tools: Tools, bulk: Bulk, spent: Callable[[int], None]) -> None:
        self._tools, self._bulk, self._spent = tools, bulk, spent
        self._waiting: list[tuple[Case, asyncio.Future[Settled | None]]] = []
        self._working: asyncio.Task[None] | None = None

    async def attempt(self, case: Case) -> Settled | None:
        """What came of it; None: it needs an attempt of its own."""
        future: asyncio.Future[Settled | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((case, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await future

    async def close(self) -> None:
        """Give the sandbox's instance back. Nobody waits any more."""
        if self._working is not None:
            self._working.cancel()
            with suppress(asyncio.CancelledError):
                await self._working
        self._bulk.close()

    async def _work(self) -> None:
        taken: list[tuple[Case, asyncio.Future[Settled | None]]] = []
        try:
            while self._waiting:
                await asyncio.sleep(0)  # for those that come to this point in the same turn
                async with self._tools.bulks:
                    taken, self._waiting = [each for each in self._waiting if not each[1].done()], []
                    settled = await self._attempt([case for case, _ in taken])
                self._waiting = taken[len(settled) :] + self._waiting
                for (_, future), outcome in zip(taken, settled, strict=False):
                    if not future.done():
                        future.set_result(outcome)
        except Exception as error:  # whoever waits is to know
            for _, future in [*taken, *self._waiting]:
                if not future.done():
                    future.set_exception(error)
            self._waiting = []
        finally:
            self._working = None

    async def _attempt(self, cases: Sequence[Case]) -> list[Settled | None]:
        settled = await self._tools.in_guest_thread(lambda cancel: self._bulk.attempt(cases, SLICE, cancel))
        self._spent(self._bulk.take_fuel())
        return settled


class ItemGraph:
    """A graph ready for items to pass through. Close it in the end."""

    def __init__(self, tools: Tools, ref: Ref, graph: CompiledGraph, spent: Callable[[Usage, int], None]) -> None:
        self.tools, self.ref, self.graph, self.spent = tools, ref, graph, spent
        self.plans = {plan.name: plan for plan in plan_of(graph).nodes}
        self.optional = frozenset(node.name for node in graph.nodes if node.optional)
        self.pools: dict[str, Pool] = {}

    @classmethod
    async def prepare(cls, tools: Tools, ref: Ref, spent: Callable[[Usage, int], None], *, shared: bool) -> ItemGraph:
        """The graph stored as ``ref``; ``shared``: its pure nodes may share instances of the sandbox. ``spent`` takes
        what attempts cost. Raises StoreError, LoadError."""
        made = cls(tools, ref, await tools.graph(ref), spent)
        own = frozenset(["input", "run", *made.plans])
        for node in made.graph.nodes if shared else []:
            env = Environment(tools, made.scope(RunInfo(id="", graph="", started="")), node.limits)
            bulk = await Bulk.prepare(node, node.implementations[0], env, own=own, guard=node.when, default="input")
            if bulk is not None:
                made.pools[node.name] = Pool(tools, bulk, lambda fuel: spent(Usage(), fuel))
        return made

    @cached_property
    def pure(self) -> bool:
        """Whether nobody outside can tell how many items pass through it at once, or how often."""
        return all(is_pure(each) for node in self.graph.nodes for each in node.implementations) and all(
            check.check != "judge" for node in self.graph.nodes for check in node.checks
        )

    async def close(self) -> None:
        """Give the sandbox's instances back. No item is within it any more."""
        for pool in self.pools.values():
            await pool.close()

    def scope(self, run: RunInfo) -> Scope:
        """What its nodes may read beside values that are at hand."""
        return Scope(graph=self.ref, run=run, input=Value())


@dataclass
class NodeAt:
    """Where one node of an item's graph stands. ``due`` and ``deadline`` in milliseconds since the epoch."""

    ladder: Standing
    status: NodeStatus = "idle"
    value: JSON = None
    size: int = 0
    error: dict[str, JSON] | None = None
    ran: str | None = None
    usage: Usage = field(default_factory=Usage)
    fuel: int = 0
    due: int | None = None
    deadline: int | None = None

    @classmethod
    def restored(cls, node: CompiledNode, data: dict[str, Any]) -> NodeAt:
        """What `to_json` told of."""
        rest = {key: data[key] for key in ("status", "value", "size", "error", "ran", "fuel", "due", "deadline")}
        return cls(Standing.restored(node, data), usage=Usage.from_json(data["usage"]), **rest)

    def to_json(self) -> dict[str, JSON]:
        """For whoever goes on from here."""
        rest = {
            "status": self.status,
            "value": self.value,
            "size": self.size,
            "error": self.error,
            "ran": self.ran,
            "usage": self.usage.to_json(),
            "fuel": self.fuel,
            "due": self.due,
            "deadline": self.deadline,
        }
        return {**self.ladder.to_json(), **rest}

    def told(self) -> dict[str, JSON]:
        """What people may want to know of it: no value."""
        parts = {
            "attempts": self.ladder.attempts,
            "ran": self.ran,
            "usage": self.usage.to_json(),
            "fuel": self.fuel,
            "error": self.error,
        }
        return {"status": self.status, **{key: value for key, value in parts.items() if value}}


class Passage:
    """One item's way through its graph. ``within`` is what `to_json` gave, of an item that is in the midst of it."""

    def __init__(
        self,
        through: ItemGraph,
        run: RunInfo,
        within: dict[str, Any] | None,
        settled: Callable[[], None],
    ) -> None:
        self._through, self._info = through, run
        self._on_settled = settled
        self._begun = within["begun"] if within else now()
        self._failures: list[str] = within["failures"] if within else []
        self.escalated: list[dict[str, JSON]] = within["escalated"] if within else []
        self._handlers = frozenset(within["handlers"] if within else ())
        self._stopping = bool(self._failures) and through.graph.on_failure == "stop"
        told = within["nodes"] if within else {}
        self.nodes = {
            node.name: NodeAt.restored(node, told[node.name]) if node.name in told else NodeAt(Standing.fresh(node))
            for node in through.graph.nodes
        }
        self._values: dict[str, JSON] = {"run": run.model_dump()}
        self.size = 0
        """Bytes of the input and of the values that are there."""
        self._texts: dict[tuple[str, tuple[str, ...]], str] = {}

    @property
    def saves(self) -> bool:
        """Whether what concluded is worth saving: what is pure does no harm when it is done again."""
        return not self._through.pure

    def to_json(self) -> dict[str, JSON]:
        """Where it stands: nodes that were begun."""
        nodes = {name: node.to_json() for name, node in self.nodes.items() if node.status != "idle"}
        return {
            "begun": self._begun,
            "failures": list(self._failures),
            "handlers": sorted(self._handlers),
            "escalated": self.escalated,
            "nodes": nodes,
        }

    def told(self) -> dict[str, JSON]:
        """What its nodes came to, without values."""
        return {name: node.told() for name, node in self.nodes.items() if node.status != "idle"}

    async def run(self, input: JSON) -> JSON:
        """The graph's output for ``input``.

        Raises:
            Failure: ``child_failed`` with the failed node's code, ``timeout``.
            Later: all that can go on waits for a delay.
            StoreError: the store is down.
        """
        graph = self._through.graph
        try:
            input = check_input(graph, input)
        except LoadError as error:
            raise child_failed(error.code, error.message, {"message": error.message, "code": error.code}) from None
        self._values["input"] = input
        self.size = len(encode(input))
        for name, node in self.nodes.items():
            if node.status in SETTLED:
                self._keep(name, node)
        limit = graph.deadline
        try:
            async with asyncio.timeout(None if limit is None else max(0, self._begun + limit - now()) / 1000):
                await self._run()
                if not self._failures:
                    return await self._output()
        except TimeoutError:
            message = f"the graph did not end within its deadline of {format_duration(limit or 0)}"
            raise child_failed("timeout", message, {"code": "timeout", "message": message}) from None
        first = self._failures[0]
        why = self.nodes[first].error or {}
        raise child_failed(str(why.get("code")), f"node `{first}`: {why.get('message')}", {**why, "node": first})

    async def _run(self) -> None:
        """Until every node is settled or waits for a delay. Raises Later, StoreError."""
        running: dict[asyncio.Task[None], str] = {}
        try:
            while True:
                ready = self._ready(running.values())
                if len(ready) == 1 and not running:
                    await self._work(ready[0])
                    continue
                for node in ready:
                    running[asyncio.create_task(self._work(node))] = node.name
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del running[task]
                    task.result()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        due = [node.due for node in self.nodes.values() if node.status == "waiting" and node.due is not None]
        if due:
            raise Later(max(1, min(due) - now()))

    def _ready(self, running: Sequence[str] | Any) -> list[CompiledNode]:
        """The nodes that may be worked on now; those that never will be are settled. Cheap, for it is asked often."""
        ready, under_way = [], set(running)
        changed = True
        while changed:
            changed = False
            for node in self._through.graph.nodes:
                at = self.nodes[node.name]
                if node.name in under_way:
                    continue
                if at.status in ("active", "waiting"):
                    if self._stopping and node.name not in self._handlers and at.status == "waiting":
                        self._settle(node, "cancelled")
                        changed = True
                    elif at.status == "active" or at.due is None or at.due <= now():
                        under_way.add(node.name)
                        ready.append(node)
                    continue
                if at.status != "idle" or node.name in self._values:
                    continue
                plan = self._through.plans[node.name]
                statuses = {source: self.nodes[source].status for source in plan.sources}
                if not all(source in self._values for source in statuses):
                    continue
                decision = decide(plan, statuses, self._through.optional, self._handlers, self._stopping)
                if decision.action != "start":
                    self._settle(node, "skipped" if decision.action == "skip" else "idle")
                    changed = True
                    continue
                if decision.handles and self._stopping:
                    self._handlers |= {node.name}
                at.status = "active"
                if node.limits.deadline is not None:
                    at.deadline = now() + node.limits.deadline
                under_way.add(node.name)
                ready.append(node)
        return ready

    def _settle(self, node: CompiledNode, status: NodeStatus) -> None:
        at = self.nodes[node.name]
        at.status, at.due = status, None
        if status == "failed" and not node.optional:
            self._failures.append(node.name)
            self._stopping = self._stopping or self._through.graph.on_failure == "stop"
        self._keep(node.name, at)
        if self.saves:
            self._on_settled()

    def _keep(self, name: str, node: NodeAt) -> None:
        """A node is settled: others may read its value."""
        self._values[name] = node.value
        self.size += node.size

    async def _work(self, node: CompiledNode) -> None:
        """Attempt a node until it settles or must wait. Raises StoreError."""
        at = self.nodes[node.name]
        at.status, at.due = "active", None
        try:
            async with asyncio.timeout(None if at.deadline is None else max(0, at.deadline - now()) / 1000):
                while True:
                    outcome = await self._attempt(node, at)
                    if outcome.failure is None:
                        at.value, at.size = outcome.output, len(outcome.data)
                        self._settle(node, "skipped" if outcome.skipped else "succeeded")
                        return
                    record, code, following = await at.ladder.failed(outcome, self._through.tools.store)
                    at.error = error_of(record, code)
                    if self._ladder_stops(node):
                        following = Exhausted()
                    if not isinstance(following, Step):
                        break
                    if following.delay:
                        at.status, at.due = "waiting", now() + following.delay
                        return
        except TimeoutError:
            limit = format_duration(node.limits.deadline or 0)
            record = FailureRecord(
                failure_class="timeout", message=f"`{node.name}` did not conclude within its deadline of {limit}"
            )
            code, following = "timeout", at.ladder.climb.give_up()
            at.error = error_of(record, code)
        if isinstance(following, Escalation):
            await self._escalate(node, at, record, code, following.queue)
        self._settle(node, "failed")

    def _ladder_stops(self, node: CompiledNode) -> bool:
        return self._stopping and node.name not in self._handlers

    async def _attempt(self, node: CompiledNode, at: NodeAt) -> Outcome:
        """One attempt: with those of other items, if it can be, else or if that goes wrong by itself."""
        step, env = at.ladder.next, self._environment(node)
        first = at.ladder.attempts == 0
        implementation = node.implementations[step.implementation]
        pool = self._through.pools.get(node.name)
        if pool is not None and first:
            settled = await pool.attempt(Case(self._values, self.size))
            if settled is not None:
                at.ladder.attempts += 1
                at.ran = implementation.id
                return Outcome(Meter(), settled.text is None, settled.output, settled.text or b"")
        attempt = Try(step.implementation, at.ladder.feedback, step.fuel, step.memory)
        outcome = await perform(node, env, attempt, guard=step.implementation == 0, default="input")
        at.ladder.attempts += 1
        at.ran = outcome.meter.ran or implementation.id
        at.usage.add(outcome.meter.usage)
        at.fuel += outcome.meter.fuel
        self._through.spent(outcome.meter.usage, outcome.meter.fuel)
        return outcome

    def _environment(self, node: CompiledNode) -> Environment:
        through = self._through
        scope = through.scope(self._info)
        return Environment(through.tools, scope, node.limits, fetched=self._values, texts=self._texts)

    async def _escalate(self, node: CompiledNode, at: NodeAt, record: FailureRecord, code: str, queue: str) -> None:
        input = await input_for_people(node, self._environment(node))
        told: dict[str, JSON] = {
            "node": node.name,
            "queue": queue,
            "code": code,
            "reason": record.message,
            "check": record.check,
            "attempts": at.ladder.attempts,
            "rejected": record.rejected.model_dump() if record.rejected else None,
            "history": at.ladder.history,
        }
        if input is not None:
            told |= {"input": input.inline} if input.ref is None else {"input_ref": input.ref.model_dump()}
        self.escalated.append(told)

    async def _output(self) -> JSON:
        graph = self._through.graph
        if graph.output is not None:
            scope = self._through.scope(self._info)
            env = Environment(self._through.tools, scope, OUTPUT_LIMITS, fetched=self._values, texts=self._texts)
            return await env.bind(graph.output)
        values = {name: self._values[name] for name in graph.output_uses if self.nodes[name].status == "succeeded"}
        return values if len(graph.output_uses) > 1 else next(iter(values.values()), None)


def error_of(record: FailureRecord, code: str) -> dict[str, JSON]:
    """A failure as an error of the state."""
    details = {"details": record.details} if record.details else {}
    return {"code": code, "failure_class": record.failure_class, "message": record.message, **details}


def child_failed(code: str, message: str, error: dict[str, JSON]) -> Failure:
    """The failure of an item whose graph failed: the author's code is kept."""
    own = code if code and code not in FAILURE_CLASSES else None
    return Failure("child_failed", trim(f"the graph failed: {message}"), code=own, details={"error": error})


def now() -> int:
    """Milliseconds since the epoch."""
    return int(time.time() * 1000)
