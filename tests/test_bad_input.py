"""What a run is started with, when it is wrong: it ends at once, says what, where and how to mend it, and no workflow
task fails on the way (`Runs.failure` sees to that)."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue

from graph.values import JSON
from runs import Failed, Runs

SECONDS = 15
"""Within which a run with bad input must end; usually it takes far less than one."""
TEMPORARY = Path(__file__).parent.parent / ".ferrata"
"""Under the root, which the shared worker's graphs may come from."""
ECHO: dict[str, Any] = {"nodes": {"work": {"value": "${input}"}}}


async def start(runs: Runs, *data: bytes, encoding: str = "json/plain") -> WorkflowHandle[Any, Any]:
    """Start a run with these very bytes."""
    payloads = [RawValue(Payload(metadata={"encoding": encoding.encode()}, data=part)) for part in data]
    name = f"run-{uuid.uuid4().hex[:12]}"
    return await runs.client.start_workflow("RunGraph", args=payloads, id=name, task_queue=runs.task_queue)


async def refused(runs: Runs, *data: bytes, encoding: str = "json/plain") -> Failed:
    """Start with these bytes; the failure."""
    handle = await start(runs, *data, encoding=encoding)
    async with asyncio.timeout(SECONDS):
        return await runs.failure(handle)


async def refused_graph(runs: Runs, graph: JSON, input: JSON = None) -> Failed:
    """Start a run of this graph; the failure."""
    async with asyncio.timeout(SECONDS):
        return await runs.fail(graph, input)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def echo_of(text: bytes) -> bytes:
    """A start input whose graph gives back ``text``."""
    return b'{"graph": ' + json.dumps(ECHO).encode() + b', "input": ' + text + b"}"


# What RunGraph takes at all.


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param([], "needs an input such as", id="nothing"),
        pytest.param([b"null"], "must be an object such as", id="null"),
        pytest.param([b"[]"], "must be an object such as", id="list"),
        pytest.param([b'"licenses"'], "must be an object such as", id="string"),
        pytest.param([b"7"], "must be an object such as", id="number"),
        pytest.param([b'"a"', b'"b"'], "one argument", id="two strings"),
        pytest.param([b"{}"], "lacks `graph`", id="empty object"),
        pytest.param([b'{"graph": null}'], "`graph` must be a name, a path or a graph object", id="graph null"),
        pytest.param([b'{"graph": 3}'], "`graph` must be a name, a path or a graph object", id="graph number"),
        pytest.param([b'{"grpah": "x"}'], "did you mean `graph`?", id="misspelt key"),
        pytest.param([b'{"graph": "x", "inputs": 1}'], "did you mean `input`?", id="misspelt input"),
        pytest.param([b'{"compiled": {}}'], "give `graph` instead", id="compiled"),
        pytest.param([b'{"compiled": {"digest": 1}}'], "give `graph` instead", id="bad compiled"),
        pytest.param([b"{'graph': 1}"], "isn't JSON", id="not JSON"),
        pytest.param([b""], "isn't JSON", id="no bytes"),
        pytest.param([b'{"graph": "\xff"}'], "isn't JSON", id="not UTF-8"),
        pytest.param([echo_of(rb'"half \ud800"')], "isn't JSON", id="lone surrogate"),
        pytest.param([echo_of(b"NaN")], "isn't JSON", id="NaN"),
        pytest.param([echo_of(b"[1e999]")], "isn't JSON", id="infinite"),
        pytest.param([echo_of(b"1" * 5000)], "isn't JSON", id="number of 5000 digits"),
        pytest.param([echo_of(nested(1000))], "isn't JSON", id="1000 levels"),
    ],
)
async def test_a_start_input_of_the_wrong_form_is_refused(runs: Runs, data: list[bytes], message: str) -> None:
    failed = await refused(runs, *data)
    assert failed.code == "bad_request"
    assert message in failed.message
    assert failed.envelope["error"]["node"] is None


