"""The JSON Schema of graph files, for editors: ``python -m graph.schema`` prints docs/graph.schema.json.

It is made from the models of :mod:`graph.spec` and knows shapes only; the compiler knows more.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from graph.spec import GraphSpec
from graph.values import JSON

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Leaves out what editors show as noise: titles, and defaults of null."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never: a key's name is its title."""
        return False

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """The default, unless it means that the key is left out."""
        made = super().default_schema(schema)
        if made.get("default", ...) is None:
            del made["default"]
        return made

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        """The type itself: a key without a value is refused."""
        return self.generate_inner(schema["schema"])


def graph_schema() -> dict[str, JSON]:
    """The schema of a graph file."""
    schema = GraphSpec.model_json_schema(mode="validation", schema_generator=_Generator)
    schema["patternProperties"] = {"^x-": True}
    node = {"$ref": "#/$defs/NodeSpec"}
    schema["properties"]["nodes"] = {
        "type": "object",
        "description": schema["properties"]["nodes"]["description"],
        "minProperties": 1,
        "patternProperties": {"^[a-z][a-z0-9_]*$": node},
        "additionalProperties": False,
    }
    schema["$defs"]["NodeSpec"]["properties"]["graph"]["anyOf"] = [{"type": "string"}, {"$ref": "#"}]
    for key in ("delay", "fuel", "memory"):  # their defaults are as read, not as written
        del schema["$defs"]["RetrySpec"]["properties"][key]["default"]
    for part in (schema, *schema["$defs"].values()):
        part.pop("title", None)
    return {"$schema": DIALECT, "title": "Ferrata graph", **schema}


if __name__ == "__main__":
    json.dump(graph_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
