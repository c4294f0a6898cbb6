"""Binding: templates and expressions over what a node may read. The host resolves paths, the sandbox the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from activities.lists import dense, get_list, pick
from activities.sandbox import SandboxLimits
from activities.store import StoreError
from activities.stored import KEYS, Stored, StoredList, StoredMap, check_whole, find, open_stored, resolve_stored
from activities.tools import Tools
from graph.compiled import Limits
from graph.errors import Failure
from graph.expressions import Expression, HostPlan, expressions_in, fill, parse_expression, parse_template
from graph.lists import Index
from graph.resolve import resolve
from graph.spec_errors import json_type
from graph.values import JSON, Value, check_depth, encode
from graph.wire import ItemAt, Scope


@dataclass
class Environment:
    """The values that expressions may read, fetched from the store when first named.

    ``names`` holds those at hand (``item``, ``index``, ``output``); what comes from the store is kept and shared with
    what `within` makes: reading or encoding it anew for each item of a map would take longer than all else. ``fetched``
    holds values, and stored ones as handles; ``results`` what expressions gave that read nothing but a stored value;
    ``texts`` the JSON text of fetched values, and of those keys of them that expressions read.
    """

    tools: Tools
    scope: Scope
    limits: Limits
    names: dict[str, JSON] = field(default_factory=dict)
    fetched: dict[str, JSON | Stored] = field(default_factory=dict)
    results: dict[str, JSON] = field(default_factory=dict)
    texts: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    fetching: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while something is fetched, so that many items that read it fetch it once."""

    def within(self, **names: JSON) -> Environment:
        """The same with more names at hand."""
        return replace(self, names={**self.names, **names})

    @property
    def default(self) -> str:
        """The name of the value that is a node's input when none is written."""
        return "input" if self.scope.item is None else "item"

    async def values(self, roots: Sequence[str]) -> dict[str, JSON]:
        """The values of ``roots``, whole. A node without a value is None. Raises as `evaluate`."""
        return {root: await self._resolve(root, HostPlan(root)) for root in roots}

    async def handle(self, root: str) -> JSON | Stored:
        """The value of ``root``, or where it lies if that is in pages. Raises as `evaluate`."""
        if root in self.names:
            return self.names[root]
        if root not in self.fetched:
            async with self.fetching:
                if root not in self.fetched:
                    self.fetched[root] = await self._fetch(root)
        return self.fetched[root]

    async def _fetch(self, root: str) -> JSON | Stored:
        if root == "run":
            return self.scope.run.model_dump()
        item = self.scope.item
        if item is not None and root in ("item", "index"):
            return item.number if root == "index" else await self._item(item)
        value: Value | None
        if root == "input":
            value = self.scope.input
        elif root in self.scope.nodes:
            value = self.scope.nodes[root]
        else:
            value = await self._unpack(root)
        if value is None:
            return None
        with reading(root):
            if value.ref is not None and value.ref.form is not None:
                return await open_stored(self.tools.store, value.ref)
            return await self.tools.store.load(value)

    async def _item(self, item: ItemAt) -> JSON:
        with reading("item"):
            async for _, value in pick(self.tools.store, await get_list(self.tools.store, item.items), [item.number]):
                return value
        raise Failure("invalid_input", f"there is no item {item.number}")

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
                results[expression.text] = await self._resolve(expression.text, expression.host)
        if guests:
            results.update(await self._in_sandbox(guests))
        return results

    async def _resolve(self, text: str, plan: HostPlan) -> JSON:
        value = await self.handle(plan.root)
        if not isinstance(value, Stored):
            return resolve(plan, {plan.root: value})
        if text not in self.results:
            async with self.fetching:
                if text not in self.results:
                    with reading(plan.root):
                        self.results[text] = await resolve_stored(plan, value)
        return self.results[text]

    async def find(self, template: JSON) -> Stored | None:
        """The stored value that ``template``, if it is one path and nothing else, leads to; None if it doesn't.

        Raises:
            Failure: as `evaluate`.
        """
        alone = parse_template(template).alone if isinstance(template, str) else None
        plan = alone.host if alone else None
        if plan is None or plan.function is not None:
            return None
        value = await self.handle(plan.root)
        if not isinstance(value, Stored):
            return None
        with reading(plan.root):
            found = await find(plan, value)
        return found if isinstance(found, Stored) else None

    async def scope_text(self, expressions: Sequence[Expression], *, without: Collection[str] = ()) -> str:
        """The JSON text of an object with what ``expressions`` read, ``without`` some names: of stored values only the
        keys that they name.

        Raises:
            Failure: as `evaluate`.
        """
        read: dict[str, set[str]] = {}
        for reference in (r for e in expressions for r in e.references if r.root not in without):
            key = reference.path[0] if reference.path else None
            read.setdefault(reference.root, set()).update({key} if isinstance(key, str) and key in KEYS else KEYS)
        return "{" + ",".join([f'"{root}":{await self._text(root, keys)}' for root, keys in read.items()]) + "}"

    async def _text(self, root: str, keys: Collection[str]) -> str:
        value = await self.handle(root)
        if root in self.names:
            return encode(value).decode()
        kept = (root, tuple(sorted(keys)) if isinstance(value, StoredMap) else ())
        if kept not in self.texts:
            async with self.fetching:
                if kept not in self.texts:
                    self.texts[kept] = await self._made_text(root, value, keys)
        return self.texts[kept]

    async def _made_text(self, root: str, value: JSON | Stored, keys: Collection[str]) -> str:
        if not isinstance(value, Stored):
            return encode(value).decode()
        narrowed = isinstance(value, StoredMap) and len(keys) < len(KEYS)
        size = value.size_of(keys) if isinstance(value, StoredMap) else value.size
        name = ", ".join(f"`{root}.{key}`" for key in KEYS if key in keys) if narrowed else f"`{root}`"
        check_whole(size, name)
        with reading(root):
            parts = value.texts(keys) if isinstance(value, StoredMap) else value.texts()
            return b"".join([part async for part in parts]).decode()

    async def _in_sandbox(self, expressions: Sequence[Expression]) -> dict[str, JSON]:
        scope = await self.scope_text(expressions)
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
        bound = fill(tree, await self.evaluate(expressions_in(tree)))
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


async def stored_list(env: Environment, template: JSON) -> Index | None:
    """The stored list that ``template`` is a path to and nothing else, its items numbered from 0; None if it is none,
    so that it must be evaluated. Reads none of its pages.

    Raises:
        Failure: as `Environment.evaluate`.
    """
    found = await env.find(template)
    return dense(found.index) if isinstance(found, StoredList) and not found.numbers else None


@contextmanager
def reading(root: str) -> Iterator[None]:
    """Turn what can't be had from the store, and never will be, into a Failure that names ``root``."""
    try:
        yield
    except StoreError as error:
        if error.transient:
            raise
        raise Failure("invalid_input", f"`{root}`: {error.message}", code=error.code) from error


def sandbox_limits(limits: Limits, fuel: float = 1.0, memory: float = 1.0) -> SandboxLimits:
    """A node's limits as the sandbox takes them, multiplied by a rung's factors."""
    return SandboxLimits(
        fuel=int(limits.fuel * fuel),
        memory=int(limits.memory * memory),
        timeout=limits.timeout / 1000,
        output_bytes=limits.output_bytes,
    )