@pytest.mark.parametrize("encoding", ["binary/plain", "json/protobuf", "unheard/of"])
async def test_a_start_input_in_another_encoding_is_refused(runs: Runs, encoding: str) -> None:
    failed = await refused(runs, echo_of(b"1"), encoding=encoding)
    assert failed.code == "bad_request"


async def test_two_arguments_are_refused(runs: Runs) -> None:
    failed = await refused(runs, echo_of(b"1"), echo_of(b"2"))
    assert failed.code == "bad_request"
    assert "one argument" in failed.message


async def test_a_resume_of_nothing_is_refused(runs: Runs) -> None:
    for key in (b"resume", b"redrive"):
        failed = await refused(runs, b'{"graph": "x", "' + key + b'": true}')
        assert failed.code == "bad_request"
        assert key.decode() in failed.message


@pytest.mark.parametrize("size", [1_200_000, 1_900_000])
async def test_an_input_above_a_mebibyte_is_refused(runs: Runs, size: int) -> None:
    failed = await refused(runs, echo_of(b'"' + b"x" * size + b'"'))
    assert failed.code == "too_large"
    assert "in a file" in failed.message


async def test_an_input_just_below_the_limit_passes(runs: Runs) -> None:
    handle = await start(runs, echo_of(b'"' + b"x" * 1_000_000 + b'"'))
    assert len((await handle.result())["result"]) == 1_000_000
    await runs.replays(handle)


@pytest.mark.parametrize("levels", [101, 150, 198, 201, 300])
async def test_an_input_that_nests_too_deeply_is_refused(runs: Runs, levels: int) -> None:
    failed = await refused(runs, echo_of(nested(levels)))
    assert failed.code == "bad_request"
    assert "nests" in failed.message or "recursion" in failed.message


async def test_an_input_of_a_hundred_levels_passes(runs: Runs) -> None:
    handle = await start(runs, echo_of(nested(100)))
    assert (await handle.result())["result"] == json.loads(nested(100))
    await runs.replays(handle)


# Finding the graph.


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder of odd files among the worker's graphs, gone afterwards."""
    TEMPORARY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TEMPORARY, prefix="odd-") as name:
        folder = Path(name)
        (folder / "empty.yaml").write_bytes(b"")
        (folder / "blank.yaml").write_text(" \n# nothing\n")
        (folder / "latin.yaml").write_bytes("nodes: {a: {value: é}}".encode("latin-1"))
        (folder / "binary.yaml").write_bytes(bytes(range(256)))
        (folder / "list.yaml").write_text("- 1\n")
        (folder / "broken.yaml").write_text("nodes: {a: {value: 1\n")
        (folder / "broken.json").write_text('{"nodes": {"a": }}')
        (folder / "日本語.yaml").write_text("nodes: {a: {value: こんにちは}}\n")
        (folder / "folder.yaml").mkdir()
        os.mkfifo(folder / "fifo.yaml")
        (folder / "loop.yaml").symlink_to("loop.yaml")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as outside:
            outside.write("nodes: {a: {value: secret}}")
            outside.flush()
            (folder / "outside.yaml").symlink_to(outside.name)
            yield folder


@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        ("empty.yaml", "empty_file", "empty.yaml: [empty_file]"),
        ("blank.yaml", "empty_file", "blank.yaml"),
        ("latin.yaml", "unreadable_graph", "save the file as UTF-8"),
        ("binary.yaml", "unreadable_graph", "save the file as UTF-8"),
        ("list.yaml", "wrong_type", "list.yaml:1:1"),
        ("broken.yaml", "bad_yaml", "broken.yaml:"),
        ("broken.json", "bad_json", "broken.json:1:"),
        ("folder.yaml", "unknown_graph", "there is no graph"),
        ("fifo.yaml", "unknown_graph", "there is no graph"),
        ("loop.yaml", "unknown_graph", "there is no graph"),
        ("outside.yaml", "unknown_graph", "there is no graph"),
        ("", "unknown_graph", "there is no graph"),
        ("missing.yaml", "unknown_graph", "there is no graph"),
        ("n" * 300 + ".yaml", "unknown_graph", "there is no graph"),
        ("n" * 900, "unknown_graph", "there is no graph"),
        ("empty.yaml/below.yaml", "unknown_graph", "there is no graph"),
        ("nul\0.yaml", "unknown_graph", "there is no graph"),
        ("../../../../../../../../etc/hostname", "unknown_graph", "there is no graph"),
        ("../../../pyproject.yaml", "unknown_graph", "there is no graph"),
    ],
)
async def test_a_file_that_is_no_graph_is_refused(runs: Runs, folder: Path, file: str, code: str, message: str) -> None:
    failed = await refused_graph(runs, f".ferrata/{folder.name}/{file}")
    assert (failed.code, message in failed.message) == (code, True), failed.message


