"""The fingerprint: equal for equal behaviour, different for anything that can change an outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from graph.compile import compile_graph
from graph.compiled import CompiledGraph
from graph.files import MemoryFiles
from graph.fingerprint import differences, fingerprint_of
from graph.source import from_object, read_source

FILES = {"s.py": "def run(input):\n    return 1\n", "c.yaml": "nodes: {v: {value: 1}}", "s.json": '{"type": "object"}'}
GRAPH: dict[str, Any] = {
    "name": "g",
    "input_schema": {"type": "object", "required": ["a", "b"]},
    "nodes": {
        "one": {"value": {"x": "${input.a}", "y": 2}},
        "two": {
            "script": {"file": "s.py"},
            "input": "${one}",
            "output_schema": {"file": "s.json"},
            "accept": [{"expr": "output > 0"}, {"judge": {"model": "m", "prompt": "ok? ${output}"}}],
            "on_fail": [{"retry": 2}, {"reroute": {"value": 3}}, "escalate"],
        },
        "three": {"graph": "c.yaml", "after": ["one"]},
        "four": {"value": ["${two}", "${one}"], "when": "input.a == 1"},
        "ask": {"wait": {"reply": {"type": "object"}}},
        "pause": {"wait": {"for": "5m"}},
    },
    "output": {"p": "${two}", "q": "${four}"},
}


def make(data: dict[str, Any], files: dict[str, str] | None = None) -> CompiledGraph:
    return compile_graph(from_object(data, "g"), MemoryFiles(files or FILES)).graph


def changed(path: str, value: Any) -> dict[str, Any]:
    """The graph with another ``value`` at the dotted ``path``."""
    data = json.loads(json.dumps(GRAPH))
    here = data
    *steps, last = path.split(".")
    for step in steps:
        here = here[int(step)] if isinstance(here, list) else here[step]
    here[int(last) if isinstance(here, list) else last] = value
    return data


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def test_key_order_places_and_descriptions_do_not_count() -> None:
    original = make(GRAPH)
    again = make(reordered(GRAPH))
    text = compile_graph(
        read_source("# a comment\n" + json.dumps(GRAPH, indent=4), "x/other.yaml"),
        MemoryFiles(FILES | {f"x/{k}": v for k, v in FILES.items()}, "x"),
    ).graph
    described = make(changed("nodes.one.description", "for people") | {"description": "for people"})
    assert {g.fingerprint for g in (again, text, described)} == {original.fingerprint}
    assert differences(original, again) == []


def test_the_fingerprint_is_the_same_in_another_process() -> None:
    program = (
        "import json, sys; from graph.compile import compile_graph; from graph.files import MemoryFiles\n"
        "from graph.source import from_object\n"
        "data, files = json.load(sys.stdin)\n"
        "print(compile_graph(from_object(data, 'g'), MemoryFiles(files)).graph.fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps([GRAPH, FILES]), capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == make(GRAPH).fingerprint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "h"),
        ("input_schema.required", ["a"]),
        ("nodes.one.value.y", 3),
        ("nodes.one.value.x", "${input.b}"),
        ("nodes.two.script", "def run(input):\n    return 2\n"),
        ("nodes.two.input", "${one.x}"),
        ("nodes.two.output_schema", {"type": "integer"}),
        ("nodes.two.accept.0.expr", "output > 1"),
        ("nodes.two.accept.1.judge.prompt", "fine? ${output}"),
        ("nodes.two.on_fail.0", {"retry": 3}),
        ("nodes.two.on_fail.1", {"reroute": {"value": 4}}),
        ("nodes.two.on_fail.2", {"escalate": {"queue": "q"}}),
        ("nodes.two.timeout", "5s"),
        ("nodes.two.optional", True),
        ("nodes.three.after", {"one": "any"}),
        ("nodes.three.graph", {"nodes": {"v": {"value": 2}}}),
        ("nodes.four.when", "input.a == 2"),
        ("nodes.ask.wait.reply", {"type": "string"}),
        ("nodes.ask.wait", {"for": "5m"}),
        ("nodes.ask.timeout", "5m"),
        ("nodes.pause.wait.for", "6m"),
        ("nodes.pause.wait", {"until": "2030-01-31T08:00:00Z"}),
        ("nodes.five", {"value": 1}),
        ("output.p", "${one}"),
        ("on_failure", "continue"),
        ("deadline", "1h"),
    ],
)
def test_the_fingerprint_changes_with_anything_that_can_change_an_outcome(path: str, value: Any) -> None:
    original, other = make(GRAPH), make(changed(path, value))
    assert other.fingerprint != original.fingerprint
    assert differences(original, other) != []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("s.py", "def run(input):\n    return 1  # changed\n"),
        ("s.json", '{"type": "integer"}'),
        ("c.yaml", "nodes: {v: {value: 2}}"),
    ],
)
def test_the_fingerprint_changes_with_the_content_of_any_file(file: str, text: str) -> None:
    assert make(GRAPH, FILES | {file: text}).fingerprint != make(GRAPH).fingerprint


def test_a_difference_names_node_and_part() -> None:
    original = make(GRAPH)
    assert differences(original, make(changed("nodes.two.on_fail.0", {"retry": 3}))) == ["node `two`: ladder"]
    assert differences(original, make(changed("nodes.five", {"value": 1}))) == ["node `five` is new"]


def test_a_stored_graph_has_the_fingerprint_that_it_carries() -> None:
    graph = make(GRAPH)
    assert fingerprint_of(CompiledGraph.model_validate_json(graph.model_dump_json(by_alias=True))) == graph.fingerprint
