"""The `ferrata` command, as a subprocess."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.supervisor import EXIT_CONFIG
from worker_process import ROOT

GRAPH = """
name: greet
nodes:
  hello:
    function: greetings:hello
    input: {name: Ada}
"""


def ferrata(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    (tmp_path / "greet.yaml").write_text(GRAPH)
    (tmp_path / "wrong.yaml").write_text("name: wrong\nnodes:\n  a: {valu: 1}\n  b: {value: '${c}'}\n")
    (tmp_path / "greetings.py").write_text("def hello(name: str) -> str:\n    return f'Hello {name}'\n")
    return tmp_path


def test_check_tells_of_a_sound_graph_and_exits_with_0(graphs: Path) -> None:
    result = ferrata(graphs, "check", "greet.yaml")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("greet.yaml: ok, graph greet of 1 node, sha256:")


def test_check_prints_every_problem_of_every_file_with_its_place_and_exits_with_1(graphs: Path) -> None:
    result = ferrata(graphs, "check", "wrong.yaml", "greet.yaml")
    assert result.returncode == 1
    assert "error: wrong.yaml:3:7: [unknown_key] `valu`" in result.stderr
    assert "error: wrong.yaml:4:" in result.stderr
    assert "greet.yaml: ok" in result.stdout


def test_check_knows_what_graphs_may_read_as_far_as_the_settings_tell(graphs: Path) -> None:
    (graphs / "greet.yaml").write_text(
        "nodes:\n  a:\n    over: {file: data/x.csv}\n    value: 1\n    grants: {read: [data]}\n"
    )
    (graphs / "other").mkdir()
    assert ferrata(graphs, "check", "greet.yaml").returncode == 0
    assert ferrata(graphs, "check", "greet.yaml", FERRATA_READ=".").returncode == 0
    result = ferrata(graphs, "check", "greet.yaml", FERRATA_READ="other")
    assert result.returncode == 1
    assert "greet.yaml:5:21: [denied_grant]" in result.stderr
    assert "set FERRATA_READ" in result.stderr


def test_check_shows_warnings_beside_the_errors(graphs: Path) -> None:
    ladder = "on_fail: [{retry: {times: 1, on: [timeot]}}]"
    (graphs / "wrong.yaml").write_text(
        f"nodes:\n  a: {{function: 'greetings:hello', input: {{}}, {ladder}}}\n  b: {{valu: 1}}\n"
    )
    result = ferrata(graphs, "check", "wrong.yaml")
    assert result.returncode == 1
    assert "error: wrong.yaml:3:7: [unknown_key]" in result.stderr
    assert "warning: wrong.yaml:2:" in result.stderr
    assert "did you mean `timeout`?" in result.stderr


def test_check_looks_functions_up_once_the_modules_are_named(graphs: Path) -> None:
    (graphs / "greet.yaml").write_text(GRAPH.replace(":hello", ":helo"))
    assert ferrata(graphs, "check", "greet.yaml").returncode == 0
    result = ferrata(graphs, "check", "greet.yaml", FERRATA_FUNCTIONS="greetings")
    assert result.returncode == 1
    assert "helo" in result.stderr


def test_check_with_a_wrong_setting_names_it(graphs: Path) -> None:
    result = ferrata(graphs, "check", "greet.yaml", FERRATA_FUNCTIONS="absent")
    assert result.returncode == EXIT_CONFIG
    assert "FERRATA_FUNCTIONS names `absent`" in result.stderr
    assert "Traceback" not in result.stderr


def test_version_names_what_it_runs_on(tmp_path: Path) -> None:
    result = ferrata(tmp_path, "version")
    # From a checkout that isn't installed there is no version of Ferrata itself to tell.
    assert "temporalio 1." in result.stdout
    assert "Traceback" not in result.stderr


def test_check_finds_scripts_that_do_not_parse(graphs: Path) -> None:
    (graphs / "greet.yaml").write_text("nodes:\n  a:\n    script: |\n      def run(input:\n          return 1\n")
    result = ferrata(graphs, "check", "greet.yaml")
    assert result.returncode == 1
    assert "error: greet.yaml:4:14: [bad_script] the script doesn't parse: '(' was never closed" in result.stderr


def test_check_takes_the_names_that_a_run_takes(graphs: Path) -> None:
    (graphs / "deep" / "er").mkdir(parents=True)
    (graphs / "greet.yaml").rename(graphs / "deep" / "er" / "graph.yaml")
    for name in ("deep/er", "deep/er/", "deep/er/graph", "deep/er/graph.yaml", str(graphs / "deep" / "er")):
        result = ferrata(graphs, "check", name)
        assert result.returncode == 0, result.stderr
        assert "deep/er/graph.yaml: ok" in result.stdout
    assert ferrata(graphs, "check", "er", FERRATA_GRAPHS="deep").returncode == 0


def test_check_suggests_the_nearest_graph_and_never_another_file(graphs: Path) -> None:
    (graphs / "my").mkdir()
    (graphs / "greet.yaml").rename(graphs / "my" / "big.yaml")
    (graphs / "my" / "bg.yaml").write_text("services: {}\n")
    result = ferrata(graphs, "check", "my/bgi", "my/bgi.yaml")
    assert result.returncode == 1
    assert "[unknown_graph] there is no graph `my/bgi`" in result.stderr
    assert "did you mean `my/big`?" in result.stderr
    assert "did you mean `my/big.yaml`?" in result.stderr


def test_check_says_that_a_models_file_is_no_graph(graphs: Path) -> None:
    (graphs / "models.yaml").write_text("small: {provider: stub, echo: true}\nbig: {provider: stub, echo: true}\n")
    result = ferrata(graphs, "check", "models.yaml")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "models.yaml: [no_nodes] this doesn't look like a graph: it has no `nodes`" in line


def test_check_says_all_that_is_wrong_with_the_settings_at_once(graphs: Path) -> None:
    bad = {
        "FERRATA_SLOTS": "many",
        "FERRATA_FUNCTIONS": "absent,gone",
        "FERRATA_ACTIVITIES": "missing,greetings,lost",
        "FERRATA_MODELS": '{"small": {"provider": "nobody"}}',
        "FERRATA_STOR": "x",
    }
    result = ferrata(graphs, "check", "greet.yaml", **bad)
    assert result.returncode == EXIT_CONFIG
    first, *errors = result.stderr.splitlines()
    assert first == "warning: FERRATA_STOR is no setting of Ferrata and has no effect: did you mean FERRATA_STORE?"
    for words in ("FERRATA_SLOTS is `many`", "`absent`", "`gone`", "`missing`", "`lost`", "nobody"):
        assert any(words in line for line in errors), words
    assert len(errors) == 6


def test_a_function_that_is_not_served_is_told_with_what_to_do(graphs: Path) -> None:
    (graphs / "others.py").write_text("def hi() -> str:\n    return 'hi'\n")
    (graphs / "wrong.yaml").write_text("nodes:\n  a: {function: 'others:hi', input: {}}\n")
    result = ferrata(graphs, "check", "wrong.yaml", FERRATA_FUNCTIONS="greetings")
    assert result.stderr.endswith("-> set FERRATA_FUNCTIONS=greetings,others and restart the worker\n")
    (graphs / "wrong.yaml").write_text("nodes:\n  a: {function: 'greetings:helo', input: {}}\n")
    result = ferrata(graphs, "check", "wrong.yaml", FERRATA_FUNCTIONS="greetings")
    assert result.stderr.endswith("has no function `helo` -> did you mean `hello`?\n")


def test_the_version_is_also_an_option(tmp_path: Path) -> None:
    result = ferrata(tmp_path, "--version")
    assert result.returncode == 0
    assert result.stdout.startswith("ferrata ")
    assert len(result.stdout.splitlines()) == 1
