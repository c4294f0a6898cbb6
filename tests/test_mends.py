"""Mistakes that newcomers make are answered with what to write instead."""

from __future__ import annotations

import pytest

from graph.compile import compile_graph
from graph.errors import LoadError, Problem
from graph.files import MemoryFiles
from graph.source import read_source
from test_compile_refusals import WORLD

FILES = {
    "child.yaml": "nodes: {a: {value: 1}}",
    "ok.py": "def run(input):\n    return 1\n",
    "typ.json": '{"typ": "object"}',
}
SCRIPT = "script: {file: ok.py}"


def problems(text: str) -> list[Problem]:
    with pytest.raises(LoadError) as caught:
        compile_graph(read_source(text, "graph.yaml"), MemoryFiles(FILES), WORLD)
    return caught.value.problems


def warnings(text: str) -> list[Problem]:
    return compile_graph(read_source(text, "graph.yaml"), MemoryFiles(FILES), WORLD).warnings


def node(keys: str) -> str:
    return f"nodes: {{a: {{{keys}}}}}"


@pytest.mark.parametrize(
    ("keys", "code", "mend"),
    [
        ("graph: {file: child.yaml}", "wrong_type", "write `graph: child.yaml`"),
        ("graph: {path: child.yaml}", "wrong_type", "write `graph: child.yaml`"),
        ("graph: chid.yaml", "bad_file", "did you mean `child.yaml`?"),
        ("script: {file: okk.py}", "bad_file", "did you mean `ok.py`?"),
        ("function: {name: 'm:f'}, input: {path: 1}", "wrong_type", "write `function: m:f`"),
        ("function: {module: m, name: f}, input: {path: 1}", "wrong_type", "write `function: m:f`"),
        ("infer: hello", "wrong_type", "write `infer: {model: NAME, prompt: TEXT}`"),
        ("script: ''", "bad_value", "indent the lines below `|`"),
        (f"{SCRIPT}, accept: output.x > 1", "wrong_type", 'write `accept: [{expr: "output.x > 1"}]`'),
        (f"{SCRIPT}, accept: 'output == \"a\"'", "wrong_type", "write `accept: [{expr: 'output == \"a\"'}]`"),
        (f"{SCRIPT}, accept: {{expr: output.x > 1}}", "wrong_type", "write `- expr: output.x > 1`"),
        (f"{SCRIPT}, on_fail: {{retry: 3}}", "wrong_type", "write `- retry: 3`"),
        (
            f"{SCRIPT}, on_fail: {{retry: {{times: 3}}, escalate: }}",
            "wrong_type",
            "write `- retry: ...` and `- escalate`",
        ),
        (f"{SCRIPT}, on_fail: escalate", "wrong_type", "write `on_fail: [escalate]`"),
        (f"{SCRIPT}, on_fail: retry 3", "wrong_type", "write `on_fail: [retry: 3]`"),
        (f"{SCRIPT}, on_fail: [reroute: big]", "wrong_type", "write `reroute: {model: NAME}`"),
        (f"{SCRIPT}, repeat: 3", "wrong_type", "write `repeat: {until: EXPRESSION, max_rounds: 10}`"),
        (f"{SCRIPT}, output_schema: string", "bad_schema", "write `{type: string}`"),
        (f"{SCRIPT}, output_schema: typ.json", "bad_schema", "write `{file: typ.json}`"),
    ],
)
def test_a_wrong_shape_is_answered_with_the_right_one(keys: str, code: str, mend: str) -> None:
    (problem,) = problems(node(keys))
    assert (problem.code, problem.hint) == (code, mend)


@pytest.mark.parametrize(
    ("key", "mend"),
    [
        *((key, "on_fail: [{retry: 2}]") for key in ("retry", "retries", "max_retries", "attempts")),
        ("fallback", "on_fail: [{reroute: {value: ...}}]"),
        ("else", "the opposite `when`"),
        *((key, "use `after`") for key in ("depends_on", "needs")),
        ("if", "use `when`"),
        *((key, "use `over`") for key in ("for_each", "foreach")),
        ("loop", "use `repeat: {until: ..., max_rounds: ...}`"),
        ("schema", "use `output_schema`"),
        ("output", "use `output_schema`"),
    ],
)
def test_an_option_of_other_tools_is_answered_with_ours(key: str, mend: str) -> None:
    (problem,) = problems(node(f"{SCRIPT}, {key}: 3"))
    assert problem.code == "unknown_key"
    assert mend in str(problem.hint)


