"""Every error Ferrata raises, by the stage that can know it.

    FerrataError
    ├── LoadError      a graph file, a run's input or a worker's settings are wrong;
    │                  nothing ran yet. Carries *all* problems, each with its place.
    ├── Failure        one attempt (or one item) failed while running. Climbs the ladder.
    └── OperateError   a signal, update, query or command was wrong; nothing changed.

Codes are stable and listed in ``docs/errors.md``.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from pydantic import BaseModel

FailureClass = Literal[
    "rejected",
    "unusable",
    "invalid_input",
    "invalid_output",
    "script_error",
    "function_error",
    "wasm_trap",
    "out_of_fuel",
    "out_of_memory",
    "timeout",
    "denied",
    "unsupported",
    "model_error",
    "activity_error",
    "child_failed",
    "loop_exhausted",
    "too_large",
    "lost",
]
"""The classes of failure that climb a ladder. The code equals the class unless the author gave one."""

FAILURE_CLASSES: Final[tuple[str, ...]] = get_args(FailureClass)


class FerrataError(Exception):
    """Root of the hierarchy: a stable ``code``, a ``message``, and (maybe) a ``hint`` how to mend it."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class Problem(BaseModel):
    """One thing wrong at load: what, where, and how to mend it. Lines and columns count from 1."""

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
            if self.column is not None:
                place += f":{self.column}"
        text = f"{place}: " if place else ""
        text += f"[{self.code}] {self.message}"
        return f"{text} -> {self.hint}" if self.hint else text


class LoadError(FerrataError):
    """A graph, an input or a setting is wrong. ``problems`` holds all of them, in file order; ``warnings`` is what was
    seen beside them that is hardly meant."""

    def __init__(self, problems: list[Problem], warnings: list[Problem] | None = None) -> None:
        if not problems:
            raise ValueError("a LoadError needs at least one problem")
        super().__init__(problems[0].code, "\n".join(str(p) for p in problems))
        self.problems = problems
        self.warnings = warnings or []


class Failure(FerrataError):
    """One attempt failed. ``failure_class`` is what ``on:`` may name; ``code`` is the author's or the class.

    ``details`` is JSON with what helps to mend it: violated paths, the script's line, the limit that was met.
    Never the rejected value itself.
    """

    def __init__(
        self,
        failure_class: FailureClass,
        message: str,
        *,
        code: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(code or failure_class, message)
        self.failure_class: FailureClass = failure_class
        self.details: dict[str, Any] = details or {}
        self.fuel = 0
        """Fuel used until it failed, if it failed in the sandbox."""


class OperateError(FerrataError):
    """A signal, update, query or command asked for something that can't be done; nothing changed."""
