"""`ferrata show`: what lies in the store, printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from activities.store import Store
from cli.supervisor import EXIT_CONFIG
from graph.values import JSON, Ref
from test_cli import ferrata

ITEMS: JSON = [{"index": 1, "item": "日本"}, {"index": 7, "item": None}]


@pytest.fixture
async def ref(tmp_path: Path) -> Ref:
    """A list in the store of this folder."""
    return await Store.open(str(tmp_path / ".ferrata" / "store")).put_json(ITEMS)


@pytest.mark.parametrize("length", [None, 20, 11])
def test_a_blob_is_printed_as_json_to_read(tmp_path: Path, ref: Ref, length: int | None) -> None:
    shown = ferrata(tmp_path, "show", ref.digest[:length])
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == json.dumps(ITEMS, ensure_ascii=False, indent=2) + "\n"


def test_a_list_is_printed_with_an_item_on_each_line(tmp_path: Path, ref: Ref) -> None:
    shown = ferrata(tmp_path, "show", ref.digest, "--lines")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == '{"index":1,"item":"日本"}\n{"index":7,"item":null}\n'


async def test_what_is_no_list_has_no_lines(tmp_path: Path) -> None:
    ref = await Store.open(str(tmp_path / "blobs")).put_json({"a": [1]})
    shown = ferrata(tmp_path, "show", ref.digest, "--lines", FERRATA_STORE="blobs")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr == f"[not_a_list] {ref.digest} is no list -> leave out `--lines`\n"
    assert ferrata(tmp_path, "show", ref.digest, FERRATA_STORE="blobs").returncode == 0


def test_a_blob_that_is_not_there_or_no_digest_is_a_clear_error(tmp_path: Path, ref: Ref) -> None:
    missing = ferrata(tmp_path, "show", "sha256:" + "0" * 64)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "[blob_missing] no blob in the store" in missing.stderr
    assert "set FERRATA_STORE as it is set for the workers" in missing.stderr
    wrong = ferrata(tmp_path, "show", "greet")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "[bad_ref] `greet` is no digest" in wrong.stderr


def test_a_damaged_blob_is_not_shown(tmp_path: Path, ref: Ref) -> None:
    text = ref.digest.removeprefix("sha256:")
    (tmp_path / ".ferrata" / "store" / "sha256" / text[:2] / text[2:]).write_text("[]")
    shown = ferrata(tmp_path, "show", ref.digest[:15])
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "[blob_damaged] the blob" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_store_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    for store, said in (("nowhere", "there is no such folder"), ("memory://", "a memory store")):
        shown = ferrata(tmp_path, "show", "abcd", FERRATA_STORE=store, FERRATA_PROCESSES="1")
        assert (shown.returncode, shown.stdout) == (EXIT_CONFIG, "")
        assert said in shown.stderr
    assert not (tmp_path / "nowhere").exists()
