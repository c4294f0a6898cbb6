"""The language of `when`, `until`, `expr` and ``${...}``: Python's expressions, parsed and checked but never evaluated.

What an expression refers to, whether every name is in scope, and whether the host can resolve it by itself
(`graph.resolve`) is decided here, at load. Everything else is evaluated by the sandbox. The sandbox (and whoever else
compiles an expression) puts it in parentheses, ``(TEXT\\n)``, so that it may span lines.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from graph.lexing import ExpressionError, end_of, error_at, place_of, shown, syntax_error
from graph.nearest import nearest, suggest
from graph.references import BUILTINS, CONSTANTS, HELPERS, HostPlan, Reference, read
from graph.values import JSON, encode

__all__ = [
    "BUILTINS",
    "CONSTANTS",
    "HELPERS",
    "MAX_LENGTH",
    "Expression",
    "ExpressionError",
    "HostPlan",
    "Reference",
    "Template",
    "check_names",
    "expressions_in",
    "fill",
    "parse_expression",
    "parse_template",
    "templates_in",
    "texts_in",
]

MAX_LENGTH: Final = 10_000
"""Characters of one expression."""

_GIVEN = {*BUILTINS, *HELPERS, *CONSTANTS}
_ABSENT = {
    "map": "use a comprehension: `[x.name for x in items]`",
    "filter": "use a comprehension: `[x for x in items if x.ok]`",
    "print": "expressions only yield a value",
    "undefined": "write `null`",
    "nil": "write `null`",
    "length": "write `len(x)`",
    "size": "write `len(x)`",
    "count": "write `len(x)`, or `count_by(items, key)`",
    **dict.fromkeys(("isinstance", "type"), "give the node an `output_schema` instead"),
    **dict.fromkeys(("open", "eval", "exec", "getattr", "now", "time", "random"), "that is for a script or function"),
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression. ``text`` is as written; ``host`` is set if the host can resolve it without the sandbox."""

    text: str
    references: tuple[Reference, ...]
    host: HostPlan | None


@dataclass(frozen=True)
class Template:
    """A text with expressions in it: literal parts (``$${`` unescaped) and expressions, in order.

    The places of the expressions' references are within the template's text.
    """

    parts: tuple[str | Expression, ...]

    @property
    def alone(self) -> Expression | None:
        """The expression, if the template is one ``${...}`` and nothing else: then it yields the value itself."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0]
        return None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Its expressions, in order."""
        return tuple(part for part in self.parts if isinstance(part, Expression))


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> Expression:
    """Parse one bare expression.

    Raises:
        ExpressionError: it isn't one Python expression, uses what expressions don't have (lambdas, ``:=``, dunder
            names, ...), can't yield JSON whatever its values, or is too long or too deep.
    """
    if len(text) > MAX_LENGTH:
        raise error_at(text, 0, f"the expression is longer than {MAX_LENGTH} characters", "use a script")
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.split("\n")):
        raise error_at(text, 0, "the expression is empty", "write a name like `input`")
    end_of(text, 0, embedded=False)
    references, host = read(_parse(text), text)
    return Expression(text, references, host)


def check_names(expression: Expression, known: Collection[str]) -> list[ExpressionError]:
    """An ``unknown_name`` error for each name that is neither in ``known`` nor a builtin or helper, once per name.

    Their places are those of the references: within the text that the expression was parsed from.
    """
    errors: dict[str, ExpressionError] = {}
    for reference in expression.references:
        name = reference.root
        if name in known or name in errors:
            continue
        near = nearest(name, known)
        hint = (_ABSENT.get(name) if near is None else None) or suggest(name, {*known, *_GIVEN}) or None
        message = f"nothing here is called `{name}`, in `{shown(expression.text)}`"
        errors[name] = ExpressionError("unknown_name", message, hint, line=reference.line, column=reference.column)
    return list(errors.values())


