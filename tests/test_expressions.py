"""Expressions: what they refer to, and what is refused with which place and mend."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph.expressions import (
    BUILTINS,
    CONSTANTS,
    HELPERS,
    ExpressionError,
    check_names,
    parse_expression,
)
from graph.nearest import nearest, suggest

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tests may share a busy machine


def refused(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    return caught.value


def references(text: str) -> list[tuple[str, tuple[str | int, ...]]]:
    return [(r.root, r.path) for r in parse_expression(text).references]


# --- references


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("classify", [("classify", ())]),
        ("classify.values[0]['a']", [("classify", ("values", 0, "a"))]),
        ("classify['values'][-1]", [("classify", ("values", -1))]),
        ("(input.a)", [("input", ("a",))]),
        ("a.b[i.k].c", [("a", ("b",)), ("i", ("k",))]),
        ("a[1:n].c", [("a", ()), ("n", ())]),
        ("a[True]", [("a", ())]),
        ("a.b.items()", [("a", ("b",))]),
        ("a.b.get(k.x, d)", [("a", ("b",)), ("k", ("x",)), ("d", ())]),
        ("len(a.b) + sum(c)", [("a", ("b",)), ("c", ())]),
        ("f'{a.b!r:>{w}}'", [("a", ("b",)), ("w", ())]),
        ("[v.spdx for v in a.values if v.ok and v.n > m]", [("a", ("values",)), ("m", ())]),
        ("{k: v for k, (v, *w) in a}", [("a", ())]),
        ("[y for x in a for y in x.b]", [("a", ())]),
        ("[a for a in a]", [("a", ())]),
        ("[x for x in a] + [x]", [("a", ()), ("x", ())]),
        ("{**a, 'k': b}", [("a", ()), ("b", ())]),
        ("b if a else c", [("a", ()), ("b", ()), ("c", ())]),
        ("true or None", []),
        ("日本.語", [("日本", ("語",))]),
    ],
)
def test_references_are_the_longest_parts_known_without_evaluating(
    text: str, found: list[tuple[str, tuple[str | int, ...]]]
) -> None:
    assert sorted(references(text)) == sorted(found)


def test_references_know_their_place_in_characters_and_what_is_called_on_them() -> None:
    first, second = parse_expression("'日本' +\n  len(a.b)").references, parse_expression("'é' + a").references
    assert [(r.root, r.line, r.column, r.called) for r in first] == [("a", 2, 7, "len")]
    assert [(r.root, r.line, r.column, r.called) for r in second] == [("a", 1, 7, None)]
    called = {
        r.root: r.called for r in parse_expression("count_by(a, b) + first(items=c) + d(e) + len(f[g])").references
    }
    assert called == {"a": "count_by", "b": None, "c": "first", "d": None, "e": None, "f": None, "g": None}


def test_an_expression_may_span_lines_and_hold_comments() -> None:
    assert references("\n  a.x  # the first\n  or b\n") == [("a", ("x",)), ("b", ())]


# --- names


def test_names_not_in_scope_are_named_once_with_the_nearest() -> None:
    errors = check_names(parse_expression("clasify.values + clasify.x + input.a"), ["classify", "input"])
    assert [(e.code, e.hint, e.line, e.column) for e in errors] == [("unknown_name", "did you mean `classify`?", 1, 1)]
    assert "`clasify`" in errors[0].message


def test_builtins_helpers_and_constants_are_in_scope() -> None:
    for name in {*BUILTINS, *HELPERS, *CONSTANTS}:
        assert check_names(parse_expression(f"[{name}]"), []) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("lenght(input)", "did you mean `len`?"),
        ("countby(input, 'a')", "did you mean `count_by`?"),
        ("TRUE", "did you mean `true`?"),
        ("undefined", "write `null`"),
        ("map(input)", "use a comprehension: `[x.name for x in items]`"),
        ("size(input)", "write `len(x)`"),
        ("open('x')", "that is for a script or function"),
        ("zzzzzz", None),
    ],
)
def test_names_from_elsewhere_get_the_mend(text: str, hint: str | None) -> None:
    (error,) = check_names(parse_expression(text), ["input", "run", "a", "b", "c", "d", "e"])
    assert error.hint == hint


# --- refusals


@pytest.mark.parametrize(
    ("text", "says", "mend", "place"),
    [
        ("a && b", "`&&`", "`and`", (1, 3)),
        ("a\n  || b", "`||`", "`or`", (2, 3)),
        ("!a", "`!`", "`not`", (1, 1)),
        ("a === b", "`===`", "`==`", (1, 3)),
        ("a !== b", "`!==`", "`!=`", (1, 3)),
        ("a ? b : c", "`a ? b : c`", "`b if a else c`", (1, 3)),
        ("a?.b", "`?.`", "if a else null", (1, 2)),
        ("a ?? b", "`??`", "is None", (1, 3)),
        ("x => x.y", "`=>`", "comprehension", (1, 3)),
        ("$x", "`$`", "without `$`", (1, 1)),
        ("${x}", "`${`", "leave out `${`", (1, 1)),
        ("{{ x }}", "`{{ }}`", "leave out the braces", (1, 1)),
        ("{x}", "a set", "leave out the braces", (1, 1)),
        ("a = b", "`=` assigns", "`==`", (1, 3)),
        ("a.b = 'x == y'", "`=` assigns", "`==`", (1, 5)),
        ("a; b", "`;`", "one value", (1, 2)),
        ("import os", "a statement", "script", (1, 1)),
        ("if a: b", "`if` starts a statement", "b if a else c", (1, 1)),
        ("for x in y: x", "`for` starts a statement", "comprehension", (1, 1)),
        ("lambda x: x", "a lambda", "comprehension", (1, 1)),
        ("1 + (y := 3)", "`:=`", "`value` node", (1, 6)),
        ("await x", "`await`", "only computes", (1, 1)),
        ("(yield)", "`yield`", "comprehension", (1, 2)),
        ("[x async for x in y]", "`async`", "plain", (1, 1)),
        ("x for x in y", "a generator", "`[...]`", (1, 1)),
        ("[a.b for a.b in c]", "a loop variable", "x in items", (1, 10)),
        ("a.__class__", "`__class__`", "['__class__']", (1, 1)),
        ("__import__('os')", "`__import__`", "another name", (1, 1)),
        ("f(__x=1)", "`__x`", "another name", (1, 3)),
        ("[1 for __x in a]", "`__x`", "another name", (1, 8)),
        ("f'{a.__b}'", "`__b`", "['__b']", (1, 4)),
        ("b'x'", "bytes", "JSON has", (1, 1)),
        ("1j", "a complex number", "JSON has", (1, 1)),
        ("...", "`...`", "JSON has", (1, 1)),
        ("'\\d+'", "`\\d` is no escape", "write `\\\\d`", (1, 2)),
        ("a == '\n'", "`a == '\\n'`", "YAML turned a backslash", (1, 6)),
        ("'abc", "a string isn't closed", "close the quote", (1, 1)),
        ("f(a", "`(` isn't closed", "close it", (1, 2)),
        ("a) + (b", "`)` closes nothing", "leave it out", (1, 2)),
        ("f(]", "`(` isn't closed: `]` comes first", "close it", (1, 2)),
        ("", "empty", "`input`", (1, 1)),
        (" \n # nothing\n", "empty", "`input`", (1, 1)),
        ("a b", "invalid syntax", "one Python expression", (1, 1)),
        ("count_by(a)", "wrong arguments for `count_by`", "count_by(items, key)", (1, 1)),
        ("count_by(a, 'b', 'c')", "wrong arguments", "count_by(items, key)", (1, 1)),
        ("1 + pluck(a, kye='b')", "wrong arguments", "pluck(items, key)", (1, 5)),
        ("group_by(a, 1)", "a key is a text", "quotes", (1, 13)),
        ("a\x00", "a\\x00", "one Python expression", (1, 1)),
        ("'\ud800'", "a character that no text has", "leave it out", (1, 1)),
    ],
)
def test_mistakes_are_refused_with_place_and_mend(text: str, says: str, mend: str, place: tuple[int, int]) -> None:
    error = refused(text)
    assert error.code == "bad_expression"
    assert says in error.message
    if "\x00" in text or "\ud800" in text:
        return  # Python's versions differ in the rest
    assert mend in (error.hint or "")
    assert (error.line, error.column) == place


def test_operators_in_strings_are_no_mistakes() -> None:
    assert references("a == '&& || ! ? => ; ${x}' and b != \"it's\"") == [("a", ()), ("b", ())]
    assert "`=`" not in refused("sorted(a, key=len) b").message


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300 + ")" * 300,
        "-" * 9000 + "1",
        "not " * 2400 + "a",
        "a" + ".b" * 4000,
        "a" + "[0]" * 3000,
        "+".join("a" * 4000),
        "[" * 99 + "a" + "]" * 99 + "+" * 200 + "a",
        "a" * 10_001,
        "f'{" * 120 + "a" + "}'" * 120,
    ],
)
def test_long_and_deep_expressions_are_refused_quickly(text: str) -> None:
    refused(text)


@relaxed
@given(st.text(max_size=60) | st.text(st.sampled_from("ab.[]()'\"{}0,: +-=!\\\n#$f"), max_size=40))
def test_any_text_is_an_expression_or_refused_at_a_place_within_it(text: str) -> None:
    try:
        parsed = parse_expression(text)
        places = [(r.line, r.column) for r in parsed.references]
    except ExpressionError as error:
        places = [(error.line, error.column)]
    lines = text.split("\n")
    assert all(1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1 for line, column in places)


# --- nearest names


def test_the_nearest_name_is_found_whatever_the_case_and_separator() -> None:
    known = ["on_fail", "output_schema", "accept", "retry"]
    assert nearest("on-fail", known) == "on_fail"
    assert nearest("Retry", known) == "retry"
    assert nearest("outptu_schema", known) == "output_schema"
    assert nearest("zzz", known) is None
    assert nearest("x" * 100_000, known) is None
    assert nearest("ab", {"abc", "abd"}) == nearest("ab", ["abd", "abc"])


def test_suggestions_are_a_question_a_short_list_or_nothing() -> None:
    assert suggest("retyr", ["retry", "reroute"]) == "did you mean `retry`?"
    assert suggest("zzz", ["retry", "reroute"]) == "known: `reroute`, `retry`"
    assert suggest("zzz", [str(i) for i in range(50)]) == ""
    assert suggest("zzz", []) == ""
