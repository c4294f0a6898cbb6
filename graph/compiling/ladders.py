"""Ladders: rungs read, their implementations made, and what would be pointless or endless refused."""

from __future__ import annotations

import re

from graph.compiled import Check, Escalate, Implementation, JudgeCheck, Reroute, Retry, Rung
from graph.compiling.context import Context
from graph.compiling.implementations import Implementations
from graph.errors import FAILURE_CLASSES
from graph.nearest import nearest
from graph.problems import Path
from graph.spec import RerouteSpec, RetrySpec, RungSpec
from graph.values import JSON

MOST_RUNGS = 50
MOST_ATTEMPTS = 1000
"""Attempts of one execution: the history holds each of them."""
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Ladder:
    """Compiles one node's `on_fail`. ``implementations`` begins with the node's own and gets each reroute's."""

    def __init__(self, context: Context, path: Path, make: Implementations, own: Implementation) -> None:
        self._context = context
        self._path = path
        self._make = make
        self.implementations = [own]
        self._current = own

    def compile(self, specs: list[RungSpec], holders: JSON, checks: list[Check]) -> list[Rung]:
        """The rungs. ``holders`` is what the file has there; ``checks`` are the node's."""
        place = self._context.place
        rungs: list[Rung] = []
        if len(specs) > MOST_RUNGS:
            place.problem("too_large", f"a ladder has at most {MOST_RUNGS} rungs", self._path)
        for index, spec in enumerate(specs[:MOST_RUNGS]):
            number = self._context.number(self._path, index)
            path = (*self._path, number)
            given = [key for key in RungSpec.written() if key in spec.model_fields_set]
            if len(given) != 1:
                message = "a rung is one of `retry`, `reroute`, `escalate`"
                if len(given) > 1:
                    message += f", not {' and '.join(f'`{key}`' for key in given)} together"
                if not self._context.is_broken(*path):
                    place.problem("bad_rung", message, path, "begin each rung with `- `")
                continue
            if rungs and isinstance(rungs[-1], Escalate):
                message = "`escalate` comes last, and once: nothing after it can be reached"
                place.problem("bad_rung", message, path, "move `- escalate` to the end")
                continue
            rung = self._rung(spec, path, holders[number] if isinstance(holders, list) else None, checks)
            if rung is not None:
                rungs.append(rung)
        if sum(r.times for r in rungs if isinstance(r, Retry)) > MOST_ATTEMPTS:
            place.problem("too_large", f"the retries of a ladder add up to at most {MOST_ATTEMPTS}", self._path)
        return rungs

    def _rung(self, spec: RungSpec, path: Path, holder: JSON, checks: list[Check]) -> Rung | None:
        if spec.retry is not None:
            return self._retry(spec.retry, (*path, "retry"), checks)
        if spec.reroute is not None:
            held = holder.get("reroute") if isinstance(holder, dict) else None
            return self._reroute(spec.reroute, (*path, "reroute"), held if isinstance(held, dict) else {})
        assert spec.escalate is not None
        if _QUEUE.fullmatch(spec.escalate.queue) is None:
            message = f"`{spec.escalate.queue[:60]}` isn't the name of a queue"
            self._context.place.problem("bad_value", message, (*path, "escalate"), "letters, digits, `.`, `_`, `-`")
        return Escalate(queue=spec.escalate.queue)

    def _retry(self, spec: RetrySpec, path: Path, checks: list[Check]) -> Retry:
        self._check_classes(spec.on, path)
        place = self._context.place
        if spec.max_delay is not None and spec.max_delay < spec.delay:
            place.problem("bad_value", "`max_delay` is shorter than `delay`", (*path, "max_delay"))
        if spec.backoff != 1.0 and spec.delay == 0:
            place.warn("pointless", "`backoff` multiplies a `delay` of zero", (*path, "backoff"), "set `delay`")
        changes = spec.feedback or spec.fuel > 1 or spec.memory > 1
        pure = self._current.kind == "value" or (self._current.kind == "script" and not self._current.models)
        judged = any(isinstance(check, JudgeCheck) for check in checks)
        if pure and not changes and not judged:
            message = f"a {self._current.kind} gives the same output for the same input, so a retry fails the same way"
            place.warn("pointless", message, path, "use `reroute`, or give it `feedback`, `fuel` or `memory`")
        if self._current.wait is not None and self._current.wait.what != "reply":
            message = "a wait for a time goes the same way each time, so a retry fails the same way"
            place.warn("pointless", message, path, "use `reroute`, or a longer `timeout`")
        self._check_feedback(spec.feedback, path)
        return Retry(
            times=spec.times,
            delay=spec.delay,
            backoff=spec.backoff,
            max_delay=spec.max_delay,
            feedback=spec.feedback,
            fuel=spec.fuel,
            memory=spec.memory,
            on=spec.on,
        )

    def _reroute(self, spec: RerouteSpec, path: Path, holder: JSON) -> Reroute | None:
        self._check_classes(spec.on, path)
        made = self._make.reroute(spec, path, holder, self._current)
        if made is None:
            return None
        self._current = made
        self.implementations.append(made)
        self._check_feedback(spec.feedback, path)
        return Reroute(implementation=len(self.implementations) - 1, feedback=spec.feedback, on=spec.on)

    def _check_feedback(self, wanted: bool, path: Path) -> None:
        kind = self._current.kind
        if wanted and kind not in ("script", "function", "infer"):
            message = f"a node of kind `{kind}` has no way to take `feedback`"
            self._context.place.warn("pointless", message, (*path, "feedback"), "leave it out")

    def _check_classes(self, on: list[str] | None, path: Path) -> None:
        place = self._context.place
        if on is None:
            return
        if not on:
            place.problem("bad_value", "`on` names no class or code, so this rung never applies", (*path, "on"))
        for number, name in enumerate(on):
            at = (*path, "on", number)
            if name in ("cancelled", "canceled"):
                place.problem("bad_value", "cancellation never climbs a ladder", at)
            elif name == "invalid_input":
                message = "`invalid_input` passes over retry and reroute: the input can't change"
                place.warn("pointless", message, at, "leave it out")
            elif name not in FAILURE_CLASSES and (near := nearest(name, FAILURE_CLASSES)) and name.islower():
                place.warn("unknown_class", f"`{name}` is no class of failure", at, f"did you mean `{near}`?")
