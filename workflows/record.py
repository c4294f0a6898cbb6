"""What one run remembers: statuses, executions, values, escalations. Data and small steps, no scheduling."""

from __future__ import annotations

from collections import Counter

from graph.plan import NodePlan, Plan
from graph.snapshot import Snapshot
from graph.state import ITEM_STATUSES, Attempt, Error, Execution, NodeState, NodeStatus, Usage
from graph.values import ARGUMENTS_LIMIT, INLINE_LIMIT, JSON, Ref, Value
from graph.views import pace
from graph.wire import PACK, Entry, PackRequest, RunInfo, Scope
from workflows.calls import AttemptFailed, call
from workflows.clock import now
from workflows.ignored import Ignored

MOST_PREVIOUS = 20
"""Runs before this one that are remembered."""
REF_SIZE = 256
"""Bytes that a reference takes in an activity's arguments, at most."""


class Record:
    """The state of one run, from the moment that its graph is loaded."""

    def __init__(self, plan: Plan, graph: Ref, input: Value, run: RunInfo) -> None:
        self.plan = plan
        self.graph = graph
        self.input = input
        self.run = run
        self.nodes: dict[str, NodeState] = {node.name: NodeState() for node in plan.nodes}
        self.counts: Counter[NodeStatus] = Counter({"idle": len(plan.nodes)})
        self.running: dict[str, None] = {}
        """Active and waiting nodes, in the order they started."""
        self.values: dict[str, Value] = {}
        self.usage = Usage()
        self.escalations: list[Entry] = []
        self.child_escalations = 0
        self.child_failures = 0
        self.failures: list[str] = []
        """Nodes whose failure fails the run, in history order."""
        self.handlers: frozenset[str] = frozenset()
        """Nodes that started because something failed."""
        self.warnings: list[str] = []
        self._maps = [node.name for node in plan.nodes if node.map]
        self.waits = {node.name: node.wait for node in plan.nodes if node.wait}
        """What each `wait` node waits for."""
        self.previous: list[str] = []
        """The runs that this one goes on from, the latest first."""
        self.deadline = None if plan.deadline is None else now() + plan.deadline
        """When the run's time is over, in milliseconds since the epoch."""
        self.replies: dict[str, Value] = {}
        """Replies that came before their nodes wait for them."""
        self.ignored = Ignored()
        self.outer: Scope | None = None
        """What the node of an item's own run may read: what the map's may."""
        self._last_id = 0
        self._counted: dict[str, int] = {}
        """When each map last told how far it is."""
        self._packed: dict[tuple[str, ...], Scope] = {}

    def map_items(self) -> Counter[str]:
        """Items of all maps by status, and ``items``: how many there are."""
        items: Counter[str] = Counter()
        for name in self._maps:
            items.update(self._items(name))
        return items

    def _items(self, name: str) -> dict[str, JSON]:
        """A map's counts; none of an execution that a redrive left behind."""
        node = self.nodes[name]
        left = not node.executions or node.status in ("idle", "skipped")
        return {} if left else node.executions[-1].items or {}

    def count_items(self, name: str, counts: dict[str, JSON]) -> None:
        """Take over a map's counts from the run that works through its items."""
        if name in self._maps and name in self.running:
            execution = self.nodes[name].executions[-1]
            known = {key: counts[key] for key in ITEM_STATUSES if isinstance(counts.get(key), int)}
            execution.items = {**(execution.items or {}), **known}
            self._counted[name] = now()

    def paces(self) -> dict[str, dict[str, JSON]]:
        """How fast the maps under way are, as far as they have told."""
        found = {}
        for name in self._counted:
            if name in self.running:
                execution, items = self.nodes[name].executions[-1], self._items(name)
                done = sum(items.get(status, 0) for status in ITEM_STATUSES)
                found[name] = pace(items.get("items", 0), done, self._counted[name] - execution.attempts[-1].created)
        return found

    @property
    def at_rest(self) -> bool:
        """Whether nodes are under way, and all of them only wait. A map holds what no snapshot has."""
        return bool(self.running) and not self.counts["active"] and not any(name in self.running for name in self._maps)

    @property
    def escalated(self) -> int:
        """How many escalations this run and its child runs made."""
        return len(self.escalations) + self.child_escalations

    @property
    def failed(self) -> int:
        """How many failures this run and its child runs had: failed nodes, and failed or escalated items of maps."""
        total = self.child_failures + self.counts["failed"]
        for name in self._maps:
            node, items = self.nodes[name], self._items(name)
            if lost := items.get("failed", 0) + items.get("escalated", 0):  # in place of their node
                total += lost - (node.status == "failed")
        return total

    @property
    def statuses(self) -> dict[str, NodeStatus]:
        return {name: node.status for name, node in self.nodes.items()}

    @classmethod
    def restored(cls, snapshot: Snapshot, plan: Plan, graph: Ref, run: RunInfo) -> Record:
        """The state in a snapshot, taken over by the run ``run``."""
        record = cls(plan, graph, snapshot.input, run)
        record.nodes = {node.name: NodeState.from_snapshot(snapshot.nodes[node.name]) for node in plan.nodes}
        record.counts = Counter(node.status for node in record.nodes.values())
        record.running = {name: None for name, node in record.nodes.items() if node.status in ("active", "waiting")}
        record.values = dict(snapshot.values)
        record.usage = Usage.from_json(snapshot.usage)
        record.escalations = list(snapshot.escalations)
        record.child_escalations = snapshot.child_escalations
        record.child_failures = snapshot.child_failures
        record.failures = list(snapshot.failures)
        record.handlers = frozenset(snapshot.handlers)
        before = [] if snapshot.run == run.id else [snapshot.run]
        record.previous = [*before, *snapshot.previous][:MOST_PREVIOUS]
        record.deadline = record.deadline if snapshot.deadline is None else snapshot.deadline
        record.replies = dict(snapshot.replies)
        record.ignored = Ignored(snapshot.ignored.get("ignored"), snapshot.ignored.get("last_ignored"))
        record.warnings = list(snapshot.warnings)
        record._last_id = snapshot.last_id
        return record

    def snapshot(self, status: str, error: dict[str, JSON] | None) -> Snapshot:
        """The whole state; ``error`` is the run's, if it failed by no node's."""
        return Snapshot(
            run=self.run.id,
            graph=self.plan.name,
            fingerprint=self.plan.fingerprint,
            status=status,
            started=self.run.started,
            compiled=self.graph,
            input=self.input,
            last_id=self._last_id,
            usage=self.usage.to_json(),
            nodes={name: node.to_snapshot() for name, node in self.nodes.items()},
            values=self.values,
            escalations=self.escalations,
            child_escalations=self.child_escalations,
            child_failures=self.child_failures,
            failures=self.failures,
            handlers=sorted(self.handlers),
            previous=self.previous if self.running else [],  # else no child run is in flight
            deadline=self.deadline,
            replies=self.replies,
            ignored=self.ignored.to_json() if self.ignored.counts else {},
            warnings=self.warnings,
            error=error,
        )

    def mark(self, name: str, status: NodeStatus, reason: str | None = None) -> None:
        """Set a node's status; ``reason`` is why it was skipped, cancelled or never started."""
        state = self.nodes[name]
        self.counts[state.status] -= 1
        self.counts[status] += 1
        state.status, state.reason = status, reason
        if status in ("active", "waiting"):
            self.running[name] = None
        else:
            self.running.pop(name, None)

    def begin(self, node: NodePlan) -> Execution:
        """A new execution of ``node``, fed by those of its sources that ran."""
        self._last_id += 1
        sources = [
            {"node": name, "execution": self.nodes[name].executions[-1].id}
            for name in node.uses
            # A redrive leaves executions behind that this run didn't make: such a node may be skipped this time.
            if self.nodes[name].executions and self.nodes[name].status not in ("idle", "skipped")
        ]
        execution = Execution(self._last_id, sources)
        self.mark(node.name, "active")
        self.nodes[node.name].executions.append(execution)
        return execution

    def begin_attempt(self, execution: Execution, implementation: str) -> Attempt:
        attempt = Attempt(len(execution.attempts), implementation, "running", now())
        execution.attempts.append(attempt)
        return attempt

    def end_attempt(self, execution: Execution, attempt: Attempt, usage: Usage, failure: AttemptFailed | None) -> None:
        """Conclude an attempt: add up its usage; on failure note the error (never a value) and what ran."""
        attempt.finished = now()
        self.spend(execution, attempt, usage)
        if failure is None:
            attempt.status = "succeeded"
        else:
            attempt.status = "failed"
            attempt.error = failure.error
            attempt.learn(ran=failure.ran, input=failure.input, fuel=failure.fuel)

    def spend(self, execution: Execution, attempt: Attempt, usage: Usage) -> None:
        """Add what an attempt cost."""
        attempt.usage.add(usage)
        execution.usage.add(usage)
        self.usage.add(usage)

    def conclude(self, node: NodePlan, execution: Execution, status: NodeStatus, error: Error | None = None) -> None:
        """Conclude an execution and its node, once."""
        execution.status = status
        execution.error = error
        execution.progress = None
        self.mark(node.name, status)
        for attempt in execution.attempts:
            if attempt.status == "running":
                attempt.status = "cancelled"
                attempt.finished = now()
        if status == "failed" and not node.optional:
            self.failures.append(node.name)

    def item(self) -> dict[str, JSON]:
        """Of an item's own run: whether the item was handed over to people, and how many attempts it took."""
        (name,) = self.nodes
        attempts = sum(len(execution.attempts) for execution in self.nodes[name].executions)
        return {"escalated": any(entry.node == name for entry in self.escalations), "attempts": attempts}

    def forget(self, node: NodePlan, reason: str) -> None:
        """The guard was false: the node is skipped, and its execution never was."""
        self.nodes[node.name].executions.pop()
        self.mark(node.name, "skipped", reason)

    async def scope(self, names: list[str]) -> Scope:
        """What an activity needs to bind: values of ``names`` as they are, or packed away if together too large."""
        if self.outer is not None:
            return self.outer
        packed = self._packed.get(tuple(names))
        if packed is not None:  # an attempt before this one; values never change once there
            return packed
        nodes: dict[str, Value | None] = {}
        packs: list[Ref] = []
        held = 0
        for name in names:
            value = self.values.get(name)
            nodes[name] = value
            if value is not None:
                held += value.size if value.ref is None else REF_SIZE
            if held > ARGUMENTS_LIMIT - 4 * INLINE_LIMIT:
                large = {key: value for key, value in nodes.items() if value is not None}
                packs.append(await call(PACK, PackRequest(nodes=large), Ref, summary="pack inputs", timeout=60_000))
                nodes = {key: value for key, value in nodes.items() if value is None}
                held = 0
        scope = Scope(graph=self.graph, run=self.run, input=self.input, nodes=nodes, packs=packs)
        if packs:
            self._packed[tuple(names)] = scope
        return scope
