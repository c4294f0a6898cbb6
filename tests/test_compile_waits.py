"""`wait` nodes in the graph file: what they compile to, and what is refused with place and mend."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graph import limits
from graph.compile import Compilation, compile_graph
from graph.compiled import CompiledNode, SchemaCheck, Wait
from graph.errors import LoadError, Problem
from graph.files import MemoryFiles
from graph.mermaid import mermaid
from graph.planning import plan_of
from graph.source import read_source
from test_compile_refusals import WORLD

FILES = {
    "ok.py": "def run(input):\n    return 1\n",
    "answer.json": '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "additionalProperties": false}',
    "bad.json": '{"type": "objekt"}',
}
REPLY = "wait: {reply: {type: object, properties: {ok: {type: boolean}}, additionalProperties: false}}"


def compiled(text: str) -> Compilation:
    return compile_graph(read_source(text, "graph.yaml"), MemoryFiles(FILES), WORLD)


def problems(text: str) -> list[Problem]:
    with pytest.raises(LoadError) as caught:
        compiled(text)
    return caught.value.problems


def nodes(*lines: str) -> str:
    return "nodes:\n" + "".join(f"  {line}\n" for line in lines)


def node(keys: str) -> CompiledNode:
    return compiled(nodes(f"a: {{{keys}}}")).graph.nodes[0]


@pytest.mark.parametrize(
    ("keys", "id", "wait"),
    [
        ("wait: {for: 1h30m}", "wait:for", Wait(what="for", time="1h30m")),
        ('wait: {for: "${input.long}"}', "wait:for", Wait(what="for", time="${input.long}")),
        ('wait: {for: "${input.minutes}m"}', "wait:for", Wait(what="for", time="${input.minutes}m")),
        ("wait: {for: 365d}", "wait:for", Wait(what="for", time="365d")),
        ("wait: {until: 2030-01-31T08:00:00Z}", "wait:until", Wait(what="until", time="2030-01-31T08:00:00Z")),
        ("wait: {until: '2030-01-31 08:00+01:00'}", "wait:until", Wait(what="until", time="2030-01-31 08:00+01:00")),
        ('wait: {until: "${input.at}"}', "wait:until", Wait(what="until", time="${input.at}")),
        ("wait: {reply: {type: object}}", "wait:reply", Wait(what="reply")),
        ("wait: {reply: true}", "wait:reply", Wait(what="reply")),
    ],
)
def test_a_wait_compiles_to_what_it_waits_for(keys: str, id: str, wait: Wait) -> None:
    (made,) = node(keys).implementations
    assert (made.kind, made.id, made.wait) == ("wait", id, wait)


def test_the_plan_says_what_a_node_waits_for() -> None:
    text = nodes("a: {wait: {for: 1h}}", "b: {wait: {until: 2030-01-31T08:00:00Z}}", f"c: {{{REPLY}}}", "d: {value: 1}")
    assert [n.wait for n in plan_of(compiled(text).graph).nodes] == ["time", "time", "reply", None]


def test_the_schema_of_a_reply_is_the_first_check() -> None:
    made = node(f"{REPLY}, output_schema: {{required: [ok]}}, accept: [expr: output.ok]")
    assert [check.name for check in made.checks] == ["reply", "output_schema", "accept[0] expr"]
    assert node("wait: {reply: {file: answer.json}}").checks == [
        SchemaCheck(name="reply", schema=json.loads(FILES["answer.json"]))
    ]


def test_a_time_that_is_bound_makes_the_wait_follow_the_node_that_it_names() -> None:
    text = nodes("w: {wait: {until: '${a.at}'}}", "a: {function: 'm:f', input: {path: x}}")
    assert compiled(text).graph.nodes[0].uses == ["a"]


def test_a_wait_may_take_a_year_and_does_by_default() -> None:
    assert node(REPLY).limits.timeout == limits.MAX_WAIT_MS
    assert node(f"{REPLY}, timeout: 30d").limits.timeout == 30 * 24 * 3600 * 1000
    (problem,) = problems(nodes(f"a: {{{REPLY}, timeout: 366d}}"))
    assert problem.code == "bad_value"
    assert "365d" in problem.message


@pytest.mark.parametrize("rung", ["value: {ok: false}", "script: {file: ok.py}", "function: 'm:f'"])
def test_a_wait_reroutes_to_what_gives_a_default(rung: str) -> None:
    made = node(f"{REPLY}, timeout: 1h, on_fail: [retry: 2, reroute: {{{rung}}}, escalate]")
    assert [i.kind for i in made.implementations] == ["wait", rung.split(":")[0]]


def test_a_model_that_is_rerouted_to_answers_json_as_the_reply_would_be() -> None:
    made = node(f"{REPLY}, on_fail: [reroute: {{infer: {{model: small, prompt: x}}}}]").implementations[1]
    assert made.infer is not None
    assert made.infer.format == "json"


def test_the_input_of_a_wait_is_for_what_reads_it() -> None:
    for keys in (
        "on_fail: [reroute: {script: {file: ok.py}}]",
        "on_fail: [reroute: {function: 'm:f'}]",
        "on_fail: [escalate]",
        "accept: [script: {file: ok.py}]",
    ):
        assert node(f"{REPLY}, input: {{path: x}}, {keys}").has_input


def test_a_wait_is_drawn_with_what_it_waits_for() -> None:
    text = mermaid(plan_of(compiled(nodes("a: {wait: {for: 1h}}", f"b: {{{REPLY}}}")).graph))
    assert '  n_a>"a<br/>wait for a time"]' in text
    assert '  n_b>"b<br/>wait for a reply"]' in text


# Shapes.


@pytest.mark.parametrize(
    ("wait", "where", "code", "mend"),
    [
        ("5m", "2:13", "wrong_type", "write `wait: {for: 5m}`"),
        ("5 minutes", "2:13", "wrong_type", "write `wait: {for: 5m}`"),
        (
            "300",
            "2:13",
            "wrong_type",
            "write `wait: {for: 300s}` for seconds or `wait: {for: 300m}` for minutes",
        ),
        ("2030-01-31T08:00:00Z", "2:13", "wrong_type", "write `wait: {until: 2030-01-31T08:00:00Z}`"),
        ("'${input.long}'", "2:13", "wrong_type", 'write `wait: {for: "${input.long}"}`'),
        ("reply", "2:13", "wrong_type", "write `wait: {reply: true}`"),
        ("a while", "2:13", "wrong_type", "write `wait: {for: 5m}`"),
        ("[5m]", "2:13", "wrong_type", "write `wait: {for: 5m}`"),
        ("true", "2:13", "wrong_type", "write `wait: {for: 5m}`"),
        ("{}", "2:13", "bad_value", "write `wait: {for: 5m}`"),
        ("{for: 5m, reply: true}", "2:13", "bad_value", "beside it"),
        ("{seconds: 5}", "2:14", "unknown_key", "write `for: 5s`"),
        ("{minutes: 2}", "2:14", "unknown_key", "write `for: 2m`"),
        ("{hours: '${input.n}'}", "2:14", "unknown_key", 'write `for: "${input.n}h"`'),
        ("{seconds: }", "2:14", "unknown_key", "write `for: 90s`"),
        ("{duration: 5m}", "2:14", "unknown_key", "write `for: 5m`"),
        ("{at: 2030-01-31T08:00:00Z}", "2:14", "unknown_key", "write `until: 2030-01-31T08:00:00Z`"),
        ("{signal: approve}", "2:14", "unknown_key", "`reply: SCHEMA`"),
        ("{schema: {}}", "2:14", "unknown_key", "`reply: SCHEMA`"),
        ("{type: object}", "2:14", "unknown_key", "`reply: SCHEMA`"),
        ("{reply: true, timeout: 5m}", "2:27", "unknown_key", "belongs to the node"),
        ("{replay: true}", "2:14", "unknown_key", "did you mean `reply`?"),
        ("{reply: }", "2:14", "wrong_type", "write `reply: true` for any value"),
        ("{for: 5}", "2:19", "bad_duration", "write `5s` for seconds or `5m` for minutes"),
        ("{for: 5 minutes}", "2:19", "bad_duration", "write `5m`"),
        ("{for: soon}", "2:19", "bad_duration", "write `90s`"),
        ("{for: '$${x}'}", "2:19", "bad_duration", "write `90s`"),
        ("{for: [5m]}", "2:19", "wrong_type", None),
        ("{for: 366d}", "2:19", "bad_value", None),
        ("{for: '${input.'}", None, "bad_expression", None),
        ("{until: 2030-01-31T08:00:00}", "2:21", "bad_time", "write `2030-01-31T08:00:00Z`, or its offset as `+01:00`"),
        ("{until: 2030-01-31}", "2:21", "bad_time", "write `2030-01-31T00:00:00Z`"),
        ("{until: 2030-02-31T08:00:00Z}", "2:21", "bad_time", "write `2030-01-31T08:00:00Z`"),
        ("{until: tomorrow}", "2:21", "bad_time", "write `2030-01-31T08:00:00Z`"),
        ("{until: 5m}", "2:21", "bad_time", "write `for: 5m`"),
        ("{until: 1900000000}", "2:21", "wrong_type", "write `2030-01-31T08:00:00Z`"),
        ("{until: 'input.x > 3'}", "2:21", "bad_time", "`repeat: {until: ...}`"),
        ("{reply: string}", "2:21", "bad_schema", "write `{type: string}`"),
        ("{reply: answer.json}", "2:21", "bad_schema", "write `{file: answer.json}`"),
        ("{reply: {file: anser.json}}", None, "bad_file", "did you mean `answer.json`?"),
        ("{reply: {file: bad.json}}", None, "bad_schema", None),
        ("{reply: {type: objekt}}", None, "bad_schema", None),
    ],
)
def test_a_wrong_shape_is_answered_with_the_right_one(
    wait: str, where: str | None, code: str, mend: str | None
) -> None:
    found = problems(nodes(f"a: {{wait: {wait}}}"))
    assert len(found) == 1, "\n".join(map(str, found))
    (problem,) = found
    assert problem.code == code, problem
    if mend is not None:
        assert mend in str(problem.hint), problem
    if where is not None:
        assert f"{problem.line}:{problem.column}" == where, problem


@pytest.mark.parametrize(
    ("key", "mend"),
    [
        *((key, "`wait: {for: 5m}`") for key in ("sleep", "delay", "pause", "wait_for")),
        ("wait_until", "`wait: {until: 2030-01-31T08:00:00Z}`"),
        *((key, "`wait: {reply: SCHEMA}`") for key in ("approval", "human", "reply", "signal")),
    ],
)
def test_a_wait_of_other_tools_is_answered_with_ours_and_nothing_else(key: str, mend: str) -> None:
    (problem,) = problems(nodes(f"a: {{{key}: 5}}"))
    assert problem.code == "unknown_key"
    assert mend in str(problem.hint)


def test_a_wait_among_the_rungs_is_answered_with_a_delay() -> None:
    (problem,) = problems(nodes("a: {value: 1, on_fail: [wait: 5m, retry: 1]}"))
    assert "- retry: {times: 2, delay: 5s}" in str(problem.hint)


# Options.


@pytest.mark.parametrize(
    ("keys", "key", "code", "message"),
    [
        ("wait: {for: 5m}, over: [1]", "over", "misplaced_key", "can't be a map"),
        (f"{REPLY}, over: [1]", "over", "misplaced_key", "can't be a map"),
        (f"{REPLY}, repeat: {{until: output.ok, max_rounds: 2}}", "repeat", "misplaced_key", "can't repeat"),
        (f"{REPLY}, input: {{x: 1}}", "input", "misplaced_key", "`input`"),
        (f"{REPLY}, input: {{x: 1}}, on_fail: [reroute: {{value: 1}}]", "input", "misplaced_key", "`input`"),
        (f"{REPLY}, grants: {{models: [small]}}", "grants", "misplaced_key", "runs no script"),
        ("wait: {for: 5m}, output_schema: {}", "output_schema", "misplaced_key", "yields null"),
        ("wait: {for: 5m}, accept: [expr: 'true']", "accept", "misplaced_key", "yields null"),
        (
            "wait: {until: 2030-01-31T08:00:00Z}, accept: [expr: 'true']",
            "accept",
            "misplaced_key",
            "yields null",
        ),
        (f"{REPLY}, batch: 3", "batch", "misplaced_key", "no `over`"),
    ],
)
def test_an_option_that_means_nothing_to_a_wait_is_refused(keys: str, key: str, code: str, message: str) -> None:
    text = nodes(f"a: {{{keys}}}")
    found = problems(text)
    assert len(found) == 1, "\n".join(map(str, found))
    (problem,) = found
    assert (problem.code, message in problem.message) == (code, True), problem
    assert text.splitlines()[1][(problem.column or 0) - 1 :].startswith(f"{key}:"), problem


def test_a_reroute_of_a_wait_to_another_model_is_refused() -> None:
    (problem,) = problems(nodes(f"a: {{{REPLY}, on_fail: [reroute: {{model: big}}]}}"))
    assert problem.code == "bad_rung"
    assert "a wait node asks no model" in problem.message
    assert "infer" in str(problem.hint)


def test_grants_are_for_the_script_that_a_wait_reroutes_to() -> None:
    made = node(f"{REPLY}, grants: {{models: [small]}}, on_fail: [reroute: {{script: {{file: ok.py}}}}]")
    assert made.implementations[1].models == ["small"]


@pytest.mark.parametrize(
    ("keys", "codes"),
    [
        ("wait: {for: 1h}, on_fail: [retry: 1]", ["pointless"]),
        ("wait: {until: '${input.at}'}, on_fail: [retry: 1]", ["pointless"]),
        ("wait: {for: 1h}, timeout: 30m", ["pointless"]),
        ("wait: {for: 1h}, deadline: 30m", ["pointless"]),
        ("wait: {for: 1h}, timeout: 2h, deadline: 3h", []),
        ("wait: {for: '${input.long}'}, timeout: 30m", []),
        (f"{REPLY}, timeout: 1h, on_fail: [retry: 1]", []),
        (f"{REPLY}, on_fail: [retry: {{times: 1, feedback: true}}]", ["pointless"]),
    ],
)
def test_what_a_wait_hardly_means_is_warned_of(keys: str, codes: list[str]) -> None:
    assert [w.code for w in compiled(nodes(f"a: {{{keys}}}")).warnings] == codes


# Types.


@pytest.mark.parametrize(
    ("a", "use", "message"),
    [
        ("wait: {for: 5m}", "value: '${a.x}'", "it is null, which has no key `x`"),
        ("wait: {until: '${input.at}'}", "value: '${a.x}'", "it is null, which has no key `x`"),
        ("wait: {for: 5m}", "value: '${len(a)}'", "it is null"),
        (REPLY, "value: '${a.okay}'", "no `okay`"),
        ("wait: {reply: {file: answer.json}}", "value: '${a.okay}'", "no `okay`"),
        ("wait: {reply: {type: integer}}", "wait: {for: '${a}'}", "`for` needs a duration"),
        ("wait: {reply: {type: integer}}", "wait: {until: '${a}'}", "`until` needs a time"),
        ("wait: {reply: {type: array}}", "wait: {for: '${len(a)}'}", "`for` needs a duration"),
    ],
)
def test_what_a_wait_cannot_give_or_take_is_refused(a: str, use: str, message: str) -> None:
    (problem,) = problems(nodes(f"a: {{{a}}}", f"b: {{{use}}}"))
    assert problem.code == "type_error"
    assert message in problem.message


def test_a_number_as_a_duration_is_answered_with_its_unit() -> None:
    (problem,) = problems(nodes("a: {wait: {reply: {type: integer}}}", "b: {wait: {for: '${a}'}}"))
    assert 'write `for: "${a}s"` for seconds' in str(problem.hint)


@pytest.mark.parametrize(
    ("a", "use"),
    [
        (f"{REPLY}, on_fail: [reroute: {{value: 1}}]", "value: '${a.ok}'"),
        ("wait: {for: 5m}, on_fail: [reroute: {value: {x: 1}}]", "value: '${a.x}'"),
        ("wait: {for: 5m}", "value: '${a}'"),
        ("wait: {reply: {type: string}}", "wait: {until: '${a}'}"),
        ("wait: {reply: {type: integer}}", "wait: {for: '${a}m'}"),
        ("wait: {reply: true}", "wait: {for: '${a.x}'}"),
    ],
)
def test_types_are_silent_about_what_a_wait_may_give(a: str, use: str) -> None:
    compiled(nodes(f"a: {{{a}}}", f"b: {{{use}}}"))


def test_only_bare_expressions_must_be_true_or_false() -> None:
    tree: dict[str, Any] = dict.fromkeys(("when", "until", "expr"), "${a}")
    compiled(nodes("a: {wait: {reply: {type: integer}}}", f"b: {{value: {json.dumps(tree)}}}"))
