"""Host-resolvable expressions, resolved: a path into the values in scope, or one plain function of what lies there.

The sandbox evaluates everything else. For what both can do, the results are equal, down to the last bit of a sum.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

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
    for index, step in enumerate(plan.path):
        value = _step(plan, value, index, step)
    if plan.function is None:
        return value
    return apply(plan, value)


def apply(plan: HostPlan, value: JSON) -> JSON:
    """``plan.function`` of ``value``, which lies at the plan's path.

    Raises:
        Failure: as `resolve`.
    """
    match plan.function:
        case "len":
            if not isinstance(value, dict | list | str):
                raise _wrong(plan, f"`{_path(plan)}` is {_kind(value)}, which has no length")
            return len(value)
        case "sum":
            return _sum(plan, value)
        case "first":
            items = _items(plan, value)
            return items[0] if items else (plan.arguments[0] if plan.arguments else None)
    key = str(plan.arguments[0])
    found = [_key(plan, item, index, key) for index, item in enumerate(_items(plan, value))]
    if plan.function == "pluck":
        return found
    if plan.function == "count_by":
        counts: dict[str, int] = {}
        for name in map(_as_key, found):
            counts[name] = counts.get(name, 0) + 1
        return counts
    groups: dict[str, list[JSON]] = {}
    for item, name in zip(value, map(_as_key, found), strict=True):
        groups.setdefault(name, []).append(item)
    return groups


def _step(plan: HostPlan, value: JSON, index: int, step: str | int) -> JSON:
    here = _path(plan, index)
    if isinstance(step, str):
        if not isinstance(value, dict):
            mend = f"take an item first: `{here}[0]`" if isinstance(value, list) else ""
            raise _wrong(plan, f"`{here}` is {_kind(value)}, which has no key `{step}`", mend)
        if step not in value:
            raise _wrong(plan, f"`{here}` has no key `{step}`", suggest(step, value))
        return value[step]
    if not isinstance(value, list | str):
        raise _wrong(plan, f"`{here}` is {_kind(value)}, which has no item {step}")
    if not -len(value) <= step < len(value):
        raise _wrong(plan, f"`{here}` has no item {step}: its length is {len(value)}")
    return value[step]


def _items(plan: HostPlan, value: JSON) -> list[JSON]:
    if not isinstance(value, list):
        raise _wrong(plan, f"`{plan.function}` takes a list, but `{_path(plan)}` is {_kind(value)}")
    return value


def _key(plan: HostPlan, item: JSON, index: int, key: str) -> JSON:
    """The item's value under ``key``; a dotted key goes deeper, unless the item has the very key."""
    value = item
    for part in [key] if isinstance(item, dict) and key in item else key.split("."):
        if not isinstance(value, dict):
            raise _wrong(plan, f"item {index} of `{_path(plan)}` has no `{key}`: there is {_kind(value)}")
        if part not in value:
            raise _wrong(plan, f"item {index} of `{_path(plan)}` has no key `{part}`", suggest(part, value))
        value = value[part]
    return value


def _as_key(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sum(plan: HostPlan, value: JSON) -> int | float:
    """The sum, added from left to right: Python's own `sum` corrects fractions in some versions and not in others."""
    if not isinstance(value, dict | list | str):
        raise _wrong(plan, f"`{_path(plan)}` is {_kind(value)}, which can't be summed up")
    total: int | float = 0
    for index, item in enumerate(value):
        if not isinstance(item, int | float):
            raise _wrong(plan, f"item {index} of `{_path(plan)}` is {_kind(item)}, which can't be summed up")
        try:
            total += item
        except OverflowError:
            raise _wrong(plan, f"`{_path(plan)}` holds a whole number too large to be added to a fraction") from None
    if not math.isfinite(total):
        raise Failure("invalid_output", f"the sum of `{_path(plan)}` isn't a finite number, which JSON doesn't have")
    return total


def _path(plan: HostPlan, steps: int | None = None) -> str:
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
    details = {"expression": _path(plan) if plan.function is None else f"{plan.function}({_path(plan)})"}
    return Failure("invalid_input", f"{message}; {hint}" if hint else message, details=details)
