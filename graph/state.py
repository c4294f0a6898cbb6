"""What a run knows about itself: executions, attempts, errors, usage. Plain data, no rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from graph.values import JSON

NodeStatus = Literal["idle", "active", "waiting", "succeeded", "failed", "skipped", "cancelled"]
AttemptStatus = Literal["running", "succeeded", "failed", "cancelled"]
ITEM_STATUSES: Final = ("succeeded", "failed", "escalated", "skipped")
"""What becomes of a map's items."""
MOST_RAN: Final = 10
"""Implementations that a map's attempt names, the first ones: which model answers may differ from item to item."""


@dataclass
class Usage:
    """Tokens and cost, added up over attempts, failed ones and judges included. ``cost`` in the models' currency."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cost: float = 0.0

    def add(self, other: Usage) -> None:
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.total_tokens += other.total_tokens
        self.cost += other.cost

    def to_json(self) -> dict[str, JSON]:
        return {key: value for key, value in vars(self).items() if value}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> Usage:
        return cls(**(data or {}))


@dataclass
class Error:
    """Why an attempt or a node failed; never a value."""

    code: str
    failure_class: str
    message: str
    details: dict[str, JSON] = field(default_factory=dict)

    def to_json(self) -> dict[str, JSON]:
        return {"code": self.code, "class": self.failure_class, "message": self.message, "details": self.details}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> Error | None:
        """What `to_json` gave; None for None."""
        return cls(data["code"], data["class"], data["message"], data["details"]) if data else None


@dataclass
class Attempt:
    """One attempt. Times in milliseconds since the epoch, from workflow time."""

    index: int
    implementation: str
    status: AttemptStatus
    created: int
    finished: int | None = None
    error: Error | None = None
    usage: Usage = field(default_factory=Usage)
    fuel: int | None = None
    input: str | None = None
    """Digest of the attempt's input; of a map, of its items."""
    output: str | None = None
    """Digest of the accepted output."""
    ran: str | None = None
    """What ran, where that says more than `implementation`; of a map, all that its items ran on."""

    def learn(self, *, ran: str | None = None, input: str | None = None, fuel: int | None = None) -> None:
        """Take over what is known of it by now. What isn't told (None) stays as it is."""
        if ran is not None and ran != self.implementation:
            self.ran = ran
        self.input = self.input if input is None else input
        self.fuel = self.fuel if fuel is None else fuel

    def to_json(self) -> dict[str, JSON]:
        data: dict[str, JSON] = {
            "index": self.index,
            "implementation": self.implementation,
            "status": self.status,
            "created": self.created,
            "finished": self.finished,
            "error": self.error.to_json() if self.error else None,
            "usage": self.usage.to_json(),
            "fuel": self.fuel,
            "input": self.input,
            "output": self.output,
        }
        return data if self.ran is None else {**data, "ran": self.ran}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Attempt:
        """What `to_json` gave."""
        return cls(**{**data, "error": Error.from_json(data["error"]), "usage": Usage.from_json(data["usage"])})


@dataclass
class Ending:
    """The failure that a node's ladder ended with while it is handed over to ``queue``. ``rejected`` is a `Ref`'s
    JSON."""

    error: dict[str, JSON]
    queue: str
    rejected: dict[str, JSON] | None


@dataclass
class Loop:
    """Where a loop stands between two rounds: the next ``round``, what it is given (``value``, a `Value`'s JSON), the
    digest of the first ``input``, and what its child runs came to so far (``below``: usage, escalations, failures)."""

    round: int
    value: dict[str, JSON]
    input: str | None
    below: dict[str, JSON]


@dataclass
class Progress:
    """How far an execution got up its ladder: enough to go on from there in another run. Times in milliseconds since
    the epoch.

    ``standing`` is `Climb.to_json`, ``step`` the attempt that is made or due (the fields of `ladder.Attempt`),
    ``index`` its index, ``feedback`` what it is told, ``due`` when its delay is over, ``deadline`` when the node's
    time is. ``until`` is when a `wait` is over, once that is known; ``loop`` where a loop stands between two rounds.
    ``ending`` is set once the ladder came to its `escalate`.
    """

    standing: list[int]
    step: dict[str, JSON]
    index: int
    feedback: dict[str, JSON] | None = None
    due: int | None = None
    deadline: int | None = None
    ending: Ending | None = None
    until: int | None = None
    loop: Loop | None = None

    def to_json(self) -> dict[str, JSON]:
        """Its fields."""
        parts = {"ending": self.ending, "loop": self.loop}
        return {**vars(self), **{key: vars(part) if part else None for key, part in parts.items()}}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Progress:
        """What `to_json` gave."""
        ending, loop = data["ending"], data.get("loop")
        parts = {"ending": Ending(**ending) if ending else None, "loop": Loop(**loop) if loop else None}
        return cls(**{**data, **parts})


@dataclass
class Execution:
    """One run of a node: its attempts and where its input came from. ``id`` names it within the run only."""

    id: int
    sources: list[dict[str, JSON]]
    status: NodeStatus = "active"
    attempts: list[Attempt] = field(default_factory=list)
    error: Error | None = None
    usage: Usage = field(default_factory=Usage)
    items: dict[str, JSON] | None = None
    """A map's counts: items, succeeded, failed, escalated, skipped."""
    passed: dict[str, JSON] | None = None
    """Of a map whose items pass through a graph: what its nodes came to for each, as a stored list (a `Ref`'s JSON)."""
    progress: Progress | None = None
    """Where it stands, until it concludes. In snapshots only."""

    def to_json(self) -> dict[str, JSON]:
        data: dict[str, JSON] = {
            "id": self.id,
            "from": self.sources,
            "status": self.status,
            "attempts": [a.to_json() for a in self.attempts],
            "error": self.error.to_json() if self.error else None,
            "usage": self.usage.to_json(),
        }
        maps: dict[str, JSON] = {"items": self.items, "passed": self.passed}
        return {**data, **{key: value for key, value in maps.items() if value is not None}}

    def to_snapshot(self) -> dict[str, JSON]:
        """`to_json`, with what is needed to go on."""
        return {**self.to_json(), "progress": self.progress.to_json()} if self.progress else self.to_json()

    @classmethod
    def from_snapshot(cls, data: dict[str, Any]) -> Execution:
        """What `to_snapshot` gave."""
        return cls(
            data["id"],
            data["from"],
            data["status"],
            [Attempt.from_json(attempt) for attempt in data["attempts"]],
            Error.from_json(data["error"]),
            Usage.from_json(data["usage"]),
            data.get("items"),
            data.get("passed"),
            Progress.from_json(data["progress"]) if data.get("progress") else None,
        )


@dataclass
class NodeState:
    """Where one node stands."""

    status: NodeStatus = "idle"
    executions: list[Execution] = field(default_factory=list)
    reason: str | None = None
    """Why it was skipped or never started."""

    def to_json(self) -> dict[str, JSON]:
        return self._with_reason([execution.to_json() for execution in self.executions])

    def to_snapshot(self) -> dict[str, JSON]:
        """`to_json`, with what is needed to go on."""
        return self._with_reason([execution.to_snapshot() for execution in self.executions])

    def _with_reason(self, executions: list[JSON]) -> dict[str, JSON]:
        data: dict[str, JSON] = {"status": self.status, "executions": executions}
        return {**data, "reason": self.reason} if self.reason else data

    @classmethod
    def from_snapshot(cls, data: dict[str, Any]) -> NodeState:
        """What `to_snapshot` gave."""
        executions = [Execution.from_snapshot(execution) for execution in data["executions"]]
        return cls(data["status"], executions, data.get("reason"))
