"""`wait` nodes: for a time, until a time, for a reply; and the options that mean nothing to them."""

from __future__ import annotations

from graph.compiled import Implementation, SchemaCheck, Wait
from graph.compiling.bindings import Bindings
from graph.compiling.context import Context
from graph.compiling.schemas import load_schema
from graph.durations import parse_duration
from graph.problems import Path
from graph.spec import NodeSpec, WaitSpec
from graph.values import JSON

REPLY = "reply"
"""Name of the check that holds a reply's schema."""


def compile_wait(context: Context, bindings: Bindings, spec: WaitSpec, path: Path) -> Implementation | None:
    """What the node at ``path`` waits for. None (and a problem) if it isn't one thing."""
    given = [key for key in WaitSpec.written() if ("for_" if key == "for" else key) in spec.model_fields_set]
    if len(given) != 1:
        if not context.is_broken(*path):
            mend = "make it two nodes, one beside it or after it" if given else "write `wait: {for: 5m}`"
            context.place.problem("bad_value", "a node waits for one of `for`, `until`, `reply`", path, mend)
        return None
    if spec.for_ is not None:
        bindings.template(spec.for_, (*path, "for"))
        return Implementation(kind="wait", id="wait:for", wait=Wait(what="for", time=spec.for_))
    if spec.until is not None:
        bindings.template(spec.until, (*path, "until"))
        return Implementation(kind="wait", id="wait:until", wait=Wait(what="until", time=spec.until))
    return Implementation(kind="wait", id="wait:reply", wait=Wait(what="reply"))


def reply_check(context: Context, spec: NodeSpec, path: Path) -> SchemaCheck | None:
    """The schema of the reply that the node at ``path`` waits for, as the first of its checks."""
    if spec.wait is None or "reply" not in spec.wait.model_fields_set:
        return None
    schema: JSON = load_schema(context, spec.wait.reply, (*path, "wait", "reply"))
    return None if schema is None else SchemaCheck(name=REPLY, schema_=schema)


def check_wait_options(context: Context, spec: NodeSpec, path: Path, holder: dict[str, JSON]) -> None:
    """Options that a node which only waits has no use for."""
    place = context.place
    if "over" in holder:
        message = "a wait can't be a map: a node waits once"
        mend = "let a node before or after the map wait, and order them by `after`"
        place.problem("misplaced_key", message, (*path, "over"), mend, key=True)
    if "input" in holder and not _reads_input(context, spec, path):
        message = "nothing reads the `input` of this wait"
        mend = "leave it out: it is what a script, a function or a person gets when the ladder turns to them"
        place.problem("misplaced_key", message, (*path, "input"), mend, key=True)
    if spec.wait is None or (spec.wait.for_ is None and spec.wait.until is None):
        return
    for key in ("output_schema", "accept"):
        if key in holder:
            message = f"a wait for a time yields null, so there is nothing for `{key}` to check"
            place.problem("misplaced_key", message, (*path, key), "leave it out", key=True)
    _check_length(context, spec, path)


def _reads_input(context: Context, spec: NodeSpec, path: Path) -> bool:
    """Whether a script, a function or a person may be given the node's input."""
    if any(context.is_broken(*path, key) for key in ("on_fail", "accept")):
        return True
    rungs, checks = spec.on_fail or [], spec.accept or []
    turned_to = (rung.reroute for rung in rungs if rung.reroute is not None)
    return (
        any(reroute.script is not None or reroute.function is not None for reroute in turned_to)
        or any(rung.escalate is not None for rung in rungs)
        or any(check.script is not None for check in checks)
    )


def _check_length(context: Context, spec: NodeSpec, path: Path) -> None:
    """A wait that its own limits always end."""
    if spec.wait is None or spec.wait.for_ is None or "${" in spec.wait.for_:
        return
    for key, limit in (("timeout", spec.timeout), ("deadline", spec.deadline)):
        if limit is not None and limit < parse_duration(spec.wait.for_):
            message = f"the wait is longer than its `{key}`, so it always fails"
            context.place.warn("pointless", message, (*path, key), f"wait shorter, or set a longer `{key}`")
            return
