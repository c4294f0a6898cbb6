"""Host-resolvable expressions, resolved: a path into the values in scope, or one plain function of what lies there.

The sandbox evaluates everything else. For what both can do, the results are equal, down to the last bit of a sum.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final

from graph.errors import Failure
from graph.lexing import shown
from graph.nearest import suggest
from graph.references import HostPlan
from graph.values import JSON


def resolve(plan: HostPlan, scope: Mapping[str, JSON]) -> JSON:
    """The value of a host-resolvable expression, where ``scope`` holds the values of its names.

    Raises:
        Failure: class ``invalid_input`` if there is no such key or item, or the function can't take what is there:
            the message names the missing key, the path so far and the nearest known key. Class ``invalid_output``
            if a sum isn't finite.
    """
    if plan.root not in scope:
        raise _wrong(plan, f"there is no `{plan.root}` here", suggest(plan.root, list(scope)))
    value = scope[plan.root]
    for index in range(len(plan.path)):
        value = step_into(plan, value, index)
    return value if plan.function is None else apply(plan, value)


def apply(plan: HostPlan, value: JSON) -> JSON:
    """``plan.function`` of ``value``, which lies at the plan's path.

    Raises:
        Failure: as `resolve`.
    """
    holder = isinstance(value, dict | list | str)
    if plan.function == "len":
        if not holder:
            raise _wrong(plan, f"`{path_text(plan)}` is {_kind(value)}, which has no length")
        return len(value)
    if plan.function == "sum" and not holder:
        raise _wrong(plan, f"`{path_text(plan)}` is {_kind(value)}, which can't be summed up")
    if plan.function != "sum" and not isinstance(value, list):
        raise _wrong(plan, f"`{plan.function}` takes a list, but `{path_text(plan)}` is {_kind(value)}")
    fold = fold_of(plan)
    fold.take(value)
    return fold.result()


class Fold(ABC):
    """A plan's function at work on a list whose items come one after another. ``taken`` is how many came."""

    def __init__(self, plan: HostPlan) -> None:
        self.plan = plan
        self.taken = 0

    @property
    def done(self) -> bool:
        """Whether further items can't change the result."""
        return False

    def take(self, items: Iterable[JSON]) -> None:
        """Take the list's next items. Raises Failure, as `resolve`."""
        for item in items:
            if self.done:
                return
            self._add(item)
            self.taken += 1

    @abstractmethod
    def _add(self, item: JSON) -> None: ...

    @abstractmethod
    def result(self) -> JSON:
        """What the function gives for the items taken. Raises Failure, as `resolve`."""


def fold_of(plan: HostPlan) -> Fold:
    """A fresh fold for ``plan``, which has a function of a list's items: any but ``len``."""
    if plan.function is None:
        raise ValueError("a plan without a function folds nothing")
    return _FOLDS[plan.function](plan)


class _First(Fold):
    def __init__(self, plan: HostPlan) -> None:
        super().__init__(plan)
        self._item: JSON = plan.arguments[0] if plan.arguments else None

    @property
    def done(self) -> bool:
        return self.taken > 0

    def _add(self, item: JSON) -> None:
        self._item = item

    def result(self) -> JSON:
        return self._item


class _Sum(Fold):
    """Added from left to right: Python's own `sum` corrects fractions in some versions and not in others."""

    def __init__(self, plan: HostPlan) -> None:
        super().__init__(plan)
        self._total: int | float = 0

    def _add(self, item: JSON) -> None:
        if not isinstance(item, int | float):
            message = f"item {self.taken} of `{path_text(self.plan)}` is {_kind(item)}, which can't be summed up"
            raise _wrong(self.plan, message)
        try:
            self._total += item
        except OverflowError:
            message = f"`{path_text(self.plan)}` holds a whole number too large to be added to a fraction"
            raise _wrong(self.plan, message) from None

    def result(self) -> JSON:
        if isinstance(self._total, float) and not math.isfinite(self._total):
            message = f"the sum of `{path_text(self.plan)}` isn't a finite number, which JSON doesn't have"
            raise Failure("invalid_output", message)
        return self._total


