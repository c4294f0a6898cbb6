"""What one parsed expression holds: refused constructs, references to values in scope, and whether the host can resolve
it by itself. Nothing here evaluates anything.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graph.lexing import MAX_NESTING, ExpressionError, error_at, place_of, shown
from graph.values import JSON

BUILTINS: Final = frozenset(
    (
        *("abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "len", "list", "max", "min", "range"),
        *("reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"),
    )
)
"""Python's own functions that are in scope."""

HELPERS: Final[Mapping[str, tuple[str, ...]]] = {
    "count_by": ("items", "key"),
    "group_by": ("items", "key"),
    "pluck": ("items", "key"),
    "first": ("items", "default"),
}
"""Ferrata's own functions, with their parameters; only ``default`` may be left out."""

CONSTANTS: Final[Mapping[str, JSON]] = {"true": True, "false": False, "null": None}
"""Names of JSON's constants, beside Python's own."""

_HOST_FUNCTIONS = frozenset({*HELPERS, "len", "sum"})


@dataclass(frozen=True)
class Reference:
    """A value in scope that an expression reads: ``classify.values[0]['a']`` has the root ``classify`` and the path
    ``("values", 0, "a")``, the longest part that is known without evaluating. ``called`` is the builtin or helper that
    gets it as first argument. ``line`` and ``column`` count from 1."""

    root: str
    path: tuple[str | int, ...]
    line: int
    column: int
    called: str | None


@dataclass(frozen=True)
class HostPlan:
    """An expression that the host resolves itself: a path, or ``function`` (one of count_by, group_by, pluck, first,
    len, sum) of a path, with ``arguments`` after it."""

    root: str
    path: tuple[str | int, ...] = ()
    function: str | None = None
    arguments: tuple[str | int | float | bool | None, ...] = ()


def read(body: ast.expr, text: str) -> tuple[tuple[Reference, ...], HostPlan | None]:
    """The references of the expression ``body``, parsed from ``(text\n)``, and its plan if the host can resolve it.

    Raises:
        ExpressionError: a construct that expressions don't have, or a result that can't be JSON.
    """
    reader = _Reader(text)
    reader.check_result(body)
    reader.visit(body, frozenset(), 0)
    return tuple(reader.references), _host_plan(body)


