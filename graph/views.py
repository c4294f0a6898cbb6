"""What a run shows of itself: progress, state, output. Pure functions from state to JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from graph.durations import format_duration
from graph.errors import OperateError
from graph.mermaid import mermaid
from graph.nearest import suggest
from graph.paging import pages
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
PAGE: Final = ANSWER_LIMIT * 3 // 4
"""Bytes of a page of a state or snapshot, about."""
MORE: Final = (
    'nodes say in `trimmed` what they lack; ask `state` with {"nodes": [NAME]} for some of them, or with {"page": 0}, '
    '{"page": 1} and so on, up to `pages`, for everything'
)


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
    maps: Mapping[str, dict[str, JSON]],
) -> dict[str, JSON]:
    """How far a run is: counts of nodes by status, of map items, the nodes active now, and markdown of the same.
    ``escalations`` and ``failures`` as in the run's result; ``waiting`` as `waiting` gives it; ``ignored``: what was
    sent and changed nothing; ``maps``: the pace of maps under way."""
    total = len(plan.nodes)
    done = sum(counts.get(key, 0) for key in CONCLUDED)
    lines = [f"**{plan.name}**: {status}, {done} of {total} nodes concluded"]
    lines += [f"- {key}: {counts[key]}" for key in CONCLUDED if counts.get(key)]
    if items:
        counted = ", ".join(f"{value} {key}" for key, value in items.items() if key != "items" and value)
        lines.append(f"- items: {items.get('items', 0)}" + (f", of which {counted}" if counted else ""))
    lines += [f"- `{name}`: {in_words(found)}" for name, found in maps.items()]
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
        **({"maps": dict(maps)} if maps else {}),
        "running": running[:SHOWN],
        "escalations": escalations,
        "failures": failures,
        "warnings": warnings,
        "waiting": waiting[:SHOWN],
        **ignored,
        "markdown": "\n".join(lines),
    }


def pace(items: int, done: int, milliseconds: int) -> dict[str, JSON]:
    """How fast a map is: of ``items``, ``done`` in so many milliseconds. No rate before the first is done."""
    found: dict[str, JSON] = {"items": items, "done": done}
    if not done or milliseconds <= 0:
        return found
    rate = done * 1000 / milliseconds
    return {**found, "per_second": round(rate, 1), "seconds_left": round((items - done) / rate)}


def in_words(pace: dict[str, JSON]) -> str:
    """A map's pace for people."""
    told = f"{pace['done']} of {pace['items']} items"
    if "per_second" not in pace:
        return told
    return f"{told}, {pace['per_second']:g} a second, about {format_duration(pace['seconds_left'] * 1000)} left"


def waiting(waits: Mapping[str, str], nodes: Mapping[str, NodeState], running: Iterable[str]) -> list[JSON]:
    """What nodes under way wait for: ``{"node", "for": "reply", "time" or "retry", "until": milliseconds since the
    epoch}``. ``waits`` is what each `wait` node waits for."""
    found: list[JSON] = []
    for name in running:
        progress = nodes[name].executions[-1].progress
        if nodes[name].status != "waiting" or progress is None:
            continue
        if progress.until is not None:
            found.append({"node": name, "for": waits.get(name, "time"), "until": progress.until})
        else:
            found.append({"node": name, "for": "retry", "until": progress.due})
    return found


def state(
    plan: Plan, status: str, usage: Usage, nodes: Mapping[str, NodeState], wanted: JSON = None
) -> dict[str, JSON]:
    """Everything a run knows of its nodes. ``wanted`` is None, or an object with ``nodes`` (the names of those to show)
    or ``page`` (a part of the whole, with nothing left out) or both. What is too large for an answer is trimmed,
    and says so.

    Raises:
        OperateError: ``bad_request``, ``unknown_node``, ``bad_cursor``.
    """
    names, page = read_wanted(wanted, nodes)
    answer: dict[str, JSON] = {
        "graph": plan.name,
        "fingerprint": plan.fingerprint,
        "status": status,
        "usage": usage.to_json(),
        "nodes": {name: nodes[name].to_json() for name in names},
    }
    if page is not None:
        return numbered(pages(answer, PAGE), page)
    return trimmed(answer)


