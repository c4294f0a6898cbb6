"""Templates: where their expressions are, and what filling them yields."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph.errors import Failure
from graph.expressions import Expression, ExpressionError, check_names, fill, parse_template, templates_in, texts_in

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tests may share a busy machine


def texts(text: str) -> list[str]:
    return [part.text if isinstance(part, Expression) else part for part in parse_template(text).parts]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("plain {x} $5", ["plain {x} $5"]),
        ("a ${b.c} d", ["a ", "b.c", " d"]),
        ("${a}${b}", ["a", "b"]),
        ("$${a}", ["${a}"]),
        ("$$${a} ${b}", ["$${a} ", "b"]),
        ("$${a ${b}", ["${a ", "b"]),
        ("${ {'x': {'y': 1}} }!", [" {'x': {'y': 1}} ", "!"]),
        ("${'}'}", ["'}'"]),
        ("${\"}\" + '''}'''}", ["\"}\" + '''}'''"]),
        ("${f'{a}'}}", ["f'{a}'", "}"]),
        ("${a\n  + b}", ["a\n  + b"]),
    ],
)
def test_templates_split_into_texts_and_expressions(text: str, parts: list[str]) -> None:
    assert texts(text) == parts


def test_an_expression_is_alone_only_without_any_text() -> None:
    alone = parse_template("${a.b}").alone
    assert alone is not None
    assert alone.text == "a.b"
    for text in ("${a} ", "${a}${b}", "a", "", "$${a}"):
        assert parse_template(text).alone is None


def test_places_in_templates_count_within_the_whole_text() -> None:
    (_, expression, _, second) = parse_template("x\n ${inpt} ${\n a && foo}".replace(" && ", " + ")).parts
    assert isinstance(expression, Expression)
    assert isinstance(second, Expression)
    assert [(e.line, e.column) for e in check_names(expression, ["input"])] == [(2, 4)]
    assert [(r.root, r.line, r.column) for r in second.references] == [("a", 3, 2), ("foo", 3, 6)]


@pytest.mark.parametrize(
    ("text", "says", "place"),
    [
        ("x\n ${a", "`${` isn't closed", (2, 2)),
        ("x ${a # b}", "`${` isn't closed", (1, 3)),
        ("${a && b}", "`&&`", (1, 5)),
        ("a\nb ${a +\n b c}", "invalid syntax", (2, 5)),
        ("${}", "empty", (1, 3)),
        ("${{a}}", "a set", (1, 3)),
        ("${f(a}", "`(` isn't closed", (1, 4)),
        ("${a]}", "`]` closes nothing", (1, 4)),
        ("it ${isn't}", "a string isn't closed", (1, 9)),
    ],
)
def test_wrong_templates_are_refused_at_their_place(text: str, says: str, place: tuple[int, int]) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_template(text)
    assert says in caught.value.message
    assert caught.value.hint
    assert caught.value.line == place[0]
    if "invalid syntax" not in says:
        assert caught.value.column == place[1]


def test_every_text_with_an_expression_is_found_with_its_path() -> None:
    tree = {"a": ["x", "${one}", {"b": "two ${two} ${three}"}], "${key}": 1, "c": "$${no}"}
    found = templates_in(tree)
    assert [(path, [e.text for e in template.expressions]) for path, template in found] == [
        (("a", 1), ["one"]),
        (("a", 2, "b"), ["two", "three"]),
    ]
    assert [path for path, _ in texts_in(tree)] == [("a", 1), ("a", 2, "b"), ("c",)]
    assert templates_in("${x}")[0][0] == ()


def test_filling_keeps_values_whole_alone_and_writes_them_in_texts() -> None:
    tree = {"whole": "${a}", "text": "<${a}> ${s} ${n} ${b}", "literal": "$${a} $5", "list": [1, None, "${s}"]}
    values = {"a": {"k": [1, "é"]}, "s": 'a "text"', "n": None, "b": True}
    assert fill(tree, values) == {
        "whole": {"k": [1, "é"]},
        "text": '<{"k":[1,"é"]}> a "text" null true',
        "literal": "${a} $5",
        "list": [1, None, 'a "text"'],
    }
    with pytest.raises(KeyError):
        fill("${missing}", values)
    with pytest.raises(Failure) as caught:
        fill("x ${a}", {"a": float("nan")})
    assert caught.value.code == "invalid_output"


@relaxed
@given(
    st.lists(
        st.text(st.sampled_from("ab $ {}'\"#\n\\")) | st.sampled_from(["a", "b.c", "{'x': {}}", "'}' + d"]).map(tuple)
    )
)
def test_templates_survive_a_round_trip(parts: list[str | tuple[str, ...]]) -> None:
    text, expected, values = "", "", {"a": "A${", "b.c": "$${x}", "{'x': {}}": "{}", "'}' + d": "}"}
    for part in parts:
        if isinstance(part, str):
            text += part.replace("${", "$${")
            expected += part
        elif not text.endswith("$"):  # a dollar before an expression would escape it
            name = "".join(part)
            text += "${" + name + "}"
            expected += values[name]
        if text.endswith("$"):
            text += " "
            expected += " "
    assert fill(text, values) == expected