@pytest.mark.parametrize(
    ("key", "mend"),
    [
        *((key, "inside `infer: {model: ..., prompt: ...}`") for key in ("model", "prompt")),
        *((key, "write `script: |`") for key in ("code", "python")),
        *((key, "use `script` or `function`") for key in ("command", "cmd")),
    ],
)
def test_a_kind_of_other_tools_is_answered_with_ours_and_nothing_else(key: str, mend: str) -> None:
    (problem,) = problems(node(f"{key}: x"))
    assert problem.code == "unknown_key"
    assert mend in str(problem.hint)


def test_a_command_to_run_is_answered_with_what_there_is() -> None:
    (problem,) = problems(node("run: make"))
    assert problem.code == "misplaced_key"
    assert "use `script` or `function`" in str(problem.hint)


def test_where_no_key_is_near_the_kinds_come_first_and_the_rest_is_elsewhere() -> None:
    (problem,) = problems(node(f"{SCRIPT}, zzzz: 3"))
    assert str(problem.hint).startswith("a node has a kind (`script`, `function`,")
    assert "output_bytes" not in str(problem.hint)


@pytest.mark.parametrize("entry", ["name: a", "id: a", "a: {value: 1}"])
def test_a_list_of_nodes_is_answered_with_an_object(entry: str) -> None:
    (problem,) = problems(f"nodes:\n- {entry}\n")
    assert "`nodes: {a: {value: 1}}`" in str(problem.hint)


BODY = "def run(input):\n    x = 1\n    return x\n"


@pytest.mark.parametrize("indent", ["", "  ", "    "])
@pytest.mark.parametrize(
    "body", [BODY, f"import json\n{BODY}", BODY.replace("    return", "    if x: y = 2\n    return")]
)
def test_a_script_that_is_not_indented_is_answered_with_indenting_it(indent: str, body: str) -> None:
    lines = "".join(f"{indent}{line}\n" for line in body.splitlines())
    found = problems(f"nodes:\n  a:\n    script: |\n{lines}")
    assert all("indent the lines below" in str(problem.hint) for problem in found), "\n".join(map(str, found))


def test_an_error_after_a_script_that_is_indented_is_explained_for_itself() -> None:
    (problem,) = problems("nodes:\n  a:\n    script: |\n      def run(input): return 1\n    when: a: b\n")
    assert "indent the lines" not in str(problem.hint)


@pytest.mark.parametrize(
    ("keys", "keyword", "near"),
    [
        ("output_schema: {typ: object}", "typ", "type"),
        ("output_schema: {anyOf: [{}, {properties: {a: {requred: [x]}}}]}", "requred", "required"),
        ("accept: [schema: {items: {maxLenght: 3}}]", "maxLenght", "maxLength"),
        ("output_schema: {file: typ.json}", "typ", "type"),
    ],
)
def test_a_misspelt_keyword_of_a_schema_is_warned_of(keys: str, keyword: str, near: str) -> None:
    (warning,) = warnings(node(f"{SCRIPT}, {keys}"))
    assert warning.code == "unknown_keyword"
    assert f"`{keyword}`" in warning.message
    assert warning.hint == f"did you mean `{near}`?"


@pytest.mark.parametrize(
    "schema",
    [
        "{properties: {typ: {type: string}}, required: [typ]}",
        "{x-typ: 1, note: mine, unit: m, definitions: {typ: {}}}",
        "{default: {typ: 1}, enum: [{typ: 1}], examples: [{typ: 1}]}",
    ],
)
def test_what_is_no_keyword_or_the_authors_own_is_left_alone(schema: str) -> None:
    assert warnings(node(f"{SCRIPT}, output_schema: {schema}")) == []


INLINE = """
nodes:
  a:
    script: |
      {}def run(input, fedback=None):
          import numpy
          return 1
"""


def test_warnings_about_a_script_stand_in_its_lines() -> None:
    assert [(w.code, w.line, w.column) for w in warnings(INLINE.format(""))] == [
        ("pointless", 5, 22),
        ("missing_module", 6, 11),
    ]


def test_an_import_that_is_sure_to_fail_is_refused_and_the_warnings_are_kept() -> None:
    with pytest.raises(LoadError) as caught:
        compile_graph(read_source(INLINE.format("import requests\n      "), "graph.yaml"), MemoryFiles(), WORLD)
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.column) == ("bad_script", 5, 7)
    assert "import requests" in problem.message
    assert "docs/scripts.md" in str(problem.hint)
    assert [w.code for w in caught.value.warnings] == ["pointless", "missing_module"]