def read_wanted(wanted: JSON, nodes: Mapping[str, NodeState]) -> tuple[list[str], JSON]:
    """The names of the nodes to show, and the page (None: no pages). Raises OperateError."""
    if wanted is None:
        return list(nodes), None
    if not isinstance(wanted, dict) or not wanted or not {"nodes", "page"}.issuperset(wanted):
        raise OperateError("bad_request", """`state` takes nothing, or {"nodes": [NAME, ...], "page": NUMBER}""")
    names = wanted.get("nodes", list(nodes))
    if not isinstance(names, list):
        raise OperateError("bad_request", "`nodes` must be a list of names")
    for name in names:
        if not isinstance(name, str) or name not in nodes:
            raise unknown_node(name, nodes)
    return list(dict.fromkeys(names)), wanted.get("page")


def numbered(parts: list[dict[str, JSON]], number: JSON) -> dict[str, JSON]:
    """Page ``number`` of ``parts``, counted from 0, and how many there are. Raises OperateError ``bad_cursor``."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(parts):
        raise OperateError("bad_cursor", f"there is no page {number}; pages are 0 to {len(parts) - 1}")
    return {**parts[number], "page": number, "pages": len(parts)}


def trimmed(answer: dict[str, JSON]) -> dict[str, JSON]:
    """A state with as much as fits in an answer: errors' details go first, then attempts, the ends of messages,
    executions; at the largest nodes first. Each node that lacks something says so."""
    nodes: dict[str, JSON] = answer["nodes"]
    sizes = {name: len(encode(node)) for name, node in nodes.items()}
    room = ANSWER_LIMIT - len(encode({**answer, "nodes": {}}))
    excess = sum(size + len(name) + 4 for name, size in sizes.items()) - room
    if excess <= 0:
        return answer
    excess += len(MORE) + 20
    for what, trimming in TRIMMINGS.items():
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            if excess <= 0:
                break
            node = {**trimming(nodes[name]), "trimmed": [*nodes[name].get("trimmed", []), what]}
            size = len(encode(node))
            if size < sizes[name]:
                excess -= sizes[name] - size
                nodes[name], sizes[name] = node, size
    return {**answer, "trimmed": MORE}


def without_details(node: dict[str, JSON]) -> dict[str, JSON]:
    """A node's state without its errors' details."""
    executions = [
        {**bare(execution), "attempts": [bare(attempt) for attempt in execution["attempts"]]}
        for execution in node["executions"]
    ]
    return {**node, "executions": executions}


def bare(holder: dict[str, JSON]) -> dict[str, JSON]:
    """An execution or attempt without its error's details."""
    return {**holder, "error": {**holder["error"], "details": {}}} if holder["error"] else holder


def without_attempts(node: dict[str, JSON]) -> dict[str, JSON]:
    """A node's state with only the number of attempts of each execution."""
    executions = [{**execution, "attempts": len(execution["attempts"])} for execution in node["executions"]]
    return {**node, "executions": executions}


def without_messages(node: dict[str, JSON]) -> dict[str, JSON]:
    """A node's state with only the beginning of its executions' errors' messages."""
    executions = [
        {**execution, "error": {**execution["error"], "message": trim(execution["error"]["message"], SHORT)}}
        if execution["error"]
        else execution
        for execution in node["executions"]
    ]
    return {**node, "executions": executions}


def without_executions(node: dict[str, JSON]) -> dict[str, JSON]:
    """A node's state with only the number of its executions."""
    return {**node, "executions": len(node["executions"])}


TRIMMINGS: Final[dict[str, Callable[[dict[str, JSON]], dict[str, JSON]]]] = {
    "details": without_details,
    "attempts": without_attempts,
    "messages": without_messages,
    "executions": without_executions,
}
"""What goes from a state that is too large, in this order."""


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
        raise unknown_node(name, nodes)
    value = values.get(name)
    if value is None:
        raise OperateError("no_value", f"node `{name}` has no value: it is {nodes[name].status}")
    if value.ref is not None:
        return {"node": name, "ref": value.ref.model_dump()}
    return {"node": name, "value": value.inline}


def unknown_node(name: JSON, nodes: Mapping[str, NodeState]) -> OperateError:
    """The error that no node is called ``name``."""
    hint = suggest(name, nodes) if isinstance(name, str) else "give a node's name: --input '\"NODE\"'"
    return OperateError("unknown_node", f"there is no node {trim(repr(name), SHORT)}; {hint}")


def deadline_error(plan: Plan) -> Error:
    """The error of a run that took longer than its deadline."""
    message = f"the run did not conclude within its deadline of {format_duration(plan.deadline or 0)}"
    return Error("timeout", "timeout", message, {"deadline": plan.deadline})
