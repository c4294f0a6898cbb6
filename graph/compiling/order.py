"""Order across nodes: cycles, nodes that can never run, and values read that nothing guarantees.

Only statuses and guards are reasoned about, and only what is provable is refused: a node that needs two things which
exclude each other (one succeeded and the same failed; a guard and its opposite) never runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from graph.compiling.bindings import Bindings
from graph.compiling.context import Context
from graph.compiling.nodes import Draft
from graph.problems import Path


@dataclass(frozen=True)
class Fact:
    """Something that holds whenever a node runs: ``what`` has the value ``is_``. ``origin`` is the node it is from.

    ``what`` is ``node NAME`` (``is_``: its status), ``guard TEXT`` (``is_``: true or false), or ``equal TEXT``, the
    left side of a comparison (``is_``: the text it equals).
    """

    what: str
    is_: object
    origin: str
    shown: str


@dataclass
class _Known:
    facts: dict[str, Fact] = field(default_factory=dict)
    guards: frozenset[str] = frozenset()


def check_order(context: Context, drafts: list[Draft], output: Bindings) -> None:
    """Reports cycles, nodes that never run, and reads of nodes that may not have run."""
    by_name = {draft.name: draft for draft in drafts}
    sources = {
        draft.name: list(dict.fromkeys(name for name in (*draft.uses, *draft.after) if name in by_name))
        for draft in drafts
    }
    cycles = _cycles(sources)
    for cycle in cycles:
        _report_cycle(context, by_name, cycle)
    if cycles:
        return
    # Only of a node that somebody needs failed can it matter that another needs it succeeded.
    contested = {name for draft in drafts for name, status in draft.after.items() if status == "failed"}
    known: dict[str, _Known] = {}
    never: dict[str, str] = {}
    for name in TopologicalSorter(sources).static_order():
        draft = by_name[name]
        found = _conclude(draft, sources[name], known, never, contested)
        if isinstance(found, _Known):
            known[name] = found
            _warn_of_join(context, draft, sources[name], known)
        else:
            never[name], hint = found
            known[name] = _Known()
            context.place.problem("unreachable", f"`{name}` never runs: {never[name]}", draft.path, hint, key=True)
        _check_values(context, draft)
    _check_output(context, output, known)


def _cycles(sources: dict[str, list[str]]) -> list[list[str]]:
    """One cycle for every knot of nodes that wait for each other, each beginning at its first node of the file."""
    cycles: list[list[str]] = []
    state: dict[str, int] = {}
    for root in sources:
        trail: list[str] = []
        stack: list[tuple[str, Iterable[str]]] = []
        if root not in state:
            state[root] = 1
            trail.append(root)
            stack.append((root, iter(sources[root])))
        while stack:
            name, rest = stack[-1]
            following = next(iter(rest), None)
            if following is None:
                state[name] = 2
                trail.pop()
                stack.pop()
            elif following not in state:
                state[following] = 1
                trail.append(following)
                stack.append((following, iter(sources[following])))
            elif state[following] == 1 and following != name:
                cycles.append(trail[trail.index(following) :])
    order = {name: number for number, name in enumerate(sources)}
    unique: dict[frozenset[str], list[str]] = {}
    for cycle in cycles:
        start = min(range(len(cycle)), key=lambda i: order[cycle[i]])
        unique.setdefault(frozenset(cycle), cycle[start:] + cycle[:start])
    return list(unique.values())


def _report_cycle(context: Context, drafts: dict[str, Draft], cycle: list[str]) -> None:
    # The trail goes from a node to what it waits for; people read in the direction of the values.
    names = [cycle[0], *reversed(cycle)]
    shown = " -> ".join(f"`{name}`" for name in names)
    draft = drafts[cycle[0]]
    waits_for = cycle[1 % len(cycle)]
    message, hint = f"these nodes wait for each other: {shown}", "cut one of the references; for a loop use `repeat`"
    for reference, use in draft.bindings.referenced():
        if reference.root == waits_for:
            context.place.in_text(use.path, reference.line, reference.column, "cycle", message, hint)
            return
    context.place.problem("cycle", message, draft.after_path(waits_for), hint, key=True)


def _conclude(
    draft: Draft, sources: list[str], known: dict[str, _Known], never: dict[str, str], contested: set[str]
) -> _Known | tuple[str, str | None]:
    """What holds whenever the node runs; or why it never does, and the mend."""
    result = _Known(guards=frozenset().union(*(known[s].guards for s in sources if _needs(draft, s))))
    for source in sources:
        status = _status(draft, source)
        if status == "any":
            continue
        if source in never:
            return f"it waits for `{source}`, which never runs", None
        facts = list(known[source].facts.values())
        if source in contested:
            facts.append(Fact(f"node {source}", status, source, f"`{source}` {status}"))
        for fact in facts:
            if clash := _add(result, fact):
                names = dict.fromkeys(o for o in (clash.origin, fact.origin, source) if o in sources)
                anyway = ", ".join(f"{name}: any" for name in names)
                hint = f"write `after: {{{anyway}}}`: what has no value then is null"
                return f"it needs both {clash.shown} and {fact.shown}", hint
    per_item = draft.spec.over is not None
    if draft.spec.when is not None and not per_item:
        for what, is_ in _guard_facts(draft.spec.when):
            if what == "":
                return "its guard is always false", "mend `when`, or remove the node"
            fact = Fact(what, is_, draft.name, f"`{draft.name}`'s guard `{draft.spec.when.strip()}`")
            if clash := _add(result, fact):
                return f"its guard excludes {clash.shown}, which it needs", None
        result.guards |= {draft.name}
    return result


def _add(known: _Known, fact: Fact) -> Fact | None:
    """Adds ``fact``; what it contradicts, if it does."""
    other = known.facts.setdefault(fact.what, fact)
    return other if other.is_ != fact.is_ or type(other.is_) is not type(fact.is_) else None


def _status(draft: Draft, source: str) -> str:
    return draft.after.get(source, "succeeded")


def _needs(draft: Draft, source: str) -> bool:
    return _status(draft, source) != "any"


_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.NotIn: ast.In,
    ast.IsNot: ast.Is,
}


def _guard_facts(text: str) -> list[tuple[str, object]]:
    """What a guard says when it is true, part by part of an `and`. ``("", False)``: it never is."""
    try:
        body = ast.parse(f"({text}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # reported where it was parsed
    parts = body.values if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And) else [body]
    return [fact for part in parts for fact in _part_facts(part)]


def _part_facts(part: ast.expr, holds: bool = True) -> list[tuple[str, object]]:
    while isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
        part, holds = part.operand, not holds
    constant = _constant(part)
    if isinstance(constant, bool):
        return [] if constant is holds else [("", False)]
    if isinstance(part, ast.Compare) and len(part.ops) == 1:
        opposite = _OPPOSITES.get(type(part.ops[0]))
        if opposite is not None:
            part = ast.Compare(part.left, [opposite()], part.comparators)
            holds = not holds
        value = _constant(part.comparators[0])
        facts: list[tuple[str, object]] = [(f"guard {ast.unparse(part)}", holds)]
        if isinstance(part.ops[0], ast.Eq) and holds and isinstance(value, str):
            facts.append((f"equal {ast.unparse(part.left)}", value))
        return facts
    return [(f"guard {ast.unparse(part)}", holds)]


def _constant(part: ast.expr) -> object:
    if isinstance(part, ast.Name) and part.id in ("true", "false"):
        return part.id == "true"
    return part.value if isinstance(part, ast.Constant) else None


def _warn_of_join(context: Context, draft: Draft, sources: list[str], known: dict[str, _Known]) -> None:
    """A node that reads several branches, each with a guard of its own, is skipped unless all of them ran."""
    branches = {s: known[s].guards for s in sources if _needs(draft, s) and known[s].guards}
    own = [name for name, guards in branches.items() if any(not guards & other for other in branches.values())]
    if len(own) > 1:
        names = " and ".join(f"`{name}`" for name in own)
        anyway = ", ".join(f"{name}: any" for name in own)
        message = f"`{draft.name}` is skipped unless {names} all run, and each has a guard of its own"
        hint = f"to run it in any case, write `after: {{{anyway}}}`: what has no value then is null"
        context.place.warn("may_be_skipped", message, draft.path, hint)


def _check_values(context: Context, draft: Draft) -> None:
    """A part read of a node that must have failed: it has no value."""
    for reference, use in draft.bindings.referenced():
        if draft.after.get(reference.root) == "failed" and reference.path:
            message = f"`{reference.root}` has no value here: `{draft.name}` runs only after it failed"
            hint = f"to run it in any case, write `after: {{{reference.root}: any}}`, and read `{reference.root}` whole"
            context.place.in_text(use.path, reference.line, reference.column, "no_value", message, hint)


def _check_output(context: Context, output: Bindings, known: dict[str, _Known]) -> None:
    """Parts read of nodes that may have been skipped, in the graph's output."""
    for reference, use in output.referenced():
        found = known.get(reference.root)
        if found is None or not reference.path:
            continue
        unsure = bool(found.guards) or any(fact.is_ == "failed" for fact in found.facts.values())
        if unsure:
            path: Path = use.path
            message = f"nothing guarantees that `{reference.root}` ran, and the output reads a part of it"
            hint = (
                f"put a `value` node with `after: {{{reference.root}: any}}` between, or give `{reference.root}` whole"
            )
            context.place.warn("may_be_skipped", message, path, hint)