class _Pluck(Fold):
    def __init__(self, plan: HostPlan) -> None:
        super().__init__(plan)
        self._found: list[JSON] = []

    def _add(self, item: JSON) -> None:
        self._found.append(_key(self.plan, item, self.taken))

    def result(self) -> JSON:
        return self._found


class _CountBy(Fold):
    def __init__(self, plan: HostPlan) -> None:
        super().__init__(plan)
        self._counts: dict[str, int] = {}

    def _add(self, item: JSON) -> None:
        name = _as_key(_key(self.plan, item, self.taken))
        self._counts[name] = self._counts.get(name, 0) + 1

    def result(self) -> JSON:
        return self._counts


class _GroupBy(Fold):
    def __init__(self, plan: HostPlan) -> None:
        super().__init__(plan)
        self._groups: dict[str, list[JSON]] = {}

    def _add(self, item: JSON) -> None:
        self._groups.setdefault(_as_key(_key(self.plan, item, self.taken)), []).append(item)

    def result(self) -> JSON:
        return self._groups


_FOLDS: Final[Mapping[str, type[Fold]]] = {
    "first": _First,
    "sum": _Sum,
    "pluck": _Pluck,
    "count_by": _CountBy,
    "group_by": _GroupBy,
}


def step_into(plan: HostPlan, value: JSON, index: int) -> JSON:
    """What lies in ``value`` at the plan's step number ``index``. Raises Failure, as `resolve`."""
    step = plan.path[index]
    if isinstance(step, str) and isinstance(value, dict):
        if step not in value:
            raise _wrong(plan, f"`{path_text(plan, index)}` has no key `{step}`", suggest(step, value))
        return value[step]
    if isinstance(step, str) and not isinstance(value, list):
        raise _wrong(plan, f"`{path_text(plan, index)}` is {_kind(value)}, which has no key `{step}`")
    if not isinstance(value, list | str):
        raise _wrong(plan, f"`{path_text(plan, index)}` is {_kind(value)}, which has no item {step}")
    return value[position(plan, index, len(value))]


def position(plan: HostPlan, index: int, length: int) -> int:
    """Which item, counted from 0, the plan's step number ``index`` takes of a list of ``length`` items. Raises Failure,
    as `resolve`."""
    step, here = plan.path[index], path_text(plan, index)
    if isinstance(step, str):
        raise _wrong(plan, f"`{here}` is a list, which has no key `{step}`", f"take an item first: `{here}[0]`")
    if not -length <= step < length:
        raise _wrong(plan, f"`{here}` has no item {step}: its length is {length}")
    return step % length


def _key(plan: HostPlan, item: JSON, index: int) -> JSON:
    """The item's value under the plan's key; a dotted key goes deeper, unless the item has the very key."""
    value, key = item, str(plan.arguments[0])
    for part in [key] if isinstance(item, dict) and key in item else key.split("."):
        if not isinstance(value, dict):
            raise _wrong(plan, f"item {index} of `{path_text(plan)}` has no `{key}`: there is {_kind(value)}")
        if part not in value:
            raise _wrong(plan, f"item {index} of `{path_text(plan)}` has no key `{part}`", suggest(part, value))
        value = value[part]
    return value


def _as_key(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def path_text(plan: HostPlan, steps: int | None = None) -> str:
    """The plan's path (its first ``steps``), as it would be written."""
    text = plan.root
    for step in plan.path[:steps]:
        text += f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"
    return shown(text)


def _kind(value: JSON) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"


def _wrong(plan: HostPlan, message: str, hint: str = "") -> Failure:
    details = {"expression": path_text(plan) if plan.function is None else f"{plan.function}({path_text(plan)})"}
    return Failure("invalid_input", f"{message}; {hint}" if hint else message, details=details)
