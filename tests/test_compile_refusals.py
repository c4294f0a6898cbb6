"""Every refusal: by name, with place and mend, all at once."""

from __future__ import annotations

from functools import cache

import pytest

from activities.sandbox import Sandbox
from graph.compile import compile_graph
from graph.errors import LoadError, Problem
from graph.files import MemoryFiles, NoFiles
from graph.source import from_object, read_source
from graph.world import FunctionInfo, World

FILES = {
    "ok.py": "def run(input):\n    return 1\n",
    "bad.py": "def run(input):\n    return (\n",
    "norun.py": "x = 1\n",
    "two.py": "def run(a, b):\n    return 1\n",
    "objekt.json": '{"properties": {"a": {"type": "objekt"}}}',
    "torn.json": '{"type":',
    "self.yaml": "nodes: {a: {graph: self.yaml}}",
    "child.yaml": "input_schema: {type: object, required: [q], properties: {q: {}}, additionalProperties: false}\n"
    "nodes: {a: {value: '${input.q}'}}",
    "wrong.yaml": "nodes: {a: {valeu: 1}}",
}


def describe(name: str) -> FunctionInfo | str:
    if name == "m:f":
        return FunctionInfo(("path",), ("path", "depth"))
    return f"there is no function `{name}` -> see FERRATA_FUNCTIONS"


@cache
def sandbox() -> Sandbox:
    return Sandbox()


def check_script(text: str) -> list[Problem]:
    return sandbox().check_syntax(text, "script.py")


WORLD = World(function=describe, activities={"Send"}, models={"small", "big"}, script=check_script)


def problems(text: str, world: World | None = WORLD) -> list[Problem]:
    with pytest.raises(LoadError) as caught:
        compile_graph(read_source(text, "graph.yaml"), MemoryFiles(FILES), world)
    return caught.value.problems


def warnings(text: str) -> list[Problem]:
    return compile_graph(read_source(text, "graph.yaml"), MemoryFiles(FILES), WORLD).warnings


def nodes(*lines: str) -> str:
    return "nodes:\n" + "".join(f"  {line}\n" for line in lines)


SCRIPT = "script: {file: ok.py}"
LIST = "value: {xs: [1]}"
INPUT = (
    "input_schema: {type: object, additionalProperties: false, properties: {path: {type: string}, "
    "rows: {type: array, items: {type: object, properties: {n: {type: integer}}, additionalProperties: false}}}}\n"
)

