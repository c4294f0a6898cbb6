"""What a run knows about itself: executions, attempts, errors, usage. Plain data, no rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from graph.values import JSON

NodeStatus = Literal["idle", "active", "waiting", "succeeded", "failed", "skipped", "cancelled"]
AttemptStatus = Literal["running", "succeeded", "failed", "cancelled"]
ITEM_STATUSES: Final = ("succeeded", "failed", "escalated", "skipped")
"""What becomes of a map's items."""


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
    """Digest of the attempt's input."""
    output: str | None = None
    """Digest of the accepted output."""

    def to_json(self) -> dict[str, JSON]:
        return {
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

    def to_json(self) -> dict[str, JSON]:
        data: dict[str, JSON] = {
            "id": self.id,
            "from": self.sources,
            "status": self.status,
            "attempts": [a.to_json() for a in self.attempts],
            "error": self.error.to_json() if self.error else None,
            "usage": self.usage.to_json(),
        }
        return data if self.items is None else {**data, "items": self.items}


@dataclass
class NodeState:
    """Where one node stands."""

    status: NodeStatus = "idle"
    executions: list[Execution] = field(default_factory=list)
    reason: str | None = None
    """Why it was skipped or never started."""

    def to_json(self) -> dict[str, JSON]:
        data: dict[str, JSON] = {"status": self.status, "executions": [e.to_json() for e in self.executions]}
        return {**data, "reason": self.reason} if self.reason else data
