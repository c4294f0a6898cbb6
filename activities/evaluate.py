"""Binding: templates and expressions over what a node may read. The host resolves paths, the sandbox the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from activities.sandbox import SandboxLimits
from activities.store import StoreError
from activities.tools import Tools
from graph.compiled import Limits
from graph.errors import Failure
from graph.expressions import Expression, fill, parse_expression, templates_in
from graph.resolve import resolve
from graph.spec_errors import json_type
from graph.values import JSON, Value, check_depth, encode
from graph.wire import Scope


@dataclass
class Environment:
    """The values that expressions may read, fetched from the store when first named.

    ``names`` holds those at hand (``item``, ``index``, ``output``), ``fetched`` those from the store, shared with what
    `within` makes: reading a large one anew for each item of a map would take longer than all else.
    """

    tools: Tools
    scope: Scope
    limits: Limits
    names: dict[str, JSON] = field(default_factory=dict)
    fetched: dict[str, JSON] = field(default_factory=dict)

    def within(self, **names: JSON) -> Environment:
        """The same with more names at hand."""
        return replace(self, names={**self.names, **names})

    async def values(self, roots: Sequence[str]) -> dict[str, JSON]:
        """The values of ``roots``. A node without a value is None."""
        for root in roots:
            if root not in self.names and root not in self.fetched:
                self.fetched[root] = await self._fetch(root)
        return {root: self.names[root] if root in self.names else self.fetched[root] for root in roots}

    async def _fetch(self, root: str) -> JSON:
        if root == "run":
            return self.scope.run.model_dump()
        value: Value | None
        if root == "input":
            value = self.scope.input
        elif root in self.scope.nodes:
            value = self.scope.nodes[root]
        else:
            value = await self._unpack(root)
        if value is None:
            return None
        try:
            return await self.tools.store.load(value)
        except StoreError as error:
            if error.transient:
                raise
            raise Failure("invalid_input", f"`{root}`: {error.message}", code=error.code) from error

    async def _unpack(self, root: str) -> Value | None:
        for pack in self.scope.packs:
            packed = await self.tools.store.get_json(pack)
            if root in packed:
                return Value.model_validate(packed[root])
        raise Failure("invalid_input", f"`{root}` is not among the values that this node was given")

    async def evaluate(self, expressions: Sequence[Expression]) -> dict[str, JSON]:
        """The value of each expression, by its text.

        Raises:
            Failure: ``invalid_input`` naming the expression; ``out_of_fuel`` and the like.
        """
        results: dict[str, JSON] = {}
        guests: list[Expression] = []
        for expression in expressions:
            if expression.host is None:
                guests.append(expression)
            else:
                values = await self.values([reference.root for reference in expression.references])
                results[expression.text] = resolve(expression.host, values)
        if guests:
            results.update(await self._in_sandbox(guests))
        return results

    async def _in_sandbox(self, expressions: Sequence[Expression]) -> dict[str, JSON]:
        roots = list(dict.fromkeys(r.root for e in expressions for r in e.references))
        scope = encode(await self.values(roots)).decode()
        texts = [expression.text for expression in expressions]
        limits = sandbox_limits(self.limits)
        outcomes = await self.tools.in_guest_thread(
            lambda cancel: self.tools.sandbox.evaluate(texts, scope, limits, cancel=cancel)
        )
        results: dict[str, JSON] = {}
        for text, outcome in zip(texts, outcomes, strict=True):
            if outcome.error is not None:
                error = outcome.error
                raise Failure(error.failure_class, f"`{text}`: {error.message}", details={"expression": text})
            results[text] = outcome.value
        return results

    async def bind(self, tree: JSON) -> JSON:
        """``tree`` with every template in it filled in. Raises as `evaluate`."""
        expressions = {
            part.text: part
            for _, template in templates_in(tree)
            for part in template.parts
            if isinstance(part, Expression)
        }
        bound = fill(tree, await self.evaluate(list(expressions.values())))
        check_depth(bound)
        return bound

    async def condition(self, text: str, what: str) -> bool:
        """Whether the bare expression ``text`` holds; ``what`` is how the message calls it.

        Raises:
            Failure: ``invalid_input`` if it can't be evaluated or isn't a boolean.
        """
        result = (await self.evaluate([parse_expression(text)]))[text]
        if not isinstance(result, bool):
            raise Failure("invalid_input", f"{what} `{text}` must be true or false; it is {json_type(result)}")
        return result


def sandbox_limits(limits: Limits, fuel: float = 1.0, memory: float = 1.0) -> SandboxLimits:
    """A node's limits as the sandbox takes them, multiplied by a rung's factors."""
    return SandboxLimits(
        fuel=int(limits.fuel * fuel),
        memory=int(limits.memory * memory),
        timeout=limits.timeout / 1000,
        output_bytes=limits.output_bytes,
    )
