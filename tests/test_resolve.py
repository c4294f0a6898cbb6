"""What the host resolves without the sandbox: values, failures, and that both sides agree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.sandbox import Sandbox, SandboxLimits
from graph.errors import Failure
from graph.expressions import BUILTINS, CONSTANTS, HELPERS, parse_expression
from graph.resolve import resolve
from graph.values import encode

SCOPE: dict[str, Any] = {
    "input": {"a": {"b-c": [10, 20, {"k": "v"}]}, "n": None, "text": "héllo", "x": 1.5},
    "items": [
        {"spdx": "MIT", "size": 1, "meta": {"ok": True}, "a.b": 1},
        {"spdx": "GPL", "size": 2.5, "meta": {"ok": False}, "a.b": 1},
        {"spdx": "MIT", "size": 3, "meta": {"ok": True}, "a.b": None},
    ],
    "empty": [],
    "mixed": [{"k": 1}, {"k": 1.0}, {"k": None}, {"k": "é"}, {"k": [1, {"x": 2}]}, {"k": True}],
    "numbers": [0.1] * 10,
    "bools": [True, 2, 0.5],
    "huge": [10**400, 0.5],
    "large": [1e308, 1e308],
    "object": {},
}

RESOLVABLE = [
    ("input", SCOPE["input"]),
    ("input.a['b-c'][-1].k", "v"),
    ("input.text[1]", "é"),
    ("input.n", None),
    ("items[0].spdx", "MIT"),
    ("len(items)", 3),
    ("len(input.text)", 5),
    ("len(input)", 4),
    ("sum(numbers)", 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1),
    ("sum(bools)", 3.5),
    ("sum(empty)", 0),
    ("sum(object)", 0),
    ("first(empty)", None),
    ("first(empty, 'none')", "none"),
    ("first(empty, default=-1)", -1),
    ("first(empty, false)", False),
    ("first(numbers)", 0.1),
    ("pluck(items, 'size')", [1, 2.5, 3]),
    ("pluck(items, 'meta.ok')", [True, False, True]),
    ("pluck(items, 'a.b')", [1, 1, None]),
    ("pluck(items=items, key='spdx')", ["MIT", "GPL", "MIT"]),
    ("count_by(items, 'spdx')", {"MIT": 2, "GPL": 1}),
    ("count_by(items, 'meta.ok')", {"true": 2, "false": 1}),
    ("count_by(mixed, 'k')", {"1": 1, "1.0": 1, "null": 1, "é": 1, '[1,{"x":2}]': 1, "true": 1}),
    ("count_by(empty, 'k')", {}),
    ("group_by(items, 'spdx')", {"MIT": [SCOPE["items"][0], SCOPE["items"][2]], "GPL": [SCOPE["items"][1]]}),
]
UNRESOLVABLE = [
    "input.b",
    "input.a.b",
    "items.spdx",
    "items[3]",
    "items[-4]",
    "input[0]",
    "input.n.x",
    "input.x.real",
    "input.text.upper",
    "input.keys",
    "len(input.x)",
    "len(input.n)",
    "sum(items)",
    "sum(input)",
    "sum(input.text)",
    "sum(huge)",
    "sum(large)",
    "first(object)",
    "first(input.text)",
    "pluck(object, 'a')",
    "pluck(items, 'none')",
    "pluck(items, 'meta.none')",
    "pluck(items, 'spdx.x')",
    "pluck(numbers, 'a')",
    "count_by(input.text, 'a')",
    "group_by(items, '')",
]


@pytest.mark.parametrize(("text", "value"), RESOLVABLE)
def test_paths_and_helpers_of_paths_are_resolved_by_the_host(text: str, value: Any) -> None:
    plan = parse_expression(text).host
    assert plan is not None
    found = resolve(plan, SCOPE)
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, dict):
        assert list(found) == list(value)


@pytest.mark.parametrize("text", UNRESOLVABLE)
def test_what_the_host_cannot_resolve_is_a_failure(text: str) -> None:
    plan = parse_expression(text).host
    assert plan is not None
    with pytest.raises(Failure) as caught:
        resolve(plan, SCOPE)
    assert caught.value.failure_class == ("invalid_output" if text == "sum(large)" else "invalid_input")


@pytest.mark.parametrize(
    "text",
    [
        "input.a + 1",
        "input.a[input.x]",
        "len(input.a, 1)",
        "sum(items, 1)",
        "first(empty, [])",
        "max(numbers)",
        "items[0:1]",
        "pluck(items, input.text)",
        "len([1])",
        "len",
        "true",
        "first(*items)",
        "sorted(items)",
        "not input",
        "items.copy()",
        "first(items).size",
    ],
)
def test_everything_else_is_for_the_sandbox(text: str) -> None:
    assert parse_expression(text).host is None


def test_a_missing_key_is_named_with_its_path_and_the_nearest() -> None:
    plan = parse_expression("input.a['b-d']").host
    assert plan is not None
    with pytest.raises(Failure, match=r"`input\.a` has no key `b-d`; did you mean `b-c`\?"):
        resolve(plan, SCOPE)
    plan = parse_expression("pluck(items, 'spxd')").host
    assert plan is not None
    with pytest.raises(Failure, match=r"item 0 of `items` has no key `spxd`; did you mean `spdx`\?"):
        resolve(plan, SCOPE)
    plan = parse_expression("itmes.x").host
    assert plan is not None
    with pytest.raises(Failure, match=r"there is no `itmes` here; did you mean `items`\?"):
        resolve(plan, SCOPE)


# --- the host and the sandbox


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox()


def test_the_sandbox_and_the_host_agree_on_all_that_both_can_resolve(sandbox: Sandbox) -> None:
    paths = ["input", "input.a", "input.a['b-c']", "input.n", "input.text", "input.x", "items", "items[-1].meta"]
    paths += [
        "empty",
        "mixed",
        "numbers",
        "bools",
        "huge",
        "large",
        "object",
        "items[9]",
        "items.index",
        "input.x.real",
    ]
    texts = [text for text, _ in RESOLVABLE] + UNRESOLVABLE + paths
    texts += [f"{function}({path})" for path in paths for function in ("len", "sum", "first")]
    texts += [
        f"{helper}({path}, {key!r})"
        for path in paths
        for helper in ("count_by", "group_by", "pluck", "first")
        for key in ("spdx", "meta.ok", "a.b", "k", "")
    ]
    outcomes = sandbox.evaluate(texts, encode(SCOPE), SandboxLimits())
    for text, outcome in zip(texts, outcomes, strict=True):
        plan = parse_expression(text).host
        assert plan is not None
        try:
            found = json.dumps(resolve(plan, SCOPE))
        except Failure:
            found = None
        assert found == (None if outcome.error else json.dumps(outcome.value)), (text, outcome)


def test_the_sandbox_has_the_same_names(sandbox: Sandbox) -> None:
    names = sorted({*BUILTINS, *HELPERS, *CONSTANTS})
    absent = ["map", "filter", "open", "isinstance", "getattr", "type", "print"]
    outcomes = sandbox.evaluate([f"[1 for x in [{name}]]" for name in [*names, *absent]], "{}", SandboxLimits())
    assert [name for name, outcome in zip([*names, *absent], outcomes, strict=True) if outcome.error] == absent
