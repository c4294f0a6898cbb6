"""Schemas: the fast and the slow validator give one verdict, that of the specification's own test suite."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.checks import check_schema
from activities.schemas import Schema, compiled
from graph.compile import compile_graph
from graph.compiled import SchemaCheck
from graph.errors import Failure, LoadError
from graph.files import NoFiles
from graph.source import from_object
from graph.values import JSON

SUITE = Path(__file__).parent / "json_schema_test_suite"


def cases() -> Iterator[dict[str, Any]]:
    """Every schema of the suite with its tests."""
    for file in sorted(SUITE.glob("*.json")):
        for case in json.loads(file.read_text()):
            yield {"file": file.stem, **case}


def named(case: dict[str, Any]) -> str:
    return f"{case['file']}: {case['description']}"


CASES = list(cases())


def is_accepted(schema: JSON, value: JSON) -> bool:
    """The verdict on the path that outputs take."""
    try:
        check_schema(SchemaCheck(name="output_schema", schema_=schema), value)
    except Failure:
        return False
    return True


def reaches_out(case: dict[str, Any]) -> bool:
    """Whether a schema needs one from elsewhere, or names another dialect: neither passes the loading of a graph."""
    text = json.dumps(case["schema"])
    outside = re.findall(r'"\$(?:ref|dynamicRef|schema)": "(http://localhost:1234/[^"#]+|[^"#]*\.json)', text)
    return any(f'"$id": "{uri}' not in text for uri in outside)


def test_few_of_the_suites_schemas_reach_out_and_loading_refuses_them() -> None:
    outside = [case["schema"] for case in CASES if reaches_out(case)]
    assert len(outside) < len(CASES) / 10
    for schema in outside:
        with pytest.raises(LoadError, match="bad_schema"):
            compile_graph(from_object({"nodes": {"work": {"value": 1, "output_schema": schema}}}, "graph"), NoFiles())


@pytest.mark.parametrize("case", [case for case in CASES if not reaches_out(case)], ids=named)
def test_the_suites_verdicts_are_ours(case: dict[str, Any]) -> None:
    for test in case["tests"]:
        assert is_accepted(case["schema"], test["data"]) is test["valid"], test["description"]


@pytest.mark.parametrize("case", [case for case in CASES if not reaches_out(case)], ids=named)
def test_the_fast_validator_and_the_slow_one_agree(case: dict[str, Any]) -> None:
    schema = compiled(case["schema"])
    assert schema.fast is not None
    for test in case["tests"]:
        assert schema.fast.is_valid(test["data"]) is schema.slow.is_valid(test["data"]), test["description"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SCHEMAS: list[JSON] = [
    {"type": "integer", "multipleOf": 3},
    {"type": "number", "minimum": -5, "exclusiveMaximum": 1e300},
    {"type": "string", "pattern": r"^\w+$", "maxLength": 3},
    {"type": "array", "uniqueItems": True, "items": {"type": ["number", "string"]}},
    {"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": {"type": "integer"}},
    {"enum": [1, 1.5, "a", None, [1], {"a": 1}]},
    {"const": 0},
    {"anyOf": [{"type": "boolean"}, {"contains": {"type": "null"}, "minContains": 2}]},
]


@pytest.mark.parametrize("schema", SCHEMAS)
@given(value=VALUES)
def test_any_value_gets_one_verdict(schema: JSON, value: JSON) -> None:
    made = compiled(schema)
    assert made.is_valid(value) is made.slow.is_valid(value)


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**70), 10**400, 1e308, 5e-324, 2.0**64])
def test_numbers_of_any_size_get_one_verdict(number: float) -> None:
    for schema in ({"type": "integer"}, {"type": "number", "maximum": 2**65}, {"multipleOf": 2}, {"const": number}):
        made = compiled(schema)
        assert made.is_valid(number) is made.slow.is_valid(number), schema


def test_a_pattern_that_only_python_knows_is_left_to_python() -> None:
    schema = compiled({"type": "string", "pattern": r"^(?P<a>x)(?P=a)$"})
    assert schema.is_valid("xx")
    assert not schema.is_valid("xy")


def test_a_schema_is_compiled_once() -> None:
    schema = {"type": "object", "title": "compiled once"}
    made = compiled(schema)
    assert compiled(schema) is made
    assert compiled(dict(schema)) is made
    assert isinstance(made, Schema)
