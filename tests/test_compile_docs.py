"""The reference, the schema for editors and the table of errors say what the compiler does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from graph import limits, spec
from graph.compile import compile_graph
from graph.compiling.nodes import DEFAULT_CONCURRENCY
from graph.errors import FAILURE_CLASSES
from graph.files import MemoryFiles
from graph.schema import graph_schema
from graph.source import read_source

ROOT = Path(__file__).parent.parent
REFERENCE = (ROOT / "docs" / "graph-reference.md").read_text()
ERRORS = (ROOT / "docs" / "errors.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", REFERENCE, re.MULTILINE | re.DOTALL)
FILES = {named[1]: text for text in EXAMPLES if (named := re.match(r"# file: (\S+)\n", text))}


def test_the_reference_has_examples() -> None:
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_reference_compiles_and_fits_the_schema(number: int) -> None:
    source = read_source(EXAMPLES[number], "graph.yaml")
    assert compile_graph(source, MemoryFiles(FILES)).warnings == []
    Draft202012Validator(graph_schema()).validate(source.data)


def test_the_schema_for_editors_is_up_to_date() -> None:
    Draft202012Validator.check_schema(graph_schema())
    stored = json.loads((ROOT / "docs" / "graph.schema.json").read_text())
    assert stored == graph_schema(), "run `python -m graph.schema > docs/graph.schema.json`"


@pytest.mark.parametrize("node", [{"valu": 1}, {"value": 1, "on_fail": ["retry 1"]}, {"value": 1, "timeout": 30}])
def test_the_schema_for_editors_refuses_the_usual_mistakes(node: dict[str, object]) -> None:
    assert not Draft202012Validator(graph_schema()).is_valid({"nodes": {"a": node}})


def test_every_key_is_in_the_reference() -> None:
    models = [m for m in vars(spec).values() if isinstance(m, type) and issubclass(m, spec.Spec) and m is not spec.Spec]
    missing = {
        key for model in models for key in model.written() if f"`{key}" not in REFERENCE and f"{key}:" not in REFERENCE
    }
    assert missing == set()


def test_the_reference_gives_the_defaults_that_hold() -> None:
    assert f"| {limits.DEFAULT_FUEL} |" in REFERENCE
    assert f"{limits.MIN_FUEL} to {limits.MAX_FUEL}" in REFERENCE
    assert f"| {limits.DEFAULT_MEMORY // limits.MIB}MiB |" in REFERENCE
    assert f"{limits.MIN_MEMORY // limits.MIB}MiB to" in REFERENCE
    assert f"| {limits.DEFAULT_OUTPUT_BYTES // limits.MIB}MiB |" in REFERENCE
    year = f"{limits.MAX_WAIT_MS // (24 * 3600 * 1000)}d"
    assert f"| {limits.DEFAULT_TIMEOUT_MS // 1000}s; a child run: 24h; a wait: {year} |" in REFERENCE
    assert f"| `concurrency` | {DEFAULT_CONCURRENCY} |" in REFERENCE


def test_every_code_and_every_class_is_in_the_table_of_errors() -> None:
    folders = ("graph", "activities", "workflows", "cli")
    sources = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    raised = (
        r"(?:StoreError|OperateError|FerrataError|Problem|Finding"
        r"|place\.(?:problem|warn)|in_file|error_at|problem|refusal)"
    )
    pattern = raised + r'\(\s*(?:file, |code=)?"([a-z_]+)"|\bcode="([a-z_]+)"'
    codes = {code for source in sources for pair in re.findall(pattern, source) for code in pair if code}
    assert len(codes) > 45
    assert {code for code in (*codes, *FAILURE_CLASSES) if f"`{code}`" not in ERRORS} == set()