async def test_a_link_out_of_the_folder_tells_nothing_of_what_it_leads_to(runs: Runs, folder: Path) -> None:
    failed = await refused_graph(runs, f".ferrata/{folder.name}/outside.yaml")
    assert "secret" not in failed.message


async def test_an_absolute_path_outside_is_refused_and_one_inside_is_found(runs: Runs, folder: Path) -> None:
    assert (await refused_graph(runs, "/etc/hostname.yaml")).code == "unknown_graph"
    assert (await refused_graph(runs, os.path.realpath(folder / "outside.yaml"))).code == "unknown_graph"
    assert (await runs.complete(str(folder / "日本語.yaml")))["result"] == "こんにちは"


async def test_names_and_values_of_any_script_pass(runs: Runs, folder: Path) -> None:
    done = await runs.complete(
        f".ferrata/{folder.name}/日本語", {"ключ": "🦙"}, id=f"läuft-{uuid.uuid4().hex[:8]}-運行"
    )
    assert done["result"] == "こんにちは"
    state = await runs.query(done["id"], "state")
    assert state["graph"] == "日本語"


async def test_a_misspelt_graph_name_gets_the_nearest(runs: Runs) -> None:
    failed = await refused_graph(runs, "examples/licenses/grpah.yaml")
    assert failed.code == "unknown_graph"
    assert "did you mean `examples/licenses/graph.yaml`?" in failed.message


# What the graph says.


@pytest.mark.parametrize(
    ("node", "code", "message"),
    [
        ({"function": "functions_for_tests:ecko", "input": {}}, "unknown_function", "did you mean `echo`?"),
        (
            {"function": "functions_for_test:echo", "input": {}},
            "unknown_function",
            "did you mean `functions_for_tests`",
        ),
        ({"function": "os:system", "input": {}}, "unknown_function", "FERRATA_FUNCTIONS"),
        ({"function": "functions_for_tests:_private", "input": {}}, "unknown_function", "no function `_private`"),
        ({"function": "functions_for_tests:Path", "input": {}}, "unknown_function", "no function `Path`"),
        ({"function": "functions_for_tests:largest", "input": {}}, "unknown_function", "signature"),
        ({"function": "functions_for_tests:badly_typed", "input": {"value": 1}}, "unknown_function", "type hints"),
        ({"function": "functions_for_tests:typed", "input": {}}, "missing_input", "name"),
        ({"function": "functions_for_tests:typed", "input": {"nmae": 1}}, "unknown_argument", "did you mean `name`?"),
        ({"function": "echo", "input": {}}, "bad_function", "module:name"),
        ({"activity": {"name": "greeet", "args": []}}, "unknown_activity", "did you mean `greet`?"),
        ({"infer": {"model": "smal", "prompt": "?"}}, "unknown_model", "did you mean `small`?"),
        ({"script": "x = 1\nprint('no run')\n"}, "bad_script", "run(input)"),
        ({"script": "def run(input) return 1"}, "bad_script", "graph"),
        ({"script": "#include <stdio.h>\nint main() { return 0; }"}, "bad_script", "graph"),
        ({"script": {"file": "x.py"}}, "bad_file", "inline"),
        ({"value": "${nope.x}"}, "unknown_name", "nope"),
        ({"value": 1, "after": ["wrok"]}, "unknown_node", "wrok"),
        ({"value": 1, "after": ["work"]}, "cycle", "work"),
        ({"value": "${1 +}"}, "bad_expression", "1 +"),
        ({"value": 1, "output_schema": {"type": "strin"}}, "bad_schema", "strin"),
        ({"value": 1, "timeout": 5}, "bad_duration", "5s"),
        ({"valeu": 1}, "unknown_key", "did you mean `value`?"),
    ],
)
async def test_a_wrong_node_is_refused_with_its_mend(runs: Runs, node: JSON, code: str, message: str) -> None:
    failed = await refused_graph(runs, {"nodes": {"work": node}})
    codes = [problem["code"] for problem in failed.envelope["error"]["details"]["problems"]]
    assert code in codes, failed.message
    assert message in failed.message


