"""What people answer to `wait` nodes: each reply is checked when it comes, and taken by one node, once.

A reply that is refused changes nothing, and the node waits on. One that comes before its node waits is kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from temporalio import workflow

from graph.errors import OperateError
from graph.nearest import suggest
from graph.plan import NodePlan
from graph.state import Usage
from graph.values import ARGUMENTS_LIMIT, JSON, Value, encode
from graph.views import CONCLUDED
from graph.wire import CHECK, AttemptResult, CheckRequest
from workflows.calls import AttemptFailed, call
from workflows.clock import now
from workflows.record import Record

EXAMPLE = '{"node": NAME, "value": JSON}'
CHECK_TIMEOUT = 300_000


@dataclass
class Waiter:
    """A node that waits for its reply, or has it."""

    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    reply: AttemptResult | None = None

    def take(self, reply: AttemptResult) -> None:
        self.reply = reply
        self.arrived.set()


class Replies:
    """The replies of one run. ``record.replies`` holds those that are kept for nodes that don't wait yet."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._nodes = {node.name: node for node in record.plan.nodes if node.wait == "reply"}
        self._locks = {name: asyncio.Lock() for name in self._nodes}
        self._waiters: dict[str, Waiter] = {}

    async def give(self, data: JSON) -> dict[str, JSON]:
        """Check a reply and hand it to its node, or keep it: ``{"node", "status": "taken" or "kept"}``.

        Raises:
            OperateError: it can't be meant for any node; or ``refused``: its value doesn't pass the node's checks.
        """
        name = self.addressee(data)
        # One after another, so that none is lost because another was just being checked.
        async with self._locks[name]:
            self.addressee({**data, "node": name})
            early = self.record.nodes[name].status == "idle"
            try:
                result = await self._check(name, data["value"], early=early)
            except AttemptFailed as failure:
                self._spend(name, failure.usage)
                message = f"the reply to `{name}` was refused: {failure.error.message}"
                raise OperateError("refused", message, "mend the value; the node waits on") from failure
            self._see_open(name)  # its time may have run out meanwhile
            waiter = self._waiters.get(name)
            if waiter is not None and not (early and workflow.patched("early-reply")):
                # One that has begun to wait meanwhile takes it from those that are kept, with all its checks.
                waiter.take(result)
                return {"node": name, "status": "taken"}
            if result.output is None:
                raise RuntimeError("a reply that passed its checks has a value")
            self.record.replies[name] = result.output
            return {"node": name, "status": "kept"}

    def addressee(self, data: JSON) -> str:
        """The node that a reply is for.

        Raises:
            OperateError: ``bad_request``, ``too_large``, ``ambiguous``, ``unknown_node``, ``not_waiting``.
        """
        if not isinstance(data, dict) or "value" not in data:
            raise OperateError("bad_request", f"a reply is {EXAMPLE}")
        for key in data:
            if key not in ("node", "value"):
                raise OperateError("bad_request", f"unknown key `{key}` in a reply: it is {EXAMPLE}")
        size = len(encode(data["value"]))
        if size > ARGUMENTS_LIMIT:
            hint = "put it into a file or the store and reply where it lies"
            raise OperateError("too_large", f"the reply is {size} bytes; at most {ARGUMENTS_LIMIT} fit", hint)
        name = data.get("node")
        if name is None:
            return self._only_one()
        if not isinstance(name, str) or name not in self.record.nodes:
            hint = suggest(str(name), self._nodes) if self._nodes else "no node of this graph waits for a reply"
            raise OperateError("unknown_node", f"there is no node `{name}`", hint)
        if name not in self._nodes:
            raise OperateError("not_waiting", f"the node `{name}` waits for no reply")
        self._see_open(name)
        return name

    def _only_one(self) -> str:
        """The only node that waits, for a reply that names none."""
        waiting = [name for name in self._nodes if name in self._waiters]
        if len(waiting) == 1:
            return waiting[0]
        names = " or ".join(f"`{name}`" for name in waiting or self._nodes)
        count = f"{len(waiting)} nodes wait" if waiting else "no node waits now"
        raise OperateError(
            "ambiguous", f"the reply names no node, and {count}", f"say which: {names}" if names else None
        )

    def _see_open(self, name: str) -> None:
        """See that the node can still take a reply."""
        state = self.record.nodes[name]
        if state.status in CONCLUDED:
            raise OperateError("not_waiting", f"the node `{name}` waits no more: it is {state.status}")
        waiter = self._waiters.get(name)
        if name in self.record.replies or (waiter is not None and waiter.reply is not None):
            raise OperateError("not_waiting", f"the node `{name}` has its reply already")

    async def _check(self, name: str, value: JSON | Value, *, early: bool = False) -> AttemptResult:
        """The checked reply. Before its node runs (``early``), only its schemas can be checked: other checks may name
        what isn't there yet."""
        node = self._nodes[name]
        output = value if isinstance(value, Value) else Value(inline=value, size=len(encode(value)))
        request = CheckRequest(
            scope=await self.record.scope([] if early else list(node.sources)), node=name, output=output, early=early
        )
        return await call(CHECK, request, AttemptResult, summary=f"{name}: check reply", timeout=CHECK_TIMEOUT)

    def _spend(self, name: str, usage: Usage) -> None:
        """Count what checking a reply that was refused has cost."""
        if name in self._waiters:
            execution = self.record.nodes[name].executions[-1]
            self.record.spend(execution, execution.attempts[-1], usage)

    async def wait(self, node: NodePlan, until: int) -> AttemptResult:
        """The reply to ``node``, kept or coming until then (milliseconds since the epoch).

        Raises:
            TimeoutError: there is none.
        """
        waiter = self._waiters[node.name] = Waiter()
        try:
            await self._use_kept(node, waiter)
            self.record.mark(node.name, "waiting")
            try:
                async with asyncio.timeout(max(0, until - now()) / 1000):
                    await waiter.arrived.wait()
            except TimeoutError:
                async with self._locks[node.name]:  # one that came in time may still be being checked
                    if waiter.reply is None:
                        raise
            self.record.mark(node.name, "active")
            if waiter.reply is None:
                raise RuntimeError("what arrived is a reply")
            return waiter.reply
        finally:
            del self._waiters[node.name]

    async def _use_kept(self, node: NodePlan, waiter: Waiter) -> None:
        """Take the reply that came before the node waited, if it passes the checks that had to wait for that, too."""
        async with self._locks[node.name]:
            value = self.record.replies.get(node.name)
            if value is None:
                return
            try:
                waiter.take(await self._check(node.name, value))
            except AttemptFailed as failure:
                reason = f"the reply to `{node.name}` was refused once it waited: {failure.error.message}"
                self.record.ignored.note("reply", reason)
            del self.record.replies[node.name]
