"""The language has a version: graphs, runs and snapshots of one that isn't spoken here are refused, and it says so."""

from __future__ import annotations

from typing import Any

import pytest

from activities.store import Store
from graph.compile import compile_graph
from graph.errors import LoadError, Problem
from graph.files import MemoryFiles
from graph.source import read_source
from graph.values import JSON, Ref
from nodes import count, keys
from runs import Runs

GRAPH: dict[str, Any] = {"nodes": {"work": count("work", 7)}}
SPEAKS = "version 2 of the language; this worker speaks version 1"


def problems(text: str, files: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(LoadError) as caught:
        compile_graph(read_source(text, "graph.yaml"), MemoryFiles(files or {}))
    return caught.value.problems


def test_a_file_may_say_which_language_it_is_written_in_and_means_the_same() -> None:
    text = "nodes: {a: {value: 1}}\n"
    [silent, told] = [compile_graph(read_source(t, "g.yaml"), MemoryFiles({})) for t in (text, "language: 1\n" + text)]
    assert told.graph.language == silent.graph.language == 1
    assert told.graph.fingerprint == silent.graph.fingerprint


def test_a_file_in_another_language_is_refused_for_that_alone() -> None:
    [problem] = problems("language: 2\nstages: {a: {valeu: 1}}\n")
    assert (problem.code, problem.file, problem.line, problem.column) == ("unknown_language", "graph.yaml", 1, 11)
    assert SPEAKS in problem.message
    assert problem.hint == "use a worker whose Ferrata speaks it"


def test_a_child_graph_in_another_language_is_refused_in_its_file() -> None:
    [problem] = problems("nodes: {a: {graph: child.yaml}}", {"child.yaml": "language: 2\nnodes: {b: {new: 1}}"})
    assert (problem.code, problem.file, problem.line) == ("unknown_language", "child.yaml", 1)


@pytest.mark.parametrize("value", ["'1'", "true", "1.5", "[1]"])
def test_a_language_that_is_no_versions_number_is_refused(value: str) -> None:
    [problem] = problems(f"language: {value}\nnodes: {{a: {{value: 1}}}}")
    assert problem.code in ("bad_value", "wrong_type")
    assert "`language` must be" in problem.message


async def test_a_run_that_asks_for_this_language_runs(runs: Runs) -> None:
    handle = await runs.start_raw({"graph": {**GRAPH, "language": 1}, "language": 1})
    assert (await handle.result())["result"] == 7
    await runs.replays(handle)


@pytest.mark.parametrize(
    ("more", "what"),
    [({"language": 2}, "the run asks for"), ({"graph": {**GRAPH, "language": 2}}, "the graph is written in")],
)
async def test_a_run_in_another_language_is_refused_before_anything_is_called(
    runs: Runs, more: dict[str, JSON], what: str
) -> None:
    handle = await runs.start_raw({"graph": GRAPH, **more})
    failed = await runs.failure(handle)
    assert failed.code == "unknown_language"
    assert f"{what} {SPEAKS}" in failed.message
    assert "use a worker whose Ferrata speaks it" in failed.message
    assert keys(runs, handle.id) == []


@pytest.mark.parametrize("value", ["1", True, 1.5, [1], {}])
async def test_a_run_that_asks_for_no_versions_number_is_refused(runs: Runs, value: JSON) -> None:
    failed = await runs.failure(await runs.start_raw({"graph": GRAPH, "language": value}))
    assert failed.code == "bad_request"
    assert "`language` must be a version's number" in failed.message


@pytest.mark.parametrize("change", [{"language": 2}, {"language": 2, "stages": {}}], ids=["alike", "unreadable"])
async def test_a_snapshot_in_another_language_is_refused(runs: Runs, change: dict[str, JSON]) -> None:
    handle = await runs.start(GRAPH)
    await handle.result()
    snapshot = await runs.query(handle.id, "snapshot")
    store = Store.open(str(runs.log / "store"))
    compiled = await store.get_json(Ref(**snapshot["compiled"]))
    other = await store.put_json({**compiled, **change})
    resumed = await runs.start_raw({"resume": {**snapshot, "compiled": other.model_dump()}})
    failed = await runs.failure(resumed)
    assert failed.code == "unknown_language"
    assert SPEAKS in failed.message
    assert keys(runs, resumed.id) == []


async def test_a_run_that_asks_for_another_language_goes_on_from_no_snapshot(runs: Runs) -> None:
    handle = await runs.start(GRAPH)
    await handle.result()
    failed = await runs.failure(await runs.start_raw({"resume": {"run": handle.id}, "language": 2}))
    assert failed.code == "unknown_language"
