"""Graph files as data: what YAML and JSON yield, what is refused with which place, and places within texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph.errors import LoadError, Problem
from graph.source import Source, from_object, read_source, show_path

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tests may share a busy machine


def problems(text: str, file: str = "graph.yaml") -> list[Problem]:
    with pytest.raises(LoadError) as caught:
        read_source(text, file)
    assert all(problem.file == file for problem in caught.value.problems)
    return caught.value.problems


def problem(text: str, file: str = "graph.yaml") -> Problem:
    (found,) = problems(text, file)
    return found


# --- values


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("NO", "NO"),
        ("yes", "yes"),
        ("2020-01-01", "2020-01-01"),
        ("12:30:00", "12:30:00"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("True", True),
        ("~", None),
        ("", None),
        ("'true'", "true"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("=", "="),
        ('"\\ud83d\\ude00"', "😀"),
        ("日本語", "日本語"),
        ("${a.b}", "${a.b}"),
    ],
)
def test_scalars_follow_the_core_schema(written: str, value: object) -> None:
    data = read_source(f"a: {written}\n", "graph.yaml").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_a_version_directive_changes_nothing() -> None:
    assert read_source("%YAML 1.1\n---\na: yes\n", "graph.yaml").data == {"a": "yes"}


def test_anchors_and_merges_are_written_out() -> None:
    source = read_source("x-base: &b {p: 1, q: 2}\none: {<<: *b, q: 3}\ntwo: {<<: [*b, {q: 9, r: 4}]}\n", "graph.yaml")
    assert source.data["one"] == {"p": 1, "q": 3}
    assert source.data["two"] == {"p": 1, "q": 2, "r": 4}
    source.data["one"]["p"] = 5
    assert source.data["x-base"]["p"] == 1
    assert source.place(("one", "p"), key=True) == (1, 13)
    assert source.place(("one", "q")) == (2, 18)


def test_an_anchor_may_be_defined_again() -> None:
    assert read_source("- &a 1\n- *a\n- &a 2\n- *a\n", "graph.yaml").data == [1, 1, 2, 2]


def test_a_byte_order_mark_is_ignored() -> None:
    source = read_source("\ufeffa: 1\n", "graph.yaml")
    assert (source.data, source.place(("a",))) == ({"a": 1}, (1, 4))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    # A key of YAML ends within 1,024 characters, and JSON writes some as six or twelve.
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=80), inner, max_size=4),
    max_leaves=12,
)


@relaxed
@given(JSON_VALUES)
def test_json_is_read_back_exactly_and_every_part_has_a_place(value: Any) -> None:
    text = json.dumps(value, indent=1)
    source = read_source(text, "graph.json")
    assert source.data == value
    lines = text.split("\n")

    def visit(path: tuple[str | int, ...], part: Any) -> None:
        place = source.place(path)
        assert place is not None
        assert lines[place[0] - 1][place[1] - 1 :].startswith(json.dumps(part, indent=1)[:1])
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
            visit((*path, key), inner)

    visit((), value)


@relaxed
@given(JSON_VALUES)
def test_json_read_as_yaml_means_the_same(value: Any) -> None:
    assert read_source("# JSON is YAML too\n" + json.dumps({"a": value}), "graph.yaml").data == {"a": value}


def test_every_part_of_a_large_json_file_is_located() -> None:
    text = json.dumps({"nodes": {f"n{i}": {"value": {"x": "y" * 100}} for i in range(20_000)}})
    source = read_source(text, "graph.json")
    for i in range(0, 20_000, 10):
        assert source.place(("nodes", f"n{i}", "value", "x")) is not None


# --- refusals


def test_an_unquoted_expression_inside_braces_is_explained() -> None:
    found = problem("nodes:\n  a:\n    input: {x: ${b.c}, y: 1}\n")
    assert (found.code, found.line, found.column) == ("bad_yaml", 3, 16)
    assert "`${b.c}` isn't quoted" in found.message
    assert found.hint == 'quote it: `"${b.c}"`'
    assert "isn't quoted" in problem("a: [${x}]\n").message
    assert "isn't quoted" in problem("{a: ${x}}\n").message


def test_duplicate_keys_are_refused_with_both_places() -> None:
    found = problems("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert [(p.code, p.line, p.column) for p in found] == [("duplicate_key", 4, 3), ("duplicate_key", 5, 1)]
    assert found[0].hint == "the other is in line 3"
    as_json = problems('{"a": 1,\n\t"b": {"c": 1, "c": 2},\n "a": 3}', "graph.json")
    assert [(p.code, p.line, p.column) for p in as_json] == [("duplicate_key", 2, 16), ("duplicate_key", 3, 2)]


def test_all_problems_are_reported_at_once() -> None:
    found = problems("1: a\nb: .nan\nc: !x y\nd: 1\nd: 2\n? [e]\n: f\n'g': \"\\ud800\"\n")
    assert [(p.code, p.line) for p in found] == [
        ("bad_key", 1),
        ("bad_value", 2),
        ("bad_value", 3),
        ("duplicate_key", 5),
        ("bad_key", 6),
        ("bad_value", 8),
    ]
    assert all(p.hint for p in found)


@pytest.mark.parametrize(
    ("text", "says", "place"),
    [
        ("a:\n\t- b\n", "a tab can't indent YAML", (2, 1)),
        ("a: ${ {'x': 1} }\n", "a `:` inside an expression that isn't quoted", (1, 11)),
        ("a: b: c\n", "a `:` where no key can be", (1, 5)),
        ("a: @b\n", "can't start with `@`", (1, 4)),
        ("a: `b`\n", "can't start with ```", (1, 4)),
        ("a: *.py\n", "undefined alias", (1, 4)),
        ('a: "\\d+"\n', "`\\d` is no escape", (1, 5)),
        ("a: 'b\n", "the quote isn't closed", (1, 4)),
        ("a: {b: 1\n", "`{` isn't closed", (2, 1)),
        ("a: 1\n---\nb: 2\n", "a second document", (2, 1)),
        ("a: !done\n", "tags like `!done` aren't used here", (1, 4)),
        ("a: !!python/object:os.system x\n", "tags like", (1, 4)),
        ("a: !!int x\n", "`x` is no int", (1, 4)),
        ("a: &x [*x]\n", "an anchor can't hold itself", (1, 4)),
        ("a: &x {<<: *x}\n", "`<<` merges mappings only", (1, 4)),
        ("<<: 3\n", "`<<` merges mappings only", (1, 5)),
        ("a: \x07\n", "U+0007 can't be in YAML", (1, 4)),
        ("a: .inf\n", "isn't a finite number", (1, 4)),
        ("a: 1e999\n", "isn't a finite number", (1, 4)),
        ("a: " + "9" * 5000, "more than 1024 bits", (1, 4)),
        ("true: 1\n", "a key must be a text, but `true` is a boolean", (1, 1)),
        ("a: }\n", "can't start with `}`", (1, 4)),
        ('a: "b" c\n', "doesn't belong to what is above", (1, 8)),
        ("", "the file is empty", None),
        (" \n\n", "the file is empty", None),
        ("# nothing\n", "nothing but comments", None),
        ("---\n", "nothing but comments", None),
    ],
)
def test_bad_yaml_is_refused_in_words_that_help(text: str, says: str, place: tuple[int, int] | None) -> None:
    found = problem(text)
    assert says in found.message
    assert (found.line, found.column) == (place or (None, None))


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ('{"a": 1 "b": 2}', "bad_json", (1, 9)),
        ('{"a":\n NaN}', "bad_value", (2, 2)),
        ('{"a":\n 1e999}', "bad_value", (2, 2)),
        ('["\\ud800"]', "bad_value", (1, 2)),
        ('{"a": ' + "9" * 5000 + "}", "bad_value", None),
        ('{"a": ' + "9" * 500 + "}", "bad_value", (1, 7)),
        ("[" * 102 + "]" * 102, "too_large", (1, 102)),
        ("[" * 99_999, "too_large", None),
    ],
)
def test_bad_json_is_refused_with_its_place(text: str, code: str, place: tuple[int, int] | None) -> None:
    found = problem(text, "graph.json")
    assert (found.code, found.line, found.column) == (code, *(place or (None, None)))


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)),
        "a: &a " + "x" * 500_000 + "\nb: [" + ",".join(["*a"] * 100) + "]\n",
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 150)),
        "- " * 150 + "x\n",
        "a: " + "[" * 150 + "]" * 150 + "\n",
        "# " + "x" * 1_100_000 + "\n",
    ],
)
def test_what_explodes_is_refused_quickly(text: str) -> None:
    assert problem(text).code == "too_large"


@relaxed
@given(
    st.text(st.sampled_from("ab01:-{}[]\"'\n\t |>&*!%#,?~.<\\x$é\U0001f600"), max_size=40),
    st.sampled_from(["g.yaml", "g.json"]),
)
def test_any_text_is_read_or_refused_clearly(text: str, file: str) -> None:
    try:
        data = read_source(text, file).data
    except LoadError as error:
        data = [problem.model_dump() for problem in error.problems]
    json.dumps(data, allow_nan=False).encode()


# --- objects without a file


def test_an_object_without_a_file_has_no_places() -> None:
    source = from_object({"nodes": {"a": {"value": "${x}"}}}, "the input")
    assert source.data == {"nodes": {"a": {"value": "${x}"}}}
    assert source.place(("nodes",)) is None
    assert source.text_place(("nodes", "a", "value"), 1, 1) is None


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        ({"a": [float("nan")]}, "bad_value", "`a[0]` is nan"),
        ({"a": {1: 2}}, "bad_key", "`a` has a key that isn't a text: 1"),
        ({"a": b"x"}, "bad_value", "isn't JSON but bytes"),
        ({"a-b": {"x y": "\ud800"}}, "bad_value", "`a-b['x y']` holds half a character"),
        ([0] * 200_001, "too_large", "more than 200000 values"),
    ],
)
def test_an_object_that_is_no_json_is_refused(data: Any, code: str, says: str) -> None:
    with pytest.raises(LoadError) as caught:
        from_object(data, "the input")
    assert caught.value.problems[0].code == code
    assert says in caught.value.problems[0].message


def test_an_object_that_holds_itself_is_refused() -> None:
    data: list[Any] = []
    data.append(data)
    with pytest.raises(LoadError, match="nests deeper than 100"):
        from_object(data, "the input")


def test_paths_are_shown_as_people_write_them() -> None:
    assert show_path(("nodes", "work", "accept", 0, "x y")) == "nodes.work.accept[0]['x y']"
    assert show_path(()) == "the whole"


# --- places


def at(source: Source, place: tuple[int, int] | None, text: str) -> str:
    assert place is not None
    return text.split("\n")[place[0] - 1][place[1] - 1 :]


def test_values_and_keys_have_places() -> None:
    text = "name: x\nnodes:\n  work:\n    accept:\n      - expr: output.ok\n      - {schema: {type: object}}\n"
    source = read_source(text, "graph.yaml")
    assert source.place(("nodes", "work", "accept", 0, "expr")) == (5, 15)
    assert source.place(("nodes", "work", "accept", 0, "expr"), key=True) == (5, 9)
    assert source.place(("nodes", "work", "accept", 1, "schema", "type")) == (6, 25)
    assert source.place(("nodes", "work", "accept", 1)) == (6, 9)
    assert source.place(("nodes",), key=True) == (2, 1)
    assert source.place(()) == (1, 1)
    assert source.place(("nodes", "nobody")) is None
    assert source.place(("name", "deeper")) is None


@pytest.mark.parametrize(
    "text",
    [
        "a: one HERE two\n",
        "a: 'it''s one HERE two'\n",
        'a: "q\\"uo\\u00e9te\\n\\x41 one HERE two"\n',
        "a: |\n    first line\n\n      one HERE\n    two\n",
        "a: |2- # a comment\n    first\n   one HERE\n",
        "a: >\n  folded into\n  one HERE\n\n  two\n",
        "a: plain text that goes\n   on one HERE two\n",
        'a: "folded \\\n   on\n\n   one HERE two"\n',
        "a: &anchor !!str one HERE\n",
        "a: !!str\n  'one HERE'\n",
        "a: 日本語😀 one HERE\n",
        '{"a": "\\t\\"q\\\\ \\u00e9 one HERE"}',
        '{\n "b": 1, "a":\n  "one HERE"}',
    ],
)
def test_a_place_within_a_text_is_found_in_the_file(text: str) -> None:
    source = read_source(text, "graph.yaml")
    value = source.data["a"]
    index = value.index("HERE")
    line, column = value.count("\n", 0, index) + 1, index - value.rfind("\n", 0, index)
    assert at(source, source.text_place(("a",), line, column), text).startswith("HERE")


def test_the_end_of_a_text_and_what_lies_beyond_have_places_too() -> None:
    text = "a: 'bc '\nd: ''\ne: 1\n"
    source = read_source(text, "graph.yaml")
    assert source.text_place(("a",), 1, 3) == (1, 7)
    assert source.text_place(("a",), 9, 9) == (1, 8)
    assert source.text_place(("d",), 1, 1) == (2, 5)
    assert source.text_place(("e",), 1, 1) is None
    assert source.text_place(("f",), 1, 1) is None
