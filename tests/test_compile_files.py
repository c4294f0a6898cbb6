"""Files on disk: those of the graph's folder, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from activities.graph_files import LARGEST_FILE, DiskFiles
from graph.compile import compile_graph
from graph.errors import LoadError
from graph.files import FileProblem
from graph.source import read_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "graphs-of-others").mkdir()
    (tmp_path / "graphs-of-others" / "x.py").write_text("x")
    graphs = tmp_path / "graphs"
    (graphs / "sub").mkdir(parents=True)
    (graphs / "a.py").write_text("def run(input): return 1\n")
    (graphs / "sub" / "b.py").write_text("def run(input): return 2\n")
    return graphs


def test_files_of_the_folder_and_below_are_read(folder: Path) -> None:
    files = DiskFiles(folder)
    assert files.read("a.py").startswith(b"def run")
    assert files.read("sub/../sub/./b.py").startswith(b"def run")


@pytest.mark.parametrize(
    "path", ["../secret.txt", "sub/../../secret.txt", "/etc/passwd", "../graphs-of-others/x.py", "", "a\0.py", "C:\\x"]
)
def test_a_path_out_of_the_folder_is_refused(folder: Path, path: str) -> None:
    with pytest.raises(FileProblem):
        DiskFiles(folder).read(path)


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_followed(folder: Path) -> None:
    (folder / "out.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "dir").symlink_to(folder.parent / "graphs-of-others")
    (folder / "in.py").symlink_to("sub/b.py")
    files = DiskFiles(folder)
    for path in ("out.txt", "dir/x.py"):
        with pytest.raises(FileProblem, match="outside"):
            files.read(path)
    assert files.read("in.py").startswith(b"def run")


def test_what_is_no_regular_file_is_refused_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    for path in ("pipe", "sub", "loop", "missing.py", "a.py/x"):
        with pytest.raises(FileProblem):
            DiskFiles(folder).read(path)


def test_a_file_beyond_the_limit_is_refused(folder: Path) -> None:
    with (folder / "big").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(FileProblem, match="larger than 8 MiB"):
        DiskFiles(folder).read("big")


def test_a_missing_file_is_answered_with_the_nearest_beside_it(folder: Path) -> None:
    with pytest.raises(LoadError) as caught:
        compile_graph(read_source("nodes: {a: {script: {file: sub/c.py}}}", "graph.yaml"), DiskFiles(folder))
    (problem,) = caught.value.problems
    assert (problem.code, problem.hint) == ("bad_file", "did you mean `sub/b.py`?")
    with pytest.raises(FileProblem) as missing:
        DiskFiles(folder).read("nowhere/c.py")
    assert missing.value.hint is None


def test_a_child_graph_reads_its_own_folder_only(folder: Path) -> None:
    (folder / "sub" / "child.yaml").write_text("nodes: {s: {script: {file: b.py}}}")
    (folder / "sub" / "nosy.yaml").write_text("nodes: {s: {script: {file: ../a.py}}}")
    compile_graph(read_source("nodes: {a: {graph: sub/child.yaml}}", "graph.yaml"), DiskFiles(folder))
    with pytest.raises(LoadError, match="outside the graph file's folder"):
        compile_graph(read_source("nodes: {a: {graph: sub/nosy.yaml}}", "graph.yaml"), DiskFiles(folder))


def test_an_inclusion_cycle_is_found_through_links(folder: Path) -> None:
    text = "nodes: {a: {graph: other.yaml}}"
    (folder / "graph.yaml").write_text(text)
    (folder / "other.yaml").symlink_to("graph.yaml")
    with pytest.raises(LoadError, match="includes itself"):
        compile_graph(read_source(text, "graph.yaml"), DiskFiles(folder))
