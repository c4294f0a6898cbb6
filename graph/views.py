"""What a run shows of itself: progress, state, output. Pure functions from state to JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graph.durations import format_duration
from graph.errors import OperateError
from graph.mermaid import mermaid
from graph.nearest import suggest
from graph.plan import Plan
from graph.state import Error, NodeState, NodeStatus, Usage
from graph.values import ANSWER_LIMIT, JSON, Value, encode, trim
from graph.wire import Entry

__all__ = ["deadline_error", "escalations", "mermaid", "output", "progress", "state"]

CONCLUDED: tuple[NodeStatus, ...] = ("succeeded", "failed", "skipped", "cancelled")
SHOWN = 10
"""Names listed in progress before it only counts."""
NAMED = {"reply": "a reply", "time": "a time", "retry": "a retry"}
SHORT = 100
"""Bytes of a reason in an answer that would be too large."""


def progress(
    status: str,
    plan: Plan,
    counts: Mapping[NodeStatus, int],
    running: list[str],
    items: Mapping[str, int],
    escalations: int,
    failures: int,
    warnings: list[str],
    waiting: list[JSON],
    ignored: dict[str, JSON],
) -> dict[str, JSON]:
    """How far a run is: counts of nodes by status, of map items, the nodes active now, and markdown of the same.
    ``escalations`` and ``failures`` as in the run's result; ``waiting`` as `waiting` gives it; ``ignored``: what was
    sent and changed nothing."""
    total = len(plan.nodes)
    done = sum(counts.get(key, 0) for key in CONCLUDED)
    lines = [f"**{plan.name}**: {status}, {done} of {total} nodes concluded"]
    lines += [f"- {key}: {counts[key]}" for key in CONCLUDED if counts.get(key)]
    if items:
        counted = ", ".join(f"{value} {key}" for key, value in items.items() if key != "items" and value)
        lines.append(f"- items: {items.get('items', 0)}" + (f", of which {counted}" if counted else ""))
    lines += [f"- {name}: {value}" for name, value in (("escalations", escalations), ("failures", failures)) if value]
    if waiting:
        more = f" and {len(waiting) - SHOWN} more" if len(waiting) > SHOWN else ""
        shown = ", ".join(f"`{entry['node']}` for {NAMED[entry['for']]}" for entry in waiting[:SHOWN])
        lines.append(f"- waiting: {shown}{more}")
    if running:
        more = f" and {len(running) - SHOWN} more" if len(running) > SHOWN else ""
        lines.append("- running: " + ", ".join(f"`{name}`" for name in running[:SHOWN]) + more)
    return {
        "graph": plan.name,
        "status": status,
        "nodes": {"total": total, **{key: value for key, value in counts.items() if value}},
        "items": dict(items),
        "running": running[:SHOWN],
        "escalations": escalations,
        "failures": failures,
        "warnings": warnings,
        "waiting": waiting[:SHOWN],
        **ignored,
        "markdown": "\n".join(lines),
    }


def waiting(plan: Plan, nodes: Mapping[str, NodeState], running: Sequence[str]) -> list[JSON]:
    """What nodes under way wait for: ``{"node", "for": "reply", "time" or "retry", "until": milliseconds since the
    epoch}``."""
    kinds = {node.name: node.wait for node in plan.nodes}
    found: list[JSON] = []
    for name in running:
        progress = nodes[name].executions[-1].progress
        if nodes[name].status != "waiting" or progress is None:
            continue
        if progress.until is not None:
            found.append({"node": name, "for": kinds[name] or "time", "until": progress.until})
        else:
            found.append({"node": name, "for": "retry", "until": progress.due})
    return found


def state(plan: Plan, status: str, usage: Usage, nodes: Mapping[str, NodeState]) -> dict[str, JSON]:
    """Everything a run knows of its nodes. Above the limit of an answer errors' details go first, then attempts."""
    answer: dict[str, JSON] = {
        "graph": plan.name,
        "fingerprint": plan.fingerprint,
        "status": status,
        "usage": usage.to_json(),
        "nodes": {name: node.to_json() for name, node in nodes.items()},
    }
    for trimming in (without_details, without_attempts, without_reasons):
        if len(encode(answer)) <= ANSWER_LIMIT:
            break
        answer["nodes"] = {name: trimming(node) for name, node in answer["nodes"].items()}
        answer["trimmed"] = "errors' details or attempts were left out; `temporal workflow show` has them all"
    return answer


def without_details(node: dict[str, JSON]) -> dict[str, JSON]:
    """A node's state without its errors' details."""
    for execution in node["executions"]:
        for holder in (execution, *execution["attempts"]):
            if holder["error"]:
                holder["error"] = {**holder["error"], "details": {}}
    return node


def without_attempts(node: dict[str, JSON]) -> dict[str, JSON]:
    """A node's state with only the number of attempts of each execution."""
    for execution in node["executions"]:
        execution["attempts"] = len(execution["attempts"])
    return node


def without_reasons(node: dict[str, JSON]) -> dict[str, JSON]:
    """A node's state with only the beginning of its errors' messages."""
    for execution in node["executions"]:
        if execution["error"]:
            execution["error"] = {**execution["error"], "message": trim(execution["error"]["message"], SHORT)}
    return node


def escalations(entries: Sequence[Entry]) -> list[JSON]:
    """What a run escalated, oldest first. Above the limit of an answer, inputs, samples and the ends of reasons go."""
    answer = [entry.to_json() for entry in entries]
    if len(encode(answer)) <= ANSWER_LIMIT:
        return answer
    note = "the input or sample and the end of the reason were left out; the queue has them"
    for data in answer:
        data.update({"input": None, "reason": trim(data["reason"], SHORT), "trimmed": note})
        data.pop("sample", None)
    return answer


def output(nodes: Mapping[str, NodeState], values: Mapping[str, Value], name: JSON) -> dict[str, JSON]:
    """A concluded node's value, or where it lies in the store.

    Raises:
        OperateError: `unknown_node` or `no_value`.
    """
    if not isinstance(name, str) or name not in nodes:
        hint = suggest(name, nodes) if isinstance(name, str) else "give a node's name: --input '\"NODE\"'"
        raise OperateError("unknown_node", f"there is no node {name!r}; {hint}")
    value = values.get(name)
    if value is None:
        raise OperateError("no_value", f"node `{name}` has no value: it is {nodes[name].status}")
    if value.ref is not None:
        return {"node": name, "ref": value.ref.model_dump()}
    return {"node": name, "value": value.inline}


def deadline_error(plan: Plan) -> Error:
    """The error of a run that took longer than its deadline."""
    message = f"the run did not conclude within its deadline of {format_duration(plan.deadline or 0)}"
    return Error("timeout", "timeout", message, {"deadline": plan.deadline})
