"""Many items of a map at once: pure work, as long as all goes well.

What succeeds is settled here. Whatever doesn't, by a failure or by a limit that the items met together, is left to an
attempt of its own, which tells why: the work is pure, so running it again does no harm and gives the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from activities.evaluate import Environment, sandbox_limits
from activities.perform import check_size
from activities.sandbox import Cancel, SandboxLimits
from activities.schemas import compiled
from graph.compiled import CompiledNode, ExprCheck, Implementation, SchemaCheck
from graph.errors import Failure
from graph.expressions import Expression, expressions_in, fill, parse_expression
from graph.planning import is_pure
from graph.resolve import resolve
from graph.values import JSON, KIB, check_depth, encode

OWN: Final = frozenset({"item", "index"})
"""Names whose values differ from item to item in a map."""
MOST_AT_ONCE: Final = 128
"""Items of one call into the sandbox."""
MOST_BYTES: Final = 256 * KIB
"""Bytes of items in one call; one item may be larger."""
QUICK: Final = 0.02
"""Seconds of a call below which the next one takes more items."""
PATIENCE: Final = 20
"""Times as long as foreseen that a call of several items may take; an item that spins shouldn't hold the others up."""
LEAST_PATIENCE: Final = 0.25
"""Seconds that such a call may take in any case."""


class Case(NamedTuple):
    """One of many: its own names with their values, and how many bytes of JSON these take, about."""

    names: dict[str, JSON]
    size: int


@dataclass(frozen=True)
class Settled:
    """An accepted output, and its JSON text; None: the guard was false."""

    output: JSON = None
    text: bytes | None = None


@dataclass
class Together:
    """Expressions evaluated for many items at once. Those that read none of the names that differ, ``varying``, have
    their ``constants``; ``shared`` is what the others read beside those names, as the JSON text of an object."""

    varying: frozenset[str]
    own: list[Expression]
    guests: list[Expression]
    constants: dict[str, JSON]
    shared: str
    sandbox: Callable[..., tuple[list[Sequence[JSON] | None], int]]

    @classmethod
    async def prepare(cls, expressions: Sequence[Expression], env: Environment, own: frozenset[str]) -> Together:
        """Evaluate what is the same for all items. Raises Failure, StoreError."""
        varying = [e for e in expressions if own & {reference.root for reference in e.references}]
        guests = [e for e in varying if e.host is None]
        return cls(
            varying=own,
            own=[e for e in varying if e.host is not None],
            guests=guests,
            constants=await env.evaluate([e for e in expressions if e not in varying]),
            shared=await env.scope_text(guests, without=own),
            sandbox=env.tools.sandbox.evaluate_many,
        )

    def evaluate(
        self, scopes: Sequence[dict[str, JSON]], limits: SandboxLimits, cancel: Cancel
    ) -> Iterator[dict[str, JSON] | None]:
        """The values by expression for each scope, or None. Raises Failure, Cancelled."""
        found: Sequence[Sequence[JSON] | None] = [()] * len(scopes)
        if self.guests:
            names = {r.root for e in self.guests for r in e.references} & self.varying
            text = encode([{name: scope[name] for name in names} for scope in scopes])
            found, _ = self.sandbox([e.text for e in self.guests], self.shared, text, limits, cancel=cancel)
        for scope, values in zip(scopes, found, strict=True):
            yield None if values is None else self._all(scope, values)

    def _all(self, scope: dict[str, JSON], values: Sequence[JSON]) -> dict[str, JSON] | None:
        results = dict(self.constants)
        results.update(zip((e.text for e in self.guests), values, strict=True))
        for expression in self.own:
            if expression.host is None:
                raise RuntimeError("the host resolves only what it has a plan for")
            try:
                results[expression.text] = resolve(expression.host, scope)
            except Failure:
                return None
        return results


