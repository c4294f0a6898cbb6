"""Evaluates expressions: the expression part of Python over JSON, with attributes that read keys.

The syntax tree is checked (again: the host refused the same at load) and rewritten so that every attribute and
every index goes through this module. Nothing an expression can reach changes the instance, so one instance serves
many calls.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from typing import Any

from .json_text import article, dumps, short


class BadExpression(Exception):
    """The expression can't be evaluated; the message is for its author."""


def _methods(text: str) -> frozenset[str]:
    return frozenset(text.split())


STRING = """capitalize casefold center count endswith expandtabs find index isalnum isalpha isascii isdecimal isdigit
isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition removeprefix
removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title
upper zfill"""
SET = "union intersection difference symmetric_difference issubset issuperset isdisjoint copy"
METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, _methods(STRING)),
    (dict, _methods("keys values items get copy")),
    (list, _methods("index count copy")),
    (tuple, _methods("index count")),
    (int, _methods("bit_length bit_count is_integer")),
    (float, _methods("is_integer")),
    (set, _methods(SET)),
    (frozenset, _methods(SET)),
)
"""The methods an expression may call: those that change nothing and look nothing up by name."""


def attribute(value: Any, name: str, path: str) -> Any:
    """``value.name``: the key, else a method, else an error that knows the nearest key."""
    if isinstance(value, dict) and name in value:
        return value[name]
    for cls, names in METHODS:
        if isinstance(value, cls):
            if name in names:
                return getattr(value, name)
            if cls is not dict:
                break
    if isinstance(value, dict):
        raise BadExpression(_no_key(value, name, path))
    if isinstance(value, str) and name in ("format", "format_map"):
        raise BadExpression(f"`{path}.{name}` isn't offered: use an f-string")
    raise BadExpression(f"`{path}` is {article(value)}: it has no {name!r}")


def item(value: Any, index: Any, path: str) -> Any:
    """``value[index]``, with messages that name the path."""
    try:
        return value[index]
    except KeyError:
        raise BadExpression(_no_key(value, index, path)) from None
    except IndexError:
        raise BadExpression(f"`{path}` has {len(value)} items: there is no [{index}]") from None
    except TypeError:
        raise BadExpression(f"`{path}` is {article(value)}: it can't be read by [{short(index)}]") from None


def _no_key(value: dict[str, Any], key: object, path: str) -> str:
    message = f"`{path}` has no key {short(key)}"
    near = difflib.get_close_matches(str(key), value, 1)
    if near:
        return f"{message}: did you mean {near[0]!r}?"
    names = ", ".join(list(value)[:10])
    return f"{message}: it has {names or 'no keys at all'}" + (", ..." if len(value) > 10 else "")


def _items(items: Any, helper: str) -> Iterable[Any]:
    if isinstance(items, (str, dict)) or not isinstance(items, Iterable):
        raise BadExpression(f"{helper} needs a list, not {article(items)}")
    return items


def _field(entry: Any, key: Any, index: int, helper: str) -> Any:
    """The value at ``key`` of one item: a key of its own, or a dotted path of keys."""
    if not isinstance(key, str):
        raise BadExpression(f"{helper} needs a key's name as text, not {article(key)}")
    path = f"item {index}"
    if isinstance(entry, dict) and key in entry:
        return entry[key]
    for part in key.split("."):
        if not isinstance(entry, dict):
            raise BadExpression(f"{helper}: `{path}` is {article(entry)}: it has no {part!r}")
        if part not in entry:
            raise BadExpression(f"{helper}: " + _no_key(entry, part, path))
        entry = entry[part]
        path += f".{part}"
    return entry


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def pluck(items: Any, key: Any) -> list[Any]:
    return [_field(entry, key, index, "pluck") for index, entry in enumerate(_items(items, "pluck"))]


def count_by(items: Any, key: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for index, entry in enumerate(_items(items, "count_by")):
        text = _text(_field(entry, key, index, "count_by"))
        counts[text] = counts.get(text, 0) + 1
    return counts


def group_by(items: Any, key: Any) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for index, entry in enumerate(_items(items, "group_by")):
        groups.setdefault(_text(_field(entry, key, index, "group_by")), []).append(entry)
    return groups


def first(items: Any, default: Any = None) -> Any:
    return next(iter(_items(items, "first")), default)


def plain_sum(items: Iterable[Any], start: Any = 0) -> Any:
    """Like ``sum``, adding from left to right: the built-in compensates floats from Python 3.12 on, and the host,
    which adds up plain paths itself, may be older."""
    if isinstance(start, (str, bytes)):
        raise TypeError("sum() can't sum strings: use ''.join(...)")
    total = start
    for value in items:
        total = total + value
    return total


NAMES: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "count_by": count_by,
    "group_by": group_by,
    "pluck": pluck,
    "first": first,
    "sum": plain_sum,
    **{
        function.__name__: function
        for function in (
            *(abs, all, any, bool, dict, enumerate, float, int, len, list, max, min, range, reversed, round),
            *(set, sorted, str, tuple, zip),
        )
    },
}
"""What an expression may call besides its scope."""

REFUSED = {
    ast.Lambda: "lambda isn't allowed: use a comprehension",
    ast.NamedExpr: "`:=` isn't allowed",
    ast.Await: "await isn't allowed",
    ast.Yield: "yield isn't allowed",
    ast.YieldFrom: "yield isn't allowed",
}


class Rewrite(ast.NodeTransformer):
    """Routes attributes and indexes through this module. The names it inserts can't be written in an expression."""

    def visit(self, node: ast.AST) -> Any:
        if reason := REFUSED.get(type(node)):
            raise BadExpression(reason)
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self._check(node.id)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self._check(node.arg or "")
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self._check(node.attr)
        self._reads(node.ctx)
        return self._call("@attribute", node, ast.Constant(node.attr), node.value)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self._reads(node.ctx)
        if isinstance(node.slice, ast.Slice):
            return self.generic_visit(node)
        return self._call("@item", node, self.visit(node.slice), node.value)

    def _call(self, function: str, node: ast.expr, key: ast.expr, value: ast.expr) -> ast.AST:
        path = ast.Constant(short_path(value))
        call = ast.Call(ast.Name(function, ast.Load()), [self.visit(value), key, path], [])
        return ast.copy_location(call, node)

    @staticmethod
    def _check(name: str) -> None:
        if name.startswith("__"):
            raise BadExpression(f"{name!r} isn't allowed: names with two underscores are Python's own")

    @staticmethod
    def _reads(context: ast.expr_context) -> None:
        if not isinstance(context, ast.Load):
            raise BadExpression("an expression can't assign")


def short_path(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 80 else text[:77] + "..."


_compiled: dict[str, Any] = {}


def evaluate(text: str, scope: dict[str, Any]) -> Any:
    """The value of one expression; ``scope`` was made by :func:`make_scope`.

    Raises:
        BadExpression, or whatever the expression itself raises (TypeError, ZeroDivisionError, ...).
    """
    code = _compiled.get(text)
    if code is None:
        try:
            tree = ast.parse(f"({text}\n)", "<expression>", "eval")
        except SyntaxError as error:
            raise BadExpression(f"not an expression: {error.msg}") from None
        code = compile(ast.fix_missing_locations(Rewrite().visit(tree)), "<expression>", "eval")
        if len(_compiled) >= 512:
            _compiled.clear()
        _compiled[text] = code
    return eval(code, scope)


def make_scope(values: dict[str, Any]) -> dict[str, Any]:
    """The names an expression sees: helpers and built-ins, over them the values."""
    return {"__builtins__": {}, "@attribute": attribute, "@item": item, **NAMES, **values}
