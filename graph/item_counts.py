"""How many items a map has at most, as far as its graph says: a list that stands there, or a schema's `maxItems`."""

from __future__ import annotations

from collections.abc import Sequence

from graph.compiled import CompiledGraph, CompiledNode, SchemaCheck
from graph.expressions import ExpressionError, parse_template
from graph.values import JSON


def known_count(node: CompiledNode, graph: CompiledGraph) -> int | None:
    """The most items that the map ``node`` of ``graph`` works on; None if that isn't known."""
    over = node.over
    if over is None or over.source is not None:
        return None
    count = len(over.items) if isinstance(over.items, list) else declared(over.items, graph)
    return count if count is None or over.batch is None else -(-count // over.batch)


def declared(template: JSON, graph: CompiledGraph) -> int | None:
    """What the schema of a template's value says: a path of the run's input, or of a node with an `output_schema`."""
    try:
        alone = parse_template(template).alone if isinstance(template, str) else None
    except ExpressionError:  # reported where it stands
        return None
    if alone is None or alone.host is None or alone.host.function is not None:
        return None
    root, path = alone.host.root, alone.host.path
    if root == "input":
        return most_items(graph.input_schema, path)
    source = next((node for node in graph.nodes if node.name == root and node.over is None), None)
    checks = source.checks if source else []
    found = [most_items(check.schema_, path) for check in checks if isinstance(check, SchemaCheck)]
    return min((count for count in found if count is not None), default=None)


def most_items(schema: JSON, path: Sequence[str | int]) -> int | None:
    """The `maxItems` of what lies at ``path`` in a value of ``schema``."""
    for step in path:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        schema = properties.get(step) if isinstance(properties, dict) else None
    count = schema.get("maxItems") if isinstance(schema, dict) else None
    return int(count) if isinstance(count, int | float) else None
