"""A graph drawn as a Mermaid flowchart, with the statuses of a run if there are any."""

from __future__ import annotations

from collections.abc import Mapping

from graph.compiled import Escalate, Reroute, Retry, Rung
from graph.plan import NodePlan, Plan

_SHAPES = {
    "script": ("[", "]"),
    "function": ("[[", "]]"),
    "infer": ("([", "])"),
    "activity": ("{{", "}}"),
    "graph": ("[/", "/]"),
    "value": ("(", ")"),
    "wait": (">", "]"),
}
_COLOURS = {
    "active": "fill:#dbeafe,stroke:#1d4ed8",
    "waiting": "fill:#fef3c7,stroke:#b45309",
    "succeeded": "fill:#dcfce7,stroke:#15803d",
    "failed": "fill:#fee2e2,stroke:#b91c1c",
    "skipped": "fill:#f3f4f6,stroke:#9ca3af,stroke-dasharray:4",
    "cancelled": "fill:#e5e7eb,stroke:#4b5563",
}


def mermaid(plan: Plan, statuses: Mapping[str, str] | None = None) -> str:
    """The flowchart's text. Solid arrows carry values, dashed ones only order; a node's second line is its kind and
    ladder. ``statuses`` by node colour it; a node without one, or idle, stays plain."""
    lines = ["flowchart TD"]
    lines += [f"  {_id(node.name)}{_box(node)}" for node in plan.nodes]
    for node in plan.nodes:
        for source, status in node.sources.items():
            if source in node.uses and status == "succeeded":
                lines.append(f"  {_id(source)} --> {_id(node.name)}")
            else:
                label = f"|{status}|" if status != "succeeded" else ""
                lines.append(f"  {_id(source)} -.->{label} {_id(node.name)}")
    shown = {name: status for name, status in (statuses or {}).items() if status in _COLOURS}
    lines += [f"  classDef {status} {_COLOURS[status]}" for status in _COLOURS if status in shown.values()]
    lines += [f"  class {_id(node.name)} {shown[node.name]}" for node in plan.nodes if node.name in shown]
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    """Mermaid reads some words (`end`, `class`, ...) as its own."""
    return f"n_{name}"


def _box(node: NodePlan) -> str:
    kind = node.kinds[0]
    what = f"map of {kind}" if node.map else f"loop of {kind}" if node.max_rounds else kind
    if node.wait is not None:
        what = f"wait for a {node.wait}"
    ladder = ", ".join(_rung(rung, node) for rung in node.ladder)
    opening, closing = _SHAPES[kind]
    label = f"{node.name}<br/>{what}" + (f"<br/>{_plain(ladder)}" if ladder else "")
    return f'{opening}"{label}"{closing}'


def _rung(rung: Rung, node: NodePlan) -> str:
    if isinstance(rung, Retry):
        return f"retry {rung.times}"
    if isinstance(rung, Reroute):
        name = node.implementations[rung.implementation]
        return f"reroute {name if len(name) <= 40 else node.kinds[rung.implementation]}"
    assert isinstance(rung, Escalate)
    return "escalate"


def _plain(text: str) -> str:
    """Without what would end a label or be read as HTML."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
