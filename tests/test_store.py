"""The content-addressed store, on real folders, processes and a real HTTP server that speaks a little S3."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from activities.store import Store, StoreError
from graph.errors import Failure, LoadError
from graph.values import INLINE_LIMIT, Ref, Value

ROOT = Path(__file__).parent.parent


def blob_file(folder: Path, ref: Ref) -> Path:
    text = ref.digest.removeprefix("sha256:")
    return folder / "sha256" / text[:2] / text[2:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> Store:
    return Store.open(str(folder))


async def test_a_blob_is_read_back_by_any_process_that_opens_the_store(store: Store, folder: Path) -> None:
    ref = await store.put("grüße".encode(), count=3)
    assert ref == Ref(digest="sha256:" + hashlib.sha256("grüße".encode()).hexdigest(), size=7, count=3)
    assert await store.get(ref) == "grüße".encode()
    assert await Store.open(str(folder)).get(ref) == "grüße".encode()
    assert blob_file(folder, ref).read_bytes() == "grüße".encode()


async def test_a_blob_may_be_read_in_blocks(store: Store) -> None:
    data = os.urandom(3_000_000)
    blocks = [block async for block in store.stream(await store.put(data))]
    assert b"".join(blocks) == data
    assert len(blocks) > 1
    assert [block async for block in store.stream(await store.put(b""))] == []


async def test_a_blob_written_in_parts_is_the_blob_of_the_whole(store: Store, folder: Path) -> None:
    data = os.urandom(12_000_000)  # several parts of an upload

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 700_000):
            yield data[start : start + 700_000]

    for _ in range(2):  # the second time it is there already
        ref = await store.put_parts(parts(), count=3)
        assert ref == Ref(digest="sha256:" + hashlib.sha256(data).hexdigest(), size=len(data), count=3)
    assert [path for path in folder.rglob("*") if path.is_file()] == [blob_file(folder, ref)]
    assert await store.get(ref) == data


async def test_a_blob_whose_parts_break_off_is_not_kept(store: Store, folder: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"[1,"
        raise StoreError("blob_missing", "the next part is gone")

    with pytest.raises(StoreError) as caught:
        await store.put_parts(parts())
    assert caught.value.code == "blob_missing"
    assert not [path for path in folder.rglob("*") if path.is_file()]


async def test_a_blob_read_in_blocks_is_checked_at_its_end(store: Store, folder: Path) -> None:
    ref = await store.put(b"x" * 3_000_000)
    with pytest.raises(StoreError) as caught:
        [block async for block in store.stream(Ref(digest="sha256:" + "0" * 64, size=1))]
    assert caught.value.code == "blob_missing"
    blob_file(folder, ref).write_bytes(b"x" * 2_999_999 + b"y")
    read = []

    async def take() -> None:
        async for block in store.stream(ref):
            read.append(block)

    with pytest.raises(StoreError) as caught:
        await take()
    assert caught.value.code == "blob_damaged"
    assert len(read) > 1


async def test_an_empty_blob_is_a_blob(store: Store, folder: Path) -> None:
    ref = await store.put(b"")
    assert ref.size == 0
    assert await Store.open(str(folder)).get(ref) == b""


async def test_a_folder_may_be_given_as_relative_path_or_file_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ref = await Store.open("with space/blobs").put(b"x")
    assert await Store.open(f"file://{tmp_path}/with%20space/blobs").get(ref) == b"x"
    assert await Store.open(str(tmp_path / "with space" / "blobs")).get(ref) == b"x"


async def test_putting_again_writes_nothing(store: Store, folder: Path) -> None:
    ref = await store.put(b"once")
    before = blob_file(folder, ref).stat()
    assert await Store.open(str(folder)).put(b"once") == ref
    after = blob_file(folder, ref).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


async def test_json_values_travel_with_the_count_of_a_list(store: Store) -> None:
    value = {"a": [1, 2.5, None, True, "日本語"], "z": {"b": ""}}
    ref = await store.put_json(value)
    assert ref.count is None
    assert await store.get_json(ref) == value
    assert list(await store.get_json(ref)) == ["a", "z"]
    items = await store.put_json([1, 2, 3])
    assert items.count == 3
    with pytest.raises(Failure, match="isn't JSON"):
        await store.put_json(float("nan"))


async def test_what_is_read_can_be_changed_without_changing_the_blob(store: Store) -> None:
    ref = await store.put_json([1])
    (await store.get_json(ref)).append(2)
    assert await store.get_json(ref) == [1]


async def test_a_value_is_inline_up_to_the_limit_and_stored_above(store: Store, folder: Path) -> None:
    fits = "x" * (INLINE_LIMIT - 2)
    assert await store.as_value(fits) == Value(inline=fits, size=INLINE_LIMIT)
    assert not list(folder.iterdir())
    value = await store.as_value(fits + "x")
    assert value.ref is not None
    assert (value.inline, value.size, value.ref.size) == (None, INLINE_LIMIT + 1, INLINE_LIMIT + 1)
    assert await store.load(value) == fits + "x"
    assert await store.load(Value(inline={"a": 1}, size=7)) == {"a": 1}
    items = await store.as_value([1, 2], limit=0)
    assert items.ref is not None
    assert items.ref.count == 2


async def test_a_missing_blob_names_digest_store_and_mend(store: Store, folder: Path) -> None:
    ref = await store.put(b"gone")
    blob_file(folder, ref).unlink()
    with pytest.raises(StoreError) as caught:
        await Store.open(str(folder)).get(ref)
    error = caught.value
    assert (error.code, error.transient) == ("blob_missing", False)
    assert ref.digest in error.message
    assert str(folder) in error.message
    assert "same FERRATA_STORE" in (error.hint or "")


@pytest.mark.parametrize("content", [b"", b"dat", b"atad", b"data and more"], ids=["empty", "cut", "changed", "longer"])
async def test_a_damaged_blob_is_never_returned(content: bytes, store: Store, folder: Path) -> None:
    ref = await store.put(b"data")
    blob_file(folder, ref).write_bytes(content)
    with pytest.raises(StoreError) as caught:
        await Store.open(str(folder)).get(ref)
    assert (caught.value.code, caught.value.transient) == ("blob_damaged", False)
    assert ref.digest in caught.value.message
    assert str(folder) in caught.value.message


async def test_a_blob_that_lost_its_data_is_written_again(store: Store, folder: Path) -> None:
    ref = await store.put(b"data")
    blob_file(folder, ref).write_bytes(b"")
    again = Store.open(str(folder))
    await again.put(b"data")
    assert await Store.open(str(folder)).get(ref) == b"data"


@pytest.mark.parametrize("digest", ["", "sha256:../../etc/passwd", "sha256:" + "G" * 64, "md5:" + "0" * 64, "0" * 64])
async def test_a_ref_that_is_no_digest_is_refused(digest: str, store: Store) -> None:
    with pytest.raises(StoreError, match="is no digest") as caught:
        await store.get(Ref(digest=digest, size=1))
    assert caught.value.code == "bad_ref"


async def test_a_ref_of_the_wrong_size_or_to_no_json_is_refused(store: Store) -> None:
    ref = await store.put(b"\xff\xfe not JSON")
    with pytest.raises(StoreError, match="the ref says 5 bytes") as caught:
        await store.get(ref.model_copy(update={"size": 5}))
    assert caught.value.code == "bad_ref"
    with pytest.raises(StoreError, match="isn't JSON") as caught:
        await store.get_json(ref)
    assert caught.value.code == "bad_ref"


async def test_recently_read_blobs_are_kept_up_to_a_number_of_bytes(folder: Path) -> None:
    store = Store.open(str(folder), cache_bytes=400)
    refs = [await store.put(bytes([number]) * 90) for number in range(5)]
    await store.put(b"large" * 20)  # a quarter of all bytes: not kept, and drives nothing out
    for ref in refs:
        blob_file(folder, ref).unlink()
    for number in (2, 3, 4, 1):
        assert await store.get(refs[number]) == bytes([number]) * 90
    with pytest.raises(StoreError, match="is not in the store"):
        await store.get(refs[0])
    await store.put(b"\x09" * 90)  # drives out number 2, the one read longest ago
    assert await store.get(refs[3]) == b"\3" * 90
    with pytest.raises(StoreError, match="is not in the store"):
        await store.get(refs[2])


async def test_many_tasks_may_put_and_get_one_blob_at_once(store: Store) -> None:
    refs = await asyncio.gather(*(store.put(b"same" * 100_000) for _ in range(20)))
    assert len({ref.digest for ref in refs}) == 1
    assert set(await asyncio.gather(*(store.get(refs[0]) for _ in range(20)))) == {b"same" * 100_000}


WRITER = """
import asyncio, os, sys
from activities.store import Store