class Bulk:
    """One node's pure implementation, ready for many items. Serves one thread at a time; close it in the end."""

    def __init__(
        self,
        node: CompiledNode,
        implementation: Implementation,
        env: Environment,
        template: JSON,
        guard: str | None,
        *,
        guards: Together,
        bindings: Together,
        checks: Together,
    ) -> None:
        self._node = node
        self.implementation = implementation
        self._limits = sandbox_limits(env.limits)
        self._schemas = [compiled(check.schema_) for check in node.checks if isinstance(check, SchemaCheck)]
        self._conditions = conditions(node)
        self._guard, self._template = guard, template
        self._guards, self._bindings, self._checks = guards, bindings, checks
        script = implementation.script
        self._script = env.tools.sandbox.script(script.text, script.file, script.line) if script else None
        self._size = 1
        self._each = 0.0
        """Seconds that an item took in the last call."""
        self._fuel = 0

    @classmethod
    async def prepare(
        cls,
        node: CompiledNode,
        implementation: Implementation,
        env: Environment,
        *,
        own: frozenset[str],
        guard: str | None,
        default: str,
    ) -> Bulk | None:
        """Ready for cases of ``node``, whose ``own`` names differ; None if what it does can't be done for several at
        once. ``guard`` is evaluated for each; ``default`` names the value that is the input when none is written.

        Raises:
            StoreError: any of its codes.
        """
        if not serves(node, implementation):
            return None
        template = template_of(node, implementation, default)
        with_output = own | {"output"}
        try:
            return cls(
                node,
                implementation,
                env,
                template,
                guard,
                guards=await Together.prepare([parse_expression(guard)] if guard else [], env, own),
                bindings=await Together.prepare(expressions_in(template), env, own),
                checks=await Together.prepare([parse_expression(text) for text in conditions(node)], env, with_output),
            )
        except Failure:  # each item will say so
            return None

    def close(self) -> None:
        """Give the sandbox's instance back."""
        if self._script is not None:
            self._script.close()

    def take_fuel(self) -> int:
        """What was used since the last time."""
        fuel, self._fuel = self._fuel, 0
        return fuel

    def attempt(self, items: Sequence[Case], seconds: float, cancel: Cancel) -> list[Settled | None]:
        """Attempt items, in order, until ``seconds`` are over: what came of those that were begun.
        None: it needs an attempt of its own.

        Raises:
            Cancelled: ``cancel`` was set.
        """
        done: list[Settled | None] = []
        until = time.monotonic() + seconds
        while len(done) < len(items) and (not done or time.monotonic() < until):
            some = _at_most(items[len(done) : len(done) + self._size], MOST_BYTES)
            begun = time.monotonic()
            done += self._together(some, cancel)
            took = time.monotonic() - begun
            self._each = took / len(some)
            if took < QUICK and len(some) == self._size:
                self._size = min(2 * self._size, MOST_AT_ONCE)
            elif took > 4 * QUICK:
                self._size = max(1, self._size // 2)
        return done

    def _together(self, items: Sequence[Case], cancel: Cancel) -> list[Settled | None]:
        """Attempt items in one go; if that meets a limit, in two, and so on."""
        try:
            return self._attempt(items, self._patient(len(items)), cancel)
        except Failure:
            if len(items) == 1:
                return [None]
            half = len(items) // 2
            return [*self._together(items[:half], cancel), *self._together(items[half:], cancel)]

    def _patient(self, count: int) -> SandboxLimits:
        if count == 1:
            return self._limits
        seconds = max(LEAST_PATIENCE, PATIENCE * self._each * count)
        return replace(self._limits, timeout=min(self._limits.timeout, seconds))

    def _attempt(self, items: Sequence[Case], limits: SandboxLimits, cancel: Cancel) -> list[Settled | None]:
        """Guards, bindings, work and checks, each for all items that got so far. Raises Failure, Cancelled."""
        settled: list[Settled | None] = [None] * len(items)
        scopes = [item.names for item in items]
        places = list(range(len(items)))
        if self._guard is not None:
            places = []
            for place, values in enumerate(self._guards.evaluate(scopes, limits, cancel)):
                holds = values[self._guard] if values is not None else None
                if holds is True:
                    places.append(place)
                elif holds is False:
                    settled[place] = Settled()
        outputs = self._outputs(places, scopes, limits, cancel)
        valid = [(place, output, text) for place, output in outputs if (text := self._valid(output)) is not None]
        checked = [{**scopes[place], "output": output} for place, output, _ in valid]
        verdicts = self._checks.evaluate(checked, limits, cancel)
        for (place, output, text), values in zip(valid, verdicts, strict=True):
            if values is not None and all(values[condition] is True for condition in self._conditions):
                settled[place] = Settled(output, text)
        return settled

    def _outputs(
        self, places: Sequence[int], scopes: Sequence[dict[str, JSON]], limits: SandboxLimits, cancel: Cancel
    ) -> list[tuple[int, JSON]]:
        """What each of the items at these places gives, if it gives something. Raises Failure, Cancelled."""
        bound = list(self._bound(places, scopes, limits, cancel))
        if self._script is None:
            return bound
        if not bound:
            return []
        outputs, fuel = self._script.run_many(encode([input for _, input in bound]), limits, cancel=cancel)
        self._fuel += fuel
        return [(place, output[0]) for (place, _), output in zip(bound, outputs, strict=True) if output is not None]

    def _bound(
        self, places: Sequence[int], scopes: Sequence[dict[str, JSON]], limits: SandboxLimits, cancel: Cancel
    ) -> Iterator[tuple[int, JSON]]:
        """The input of each item (of a value node: the value), if it can be bound. Raises Failure, Cancelled."""
        mine = [scopes[place] for place in places]
        for place, values in zip(places, self._bindings.evaluate(mine, limits, cancel), strict=True):
            if values is not None:
                value = fill(self._template, values)
                check_depth(value)
                yield place, value

    def _valid(self, output: JSON) -> bytes | None:
        """The text of an output that fits its limit and its schemas."""
        try:
            text = check_size(self._node, output)
        except Failure:
            return None
        return text if all(schema.is_valid(output) for schema in self._schemas) else None


def serves(node: CompiledNode, implementation: Implementation) -> bool:
    """Whether cases of ``node`` can be attempted together, if they may share an instance of the sandbox."""
    return (
        is_pure(implementation)
        and node.repeat is None
        and all(isinstance(check, SchemaCheck | ExprCheck) for check in node.checks)
    )


def template_of(node: CompiledNode, implementation: Implementation, default: str) -> JSON:
    """The template of an input; of a value, that itself."""
    if implementation.kind == "value":
        return implementation.value
    return node.input if node.has_input else f"${{{default}}}"


def conditions(node: CompiledNode) -> list[str]:
    """The expressions that an output must fulfil."""
    return [check.expr for check in node.checks if isinstance(check, ExprCheck)]


def _at_most(items: Sequence[Case], size: int) -> Sequence[Case]:
    """The first items whose JSON has so many bytes together, and one in any case."""
    for count, item in enumerate(items):
        size -= item.size
        if size < 0:
            return items[: max(1, count)]
    return items
