"""Maps over files and over what lies in the store, on a real server."""

from __future__ import annotations

import gzip
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from activities.sources import a_few, unchanged
from graph.errors import Failure
from graph.values import JSON
from mapped import calls, count, mapping
from observing import history as history_of
from observing import queued, scheduled, stored, until
from runs import Runs


@pytest.fixture
def data(runs: Runs) -> Path:
    """A folder of the test's own that the shared worker lets graphs read."""
    folder = runs.log / "data" / uuid.uuid4().hex
    folder.mkdir()
    return folder


def over_file(path: Path | str, folder: Path, **more: JSON) -> dict[str, Any]:
    """A graph of one map over a file, which notes each item's call and gives it back."""
    source: dict[str, JSON] = {"file": str(path)}
    if "format" in more:
        source["format"] = more.pop("format")
    return {"nodes": {"work": count(**{"over": source, "grants": {"read": [str(folder)]}, **more})}}


ROWS: list[JSON] = [{"id": "1", "name": "Zoë"}, {"id": "2", "name": "a, b"}]
FILES: dict[str, str] = {
    "rows.csv": 'id,name\n1,Zoë\n2,"a, b"\n',
    "rows.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "rows.ndjson": "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS),
    "rows.json": json.dumps(ROWS, indent=1),
}


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("name", FILES)
async def test_a_map_runs_over_the_items_of_a_file(runs: Runs, data: Path, name: str, zipped: bool) -> None:
    path = data / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(FILES[name].encode()) if zipped else FILES[name].encode())
    done = await runs.complete(over_file(path, data))
    assert done["result"]["values"] == ROWS
    assert sum(calls(runs, done["id"]).values()) == 2


async def test_paths_are_relative_to_the_graph_file_that_names_them_children_included(runs: Runs) -> None:
    done = await runs.complete("sources/graph.yaml")
    assert done["result"] == {"rows": ["Ada 2", "Zoë 3"], "below": ["Below"]}


async def test_a_path_and_a_format_may_be_told_by_what_came_before(runs: Runs, data: Path) -> None:
    (data / "list").write_text("1\n2\n")
    graph = over_file("${made.folder}/list", data, format="jsonl", batch=2)
    graph["nodes"]["made"] = {"value": {"folder": "${input.folder}"}}
    done = await runs.complete({**graph, "output": "${work.values}"}, {"folder": str(data)})
    assert done["result"] == [[1, 2]]


async def test_the_list_is_fixed_before_the_first_item_runs(runs: Runs, data: Path) -> None:
    path = data / "rows.jsonl"
    path.write_text("1\n2\n3\n")
    node = mapping("slow", {"seconds": 0.5, "value": "${item}"}, concurrency=1, grants={"read": [str(data)]})
    handle = await runs.start({"nodes": {"work": {**node, "over": {"file": str(path)}}}})

    async def begun() -> bool:
        return bool(runs.calls("slow", handle.id))

    await until(begun)
    path.write_text("changed\n")
    assert (await handle.result())["result"]["values"] == [1, 2, 3]
    assert set(calls(runs, handle.id, "slow")) == {"item 0", "item 1", "item 2"}


# What is wrong


async def test_a_bad_line_fails_the_map_before_any_item_runs(runs: Runs, data: Path) -> None:
    path = data / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    failed = await runs.fail(over_file(path, data, on_fail=[{"retry": 3}, "escalate"]))
    assert (failed.code, failed.envelope["error"]["class"]) == ("bad_line", "invalid_input")
    assert f"line 2 of `{path}` isn't JSON" in failed.message
    assert failed.envelope["error"]["details"]["line"] == 2
    assert not calls(runs, failed.envelope["id"])
    assert scheduled(await history_of(runs, failed.envelope["id"])).count("pin") == 1
    (entry,) = await queued(runs, failed.envelope["id"])
    assert entry["code"] == "bad_line"


async def test_a_file_without_items_is_an_empty_list(runs: Runs, data: Path) -> None:
    (data / "rows.csv").write_text("id,name\n")
    assert (await runs.fail(over_file(data / "rows.csv", data))).code == "empty_list"
    done = await runs.complete(over_file(data / "rows.csv", data, allow_empty=True))
    assert done["result"]["values"] == []


async def test_a_missing_file_is_named_with_the_nearest(runs: Runs, data: Path) -> None:
    (data / "rows.csv").write_text("id\n1\n")
    failed = await runs.fail(over_file(data / "row.csv", data))
    assert failed.code == "bad_file"
    assert f"did you mean `{data}/rows.csv`?" in failed.message


async def test_a_computed_path_outside_the_grant_is_denied_whether_or_not_it_exists(runs: Runs, data: Path) -> None:
    (data / "in").mkdir()
    (data / "out.jsonl").write_text("1\n")
    messages = set()
    for path in (data / "out.jsonl", data / "in" / ".." / "out.jsonl", "/etc/passwd.csv", data / "gone.jsonl"):
        failed = await runs.fail(over_file("${input}", data / "in"), str(path))
        assert failed.code == failed.envelope["error"]["class"] == "denied"
        assert not calls(runs, failed.envelope["id"])
        messages.add(failed.message.replace(str(path), "PATH"))
    assert len(messages) == 1


