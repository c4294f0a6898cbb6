"""Reading under a grant: what is inside is read, anything else is denied without telling whether it exists."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from activities import grants
from activities.grants import open_granted
from graph.errors import Failure


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """`graphs` with data below it, and secrets around it."""
    for name in ("graphs/data/deep", "graphs/database", "secret"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "graphs" / "data" / "a.jsonl").write_text("inside")
    (tmp_path / "graphs" / "data" / "deep" / "b.jsonl").write_text("deep inside")
    (tmp_path / "graphs" / "database" / "a.jsonl").write_text("secret")
    (tmp_path / "secret" / "a.jsonl").write_text("secret")
    (tmp_path / "graphs" / "a.jsonl").write_text("secret")
    return tmp_path


def read(world: Path, path: str, granted: list[str] | None = None, readable: list[str] | None = None) -> str:
    folders = [world / name for name in (readable or ["graphs"])]
    with open_granted(path, str(world / "graphs"), ["data"] if granted is None else granted, folders) as file:
        return file.read().decode()


def refused(world: Path, path: str, granted: list[str] | None = None, readable: list[str] | None = None) -> Failure:
    with pytest.raises(Failure) as caught:
        read(world, path, granted, readable)
    return caught.value


@pytest.mark.parametrize("path", ["data/a.jsonl", "data/deep/../a.jsonl", "./data//a.jsonl", "other/../data/a.jsonl"])
def test_a_file_in_a_granted_folder_is_read(world: Path, path: str) -> None:
    assert read(world, path) == "inside"


def test_a_file_may_be_named_by_its_absolute_path(world: Path) -> None:
    assert read(world, str(world / "graphs" / "data" / "deep" / "b.jsonl")) == "deep inside"
    assert read(world, "data/a.jsonl", [str(world / "graphs" / "data")]) == "inside"


def test_links_within_a_granted_folder_are_followed(world: Path) -> None:
    (world / "graphs" / "data" / "link.jsonl").symlink_to("deep/b.jsonl")
    (world / "graphs" / "data" / "folder").symlink_to(world / "graphs" / "data" / "deep")
    assert read(world, "data/link.jsonl") == "deep inside"
    assert read(world, "data/folder/b.jsonl") == "deep inside"


def test_a_granted_folder_may_itself_be_a_link_into_a_readable_one(world: Path) -> None:
    (world / "store").mkdir()
    (world / "store" / "x.jsonl").write_text("stored")
    (world / "graphs" / "link").symlink_to(world / "store")
    assert read(world, "link/x.jsonl", ["link"], ["graphs", "store"]) == "stored"
    assert read(world, str(world / "store" / "x.jsonl"), ["link"], ["graphs", "store"]) == "stored"
    assert refused(world, "link/x.jsonl", ["link"], ["graphs"]).failure_class == "denied"


OUTSIDE = {
    "traversal": "data/../a.jsonl",
    "far traversal": "data/../../secret/a.jsonl",
    "absolute": "{world}/secret/a.jsonl",
    "a sibling with the same prefix": "database/a.jsonl",
    "the same prefix by traversal": "data/../database/a.jsonl",
    "a link to a file": "data/file.jsonl",
    "a link to a folder": "data/folder/a.jsonl",
    "a link to a link": "data/chain.jsonl",
    "a link to the folder above": "data/above/a.jsonl",
}


@pytest.mark.parametrize("way", OUTSIDE)
def test_what_is_outside_is_denied_whether_or_not_it_exists(world: Path, way: str) -> None:
    data = world / "graphs" / "data"
    (data / "file.jsonl").symlink_to(world / "secret" / "a.jsonl")
    (data / "folder").symlink_to(world / "secret")
    (data / "chain.jsonl").symlink_to("file.jsonl")
    (data / "above").symlink_to("..")
    path = OUTSIDE[way].format(world=world)
    there = refused(world, path)
    for gone in (world / "secret", world / "graphs" / "a.jsonl", world / "graphs" / "database"):
        gone.rename(f"{gone}.away")
    not_there = refused(world, path)
    assert there.failure_class == there.code == "denied"
    assert (there.message, there.details) == (not_there.message, not_there.details)
    assert "FERRATA_READ" in there.message


def test_a_path_by_way_of_a_forbidden_folder_tells_nothing_of_it(world: Path) -> None:
    """By the letter, it comes back to the granted folder; it does so whatever lies on the way."""
    path = "../secret/folder/../../graphs/data/a.jsonl"
    assert read(world, path) == "inside"
    (world / "secret" / "folder").symlink_to("/usr/lib")
    assert read(world, path) == "inside"


def test_a_grant_beyond_what_the_settings_allow_gives_nothing(world: Path) -> None:
    for granted in (["/"], [".."], ["../secret"], [str(world / "secret")]):
        assert refused(world, "../secret/a.jsonl", granted).failure_class == "denied"
    assert read(world, "../secret/a.jsonl", ["../secret"], ["graphs", "secret"]) == "secret"


@pytest.mark.parametrize("path", ["data/.env.csv", "data/.git/x.csv", "data/deep/.x/y.csv", "data/link.csv"])
def test_hidden_files_and_folders_are_denied_even_inside(world: Path, path: str) -> None:
    place = world / "graphs" / path
    place.parent.mkdir(exist_ok=True)
    if place.name == "link.csv":
        (place.parent / ".hidden.csv").write_text("secret")
        place.symlink_to(".hidden.csv")
    else:
        place.write_text("secret")
    there = refused(world, path)
    place.unlink()
    assert there.failure_class == "denied"
    if place.name != "link.csv":
        assert refused(world, path).message == there.message
    assert refused(world, "data/.x/a.jsonl", ["data/.x"]).failure_class == "denied"


def test_a_hidden_folder_that_the_settings_name_is_readable(world: Path) -> None:
    (world / "graphs" / ".data").mkdir()
    (world / "graphs" / ".data" / "x.csv").write_text("inside")
    assert read(world, ".data/x.csv", [".data"], ["graphs", "graphs/.data"]) == "inside"


def test_no_grant_gives_nothing(world: Path) -> None:
    assert refused(world, "data/a.jsonl", []).failure_class == "denied"


def test_a_file_that_is_missing_inside_is_named_with_the_nearest(world: Path) -> None:
    failure = refused(world, "data/a.json")
    assert (failure.failure_class, failure.code) == ("invalid_input", "bad_file")
    assert "there is no file `data/a.json`; did you mean `data/a.jsonl`?" in failure.message
    assert refused(world, "data/not/there.csv").code == "bad_file"
    assert refused(world, "gone/a.csv", ["gone"]).code == "bad_file"


def test_only_regular_files_are_read(world: Path) -> None:
    data = world / "graphs" / "data"
    os.mkfifo(data / "pipe.jsonl")  # which nobody writes to: opening it would wait for ever
    (data / "device.jsonl").symlink_to("/dev/zero")
    assert "isn't a regular file" in refused(world, "data/pipe.jsonl").message
    assert "is a folder" in refused(world, "data/deep").message
    assert "is a folder" in refused(world, "data").message
    assert refused(world, "data/device.jsonl").failure_class == "denied"
    assert "isn't a regular file" in refused(world, "/dev/zero", ["/dev"], ["../../../../../../dev"]).message


def test_odd_names_are_refused(world: Path) -> None:
    assert refused(world, "data/a\0.jsonl").code == "bad_file"
    assert refused(world, "data/\ud800.jsonl").code == "bad_file"
    assert refused(world, "data/" + "x" * 5000).code == "bad_file"
    (world / "graphs" / "data" / "loop").symlink_to("loop")
    assert refused(world, "data/loop").failure_class == "denied"


def test_a_graph_without_a_folder_has_no_relative_paths(world: Path) -> None:
    with pytest.raises(Failure, match="absolute path"):
        open_granted("data/a.jsonl", None, [str(world)], [world])


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_put_there_after_the_look_is_not_followed(
    world: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = world / "graphs" / "data" / "deep"
    (world / "secret" / "b.jsonl").write_text("secret")
    really = os.path.realpath

    def looked(path: str) -> str:
        found = really(path)
        if found.endswith("b.jsonl"):  # the moment between the look and the opening
            place, target = (deep / "b.jsonl", "b.jsonl") if what == "file" else (deep, "")
            place.rename(f"{place}.away")
            place.symlink_to(world / "secret" / target)
        return found

    monkeypatch.setattr(grants.os.path, "realpath", looked)
    assert refused(world, "data/deep/b.jsonl").code in ("denied", "bad_file")


def test_no_race_between_links_ever_reads_what_is_outside(world: Path) -> None:
    data = world / "graphs" / "data"
    (data / "real").mkdir()
    (data / "real" / "a.jsonl").write_text("inside")
    (data / "way").symlink_to("real")
    stop = threading.Event()

    def swap() -> None:
        """Lets `way` lead in and out, and be a folder, in turns."""
        while not stop.is_set():
            for target in (world / "secret", "real"):
                (data / "next").symlink_to(target)
                (data / "next").rename(data / "way")
            (data / "way").unlink()
            (data / "real").rename(data / "way")
            (data / "way").rename(data / "real")
            (data / "way").symlink_to("real")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                seen.add(read(world, "data/way/a.jsonl"))
            except Failure as failure:
                seen.add(failure.code)
    finally:
        stop.set()
        thread.join()
    assert seen <= {"inside", "denied", "bad_file"}
    assert "inside" in seen


def test_no_file_stays_open_when_reading_is_refused(world: Path) -> None:
    os.mkfifo(world / "graphs" / "data" / "pipe.jsonl")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("data/pipe.jsonl", "data/deep", "data/no", "data/deep/no", "../secret/a.jsonl"):
        refused(world, path)
    assert len(os.listdir("/proc/self/fd")) == before