_REFUSED: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Lambda: ("a lambda", "use a comprehension, or a script"),
    ast.NamedExpr: ("`:=`", "write the value where it is needed, or use a `value` node"),
    ast.Await: ("`await`", "an expression only computes"),
    ast.Yield: ("`yield`", "use a comprehension"),
    ast.YieldFrom: ("`yield`", "use a comprehension"),
}
_ALLOWED = (
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.Dict,
    ast.Set,
    ast.List,
    ast.Tuple,
    ast.Compare,
    ast.FormattedValue,
    ast.JoinedStr,
    ast.Slice,
    ast.Starred,
    ast.keyword,
    ast.expr_context,
    ast.boolop,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class _Reader:
    """Walks one expression: refuses what expressions don't have, collects the references."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.references: list[Reference] = []

    def check_result(self, body: ast.expr) -> None:
        """Refuse what can't be JSON whatever the values are."""
        if isinstance(body, ast.Set) and isinstance(body.elts[0], ast.Set | ast.Dict):
            raise self._error(body, "`{{ }}` isn't used here", "leave out the braces")
        if isinstance(body, ast.Set | ast.SetComp):
            raise self._error(
                body, "`{...}` without keys is a set, which isn't JSON", "leave out the braces, or use `[...]`"
            )
        if isinstance(body, ast.GeneratorExp):
            raise self._error(body, "a generator isn't JSON", "put it in `[...]`")

    def visit(self, node: ast.AST, local: frozenset[str], depth: int, called: str | None = None) -> None:
        """Visit ``node``, where the loop variables ``local`` are in scope."""
        if depth > MAX_NESTING:
            raise self._error(node, f"the expression nests deeper than {MAX_NESTING}", "use a script")
        depth += 1
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            self._path(node, local, depth, called)
        elif isinstance(node, ast.Call):
            self._call(node, local, depth)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node, local, depth)
        elif isinstance(node, ast.Constant):
            if not isinstance(node.value, str | int | float | None):
                kind = {bytes: "bytes", complex: "a complex number"}.get(type(node.value), "`...`")
                raise self._error(node, f"{kind} in an expression", "JSON has texts, numbers, true, false and null")
        elif isinstance(node, _ALLOWED):
            for child in ast.iter_child_nodes(node):
                self.visit(child, local, depth)
        else:
            what, hint = _REFUSED.get(type(node), (f"`{type(node).__name__}`", "use a script"))
            raise self._error(node, f"expressions don't have {what}", hint)

    def _path(
        self, node: ast.Name | ast.Attribute | ast.Subscript, local: frozenset[str], depth: int, called: str | None
    ) -> None:
        inner: ast.expr = node
        steps: list[str | int | None] = []
        dynamic: list[ast.expr] = []
        while not isinstance(inner, ast.Name):
            if isinstance(inner, ast.Attribute):
                self._check_name(inner.attr, inner)
                steps.append(inner.attr)
            elif isinstance(inner, ast.Subscript):
                steps.append(_literal_step(inner.slice))
                if steps[-1] is None:
                    dynamic.append(inner.slice)
            else:
                break
            if len(steps) > MAX_NESTING:
                raise self._error(node, f"a path of more than {MAX_NESTING} steps", "use a script")
            inner = inner.value
        if isinstance(inner, ast.Name):
            steps.reverse()
            path = tuple(steps[: steps.index(None)] if None in steps else steps)
            whole = len(path) == len(steps)
            self._name(inner, tuple(s for s in path if s is not None), local, called if whole else None)
        else:
            self.visit(inner, local, depth)
        for part in reversed(dynamic):
            self.visit(part, local, depth)

    def _name(self, node: ast.Name, path: tuple[str | int, ...], local: frozenset[str], called: str | None) -> None:
        self._check_name(node.id, node)
        if node.id in local or node.id in BUILTINS or node.id in HELPERS or node.id in CONSTANTS:
            return
        line, column = place_of(self._text, self._index(node))
        self.references.append(Reference(node.id, path, line, column, called))

    def _call(self, node: ast.Call, local: frozenset[str], depth: int) -> None:
        called = None
        if isinstance(node.func, ast.Attribute):
            self._check_name(node.func.attr, node.func)
            self.visit(node.func.value, local, depth)
        else:
            self.visit(node.func, local, depth)
            if isinstance(node.func, ast.Name) and node.func.id not in local:
                called = node.func.id if node.func.id in BUILTINS or node.func.id in HELPERS else None
                if node.func.id in HELPERS:
                    self._check_helper(node, HELPERS[node.func.id])
        for index, argument in enumerate(node.args):
            self.visit(argument, local, depth, called if index == 0 else None)
        for keyword in node.keywords:
            self._check_name(keyword.arg or "", keyword)
            self.visit(keyword.value, local, depth, called if keyword.arg == "items" else None)

    def _check_helper(self, node: ast.Call, parameters: tuple[str, ...]) -> None:
        bound = _bound(node, parameters)
        if bound is None:
            return
        missing = [p for p in parameters if p not in bound and p != "default"]
        if missing or len(bound) != len(node.args) + len(node.keywords) or not set(bound) <= set(parameters):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            raise self._error(node, f"wrong arguments for `{name}`", f"it is `{name}({', '.join(parameters)})`")
        key = bound.get("key")
        if isinstance(key, ast.Constant) and not isinstance(key.value, str):
            raise self._error(key, "a key is a text", "put it in quotes, like 'spdx'")

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, local: frozenset[str], depth: int
    ) -> None:
        inner = local
        for generator in node.generators:
            if generator.is_async:
                raise self._error(node, "expressions don't have `async`", "use a plain comprehension")
            self.visit(generator.iter, inner, depth)
            inner |= self._targets(generator.target)
            for condition in generator.ifs:
                self.visit(condition, inner, depth)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part, inner, depth)

    def _targets(self, target: ast.expr) -> set[str]:
        names: set[str] = set()
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self._check_name(node.id, node)
                names.add(node.id)
            elif isinstance(node, ast.expr) and not isinstance(node, ast.Tuple | ast.List | ast.Starred):
                raise self._error(node, "a loop variable must be a name", "`for x in items`")
        return names

    def _check_name(self, name: str, node: ast.AST) -> None:
        if name.startswith("__"):
            hint = f"read the key with ['{name}']" if isinstance(node, ast.Attribute) else "use another name"
            raise self._error(node, f"`{name}`: names with two underscores in front are refused", hint)

    def _index(self, node: ast.AST) -> int:
        """The character of the text where ``node`` starts; Python counts bytes, and the parenthesis put in front."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 1)
        if line == 1:
            offset -= 1
        lines = self._text.split("\n")[:line]
        column = len(lines[-1].encode(errors="replace")[: max(0, offset)].decode(errors="replace"))
        return sum(len(other) + 1 for other in lines[: line - 1]) + column

    def _error(self, node: ast.AST, message: str, hint: str) -> ExpressionError:
        return error_at(self._text, self._index(node), f"{message}, in `{shown(self._text)}`", hint)


def _literal_step(node: ast.expr) -> str | int | None:
    """The text or whole number (maybe negative) in a subscript; None if it must be evaluated."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if not isinstance(inner, ast.Constant) or isinstance(inner.value, bool):
        return None
    if isinstance(inner.value, int):
        return -inner.value if negative else inner.value
    return inner.value if isinstance(inner.value, str) and not negative else None


