"""What a sound graph compiles to, and the plan made of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph import limits
from graph.compile import Compilation, compile_graph
from graph.compiled import CompiledGraph, CompiledNode, Escalate, Reroute, Retry
from graph.errors import LoadError
from graph.files import MemoryFiles, NoFiles
from graph.planning import plan_of
from graph.source import from_object, read_source
from graph.spec import NodeSpec
from graph.world import World

RUN = "def run(input):\n    return input\n"


def compiled(text: str, files: dict[str, str] | None = None, world: World | None = None) -> Compilation:
    return compile_graph(read_source(text, "graph.yaml"), MemoryFiles(files or {}), world)


def node(text: str, **files: str) -> CompiledNode:
    """The only node of a graph whose node `a` is ``text``."""
    return compiled(f"nodes:\n  a: {text}\n  b: {{value: 1}}", files).graph.nodes[0]


LICENSES = """
name: licenses
input_schema: {type: object, required: [path], properties: {path: {type: string}}}
nodes:
  installed:
    function: examples.licenses.functions:list_distributions
    input: {path: "${input.path}"}
  classify:
    over: "${installed.distributions}"
    script: {file: classify.py}
    output_schema: {type: object, required: [spdx], properties: {spdx: {type: string}}}
    accept:
      - expr: output.spdx != 'UNKNOWN'
      - schema: {file: spdx.schema.json}
    on_fail:
      - reroute: {script: {file: classify_lenient.py}}
      - escalate
  report:
    value: {counts: "${count_by(classify.values, 'spdx')}", open: "${classify.escalated}"}
output: "${report}"
"""
LICENSES_FILES = {
    "classify.py": RUN,
    "classify_lenient.py": RUN + "# lenient\n",
    "spdx.schema.json": '{"type": "object"}',
}


def test_the_graph_of_the_design_compiles_as_it_is_written() -> None:
    graph = compiled(LICENSES, LICENSES_FILES).graph
    assert [n.name for n in graph.nodes] == ["installed", "classify", "report"]
    classify = graph.node("classify")
    assert classify.uses == ["installed"]
    assert classify.over is not None
    assert classify.over.items == "${installed.distributions}"
    assert [check.name for check in classify.checks] == ["output_schema", "accept[0] expr", "accept[1] schema"]
    assert [i.id.split(":")[0] for i in classify.implementations] == ["script", "script"]
    assert classify.ladder == [Reroute(implementation=1), Escalate(queue="escalations")]
    assert classify.implementations[0].script is not None
    assert classify.implementations[0].script.text == RUN
    assert graph.node("report").uses == ["classify"]


def test_a_compiled_graph_survives_a_json_round_trip() -> None:
    graph = compiled(LICENSES, LICENSES_FILES).graph
    assert CompiledGraph.model_validate_json(graph.model_dump_json(by_alias=True)) == graph


def test_the_plan_holds_structure_and_no_values() -> None:
    plan = plan_of(compiled(LICENSES, LICENSES_FILES).graph)
    assert plan.output_node == "report"
    assert [(n.name, n.kinds, n.map) for n in plan.nodes] == [
        ("installed", ["function"], False),
        ("classify", ["script", "script"], True),
        ("report", ["value"], False),
    ]
    assert "distributions" not in plan.model_dump_json(exclude={"nodes": {0: {"implementations"}}})


def test_limits_have_documented_defaults_and_take_sizes_and_durations() -> None:
    plain = node("{value: 1}").limits
    assert (plain.timeout, plain.fuel, plain.memory, plain.output_bytes) == (
        limits.DEFAULT_TIMEOUT_MS,
        limits.DEFAULT_FUEL,
        limits.DEFAULT_MEMORY,
        limits.DEFAULT_OUTPUT_BYTES,
    )
    own = node("{value: 1, timeout: 1m30s, deadline: 1h, fuel: 5000000, memory: 64MiB, output_bytes: 10KB}").limits
    assert (own.timeout, own.deadline, own.fuel, own.memory, own.output_bytes) == (
        90_000,
        3_600_000,
        5_000_000,
        64 * 2**20,
        10_000,
    )


def test_rungs_take_short_and_long_forms() -> None:
    ladder = node(
        "{function: 'm:f', input: {}, on_fail: [retry: 2, {retry: {times: 1, delay: 2s, backoff: 2, max_delay: 1m, "
        "feedback: true, fuel: 4x, memory: 1.5x, on: [timeout]}}, escalate: {queue: q}]}"
    ).ladder
    assert ladder[0] == Retry(times=2)
    assert ladder[1] == Retry(
        times=1, delay=2000, backoff=2, max_delay=60_000, feedback=True, fuel=4, memory=1.5, on=["timeout"]
    )
    assert ladder[2] == Escalate(queue="q")


def test_a_reroute_to_a_model_keeps_the_prompt() -> None:
    made = node("{infer: {model: small, prompt: hello}, on_fail: [reroute: {model: big}]}").implementations
    assert [i.id for i in made] == ["model:small", "model:big"]
    assert made[0].infer == made[1].infer


def test_a_reroute_to_a_model_keeps_the_script_under_a_models_grant() -> None:
    made = node(
        "{script: 'def run(input): return 1', grants: {models: [small, big]}, on_fail: [reroute: {model: big}]}"
    ).implementations
    assert [i.model for i in made] == ["small", "big"]
    assert made[0].script == made[1].script
    assert made[0].id != made[1].id
    assert made[0].models == ["small", "big"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "text"),
        (", output_schema: {type: object}", "json"),
        (", output_schema: {enum: [1]}", "json"),
        (", output_schema: {type: string}", "text"),
    ],
    ids=["no_schema", "object", "untyped", "string"],
)
def test_the_format_of_a_model_answer_follows_the_output_schema(options: str, expected: str) -> None:
    made = node(f"{{infer: {{model: m, prompt: p}}{options}}}").implementations[0]
    assert made.infer is not None
    assert made.infer.format == expected


def test_a_guard_that_names_the_item_is_per_item() -> None:
    per_item = node("{value: 1, over: [1], when: item > 0}")
    per_node = node("{value: 1, over: [1], when: input.go}")
    assert per_item.over is not None
    assert per_node.over is not None
    assert (per_item.over.guard_per_item, per_node.over.guard_per_item) == (True, False)


def test_tolerate_takes_a_number_or_a_share() -> None:
    number = node("{value: 1, over: [1], tolerate: {failures: 2}}").over
    share = node("{value: 1, over: [1], tolerate: {failures: '5%'}}").over
    assert number is not None
    assert share is not None
    assert (number.tolerate_failures, number.tolerate_percent) == (2, None)
    assert (share.tolerate_failures, share.tolerate_percent) == (None, 5.0)


def test_uses_are_in_file_order_and_cover_every_expression_of_a_node() -> None:
    text = """