CASES: dict[str, tuple[str, str, str, str]] = {
    # id: (file, place and code, part of the message, part of the mend)
    "unquoted_expression_in_braces": (
        "nodes: {a: {value: {x: ${input.y}}}}",
        "1:24 bad_yaml",
        "`${input.y}`",
        "quote it",
    ),
    "map_as_list_by_len": (
        nodes("m: {value: 1, over: [1]}", 'b: {value: "${len(m)}"}'),
        "3:21 type_error",
        "a map's output, not a list",
        "`m.values`",
    ),
    "map_as_list_by_index": (
        nodes("m: {value: 1, over: [1]}", 'b: {value: "${m[0]}"}'),
        "3:17 type_error",
        "a map's output",
        "`m.values`",
    ),
    "map_as_list_by_comprehension": (
        nodes("m: {value: 1, over: [1]}", 'b: {value: "${[x for x in m]}"}'),
        "3:29 type_error",
        "a map's output",
        "`m.values`",
    ),
    "map_over_a_map": (
        nodes("m: {value: 1, over: [1]}", 'b: {value: 1, over: "${m}"}'),
        "3:26 type_error",
        "a map's output",
        "`m.values`",
    ),
    "misspelt_key": (nodes(f"a: {{{SCRIPT}, acept: []}}"), "2:30 unknown_key", "`acept`", "did you mean `accept`?"),
    "misspelt_key_of_the_graph": ("nods: {}\nnodes: {a: {value: 1}}", "1:1 unknown_key", "`nods`", "`nodes`"),
    "misspelt_kind": (nodes("a: {scrpt: x}"), "2:7 unknown_key", "`scrpt`", "`script`"),
    "misspelt_node": (
        nodes("items_found: {value: 1}", 'b: {value: "${item_found}"}'),
        "3:17 unknown_name",
        "",
        "items_found",
    ),
    "misspelt_node_in_after": (
        nodes("alpha: {value: 1}", "b: {value: 1, after: [alhpa]}"),
        "3:25 unknown_node",
        "",
        "`alpha`",
    ),
    "misspelt_property_of_a_value": (
        nodes("a: {value: {counts: 1}}", 'b: {value: "${a.cuonts}"}'),
        "3:17 type_error",
        "no `cuonts`",
        "`counts`",
    ),
    "misspelt_property_of_the_input": (
        INPUT + nodes('a: {value: "${input.pth}"}'),
        "3:17 type_error",
        "`pth`",
        "`path`",
    ),
    "misspelt_property_of_an_item": (
        INPUT + nodes('a: {over: "${input.rows}", value: "${item.m}"}'),
        "3:40 type_error",
        "`m`",
        "`n`",
    ),
    "misspelt_property_of_a_map": (
        nodes("m: {value: 1, over: [1]}", 'b: {value: "${m.valeus}"}'),
        "3:17 type_error",
        "`m` is a map",
        "`values`",
    ),
    "misspelt_option": (
        nodes(f"a: {{{SCRIPT}, on_fail: [retry: {{times: 1, fedback: true}}]}}"),
        "unknown_key",
        "",
        "`feedback`",
    ),
    "misspelt_status": (
        nodes("a: {value: 1}", "b: {value: 1, after: {a: faild}}"),
        "3:28 bad_value",
        "`faild`",
        "`failed`",
    ),
    "hyphen_in_a_name": (nodes("my-node: {value: 1}"), "2:3 bad_name", "hyphen", "`my_node`"),
    "python_word_as_a_name": (nodes("if: {value: 1}"), "2:3 bad_name", "word of Python", "`if_`"),
    "our_word_as_a_name": (nodes("output: {value: 1}"), "2:3 bad_name", "something else", "`output_`"),
    "helper_as_a_name": (nodes("len: {value: 1}"), "2:3 bad_name", "something else", "`len_`"),
    "script_given_as_a_path": (
        nodes("a: {script: classify.py}"),
        "2:15 script_is_path",
        "",
        "script: {file: classify.py}",
    ),
    "retry_without_a_colon": (
        nodes(f"a: {{{SCRIPT}, on_fail: [retry 1]}}"),
        "2:40 bad_rung",
        "`retry 1`",
        "`- retry: 1`",
    ),
    "times_beside_retry": (
        f"nodes:\n  a:\n    {SCRIPT}\n    on_fail:\n      - retry:\n        times: 2\n",
        "5:9 bad_rung",
        "beside it",
        "- retry: {times: 2",
    ),
    "bare_number_as_a_duration": (nodes("a: {value: 1, timeout: 30}"), "2:26 bad_duration", "`30`", "`30s`"),
    "output_on_a_node": (nodes('a: {value: 1, output: "${x}"}'), "2:17 unknown_key", "`output`", "output_schema"),
    "check_without_its_kind": (
        nodes("a: {value: 1, accept: [output > 0]}"),
        "2:26 wrong_type",
        "",
        "- expr: output > 0",
    ),
    "braces_around_a_bare_expression": (
        nodes('a: {value: 1, when: "${input.x}"}'),
        "2:23 bad_expression",
        "",
        "`input.x`",
    ),
    "backslash_eaten_by_yaml": (
        nodes("a: {value: 1, when: \"input.x == 'a\\nb'\"}"),
        "bad_expression",
        "a\\nb",
        "single quotes",
    ),
    "exclusive_branches_joined": (
        nodes("a: {value: 1, when: input.x > 3}", "b: {value: 1, when: input.x <= 3}", 'c: {value: ["${a}", "${b}"]}'),
        "4:3 unreachable",
        "`a`'s guard",
        "after: {a: any, b: any}",
    ),
    "exclusive_cases_joined": (
        nodes(
            "a: {value: 1, when: input.x == 'p'}", "b: {value: 1, when: input.x == 'q'}", 'c: {value: ["${a}", "${b}"]}'
        ),
        "4:3 unreachable",
        "`b`'s guard",
        "after: {a: any, b: any}",
    ),
    "failed_and_succeeded_joined": (
        nodes("a: {value: 1}", "undo: {value: 1, after: {a: failed}}", 'c: {value: ["${a}", "${undo}"]}'),
        "4:3 unreachable",
        "`a` failed",
        "after: {a: any, undo: any}",
    ),
    "guard_that_is_never_true": (nodes("a: {value: 1, when: false}"), "2:3 unreachable", "always false", "`when`"),
    "part_of_a_failed_node": (
        nodes("a: {function: 'm:f', input: {path: x}}", 'b: {value: "${a.x}", after: {a: failed}}'),
        "3:17 no_value",
        "`a` has no value",
        "{a: any}",
    ),
    "cycle": (
        nodes('a: {value: "${c}"}', 'b: {value: "${a}"}', 'c: {value: "${b}"}'),
        "2:17 cycle",
        "`a` -> `b` -> `c` -> `a`",
        "`repeat`",
    ),
    "cycle_by_after": (
        nodes("a: {value: 1, after: [b]}", "b: {value: 1, after: [a]}"),
        "2:25 cycle",
        "`a` -> `b` -> `a`",
        "",
    ),
    "self_reference": (nodes('a: {value: "${a}"}'), "2:17 cycle", "refers to itself", "`output`"),
    "after_itself": (nodes("a: {value: 1, after: [a]}"), "2:25 cycle", "after itself", ""),
    "graph_that_includes_itself": (
        nodes("a: {graph: self.yaml}"),
        "self.yaml 1:20 cycle",
        "`self.yaml` -> `self.yaml`",
        "",
    ),
    "problem_in_a_child_graph": (nodes("a: {graph: wrong.yaml}"), "wrong.yaml 1:13 unknown_key", "`valeu`", "`value`"),
    "node_of_the_parent_in_a_child": (
        nodes("a: {value: 1}", 'b: {graph: {nodes: {c: {value: "${a}"}}}}'),
        "3:37 unknown_name",
        "`a`",
        "sees only its own `input`",
    ),
    "child_input_lacks_what_is_required": (
        nodes("a: {graph: child.yaml, input: {}}"),
        "missing_input",
        "`q`",
        "add `q`",
    ),
    "child_input_has_what_is_unknown": (
        nodes("a: {graph: child.yaml, input: {q: 1, p: 2}}"),
        "type_error",
        "no `p`",
        "`q`",
    ),
    "function_without_input": (nodes("a: {function: 'm:f'}"), "2:7 missing_input", "needs an `input`", "input: {}"),
    "activity_without_input": (nodes("a: {activity: Send}"), "2:7 missing_input", "needs an `input`", "input: {}"),
    "function_argument_missing": (nodes("a: {function: 'm:f', input: {}}"), "missing_input", "`path`", "add `path`"),
    "function_argument_unknown": (
        nodes("a: {function: 'm:f', input: {path: 1, deph: 2}}"),
        "unknown_argument",
        "`deph`",
        "`depth`",
    ),
    "function_unknown": (
        nodes("a: {function: 'm:g', input: {}}"),
        "2:17 unknown_function",
        "`m:g`",
        "FERRATA_FUNCTIONS",
    ),
    "function_misnamed": (nodes("a: {function: m.f, input: {}}"), "2:17 bad_function", "`m.f`", "`module:name`"),
    "activity_unknown": (nodes("a: {activity: Sent, input: {}}"), "2:17 unknown_activity", "`Sent`", "`Send`"),
    "model_unserved": (nodes("a: {infer: {model: smal, prompt: x}}"), "2:22 unknown_model", "`smal`", "`small`"),
    "judge_model_unserved": (
        nodes("a: {value: 1, accept: [judge: {model: bigg, prompt: x}]}"),
        "unknown_model",
        "`bigg`",
        "`big`",
    ),
    "reroute_model_unserved": (
        nodes("a: {infer: {model: small, prompt: x}, on_fail: [reroute: {model: bog}]}"),
        "unknown_model",
        "`bog`",
        "`big`",
    ),
    "computed_model": (nodes('a: {infer: {model: "${input.m}", prompt: x}}'), "bad_value", "never computed", "reroute"),
    "reroute_to_the_same": (
        nodes("a: {infer: {model: small, prompt: x}, on_fail: [reroute: {model: small}]}"),
        "bad_rung",
        "the same thing",
        "retry",
    ),
    "reroute_of_a_value_to_a_model": (
        nodes("a: {value: 1, on_fail: [reroute: {model: big}]}"),
        "bad_rung",
        "asks no model",
        "infer",
    ),
    "reroute_to_an_activity": (
        nodes("a: {value: 1, on_fail: [reroute: {activity: Send}]}"),
        "unsupported",
        "`activity`",
        "",
    ),
    "retry_zero": (nodes(f"a: {{{SCRIPT}, on_fail: [retry: 0]}}"), "bad_value", "at least 1", ""),
    "escalate_not_last": (
        nodes(f"a: {{{SCRIPT}, on_fail: [escalate, retry: 1]}}"),
        "bad_rung",
        "comes last",
        "to the end",
    ),
    "escalate_twice": (nodes(f"a: {{{SCRIPT}, on_fail: [escalate, escalate]}}"), "bad_rung", "once", ""),
    "escalate_with_wait": (
        nodes(f"a: {{{SCRIPT}, on_fail: [escalate: {{wait: 1h}}]}}"),
        "unsupported",
        "`wait`",
        "terminal",
    ),
    "thousands_of_attempts": (
        nodes(f"a: {{{SCRIPT}, on_fail: [retry: 600, reroute: {{value: 1}}, retry: 600]}}"),
        "too_large",
        "1000",
        "",
    ),
    "cancellation_in_on": (
        nodes(f"a: {{{SCRIPT}, on_fail: [retry: {{times: 1, on: [cancelled]}}]}}"),
        "bad_value",
        "never climbs",
        "",
    ),
    "block": (nodes("a: {block: x.wasm}"), "2:7 unsupported", "`block`", ""),
    "grants_of_later": (nodes(f"a: {{{SCRIPT}, grants: {{fetch: [x]}}}}"), "unsupported", "`fetch`", ""),
    "run_of_a_script": (nodes(f"a: {{{SCRIPT}, over: [1], run: child}}"), "misplaced_key", "a map over a graph", "out"),
    "run_of_no_map": (nodes("a: {graph: {nodes: {b: {value: 1}}}, run: child}"), "misplaced_key", "a map", "leave"),
    "run_of_another_kind": (
        nodes("a: {graph: {nodes: {b: {value: 1}}}, over: [1], run: here}"),
        "bad_value",
        "must be `child`",
        "",
    ),
    "map_and_loop": (
        nodes(f"a: {{{SCRIPT}, over: [1], repeat: {{until: 'true', max_rounds: 2}}}}"),
        "misplaced_key",
        "a map or a loop",
        "",
    ),
    "map_over_a_text": (INPUT + nodes('a: {value: 1, over: "${input.path}"}'), "type_error", "needs a list", ""),
    "map_over_no_expression": (nodes("b: {value: 1}", "a: {value: 1, over: b}"), "3:23 wrong_type", "`over`", "${b}"),
    "map_option_without_over": (nodes("a: {value: 1, batch: 3}"), "2:17 misplaced_key", "no `over`", ""),
    "input_of_a_value": (nodes("a: {value: 1, input: {}}"), "2:17 misplaced_key", "no `input`", ""),
    "item_outside_a_map": (nodes('a: {value: "${item}"}'), "2:17 unknown_name", "`item`", "`over`"),
    "output_outside_checks": (nodes('a: {value: "${output}"}'), "2:17 unknown_name", "`output`", "accept"),
    "guard_that_is_a_text": (INPUT + nodes("a: {value: 1, when: input.path}"), "type_error", "true or false", "=="),
    "tolerate_without_its_key": (
        nodes("a: {value: 1, over: [1], tolerate: 5%}"),
        "wrong_type",
        "an object",
        "{failures: 5%}",
    ),
    "number_as_a_name": ("name: 3\nnodes: {a: {value: 1}}", "1:7 wrong_type", "`name` must be a text", ""),
    "fuel_with_an_exponent": (nodes("a: {value: 1, fuel: 1e9}"), "wrong_type", "`fuel`", "1000000000"),
    "computed_activity": (nodes('a: {activity: "${input.x}", input: {}}'), "bad_value", "never computed", ""),
    "no_kind": (nodes("a: {timeout: 1s}"), "2:3 no_kind", "`a`", ""),
    "two_kinds": (nodes(f"a: {{value: 1, {SCRIPT}}}"), "two_kinds", "`script` and `value`", "two nodes"),
    "no_nodes": ("nodes: {}", "no_nodes", "", ""),
    "nodes_missing": ("name: x", "missing_key", "`nodes`", ""),
    "not_an_object": ("[1]", "wrong_type", "a list", ""),
    "node_that_is_a_number": (nodes("a: 3"), "2:6 wrong_type", "a number", ""),
    "key_without_a_value": (nodes("a:", "  value: 1", "  accept:"), "4:5 wrong_type", "`accept` has no value", ""),
    "schema_malformed": (nodes("a: {value: 1, output_schema: {type: objekt}}"), "2:39 bad_schema", "`type`", ""),
    "schema_file_malformed": (
        nodes("a: {value: 1, output_schema: {file: objekt.json}}"),
        "objekt.json bad_schema",
        "`properties/a/type` in `objekt.json`",
        "",
    ),
    "schema_file_missing": (nodes("a: {value: 1, output_schema: {file: no.json}}"), "2:39 bad_file", "`no.json`", ""),
    "schema_file_torn": (
        nodes("a: {value: 1, accept: [schema: {file: torn.json}]}"),
        "torn.json 1:9 bad_schema",
        "isn't JSON",
        "",
    ),
    "schema_elsewhere": (
        nodes("a: {value: 1, output_schema: {$ref: 'http://x/y'}}"),
        "bad_schema",
        "outside the schema",
        "$defs",
    ),
    "schema_reference_to_nothing": (
        nodes("a: {value: 1, output_schema: {$ref: '#/$defs/x'}}"),
        "bad_schema",
        "names nothing",
        "",
    ),
    "script_missing": (nodes("a: {script: {file: no.py}}"), "2:22 bad_file", "`no.py`", ""),
    "script_outside": (nodes("a: {script: {file: ../x.py}}"), "2:22 bad_file", "outside", ""),
    "script_that_does_not_parse": (nodes("a: {script: {file: bad.py}}"), "bad.py 2:12 bad_script", "doesn't parse", ""),
    "script_without_run": (
        nodes("a: {script: {file: norun.py}}"),
        "norun.py 1:1 bad_script",
        "`run(input)`",
        "def run",
    ),
    "script_with_two_arguments": (nodes("a: {script: {file: two.py}}"), "two.py 1:1 bad_script", "one argument", ""),
    "inline_script_that_does_not_parse": (
        "nodes:\n  a:\n    script: |\n      import json\n      def run(input):\n          return (\n",
        "6:18 bad_script",
        "doesn't parse",
        "",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_mistake_is_refused_by_name_with_place_and_mend(case: tuple[str, str, str, str]) -> None:
    text, where, message, mend = case
    found = problems(text)
    *place, code = where.split(" ")
    problem = next((p for p in found if p.code == code and message in p.message), None)
    assert problem is not None, "\n".join(map(str, found))
    shown = f"{problem.line}:{problem.column}"
    assert [part for part in place if part not in (shown, problem.file)] == [], str(problem)
    assert problem.line is not None or place[:1] == ["objekt.json"]
    # A mend may stand in the message where it says it best.
    assert mend in f"{problem.hint}", str(problem)


def test_one_mistake_causes_one_problem() -> None:
    alone = [name for name, (text, *_) in CASES.items() if len(problems(text)) > 1]
    assert alone == []


def test_all_problems_come_at_once_in_file_order() -> None:
    found = problems(
        nodes(
            "a-b: {valeu: 1, timeout: 5}",
            "c: {infer: {model: smal, prompt: '${nope}'}, on_fail: [{retry: {times: 0}}, {retry: {tims: 1}}]}",
            "d: {value: 1, accept: [{expr: 'x ='}, {schema: {type: objekt}}], output_schema: {file: no.json}}",
        )
    )
    assert [(p.line, p.code) for p in found] == [
        (2, "bad_name"),
        (2, "unknown_key"),
        (2, "bad_duration"),
        (3, "unknown_model"),
        (3, "unknown_name"),
        (3, "bad_value"),
        (3, "unknown_key"),
        (4, "bad_expression"),
        (4, "bad_schema"),
        (4, "bad_file"),
    ]


def test_a_graph_given_as_an_object_names_the_path_instead_of_the_line() -> None:
    with pytest.raises(LoadError) as caught:
        compile_graph(from_object({"nodes": {"a": {"script": {"file": "x.py"}}}}, "object"), NoFiles())
    assert "nodes.a.script.file" in caught.value.problems[0].message
    assert "no folder" in caught.value.problems[0].message


def test_what_the_worker_serves_is_not_checked_when_it_is_not_known() -> None:
    text = nodes(
        "a: {infer: {model: any, prompt: x}}", "b: {activity: Any, input: {}}", "c: {function: 'x:y', input: {}}"
    )
    compile_graph(read_source(text, "graph.yaml"), MemoryFiles(), World())


def test_a_graph_has_at_most_two_thousand_nodes() -> None:
    data = {"nodes": {f"n{i}": {"value": 1} for i in range(2001)}}
    with pytest.raises(LoadError, match="at most 2000 nodes"):
        compile_graph(from_object(data, "big"), NoFiles())


def test_a_plan_stays_below_what_an_activity_may_return() -> None:
    ladder = [{"retry": {"times": 1, "feedback": True, "on": ["some_long_code_of_the_author" * 5]}}] * 10
    data = {"nodes": {f"n{i}": {"script": "def run(input): return 1", "on_fail": ladder} for i in range(500)}}
    with pytest.raises(LoadError, match="plan is larger than 256 KiB"):
        compile_graph(from_object(data, "big"), NoFiles())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (nodes(f"a: {{{SCRIPT}, on_fail: [retry: 1]}}"), "pointless"),
        (
            nodes("a: {function: 'm:f', input: {path: 1}, on_fail: [retry: {times: 1, on: [time_out]}]}"),
            "unknown_class",
        ),
        (
            nodes("a: {function: 'm:f', input: {path: 1}, on_fail: [retry: {times: 1, on: [invalid_input]}]}"),
            "pointless",
        ),
        (
            nodes("a: {value: 1, when: input.x}", "b: {value: 1, when: input.y}", 'c: {value: ["${a}", "${b}"]}'),
            "may_be_skipped",
        ),
        (nodes("a: {value: {x: 1}, when: input.x}") + 'output: "${a.x}"', "may_be_skipped"),
        (nodes("a: {activity: Send, input: 1, on_fail: [retry: {times: 1, feedback: true}]}"), "pointless"),
    ],
    ids=[
        "retry_of_a_pure_script",
        "misspelt_class",
        "invalid_input",
        "join_of_guarded",
        "output_of_guarded",
        "feedback_to_nobody",
    ],
)
def test_what_works_but_is_hardly_meant_is_warned_of(text: str, code: str) -> None:
    assert [w.code for w in warnings(text)] == [code]