async def test_a_grant_beyond_the_workers_settings_is_refused_at_load(runs: Runs, data: Path) -> None:
    failed = await runs.fail(over_file("/etc/x.csv", Path("/etc")))
    assert failed.code == "denied_grant"
    assert "FERRATA_READ" in failed.message
    (data / "link").symlink_to("/etc")
    assert (await runs.fail(over_file(data / "link" / "x.csv", data / "link"))).code == "denied_grant"


async def test_a_pipe_is_refused_and_the_worker_serves_the_next_run(runs: Runs, data: Path) -> None:
    os.mkfifo(data / "rows.csv")
    failed = await runs.fail(over_file(data / "rows.csv", data))
    assert failed.code == "bad_file"
    assert "isn't a regular file" in failed.message
    (data / "rows.jsonl").write_text("1\n")
    assert (await runs.complete(over_file(data / "rows.jsonl", data)))["result"]["values"] == [1]


async def test_reading_the_list_is_within_the_nodes_timeout(runs: Runs, data: Path) -> None:
    (data / "rows.jsonl").write_text('{"a": 1}\n' * 2_000_000)
    failed = await runs.fail(over_file(data / "rows.jsonl", data, timeout="10ms"))
    assert failed.code == failed.envelope["error"]["class"] == "timeout"
    (data / "rows.jsonl").unlink()


@pytest.mark.parametrize("path", [7, "", None, "rows.xlsx"])
async def test_a_path_that_is_none_or_tells_no_format_is_refused(runs: Runs, data: Path, path: JSON) -> None:
    failed = await runs.fail(over_file("${input}", data), path)
    assert failed.code == "bad_file"
    assert ("ending" if path == "rows.xlsx" else "needs a path") in failed.message


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("1")
    with path.open("rb") as file:
        items = unchanged(file, iter([1, 2, 3]), "x")
        assert next(items) == 1
        with path.open("a") as other:
            other.write("2")
        with pytest.raises(Failure, match="`x` changed while it was read"):
            list(items)


def test_items_are_handed_over_a_few_at_a_time() -> None:
    items = iter(range(2500))
    sizes = []
    done = False
    while not done:
        some, done = a_few(items)
        sizes.append(len(some))
    assert sum(sizes) == 2500
    assert len(sizes) >= 3


# References


def over_ref(ref: JSON) -> dict[str, Any]:
    return {"nodes": {"work": {"over": {"ref": ref}, "value": "${item}"}}, "output": "${len(work.values)}"}


async def large_list(runs: Runs) -> dict[str, Any]:
    """A reference to a list of 40 texts, as the query `output` gives it."""
    nodes = {"texts": {"function": "functions_for_tests:texts", "input": {"count": 40, "size": 2000}}}
    done = await runs.complete({"nodes": nodes, "output": "${len(texts)}"})
    answer: dict[str, Any] = await runs.query(done["id"], "output", "texts")
    return answer


async def test_a_map_runs_over_a_list_in_the_store(runs: Runs) -> None:
    answer = await large_list(runs)
    for given in (answer, answer["ref"], answer["ref"]["digest"]):
        assert (await runs.complete(over_ref("${input}"), given))["result"] == 40
    assert (await runs.complete(over_ref(answer["ref"]["digest"])))["result"] == 40
    assert (await runs.complete(over_ref({"digest": "${input}"}), answer["ref"]["digest"]))["result"] == 40


async def test_a_map_runs_again_over_what_was_escalated(runs: Runs) -> None:
    work = count(accept=[{"expr": "output != 2"}], on_fail=["escalate"])
    done = await runs.complete({"nodes": {"work": work}}, {"items": [1, 2, 3]})
    (entry,) = await queued(runs, done["id"])
    again = {"work": {"over": {"ref": "${input.ref}"}, "value": "${item.item}"}}
    assert (await runs.complete({"nodes": again}, {"ref": entry["ref"]}))["result"]["values"] == [2]


async def test_a_reference_to_nothing_or_to_no_list_is_refused(runs: Runs) -> None:
    answer = await large_list(runs)
    gone = "sha256:" + "0" * 64
    assert (await runs.fail(over_ref("${input}"), gone)).code == "blob_missing"
    for wrong in ("sha256:" + answer["ref"]["digest"][7:20], "x", 7, None, {"digest": "../../etc"}, [answer]):
        failed = await runs.fail(over_ref("${input}"), wrong)
        assert failed.code == "bad_ref"
        assert failed.envelope["error"]["class"] == "invalid_input"
    nodes = {"text": {"function": "functions_for_tests:large", "input": {"size": 20_000}}}
    text = await runs.complete({"nodes": nodes, "output": "${len(text)}"})
    ref = await runs.query(text["id"], "output", "text")
    failed = await runs.fail(over_ref("${input}"), ref)
    assert failed.code == "bad_ref"
    assert "a text, not a list" in failed.message


async def test_a_list_damaged_in_the_store_is_refused_before_any_item_runs(runs: Runs) -> None:
    ref = (await large_list(runs))["ref"]
    texts = await stored(runs, ref)
    name = ref["digest"].removeprefix("sha256:")
    blob = runs.log / "store" / "sha256" / name[:2] / name[2:]
    kept = blob.read_bytes()
    blob.write_bytes(json.dumps([*texts[:-1], "y" * 2000], separators=(",", ":")).encode())
    try:
        failed = await runs.fail(over_ref("${input}"), ref)
    finally:
        blob.write_bytes(kept)
    assert failed.code == "blob_damaged"
    assert (await runs.query(failed.envelope["id"], "progress"))["items"] == {}
