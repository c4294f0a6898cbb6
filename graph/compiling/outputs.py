"""Checks of a node's output: `output_schema` first, then `accept` in the order written."""

from __future__ import annotations

from graph.compiled import Check, ExprCheck, JudgeCheck, SchemaCheck, ScriptCheck
from graph.compiling.bindings import Bindings
from graph.compiling.context import Context
from graph.compiling.implementations import model_served
from graph.compiling.schemas import load_schema
from graph.compiling.scripts import load_script
from graph.problems import Path
from graph.spec import AcceptSpec, NodeSpec
from graph.values import JSON

MOST_CHECKS = 100


def compile_checks(
    context: Context, bindings: Bindings, spec: NodeSpec, path: Path, holder: JSON, scope: tuple[str, ...]
) -> list[Check]:
    """The checks of the node at ``path``; ``holder`` is what the file has there, ``scope`` what checks may name
    beside the run's names and the nodes."""
    checks: list[Check] = []
    if "output_schema" in spec.model_fields_set:
        schema = load_schema(context, spec.output_schema, (*path, "output_schema"))
        if schema is not None:
            checks.append(SchemaCheck(name="output_schema", schema_=schema))
    if len(spec.accept or []) > MOST_CHECKS:
        context.place.problem("too_large", f"a node has at most {MOST_CHECKS} checks", (*path, "accept"))
    held = holder.get("accept") if isinstance(holder, dict) else None
    for index, entry in enumerate((spec.accept or [])[:MOST_CHECKS]):
        number = context.number((*path, "accept"), index)
        at = (*path, "accept", number)
        check = _check(context, bindings, entry, at, held[number] if isinstance(held, list) else None, scope)
        if check is not None:
            checks.append(check)
    return checks


def _check(
    context: Context, bindings: Bindings, entry: AcceptSpec, path: Path, holder: JSON, scope: tuple[str, ...]
) -> Check | None:
    given = [key for key in AcceptSpec.written() if ("schema_" if key == "schema" else key) in entry.model_fields_set]
    if len(given) != 1:
        if not context.is_broken(*path):
            message = "a check is one of `schema`, `expr`, `script`, `judge`"
            context.place.problem("bad_value", message, path, "begin each check with `- `")
        return None
    kind = given[0]
    at = (*path, kind)
    name = f"accept[{path[-1]}] {kind}"
    if entry.expr is not None:
        bindings.bare(entry.expr, at, scope)
        return ExprCheck(name=name, expr=entry.expr)
    if entry.script is not None:
        held = holder.get("script") if isinstance(holder, dict) else None
        source = load_script(context, entry.script, at, at if isinstance(held, str) else (*at, "inline"))
        return None if source is None else ScriptCheck(name=name, script=source)
    if entry.judge is not None:
        bindings.template(entry.judge.prompt, (*at, "prompt"), scope)
        if not model_served(context, entry.judge.model, (*at, "model")):
            return None
        return JudgeCheck(name=name, model=entry.judge.model, prompt=entry.judge.prompt)
    schema = load_schema(context, entry.schema_, at)
    return None if schema is None else SchemaCheck(name=name, schema_=schema)