@pytest.mark.parametrize(
    "rung", ["retry: {times: 1, feedback: true}", "retry: {times: 1, fuel: 2x}", "retry: {times: 1, memory: 2x}"]
)
def test_a_retry_that_changes_something_is_not_warned_of(rung: str) -> None:
    assert warnings(nodes(f"a: {{{SCRIPT}, on_fail: [{rung}]}}")) == []


SILENT = {
    "open_object": 'output_schema: {type: object, properties: {x: {}}}}|"${a.y}"',
    "any_of": 'output_schema: {anyOf: [{type: object}, {type: "null"}]}}|"${a.y}"',
    "pattern": 'output_schema: {type: object, patternProperties: {y: {}}, additionalProperties: false}}|"${a.y}"',
    "nullable": 'output_schema: {type: [object, "null"]}}|"${a.y}"',
    "text_method": 'output_schema: {type: string}}|"${a.upper()}"',
    "text_index": 'output_schema: {type: string}}|"${a[0]}"',
    "reference": 'output_schema: {$ref: "#/$defs/t", $defs: {t: {type: object}}}}|"${a.y}"',
}


@pytest.mark.parametrize("case", SILENT.values(), ids=SILENT.keys())
def test_types_are_silent_where_they_can_not_know(case: str) -> None:
    schema, use = case.split("|")
    text = nodes(f"a: {{function: 'm:f', input: {{path: 1}}, {schema}", f"b: {{value: {use}}}")
    compile_graph(read_source(text, "graph.yaml"), MemoryFiles(), WORLD)


def test_exclusive_branches_join_with_after_any() -> None:
    text = nodes(
        "a: {value: 1, when: input.x}",
        "b: {value: 2, when: not input.x}",
        'c: {value: "${a or b}", after: {a: any, b: any}}',
    )
    assert warnings(text) == []
