"""Types across nodes: what is provably wrong is refused, what can't be known is left alone.

A type is a JSON Schema, and what it says for certain: a property that a closed object lacks, a key of a text, a map
taken for a list. Combinations (`anyOf`, `if`, ...) only ever add to that, so they are not looked into.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from graph.compiling.bindings import Bindings, Use
from graph.compiling.context import Context
from graph.compiling.nodes import Draft
from graph.compiling.schemas import resolve_pointer
from graph.compiling.waits import REPLY
from graph.expressions import ExpressionError, Reference, parse_template
from graph.nearest import suggest
from graph.problems import Path
from graph.times import EXAMPLE
from graph.values import JSON

RUN_SCHEMA: JSON = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "graph": {"type": "string"}, "started": {"type": "string"}},
    "additionalProperties": False,
}
LIST_FUNCTIONS = frozenset({"len", "sum", "count_by", "group_by", "pluck", "first", "sorted", "any", "all", "enumerate",
                            "list", "max", "min", "reversed", "set", "tuple", "zip"})  # fmt: skip
BARE = frozenset({("when", "when"), ("repeat", "until"), ("accept", "expr")})
"""Where a node has bare expressions: the option, and the key of the expression itself."""
_TYPES = {"object": dict, "array": list, "string": str}
_NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}


@dataclass(frozen=True)
class Shape:
    """What is known of a value: a schema, and the schema it is part of (for `$ref`). ``is_map``: a map's output."""

    schema: JSON
    root: JSON
    is_map: bool = False


UNKNOWN = Shape(True, True)
NULL = Shape({"type": "null"}, True)


@dataclass(frozen=True)
class Wrong:
    """What is provably wrong with a path, after ``steps`` of it."""

    message: str
    hint: str | None


def check_types(context: Context, drafts: list[Draft], output: Bindings, template: JSON, input_schema: JSON) -> None:
    """Reports every expression of the graph that can't be right whatever the values are."""
    shapes = _Shapes(drafts, input_schema)
    for draft in drafts:
        scope = shapes.scope_of(draft)
        for use in draft.bindings.uses:
            _check_use(context, use, scope)
        _check_expected(context, draft, scope)
        _check_child_input(context, draft)
    scope = _Scope(shapes, {})
    for use in output.uses:
        _check_use(context, use, scope)


class _Shapes:
    """The shapes of all names, worked out once each."""

    def __init__(self, drafts: list[Draft], input_schema: JSON) -> None:
        self._drafts = {draft.name: draft for draft in drafts}
        self._input = UNKNOWN if input_schema is None else Shape(input_schema, input_schema)
        self._nodes: dict[str, Shape] = {}

    def scope_of(self, draft: Draft) -> _Scope:
        """The names in scope in a node's expressions."""
        own = {"output": self._one(draft)}
        if "over" in draft.spec.model_fields_set:
            own["item"] = self._item(draft, _Scope(self, {}))
            own["index"] = Shape({"type": "integer"}, True)
        return _Scope(self, own)

    def named(self, name: str) -> Shape:
        """What is in scope everywhere: the run's names and the nodes."""
        if name == "input":
            return self._input
        if name == "run":
            return Shape(RUN_SCHEMA, RUN_SCHEMA)
        return self.node(name) if name in self._drafts else UNKNOWN

    def node(self, name: str) -> Shape:
        """What a node's value looks like to others."""
        if name not in self._nodes:
            draft = self._drafts[name]
            self._nodes[name] = UNKNOWN  # a node that refers to itself, however far around, is reported elsewhere
            one = self._one(draft)
            self._nodes[name] = _map_shape(one) if "over" in draft.spec.model_fields_set else one
        return self._nodes[name]

    def _one(self, draft: Draft) -> Shape:
        """What one output of the node looks like."""
        node = draft.node
        if node is None:
            return UNKNOWN
        for check in node.checks:
            if check.check == "schema" and check.name in ("output_schema", REPLY):
                return Shape(check.schema_, check.schema_)
        if len(node.implementations) > 1:
            return UNKNOWN
        own = node.implementations[0]
        if own.wait is not None and own.wait.what != "reply":
            return NULL
        if own.kind == "value":
            return self._derived(own.value, 0)
        if own.infer is not None and own.infer.format == "text":
            return Shape({"type": "string"}, True)
        return UNKNOWN

    def _derived(self, tree: JSON, depth: int) -> Shape:
        """The shape of a template's value."""
        if isinstance(tree, dict) and depth < 20:
            properties = {key: self._derived(value, depth + 1).schema for key, value in tree.items()}
            return Shape({"type": "object", "properties": properties, "additionalProperties": False}, True)
        if isinstance(tree, list):
            return Shape({"type": "array"}, True)
        if isinstance(tree, str) and "${" in tree:
            try:
                alone = parse_template(tree).alone
            except ExpressionError:
                return UNKNOWN
            return UNKNOWN if alone is not None else Shape({"type": "string"}, True)
        return Shape({"type": _type_of(tree)}, True)

    def _item(self, draft: Draft, scope: _Scope) -> Shape:
        """What one item of a map looks like, if the list is a plain path into something known."""
        items = _template_shape(draft.spec.over.items, scope) if draft.spec.over is not None else None
        if items is None:
            return UNKNOWN
        inner = _step(items, 0)
        if isinstance(inner, Wrong):
            return UNKNOWN
        if draft.spec.batch is not None:
            return Shape({"type": "array", "items": inner.schema}, inner.root)
        return inner