nodes:
  a: {value: true}
  b: {value: 1}
  c: {value: 1}
  d: {value: 1}
  e: {value: 1}
  x:
    infer: {model: m, prompt: "${e}"}
    when: a
    accept: [expr: output == d, judge: {model: m, prompt: "${c}"}]
    on_fail: [reroute: {value: "${b}"}]
"""
    assert compiled(text).graph.node("x").uses == ["a", "b", "c", "d", "e"]


def test_after_has_short_and_long_forms() -> None:
    text = "nodes: {a: {value: 1}, b: {value: 1, after: [a]}, c: {value: 1, after: {a: failed, b: any}}}"
    graph = compiled(text).graph
    assert graph.node("b").after == {"a": "succeeded"}
    assert graph.node("c").after == {"a": "failed", "b": "any"}


@pytest.mark.parametrize(
    ("text", "node_name", "uses"),
    [
        ("{nodes: {a: {value: 1}, b: {value: '${a}'}}}", "b", ["b"]),
        ("{nodes: {a: {value: 1}, b: {value: 1}}}", None, ["a", "b"]),
        ("{nodes: {a: {value: 1}, b: {value: 1, after: {a: failed}}}}", None, ["a", "b"]),
        ("{nodes: {a: {value: 1}, b: {value: '${a}'}}, output: '${a}'}", "a", ["a"]),
        ("{nodes: {a: {value: {x: 1}}}, output: '${a.x}'}", None, ["a"]),
        ("{nodes: {a: {value: 1}}, output: '${len([a])}'}", None, ["a"]),
    ],
    ids=["only_sink", "two_sinks", "handler_leaves_its_node_a_sink", "named", "part", "computed"],
)
def test_the_output_is_a_node_as_it_is_or_evaluated_from_the_nodes_it_names(
    text: str, node_name: str | None, uses: list[str]
) -> None:
    plan = plan_of(compiled(text).graph)
    assert (plan.output_node, plan.output_uses) == (node_name, uses)


def test_a_child_graph_is_compiled_with_the_files_of_its_own_folder() -> None:
    files = {
        "sub/child.yaml": "nodes: {s: {script: {file: s.py}}}",
        "sub/s.py": RUN,
    }
    graph = compiled("nodes: {a: {graph: sub/child.yaml}, b: {graph: {nodes: {v: {value: 1}}}}}", files).graph
    names = {child.name for child in graph.graphs.values()}
    assert names == {"child", "graph.b"}
    assert set(graph.graphs) == {n.implementations[0].graph for n in graph.nodes}


def test_the_same_child_file_is_compiled_once_however_often_it_is_included() -> None:
    files = {f"g{i}.yaml": f"nodes: {{a: {{graph: g{i + 1}.yaml}}, b: {{graph: g{i + 1}.yaml}}}}" for i in range(12)}
    files["g12.yaml"] = "nodes: {v: {value: 1}}"
    assert len(compiled("nodes: {a: {graph: g0.yaml}}", files).graph.graphs) == 1


def test_the_script_of_a_yaml_block_knows_its_line_in_the_graph_file() -> None:
    text = "nodes:\n  a:\n    script: |\n      import json\n\n      def run(input):\n          return 1\n"
    script = compiled(text).graph.nodes[0].implementations[0].script
    assert script is not None
    assert (script.file, script.line) == ("graph.yaml", 4)


def test_author_keys_and_anchors_are_free() -> None:
    text = "x-common: &c {timeout: 5s}\nnodes:\n  a: {<<: *c, value: 1}\n"
    assert compiled(text).graph.nodes[0].limits.timeout == 5000


def test_a_graph_without_a_name_is_called_by_its_file() -> None:
    files = MemoryFiles()
    assert compile_graph(read_source("nodes: {a: {value: 1}}", "x/report.yaml"), files).graph.name == "report"
    assert compile_graph(read_source("nodes: {a: {value: 1}}", "licenses/graph.yaml"), files).graph.name == "licenses"


def test_a_long_chain_of_nodes_compiles() -> None:
    nodes: dict[str, Any] = {"n0": {"value": 1}}
    nodes |= {f"n{i}": {"value": f"${{n{i - 1}}}"} for i in range(1, 2000)}
    graph = compile_graph(from_object({"nodes": nodes}, "big"), NoFiles()).graph
    assert len(graph.nodes) == 2000


WORDS = sorted(
    {
        *NodeSpec.written(),
        "nodes",
        "a",
        "b",
        "times",
        "model",
        "prompt",
        "file",
        "until",
        "max_rounds",
        "schema",
        "expr",
    }
    | {"retry", "reroute", "escalate", "type", "properties", "$ref", "name", "output", "input_schema", "models", "on"}
)
TEXTS = [
    "${a}",
    "${b.x}",
    "${input.q}",
    "${",
    "$${",
    "true",
    "not a",
    "4x",
    "5%",
    "90s",
    "64MiB",
    "m:f",
    "failed",
    "any",
]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(TEXTS + WORDS) | st.text(max_size=4)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)
nodes = st.dictionaries(st.sampled_from(NodeSpec.written()), trees, max_size=5)
sound = st.fixed_dictionaries(
    {"script": st.just(RUN)},
    optional=dict.fromkeys(("on_fail", "accept", "after", "when", "over", "output_schema", "input", "repeat"), trees),
)
graphs = st.fixed_dictionaries(
    {"nodes": st.dictionaries(st.sampled_from("ab"), nodes | sound | trees, max_size=3)},
    optional={"output": trees, "input_schema": trees, "name": trees, "deadline": trees},
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees | graphs)
def test_any_json_is_compiled_or_refused_and_never_a_traceback(data: Any) -> None:
    try:
        made = compile_graph(from_object(data, "any"), NoFiles())
    except LoadError as error:
        shown = [str(problem) for problem in error.problems]
    else:
        shown = [plan_of(made.graph).model_dump_json()]
    assert all(shown)
