"""The ladder as a pure rule: after a failed attempt, which rung comes next?

Used by the workflow for nodes and by the chunk activity for items, so both climb alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from graph.compiled import Escalate, Reroute, Retry, Rung

UNCHANGING_CLASSES = frozenset({"invalid_input"})
"""Failures that another attempt can't mend, since the input stays the same: straight to escalate."""


@dataclass(frozen=True)
class Attempt:
    """Make one more attempt: on ``implementation``, after ``delay`` milliseconds, with limits multiplied."""

    rung: str
    implementation: int
    delay: int = 0
    feedback: bool = False
    fuel: float = 1.0
    memory: float = 1.0


@dataclass(frozen=True)
class Escalation:
    """Hand over to ``queue``; the node (or item) fails."""

    queue: str


@dataclass(frozen=True)
class Exhausted:
    """No rung is left: the node (or item) fails, nothing is enqueued."""


Step: TypeAlias = Attempt | Escalation | Exhausted


class Climb:
    """Where one execution stands on its ladder. A rung that doesn't apply is passed over and not met again."""

    def __init__(self, ladder: list[Rung]) -> None:
        self._ladder = ladder
        self._position = 0
        self._retries = 0
        self.implementation = 0

    def to_json(self) -> list[int]:
        """Where it stands: position, retries used on that rung, implementation."""
        return [self._position, self._retries, self.implementation]

    @classmethod
    def from_json(cls, ladder: list[Rung], standing: list[int]) -> Climb:
        """The climb that `to_json` described."""
        climb = cls(ladder)
        climb._position, climb._retries, climb.implementation = standing
        return climb

    def next(self, failure_class: str, code: str) -> Step:
        """The step after an attempt that failed with this class and code."""
        while self._position < len(self._ladder):
            rung = self._ladder[self._position]
            if isinstance(rung, Escalate):
                self._position += 1
                return Escalation(rung.queue)
            if self._applies(rung, failure_class, code):
                if isinstance(rung, Reroute):
                    self._position += 1
                    self.implementation = rung.implementation
                    return Attempt("reroute", rung.implementation, feedback=rung.feedback)
                if self._retries < rung.times:
                    self._retries += 1
                    return self._retry(rung)
            self._position += 1
            self._retries = 0
        return Exhausted()

    def give_up(self) -> Step:
        """The step when time is up: no more attempts, but a person may still be asked."""
        for rung in self._ladder[self._position :]:
            if isinstance(rung, Escalate):
                self._position = len(self._ladder)
                return Escalation(rung.queue)
        return Exhausted()

    @staticmethod
    def _applies(rung: Retry | Reroute, failure_class: str, code: str) -> bool:
        if failure_class in UNCHANGING_CLASSES:
            return False
        return rung.on is None or failure_class in rung.on or code in rung.on

    def _retry(self, rung: Retry) -> Attempt:
        try:
            delay = int(rung.delay * rung.backoff ** (self._retries - 1))
        except OverflowError:
            delay = LONGEST_DELAY
        delay = min(delay, LONGEST_DELAY if rung.max_delay is None else rung.max_delay)
        return Attempt("retry", self.implementation, delay, rung.feedback, rung.fuel, rung.memory)


LONGEST_DELAY = 365 * 24 * 3600 * 1000
"""Milliseconds; no back-off waits longer than a year."""