@lru_cache(maxsize=1024)
def parse_template(text: str) -> Template:
    """Parse a text with embedded ``${...}``; ``$${`` stands for a literal ``${``.

    Raises:
        ExpressionError: an expression is wrong or its ``}`` is missing; the place is within ``text``.
    """
    parts: list[str | Expression] = []
    literal = ""
    position = 0
    while (start := text.find("${", position)) >= 0:
        if start > position and text[start - 1] == "$":
            literal += text[position : start - 1] + "${"
            position = start + 2
            continue
        literal += text[position:start]
        if literal:
            parts.append(literal)
            literal = ""
        end = _closing_brace(text, start)
        parts.append(_embedded(text, start + 2, end))
        position = end + 1
    literal += text[position:]
    if literal or not parts:
        parts.append(literal)
    return Template(tuple(parts))


def templates_in(tree: JSON) -> list[tuple[tuple[str | int, ...], Template]]:
    """Every text in ``tree`` that holds an expression, with its path, in the tree's order. Keys are no templates.

    Raises:
        ExpressionError: of the first text that can't be parsed; use `texts_in` to meet them one by one.
    """
    parsed = ((path, parse_template(text)) for path, text in texts_in(tree))
    return [(path, template) for path, template in parsed if template.expressions]


def expressions_in(tree: JSON) -> list[Expression]:
    """Every expression in ``tree``, each once. Raises as `templates_in`."""
    found = (part for _, template in templates_in(tree) for part in template.parts if isinstance(part, Expression))
    return list({expression.text: expression for expression in found}.values())


def texts_in(tree: JSON, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text in ``tree`` that has ``${`` in it, with its path, in the tree's order."""
    if isinstance(tree, str):
        if "${" in tree:
            yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from texts_in(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from texts_in(value, (*path, index))


def fill(tree: JSON, values: Mapping[str, JSON]) -> JSON:
    """``tree`` with each expression replaced by ``values[expression.text]``, and ``$${`` by ``${``.

    An expression alone yields its value; inside a longer text, a text goes in as it is and all else as compact JSON.

    Raises:
        KeyError: ``values`` lacks an expression.
        Failure: class ``invalid_output`` if a value to be put into a text isn't JSON.
    """
    if isinstance(tree, str):
        return _fill_text(tree, values) if "${" in tree else tree
    if isinstance(tree, dict):
        return {key: fill(value, values) for key, value in tree.items()}
    if isinstance(tree, list):
        return [fill(value, values) for value in tree]
    return tree


def _fill_text(text: str, values: Mapping[str, JSON]) -> JSON:
    template = parse_template(text)
    if template.alone is not None:
        return values[template.alone.text]
    return "".join(part if isinstance(part, str) else _as_text(values[part.text]) for part in template.parts)


def _as_text(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _closing_brace(text: str, start: int) -> int:
    literal = "for a literal `${` write `$${`"
    try:
        end = end_of(text, start + 2, embedded=True)
    except ExpressionError as error:
        error.hint = f"{error.hint}; {literal}"
        raise
    if end < 0:
        message = f"`${{` isn't closed in `{shown(text[start:])}`"
        raise error_at(text, start, message, f"close it with `}}` (before any `#`); {literal}")
    return end


def _embedded(text: str, start: int, end: int) -> Expression:
    line, column = place_of(text, start)
    try:
        expression = parse_expression(text[start:end])
    except ExpressionError as error:
        raise error.moved(line, column) from None
    moved = (
        replace(r, column=r.column + column - 1, line=line) if r.line == 1 else replace(r, line=r.line + line - 1)
        for r in expression.references
    )
    return replace(expression, references=tuple(moved))


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError as error:
        line, column = error.lineno or 1, (error.offset or 1) - 1
        lines = text.split("\n")
        index = sum(len(other) + 1 for other in lines[: line - 1]) + column - (1 if line == 1 else 0)
        raise syntax_error(text, index, error.msg) from None
    except (RecursionError, MemoryError):
        raise error_at(text, 0, "the expression nests too deeply", "use a script") from None
    except ValueError:  # null bytes and lone surrogates
        raise error_at(text, 0, f"a character that no text has, in `{shown(text)}`", "leave it out") from None
