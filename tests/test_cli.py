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