@dataclass(frozen=True)
class _Scope:
    """The shapes of names, those of one node's expressions first."""

    shapes: _Shapes
    own: Mapping[str, Shape]

    def of(self, name: str, untyped: Collection[str] = ()) -> Shape:
        """The shape of ``name``; unknown if it is among ``untyped``, or not in scope."""
        if name in untyped:
            return UNKNOWN
        return self.own[name] if name in self.own else self.shapes.named(name)


def _map_shape(one: Shape) -> Shape:
    count = {"type": "integer"}
    failure = {
        "type": "object",
        "properties": dict.fromkeys(("index", "item", "code", "reason"), True),
    }
    schema = {
        "type": "object",
        "properties": {
            "values": {"type": "array", "items": one.schema},
            "indexes": {"type": "array", "items": count},
            "failures": {"type": "array", "items": failure},
            "succeeded": count,
            "failed": count,
            "escalated": count,
            "skipped": count,
        },
        "additionalProperties": False,
    }
    return Shape(schema, one.root, is_map=True)


def _check_use(context: Context, use: Use, scope: _Scope) -> None:
    for reference in use.expression.references:
        shape = scope.of(reference.root, use.untyped)
        found = _follow(shape, reference)
        if isinstance(found, Wrong):
            place = (use.path, reference.line, reference.column)
            context.place.in_text(*place, "type_error", f"`{_text(reference)}`: {found.message}", found.hint)
    for name, line, column in _iterated(use):
        if scope.of(name).is_map:
            wrong = _map_as_list(name)
            context.place.in_text(use.path, line, column, "type_error", f"`{name}`: {wrong.message}", wrong.hint)


def _follow(shape: Shape, reference: Reference) -> Shape | Wrong:
    """The shape at the end of a reference's path, or what is wrong on the way."""
    for number, step in enumerate(reference.path):
        if shape.is_map and isinstance(step, int):
            return _map_as_list(reference.root)
        following = _step(shape, step)
        if isinstance(following, Wrong):
            if shape.is_map and number == 0:
                hint = following.hint or f"an item's output is in `{reference.root}.values`"
                return Wrong(f"`{reference.root}` is a map: {following.message}", hint)
            return following
        shape = following
    if shape.is_map and not reference.path and reference.called in LIST_FUNCTIONS:
        return _map_as_list(reference.root)
    types = _types(shape)
    if reference.called in ("len", *LIST_FUNCTIONS) and types and not types & {"array", "object", "string"}:
        return Wrong(f"it is {_listed(types)}, which `{reference.called}` doesn't take", None)
    return shape


def _map_as_list(name: str) -> Wrong:
    return Wrong("it is a map's output, not a list", f"write `{name}.values`")


def _step(shape: Shape, step: str | int) -> Shape | Wrong:
    """The shape of a key or item of ``shape``; Wrong if it can't have one."""
    types = _types(shape)
    schema = _resolved(shape)
    if isinstance(step, str):
        if types and "object" not in types:
            return Wrong(f"it is {_listed(types)}, which has no key `{step}`", None)
        return _property(shape, schema, step)
    if types and not types & {"array", "string"}:
        hint = f"write `['{step}']` for the key" if types == {"object"} else None
        return Wrong(f"it is {_listed(types)}, which has no item {step}", hint)
    if not isinstance(schema, dict) or "array" not in (types or {"array"}):
        return UNKNOWN
    prefix = schema.get("prefixItems")
    if isinstance(prefix, list) and prefix:
        return Shape(prefix[step], shape.root) if 0 <= step < len(prefix) else UNKNOWN
    return Shape(schema.get("items", True), shape.root) if types == {"array"} else UNKNOWN


def _property(shape: Shape, schema: JSON, name: str) -> Shape | Wrong:
    if not isinstance(schema, dict):
        return UNKNOWN
    properties = schema.get("properties", {})
    if name in properties:
        return Shape(properties[name], shape.root)
    additional = schema.get("additionalProperties", True)
    if schema.get("patternProperties"):
        return UNKNOWN
    if additional is False:
        known = ", ".join(f"`{key}`" for key in list(properties)[:8])
        hint = suggest(name, properties) or (f"it has {known}" if known else None)
        return Wrong(f"there is no `{name}` in it", hint)
    return UNKNOWN