def _bound(node: ast.Call, parameters: tuple[str, ...]) -> dict[str, ast.expr] | None:
    """The arguments by parameter (surplus ones by number); None if a `*` or `**` hides them."""
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return None
    bound = {(parameters[i] if i < len(parameters) else str(i)): a for i, a in enumerate(node.args)}
    return {**bound, **{str(k.arg): k.value for k in node.keywords}}


def _host_plan(body: ast.expr) -> HostPlan | None:
    if not isinstance(body, ast.Call):
        return _path_plan(body)
    if not isinstance(body.func, ast.Name) or body.func.id not in _HOST_FUNCTIONS:
        return None
    name = body.func.id
    parameters = HELPERS.get(name, ("items",))
    bound = _bound(body, parameters)
    if bound is None or (name not in HELPERS and (len(body.args) != 1 or body.keywords)):
        return None
    path = _path_plan(bound["items"])
    arguments = [_literal(bound[p]) for p in parameters[1:] if p in bound]
    if path is None or any(a is _NO_LITERAL for a in arguments):
        return None
    if "key" in bound and not isinstance(arguments[0], str):
        return None
    return HostPlan(path.root, path.path, name, tuple(arguments))


def _path_plan(node: ast.expr) -> HostPlan | None:
    path: list[str | int] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            path.append(node.attr)
        elif isinstance(node, ast.Subscript) and (step := _literal_step(node.slice)) is not None:
            path.append(step)
        else:
            return None
        node = node.value
    if node.id in BUILTINS or node.id in HELPERS or node.id in CONSTANTS:
        return None
    return HostPlan(node.id, tuple(reversed(path)))


_NO_LITERAL: Final = object()


def _literal(node: ast.expr) -> JSON:
    """The value of a literal text, number, boolean or null; `_NO_LITERAL` if it is anything else."""
    if isinstance(node, ast.Name):
        return CONSTANTS.get(node.id, _NO_LITERAL)
    if isinstance(node, ast.Constant):
        return node.value
    step = _literal_step(node)
    return _NO_LITERAL if step is None else step