async def main(folder, size, count):
    store = Store.open(folder, cache_bytes=0)
    print("ready", flush=True)
    for number in range(count):
        await store.put(number.to_bytes(4, "big") * (size // 4))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
os._exit(0)  # obstore's threads may abort an interpreter that takes itself apart
"""


def writer(folder: Path, size: int, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(folder), str(size), str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def whole_blobs(folder: Path) -> int:
    """How many blobs there are; each must be what its name says. `name#1` is a write under way, or one cut short."""
    count = 0
    for path in folder.glob("sha256/*/*"):
        if "#" not in path.name:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.parent.name + path.name
            count += 1
    return count


def test_several_processes_may_write_the_same_blobs_at_once(folder: Path) -> None:
    processes = [writer(folder, 4096, 200) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in processes] == [b"ready\n"] * 3
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert whole_blobs(folder) == 200
    assert len(list(folder.glob("sha256/*/*"))) == 200


def test_a_process_killed_while_writing_leaves_no_half_blob(folder: Path) -> None:
    size = 8 * 1024 * 1024
    for delay in (0.005, 0.02, 0.05):
        process = writer(folder, size, 1000)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = whole_blobs(folder)
    process = writer(folder, size, 12)  # what was cut short is in nobody's way
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert whole_blobs(folder) == max(before, 12)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_blob_that_has_no_room_is_a_transient_error_and_leaves_nothing(store: Store, folder: Path) -> None:
    with file_size_limit(1000), pytest.raises(StoreError) as caught:
        await store.put(b"x" * 5000)
    error = caught.value
    assert (error.code, error.transient) == ("store_unavailable", True)
    assert f"(os error {errno.EFBIG})" in error.message
    assert "raise it" in (error.hint or "")
    assert "Debug source" not in error.message
    assert whole_blobs(folder) == 0
    ref = await store.put(b"x" * 5000)
    assert await Store.open(str(folder)).get(ref) == b"x" * 5000


@contextmanager
def unprivileged(locked: Path) -> Iterator[None]:
    """Takes away the right to use ``locked``, from root too."""
    locked.chmod(0o000)
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        locked.chmod(0o700)


async def test_a_lack_of_rights_says_so() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        store = Store.open(f"{place}/store")
        ref = await store.put(b"x")
        fresh = Store.open(f"{place}/store")
        with unprivileged(Path(place, "store")):
            for call in (fresh.get(ref), fresh.put(b"y")):
                with pytest.raises(StoreError, match="Permission denied") as caught:
                    await call
                assert caught.value.code == "store_unavailable"
                assert "right to read and write" in (caught.value.hint or "")
            with pytest.raises(LoadError, match="Permission denied"):
                Store.open(f"{place}/store/inner")


def test_a_store_that_cannot_be_opened_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    for url, says in [
        (str(tmp_path / "taken"), "File exists"),
        (str(tmp_path / "taken" / "below"), "Not a directory"),
        ("bogus://host", "bogus"),
        ("file://relative/path", "three slashes"),
        ("s3://", "Unable to recognise URL"),
    ]:
        with pytest.raises(LoadError, match=says) as caught:
            Store.open(url)
        [problem] = caught.value.problems
        assert problem.code == "bad_setting"
        assert problem.message.startswith(f"FERRATA_STORE is `{url}`")
        assert problem.hint
        assert "Debug source" not in problem.message


async def test_a_memory_store_lives_in_one_object() -> None:
    store = Store.open("memory://")
    ref = await store.put(b"x")
    assert await store.get(ref) == b"x"
    with pytest.raises(StoreError, match="is not in the store memory://"):
        await Store.open("memory://").get(ref)


async def test_a_blob_is_found_by_the_beginning_of_its_digest(store: Store, folder: Path) -> None:
    ref = await store.put(b"some data")
    text = ref.digest.removeprefix("sha256:")
    blob_file(folder, ref).with_name(text[2:] + "#1").write_bytes(b"some")  # of a process that was killed half-way
    fresh = Store.open(str(folder), reading=True)
    for given in (ref.digest, text, ref.digest[:11], text[:9], f" {text[:4].upper()}\n"):
        assert await fresh.find(given) == Ref(digest=ref.digest, size=9)
    for given in ("", "sha256:", "abc", "sha256:zzzz", text + "0", "../" * 10, "md5:" + text, "*" * 5000):
        with pytest.raises(StoreError, match="is no digest") as caught:
            await fresh.find(given)
        assert caught.value.code == "bad_ref"
    other = "0" * 64 if text[0] != "0" else "1" * 64
    for given in (other, other[:4], text[:4] + other[:20]):
        with pytest.raises(StoreError, match="no blob in the store") as caught:
            await fresh.find(given)
        assert caught.value.code == "blob_missing"


async def test_the_beginning_of_several_digests_is_refused_with_them(store: Store, folder: Path) -> None:
    ref = await store.put(b"some data")
    name = blob_file(folder, ref).name
    blob_file(folder, ref).with_name(name[:10] + "0" * (len(name) - 10)).write_bytes(b"another")
    with pytest.raises(StoreError, match="2 blobs") as caught:
        await store.find(ref.digest[:12])
    assert caught.value.code == "bad_ref"
    assert await store.find(ref.digest) == await store.find(ref.digest[:40])


async def test_who_only_reads_needs_a_folder_that_is_there_and_makes_none(folder: Path) -> None:
    with pytest.raises(LoadError, match="there is no such folder") as caught:
        Store.open(str(folder), reading=True)
    assert "as it is set for the workers" in (caught.value.problems[0].hint or "")
    assert not folder.exists()


class Bucket:
    """As much of S3 as a store needs."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.status: int | None = None
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.method)
        if self.status is not None:
            return web.Response(status=self.status)
        if request.method == "PUT":
            self.objects[request.path] = await request.read()
            return web.Response(headers={"ETag": '"1"'})
        if request.path not in self.objects:
            return web.Response(status=404)
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return web.Response(body=self.objects[request.path], headers=headers)


@pytest.fixture
async def bucket(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bucket]:
    bucket = Bucket()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", bucket.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    bucket.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    for name, value in {
        "AWS_ENDPOINT": bucket.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_REGION": "nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    yield bucket
    await runner.cleanup()


async def test_an_object_store_is_used_by_its_url_and_its_own_variables(bucket: Bucket) -> None:
    store = Store.open("s3://blobs/some/prefix")
    data = b"x" * 6_000_000
    ref = await store.put(data)
    text = ref.digest.removeprefix("sha256:")
    assert bucket.objects == {f"/blobs/some/prefix/sha256/{text[:2]}/{text[2:]}": data}
    fresh = Store.open("s3://blobs/some/prefix")
    await fresh.put(data)
    assert bucket.requests == ["HEAD", "PUT", "HEAD"]
    assert await Store.open("s3://blobs/some/prefix").get(ref) == data
    assert await Store.open("s3://blobs/some/prefix", reading=True).find(ref.digest) == ref
    with pytest.raises(StoreError, match="is not in the store s3://blobs/other"):
        await Store.open("s3://blobs/other").get(ref)


async def test_an_object_store_that_refuses_is_a_transient_error_without_credentials(bucket: Bucket) -> None:
    store = Store.open("s3://blobs")
    bucket.status = 403
    with pytest.raises(StoreError) as caught:
        await store.put(b"x")
    assert caught.value.code == "store_unavailable"
    assert "credentials and rights" in (caught.value.hint or "")
    assert "hidden" not in str(caught.value)


async def test_an_object_store_that_is_away_is_a_transient_error(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(StoreError, match="can't read the blob") as caught:
        await Store.open("s3://blobs").get(Ref(digest="sha256:" + "0" * 64, size=1))
    assert caught.value.transient
