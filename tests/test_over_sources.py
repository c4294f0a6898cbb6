"""`over` with a file or a reference, in the graph file: what compiles, and what is refused before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.grants import not_grantable
from activities.graph_files import DiskFiles
from graph.compile import Compilation, compile_graph
from graph.compiled import CompiledGraph, FileSource, RefSource
from graph.errors import LoadError
from graph.files import MemoryFiles, NoFiles
from graph.source import from_object, read_source
from graph.sources import absolute, format_of
from graph.world import World

WORLD = World(readable=lambda folder: None if folder.startswith("/data") else f"`{folder}` is out -> see FERRATA_READ")


def mapped(over: str, more: str = "grants: {read: [items]}", kind: str = "value: '${item}'") -> str:
    """A graph of one node, in YAML."""
    return f"nodes:\n  a:\n    over: {over}\n    {kind}\n    {more}\n"


def compiled(text: str, world: World | None = None) -> Compilation:
    return compile_graph(read_source(text, "graph.yaml"), MemoryFiles(), world)


def source(text: str) -> Any:
    over = compiled(text).graph.node("a").over
    assert over is not None
    assert over.items is None
    return over.source


def test_a_file_is_a_source_with_the_format_of_its_ending() -> None:
    for path, form in {
        "items/a.json": "json",
        "items/a.jsonl": "jsonl",
        "items/a.ndjson.gz": "jsonl",
        "items/A.CSV.GZ": "csv",
        "'items/${input.day}.csv'": "csv",
    }.items():
        found = source(mapped(f"{{file: {path}}}"))
        assert isinstance(found, FileSource)
        assert (found.path, found.format, found.read) == (path.strip("'"), form, ["items"])


def test_a_format_wins_over_the_ending_and_a_computed_path_tells_its_own_later() -> None:
    assert source(mapped("{file: items/a.txt, format: csv}")).format == "csv"
    assert source(mapped("{file: items/a.json, format: jsonl}")).format == "jsonl"
    assert source(mapped('{file: "${input.path}"}')).format is None


def test_a_reference_is_a_source_without_a_grant() -> None:
    found = source(mapped('{ref: "${input.list}"}', "batch: 2"))
    assert isinstance(found, RefSource)
    assert found.ref == "${input.list}"


def test_a_source_waits_for_the_nodes_that_its_path_names() -> None:
    text = mapped('{file: "${made.path}"}') + "  made: {value: {path: items/x.csv}}\n"
    assert compiled(text).graph.node("a").uses == ["made"]


CASES: dict[str, tuple[str, str, str, str]] = {
    # id: (file, place and code, part of the message, part of the mend)
    "no_grant": (
        mapped("{file: items/a.csv}", "batch: 2"),
        "3:18 missing_grant",
        "`items/a.csv` needs a grant",
        "`grants: {read: [items]}`",
    ),
    "no_grant_for_a_file_beside_the_graph": (
        mapped("{file: a.csv}", "batch: 2"),
        "3:18 missing_grant",
        "`a.csv`",
        "`grants: {read: [.]}`",
    ),
    "no_grant_for_a_computed_path": (
        mapped('{file: "${input.path}"}', "batch: 2"),
        "3:18 missing_grant",
        "needs a grant",
        "{read: [DIR]}",
    ),
    "another_folder_granted": (
        mapped("{file: item/a.csv}"),
        "3:18 missing_grant",
        "`item/a.csv` is in none",
        "add item to",
    ),
    "a_folder_with_the_same_beginning": (mapped("{file: items-of-others/a.csv}"), "missing_grant", "in none", ""),
    "out_of_the_granted_folder": (mapped("{file: items/../a.csv}"), "missing_grant", "in none", "add . to"),
    "unknown_ending": (
        mapped("{file: items/a.xlsx}"),
        "3:18 missing_key",
        "the format of `items/a.xlsx`",
        "`format: json`",
    ),
    "unknown_ending_of_a_computed_path": (mapped("{file: 'items/${input.n}.txt'}"), "missing_key", "the format", ""),
    "unknown_format": (mapped("{file: items/a, format: xml}"), "3:35 bad_value", "`format` must be one of", "json"),
    "unknown_key": (
        mapped("{file: items/a.csv, delimiter: ';'}"),
        "unknown_key",
        "`delimiter`",
        "known: `file`, `format`, `ref`",
    ),
    "path_for_file": (mapped("{path: items/a.csv}"), "3:12 unknown_key", "`path`", "write `file: PATH`"),
    "a_url": (mapped("{url: 'https://x/a.csv'}"), "unknown_key", "`url`", "URLs"),
    "neither": (mapped("{}"), "3:11 wrong_type", "neither `file` nor `ref`", "`{file: PATH}`"),
    "both": (mapped("{file: items/a.csv, ref: '${input}'}"), "wrong_type", "`file` and `ref`", ""),
    "format_of_a_reference": (mapped("{ref: '${input}', format: csv}", "batch: 1"), "misplaced_key", "`format`", ""),
    "a_reference_that_is_a_number": (mapped("{ref: 7}", "batch: 1"), "3:17 wrong_type", "`ref`", "${input.ref}"),
    "items_as_a_key": (mapped("{items: '${input}'}", "batch: 1"), "unknown_key", "`items`", 'over: "${node.list}"'),
    "the_path_alone": (mapped("items/a.csv"), "wrong_type", "`over` is an expression", "`over: {file: items/a.csv}`"),
    "a_name_out_of_scope": (mapped("{file: '${inptu.path}'}"), "3:21 unknown_name", "`inptu`", "`input`"),
    "the_item_itself": (mapped("{file: '${item}.csv'}"), "unknown_name", "`item`", ""),
    "a_computed_grant": (
        mapped("{file: '${input.x}'}", "grants: {read: ['${input.dir}']}"),
        "5:21 bad_value",
        "never computed",
        "name the folder",
    ),
    "a_home": (mapped("{file: '${input.x}'}", "grants: {read: [~/x]}"), "bad_value", "`~`", "whole path"),
    "a_grant_beyond_the_settings": (
        mapped("{file: '${input.x}'}", "grants: {read: [/data/x, /etc]}"),
        "5:30 denied_grant",
        "`/etc` is out",
        "FERRATA_READ",
    ),
    "a_grant_that_leaves_the_settings": (
        mapped("{file: '${input.x}'}", "grants: {read: [/data/../etc]}"),
        "denied_grant",
        "`/etc` is out",
        "",
    ),
    "a_grant_without_a_file": (
        mapped("[1]", kind="script: 'def run(input): return 1'"),
        "5:14 misplaced_key",
        "a script itself reads no files",
        "leave it out",
    ),
    "models_for_no_script": (
        mapped("{file: items/a.csv}", "grants: {read: [items], models: [m]}"),
        "misplaced_key",
        "`models` gives it nothing",
        "",
    ),
    "read_beside_grants": (mapped("[1]", "read: [items]"), "unknown_key", "`read`", "inside `grants: {...}`"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_refused_with_place_and_mend(name: str) -> None:
    text, at, message, hint = CASES[name]
    world = WORLD if "settings" in name else None
    with pytest.raises(LoadError) as caught:
        compiled(text, world)
    assert [str(problem) for problem in caught.value.problems][1:] == []
    found = caught.value.problems[0]
    assert f"{found.line}:{found.column} {found.code}".endswith(at)
    assert message in found.message
    assert hint in (found.hint or "")


def test_a_graph_given_as_an_object_names_only_absolute_paths() -> None:
    def given(path: str, folder: str) -> Compilation:
        node = {"over": {"file": path}, "value": "${item}", "grants": {"read": [folder]}}
        return compile_graph(from_object({"nodes": {"a": node}}, "object"), NoFiles())

    given("/data/x.csv", "/data")
    for path, folder in (("x.csv", "/data"), ("/data/x.csv", "data")):
        with pytest.raises(LoadError) as caught:
            given(path, folder)
        (found,) = caught.value.problems
        assert found.code == "bad_file"
        assert "no folder" in found.message


def test_what_the_settings_allow_is_told_by_where_folders_really_are(tmp_path: Path) -> None:
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "database").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "out").symlink_to(tmp_path / "database")
    allowed = (tmp_path / "link",)
    for inside in ("data", "data/in", "link/in", "data/not/there"):
        assert not_grantable(allowed, str(tmp_path / inside)) is None
    for outside in ("database", "data/out", "", "nothing"):
        why = not_grantable(allowed, str(tmp_path / outside))
        assert why is not None
        assert "FERRATA_READ" in why


# The fingerprint

TEXT = mapped("{file: items/a.csv}")


def test_the_fingerprint_covers_the_source_but_not_where_the_graph_lies(tmp_path: Path) -> None:
    fingerprints = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        fingerprints.append(compile_graph(read_source(TEXT, "graph.yaml"), DiskFiles(folder)).graph.fingerprint)
    assert fingerprints[0] == fingerprints[1]
    for other in (
        mapped("{file: items/b.csv}"),
        mapped("{file: items/a.csv, format: jsonl}"),
        mapped("{file: items/a.csv}", "grants: {read: [., items]}"),
        mapped("{ref: '${input}'}", "batch: 1"),
    ):
        assert (
            compile_graph(read_source(other, "graph.yaml"), DiskFiles(tmp_path)).graph.fingerprint not in fingerprints
        )


def test_equal_child_graphs_in_two_folders_read_each_its_own_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "child.yaml").write_text(TEXT)
    text = "nodes: {x: {graph: one/child.yaml}, y: {graph: two/child.yaml}}"
    graph = compile_graph(read_source(text, "graph.yaml"), DiskFiles(tmp_path)).graph
    found = {
        absolute(over.source.root, over.source.base)
        for child in graph.graphs.values()
        if (over := child.node("a").over) is not None and isinstance(over.source, FileSource)
    }
    assert found == {str(tmp_path / "one"), str(tmp_path / "two")}


def test_a_graph_that_an_older_worker_stored_still_loads() -> None:
    graph = compiled(mapped("[1]", "batch: 1")).graph
    data = graph.model_dump(mode="json", by_alias=True)
    del data["nodes"][0]["over"]["source"]
    over = CompiledGraph.model_validate(data).node("a").over
    assert over is not None
    assert (over.source, over.items) == (None, [1])


@pytest.mark.parametrize(
    ("path", "form"),
    [("a.json", "json"), ("x/b.JSONL.gz", "jsonl"), ("a.csv.gz.gz", None), (".csv", None), ("a.gz", None), ("", None)],
)
def test_the_ending_tells_the_format(path: str, form: str | None) -> None:
    assert format_of(path) == form


@pytest.mark.parametrize(
    ("folder", "path", "full"),
    [
        ("/a", "b/../c", "/a/c"),
        ("/a", "../b", "/b"),
        ("/a", "../../..", "/"),
        ("/a", "/b", "/b"),
        (None, "//b//c/", "/b/c"),
        (None, "b", None),
    ],
)
def test_a_path_is_taken_from_the_graphs_folder(folder: str | None, path: str, full: str | None) -> None:
    assert absolute(folder, path) == full
