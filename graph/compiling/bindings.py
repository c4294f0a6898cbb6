"""Expressions and templates of one graph: parsed, their names checked, every use of a name noted with its place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from graph.expressions import (
    Expression,
    ExpressionError,
    Reference,
    check_names,
    parse_expression,
    parse_template,
    texts_in,
)
from graph.problems import Path, Place
from graph.values import JSON

RUN_NAMES = ("input", "run")
ITEM_NAMES = ("item", "index")


@dataclass(frozen=True)
class Use:
    """An expression and the path of the text that holds it. Of ``untyped`` names the type isn't known there.

    ``alone``: the expression's value is the whole value at ``path``.
    """

    expression: Expression
    path: Path
    alone: bool
    untyped: frozenset[str] = frozenset()


@dataclass
class Bindings:
    """The expressions of one node (or of the graph's output)."""

    place: Place
    nodes: Collection[str]
    outer: Collection[str] = ()
    """Nodes of the graphs around this one: not in scope, but a likely mistake."""
    uses: list[Use] = field(default_factory=list)

    def bare(self, text: str, path: Path, extra: Collection[str] = (), untyped: Collection[str] = ()) -> None:
        """Takes a bare expression. ``extra`` names are in scope beside the run's and the nodes."""
        try:
            expression = parse_expression(text)
        except ExpressionError as error:
            self.place.expression(error, path)
            return
        self._take(Use(expression, path, True, frozenset(untyped)), extra)

    def template(self, tree: JSON, path: Path, extra: Collection[str] = (), untyped: Collection[str] = ()) -> None:
        """Takes every ``${...}`` in ``tree``, which stands at ``path``."""
        for where, text in texts_in(tree, path):
            try:
                template = parse_template(text)
            except ExpressionError as error:
                self.place.expression(error, where)
                continue
            for expression in template.expressions:
                self._take(Use(expression, where, template.alone is expression, frozenset(untyped)), extra)

    def _take(self, use: Use, extra: Collection[str]) -> None:
        for error in check_names(use.expression, {*RUN_NAMES, *extra, *self.nodes}):
            name = next(
                (r.root for r in use.expression.references if (r.line, r.column) == (error.line, error.column)), ""
            )
            if name in ITEM_NAMES:
                error.hint = f"`{name}` is in scope in the bindings and checks of a map: give the node `over`"
            elif name == "output":
                error.hint = "`output` is in scope in checks (`accept`) and in `repeat: {until: ...}` only"
            elif name in self.outer:
                error.hint = f'a child graph sees only its own `input`: pass it, as `input: {{{name}: "${{{name}}}"}}`'
            self.place.expression(error, use.path)
        self.uses.append(use)

    def referenced(self) -> list[tuple[Reference, Use]]:
        """Every reference to a node, in the order written."""
        return [(r, use) for use in self.uses for r in use.expression.references if r.root in self.nodes]

    def used_nodes(self) -> set[str]:
        """The nodes whose values are named."""
        return {reference.root for reference, _ in self.referenced()}

    def names(self, wanted: Collection[str]) -> bool:
        """Whether any expression names one of ``wanted``."""
        return any(r.root in wanted for use in self.uses for r in use.expression.references)