async def test_all_problems_of_a_graph_are_said_at_once(runs: Runs) -> None:
    graph = {"nodes": {"one": {"valeu": 1}, "two": {"value": "${thre}"}, "three": {"script": "x =\ny = 1\n"}}}
    failed = await refused_graph(runs, graph)
    assert {p["code"] for p in failed.envelope["error"]["details"]["problems"]} >= {
        "unknown_key",
        "unknown_name",
        "bad_script",
    }


async def test_a_graph_object_with_what_no_graph_has_is_refused(runs: Runs) -> None:
    assert (await refused_graph(runs, {})).code == "missing_key"
    assert (await refused_graph(runs, {"nodes": {}})).code == "no_nodes"
    assert (await refused_graph(runs, {"nodes": []})).code == "wrong_type"
    assert (await refused_graph(runs, {"nodes": None})).code == "wrong_type"


async def test_a_thousand_problems_are_still_an_answer(runs: Runs) -> None:
    graph = {"nodes": {f"n{i}": {"value": "${missing_" + "x" * 100 + "}"} for i in range(1000)}}
    failed = await refused_graph(runs, graph)
    assert failed.code == "unknown_name"
    assert len(failed.message) < 4096


# The run's input against the graph's schema.

SCHEMA = {
    "type": "object",
    "required": ["path", "size"],
    "properties": {
        "path": {"type": "string"},
        "size": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["fast", "good"], "default": "good"},
    },
    "additionalProperties": False,
}


async def test_every_violation_of_the_input_schema_is_named_with_its_path(runs: Runs) -> None:
    graph = {"input_schema": SCHEMA, **ECHO}
    failed = await refused_graph(runs, graph, {"size": 0, "mode": "bad", "more": 1})
    assert failed.code == "invalid_input"
    for part in ("'path' is a required property", "$.size", "$.mode", "'more' was unexpected", "input_schema"):
        assert part in failed.message
    assert len(failed.envelope["error"]["details"]["problems"]) == 4


@pytest.mark.parametrize("input", [None, [], "x", 3, {}])
async def test_an_input_of_another_type_than_the_schema_wants_is_refused(runs: Runs, input: JSON) -> None:
    failed = await refused_graph(runs, {"input_schema": SCHEMA, **ECHO}, input)
    assert failed.code == "invalid_input"


async def test_defaults_of_the_input_schema_are_filled_in(runs: Runs) -> None:
    graph = {"input_schema": SCHEMA, **ECHO}
    done = await runs.complete(graph, {"path": "p", "size": 2})
    assert done["result"] == {"path": "p", "size": 2, "mode": "good"}
    done = await runs.complete(graph, {"path": "p", "size": 2, "mode": "fast"})
    assert done["result"]["mode"] == "fast"


@pytest.mark.parametrize("input", [None, [], "x", 3.5, {"any": ["thing"]}, "", False])
async def test_without_an_input_schema_any_json_is_an_input(runs: Runs, input: JSON) -> None:
    assert (await runs.complete(ECHO, input))["result"] == input
