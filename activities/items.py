"""One item of a map on its way up the ladder; and a node of a graph that items pass through, on its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from activities.implement import Feedback
from activities.perform import Outcome
from activities.store import Store
from graph.compiled import CompiledNode
from graph.ladder import Attempt as Step
from graph.ladder import Climb
from graph.ladder import Step as Next
from graph.values import JSON, trim
from graph.wire import FailureRecord

HISTORY: Final = 10
"""Attempts of an item, the last ones, whose reasons are kept."""
SHORT: Final = 200
"""Bytes of a reason in an item's history or a sample, and of an item in a sample."""


@dataclass
class Standing:
    """Where something stands on its ladder: ``next`` is the attempt to make, ``history`` why the last ones failed."""

    climb: Climb
    next: Step = field(default_factory=lambda: Step("first", 0))
    feedback: Feedback | None = None
    attempts: int = 0
    history: list[JSON] = field(default_factory=list)

    @classmethod
    def fresh(cls, node: CompiledNode) -> Standing:
        """Before the first attempt."""
        return cls(Climb(node.ladder))

    @classmethod
    def restored(cls, node: CompiledNode, data: dict[str, Any]) -> Standing:
        """What `to_json` told of."""
        return cls(
            climb=Climb.from_json(node.ladder, data["standing"]),
            next=Step(**data["step"]),
            feedback=Feedback(**data["feedback"]) if data["feedback"] else None,
            attempts=data["attempts"],
            history=data.get("history", []),  # what an older worker wrote has none
        )

    def to_json(self) -> dict[str, JSON]:
        """For whoever goes on from here."""
        return {
            "standing": self.climb.to_json(),
            "step": vars(self.next),
            "feedback": vars(self.feedback) if self.feedback else None,
            "attempts": self.attempts,
            "history": self.history,
        }

    async def failed(self, outcome: Outcome, store: Store) -> tuple[FailureRecord, str, Next]:
        """Take an attempt's failure: how it is recorded, its code, and what the ladder says to do; if that is another
        attempt, it is the next one. Raises StoreError."""
        if outcome.failure is None:
            raise ValueError("only a failed attempt fails")
        record, code = outcome.record(), outcome.failure.code
        self.history = [*self.history, {"code": code, "reason": trim(record.message, SHORT)}][-HISTORY:]
        following = self.climb.next(record.failure_class, code)
        if isinstance(following, Step):
            self.next, self.feedback = following, None
            if following.feedback:
                rejected = await store.get_json(record.rejected) if record.rejected else None
                self.feedback = Feedback(code, record.message, rejected)
        return record, code, following


@dataclass
class Item:
    """An item, and where it stands. ``within``: where the nodes of its graph stand, if it is in the midst of one."""

    number: int
    value: JSON
    at: Standing
    within: dict[str, Any] | None = None

    @classmethod
    def fresh(cls, node: CompiledNode, number: int, value: JSON) -> Item:
        """An item before its first attempt."""
        return cls(number, value, Standing.fresh(node))

    @classmethod
    def restored(cls, node: CompiledNode, value: JSON, data: dict[str, Any]) -> Item:
        """An item that `standing` told of."""
        return cls(data["index"], value, Standing.restored(node, data), data.get("within"))

    def standing(self) -> dict[str, JSON]:
        """Where it stands, without its value."""
        told = {"index": self.number, **self.at.to_json()}
        return told if self.within is None else {**told, "within": self.within}
