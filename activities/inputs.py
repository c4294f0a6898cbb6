"""A run's input: defaults filled in, checked against its graph's schema."""

from __future__ import annotations

from activities.schemas import compiled
from graph.compiled import CompiledGraph
from graph.errors import LoadError, Problem
from graph.values import JSON, encode, trim


def check_input(graph: CompiledGraph, input: JSON) -> JSON:
    """The run's input with top-level defaults of its schema filled in.

    Raises:
        LoadError: ``invalid_input``, one problem for each violation of `input_schema`.
    """
    schema = graph.input_schema
    if schema is None:
        return input
    if (
        isinstance(schema, dict)
        and isinstance(schema.get("properties"), dict)
        and (input is None or isinstance(input, dict))
    ):
        defaults = {
            key: part["default"]
            for key, part in schema["properties"].items()
            if isinstance(part, dict) and "default" in part
        }
        # No input at all counts as an empty object, if that is what the schema wants.
        filled = {**defaults, **(input or {})}
        input = filled if input is not None or schema.get("type") == "object" else input
    if not compiled(schema).is_valid(input):
        raise LoadError(violations(schema, input))
    encode(input)
    return input


def violations(schema: JSON, input: JSON) -> list[Problem]:
    """What is wrong with an input, the first 50."""
    problems = [
        Problem(
            code="invalid_input",
            message=trim(f"the run's input at {error.json_path}: {error.message}", 500),
            hint="mend the input that the run is started with, or `input_schema` of the graph",
        )
        for error in compiled(schema).slow.iter_errors(input)
    ]
    return problems[:50]
