"""The plan of a compiled graph: the structure that the workflow schedules by, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graph.compiled import CompiledGraph, CompiledNode, Implementation
from graph.expressions import parse_template
from graph.plan import NodePlan, Plan

IN_CHUNK: Final = frozenset({"script", "function", "value", "infer"})
"""The kinds of node that need no workflow."""


def plan_of(graph: CompiledGraph) -> Plan:
    """The plan. ``child`` is set for the child graphs that are stored already (``graph.refs``)."""
    return Plan(
        name=graph.name,
        fingerprint=graph.fingerprint,
        nodes=[_node_plan(graph, node) for node in graph.nodes],
        output_node=_output_node(graph),
        output_uses=graph.output_uses,
        on_failure=graph.on_failure,
        deadline=graph.deadline,
    )


def item_plan(graph: CompiledGraph, name: str) -> Plan:
    """The plan of a run for one item of the map ``name``. Raises KeyError."""
    return plan_of(item_graph(graph, name))


def item_graph(graph: CompiledGraph, name: str) -> CompiledGraph:
    """What a run for one item of the map ``name`` runs: its node alone, with its ladder. Raises KeyError."""
    node = graph.node(name)
    limits = node.limits.model_copy(update={"deadline": None})  # that is the whole map's
    alone: dict[str, object] = {"over": None, "uses": [], "after": {}, "optional": False, "limits": limits}
    changes = {
        "name": f"{graph.name}.{name}",
        "nodes": [node.model_copy(update=alone)],
        "output": None,
        "output_uses": [name],
        "on_failure": "stop",
        "deadline": None,
        "stretch": False,
    }
    return graph.model_copy(update=changes)


def sinks(nodes: Sequence[CompiledNode]) -> list[str]:
    """The nodes that no other reads or follows, in file order; one that only handles another's failure leaves that
    one a sink."""
    followed = {
        name for node in nodes for name in (*node.uses, *node.after) if node.after.get(name, "succeeded") != "failed"
    }
    return [node.name for node in nodes if node.name not in followed]


def _node_plan(graph: CompiledGraph, node: CompiledNode) -> NodePlan:
    own = node.implementations[0]
    return NodePlan(
        name=node.name,
        kinds=[implementation.kind for implementation in node.implementations],
        implementations=[implementation.id for implementation in node.implementations],
        uses=node.uses,
        after=node.after,
        ladder=node.ladder,
        timeout=node.limits.timeout,
        deadline=node.limits.deadline,
        optional=node.optional,
        map=node.over is not None,
        concurrency=node.over.concurrency if node.over else None,
        apart=node.over is not None and node.over.apart,
        pure=graph.stretch and node.over is None and is_pure(own),
        max_rounds=node.repeat.max_rounds if node.repeat else None,
        task_queue=own.activity.task_queue if own.activity else None,
        child=graph.refs.get(own.graph) if own.graph else None,
        wait=None if own.wait is None else "reply" if own.wait.what == "reply" else "time",
    )


def is_pure(implementation: Implementation) -> bool:
    """Whether the same input always gives the same output."""
    return implementation.kind == "value" or (implementation.kind == "script" and not implementation.models)


def fits_chunk(graph: CompiledGraph) -> bool:
    """Whether an item of a map can pass through ``graph`` inside a chunk: nothing in it needs a workflow."""
    return all(
        node.over is None and all(each.kind in IN_CHUNK for each in node.implementations) for node in graph.nodes
    )


def _output_node(graph: CompiledGraph) -> str | None:
    """The node whose value is the output as it is, if there is one."""
    if graph.output is None:
        return graph.output_uses[0] if len(graph.output_uses) == 1 else None
    if not isinstance(graph.output, str) or "${" not in graph.output:
        return None
    alone = parse_template(graph.output).alone
    if alone is None or alone.host is None or alone.host.function is not None or alone.host.path:
        return None
    return alone.host.root if alone.host.root in graph.output_uses else None