def _resolved(shape: Shape) -> Any:
    """The schema, a `$ref` of nothing else followed."""
    schema = shape.schema
    for _ in range(20):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            return schema
        if "properties" in schema or "additionalProperties" in schema:
            return schema
        target = schema["$ref"]
        schema = shape.root if target == "#" else resolve_pointer(shape.root, target) if target[:2] == "#/" else True
    return True


def _types(shape: Shape) -> set[str]:
    """The JSON types that the schema allows; empty: not known."""
    schema = _resolved(shape)
    if not isinstance(schema, dict):
        return set()
    given = schema.get("type")
    if isinstance(given, str):
        return {given}
    if isinstance(given, list):
        return set(given)
    if "const" in schema:
        return {_type_of(schema["const"])}
    return set()


def _type_of(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _listed(types: set[str]) -> str:
    return " or ".join(_NAMES.get(t, t) for t in sorted(types))


def _text(reference: Reference) -> str:
    text = reference.root
    for step in reference.path:
        text += f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"
    return text


def _iterated(use: Use) -> list[tuple[str, int, int]]:
    """Names that a comprehension of the expression runs over, or that are sliced, with their places."""
    if "for" not in use.expression.text and "[" not in use.expression.text:
        return []
    body = ast.parse(f"({use.expression.text}\n)", mode="eval")
    names = set()
    for node in ast.walk(body):
        if isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Name):
            names.add(node.iter.id)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.value, ast.Name):
            names.add(node.value.id)
    return [(r.root, r.line, r.column) for r in use.expression.references if r.root in names and not r.path]


def _template_shape(tree: JSON, scope: _Scope) -> Shape | None:
    """The shape of a template that is a plain path; None if it isn't one, or wrong (which is reported elsewhere)."""
    if not isinstance(tree, str) or "${" not in tree:
        return None
    try:
        alone = parse_template(tree).alone
    except ExpressionError:
        return None
    if alone is None or alone.host is None or alone.host.function is not None:
        return None
    found = _follow(scope.of(alone.host.root), alone.references[0])
    return None if isinstance(found, Wrong) else found


def _check_expected(context: Context, draft: Draft, scope: _Scope) -> None:
    """`over` must be a list; guards, `until` and `expr` must be booleans; times of a `wait` are texts."""
    for use in draft.bindings.uses:
        host = use.expression.host
        if host is None or host.root in use.untyped or not use.alone:
            continue
        key, option = use.path[2], use.path[-1]
        shape = _follow(scope.of(host.root), use.expression.references[0])
        if isinstance(shape, Wrong):
            continue
        types = _types(shape) if host.function is None else {"integer"} if host.function in ("len", "sum") else set()
        if key == "over" and len(use.path) == 3 and host.function is None:
            if shape.is_map and not host.path:
                wrong = _map_as_list(host.root)
                _at_use(context, use, f"`{host.root}`: {wrong.message}", wrong.hint)
            elif types and "array" not in types:
                _at_use(context, use, f"`over` needs a list, and `{use.expression.text}` is {_listed(types)}", None)
        elif key == "wait" and types and "string" not in types:
            what = "a duration, a text such as `90s`" if option == "for" else f"a time, a text such as `{EXAMPLE}`"
            message = f"`{option}` needs {what}, and `{use.expression.text}` is {_listed(types)}"
            seconds = option == "for" and types <= {"integer", "number"}
            hint = f'write `for: "${{{use.expression.text}}}s"` for seconds' if seconds else None
            _at_use(context, use, message, hint)
        elif (key, option) in BARE and types and "boolean" not in types:
            message = f"`{option}` needs true or false, and `{use.expression.text}` is {_listed(types)}"
            _at_use(context, use, message, f"compare it: `{use.expression.text} == ...`")


def _at_use(context: Context, use: Use, message: str, hint: str | None) -> None:
    reference = use.expression.references[0]
    context.place.in_text(use.path, reference.line, reference.column, "type_error", message, hint)


def _check_child_input(context: Context, draft: Draft) -> None:
    """The input written out for a child graph, against what the child requires."""
    given = draft.spec.input
    schema = draft.child.input_schema if draft.child is not None else None
    if not isinstance(given, dict) or not isinstance(schema, dict):
        return
    at: Path = (*draft.path, "input")
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in given and not (isinstance(properties.get(name), dict) and "default" in properties[name]):
            message = f"the graph of `{draft.name}` requires `{name}` in its input"
            context.place.problem("missing_input", message, at, f"add `{name}` to `input`")
    for name in given:
        found = _property(Shape(schema, schema), schema, name)
        if isinstance(found, Wrong):
            message = f"the input of the graph of `{draft.name}` has no `{name}`"
            context.place.problem("type_error", message, (*at, name), found.hint, key=True)
