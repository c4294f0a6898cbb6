"""One item of a map on its way up the ladder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from activities.implement import Feedback
from graph.compiled import CompiledNode
from graph.ladder import Attempt as Step
from graph.ladder import Climb
from graph.values import JSON, trim

HISTORY: Final = 10
"""Attempts of an item, the last ones, whose reasons are kept."""
SHORT: Final = 200
"""Bytes of a reason in an item's history or a sample, and of an item in a sample."""


@dataclass
class Item:
    """``next`` is the attempt to make; ``history`` is why its last attempts failed."""

    number: int
    value: JSON
    climb: Climb
    next: Step = field(default_factory=lambda: Step("first", 0))
    feedback: Feedback | None = None
    attempts: int = 0
    history: list[JSON] = field(default_factory=list)

    @classmethod
    def fresh(cls, node: CompiledNode, number: int, value: JSON) -> Item:
        """An item before its first attempt."""
        return cls(number, value, Climb(node.ladder))

    @classmethod
    def restored(cls, node: CompiledNode, value: JSON, data: dict[str, Any]) -> Item:
        """An item that `standing` told of."""
        return cls(
            number=data["index"],
            value=value,
            climb=Climb.from_json(node.ladder, data["standing"]),
            next=Step(**data["step"]),
            feedback=Feedback(**data["feedback"]) if data["feedback"] else None,
            attempts=data["attempts"],
            history=data.get("history", []),  # what an older worker wrote has none
        )

    def standing(self) -> dict[str, JSON]:
        """Where it stands, without its value."""
        return {
            "index": self.number,
            "standing": self.climb.to_json(),
            "step": vars(self.next),
            "feedback": vars(self.feedback) if self.feedback else None,
            "attempts": self.attempts,
            "history": self.history,
        }

    def note(self, code: str, reason: str) -> None:
        """Remember why an attempt failed."""
        self.history = [*self.history, {"code": code, "reason": trim(reason, SHORT)}][-HISTORY:]
