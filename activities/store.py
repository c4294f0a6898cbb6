"""The content-addressed store: blobs named by their digest, in a folder or an object store, through obstore.

A blob never changes once written, so any number of processes may write and read at once. What it is not: it keeps
no index and deletes nothing; what a retained run names stays.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, ObjectStore, from_url

from graph.errors import FerrataError, LoadError, Problem
from graph.values import INLINE_LIMIT, JSON, Ref, Value, digest, encode

CACHE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of blobs that one process keeps to read again."""

STREAM_BYTES: Final = 1024 * 1024
"""Bytes of a block of a blob that is read in blocks."""

LARGE_JSON: Final = 64 * 1024
"""Bytes of JSON text from which on it is parsed in a thread."""

DIGITS: Final = 64
"""Hexadecimal digits of a digest."""

AS_WORKERS: Final = "set FERRATA_STORE as it is set for the workers"

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{4,64}")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_RETRIES: Final[obstore.store.RetryConfig] = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
"""Short: an attempt has a time limit, and Temporal tries again after it."""

_MENDS: Final = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space or raise it",
    errno.EFBIG: "the file size limit of this process or file system is too low: raise it",
    errno.EACCES: "give the worker's user the right to read and write there",
    errno.EPERM: "give the worker's user the right to read and write there",
    errno.EROFS: "the file system is read-only: mount it writable or use another folder",
    errno.ENOTDIR: "a file lies where a folder must be: move it away or use another folder",
    errno.EEXIST: "a file lies where a folder must be: move it away or use another folder",
    errno.EMFILE: "raise the limit of open files, or lower FERRATA_SLOTS",
}


class StoreError(FerrataError):
    """A blob can't be had or kept. Codes:

    - ``blob_missing``: nothing lies under this digest in this store;
    - ``blob_damaged``: what lies there isn't what the digest says;
    - ``bad_ref``: the ref itself is malformed, so it can't have come from a store;
    - ``store_unavailable``: the store didn't answer, refused or is full. The only transient one: trying again
      later may succeed.
    """

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later without anybody changing the data."""
        return self.code == "store_unavailable"


class Store:
    """Blobs by digest. Safe for any number of tasks on one event loop, and of processes on one store."""

    def __init__(self, backend: ObjectStore, name: str, cache_bytes: int = CACHE_BYTES) -> None:
        """Use ``open``; ``name`` is how messages call the store."""
        self._backend = backend
        self._name = name
        self._cache = _Cache(cache_bytes)

    @classmethod
    def open(cls, url: str, cache_bytes: int = CACHE_BYTES, *, reading: bool = False) -> Store:
        """The store at ``url``: a folder's path (made if it is missing), or `file`, `s3`, `gs`, `az` or `memory` URL.

        ``reading`` is for who only reads: the folder must be there, and it needs no right to write.

        Object stores take region, endpoint and credentials from their usual variables (`AWS_*`, `GOOGLE_*`,
        `AZURE_*`). A `memory` store lives in this object alone.

        Raises:
            LoadError: code ``bad_setting`` if the URL can't be used, or the folder can't be made.
        """
        name = re.sub(r"(://)[^/@\s]*:[^/@\s]*@", r"\1***@", url)
        try:
            return cls(_backend(url, reading), name, cache_bytes)
        except (BaseError, OSError, ValueError) as error:
            first, mend = _explain(error)
            mend = mend or (
                AS_WORKERS if reading else "use a folder's path or a URL as in `s3://bucket/prefix`; see docs/store.md"
            )
            problem = Problem(code="bad_setting", message=f"FERRATA_STORE is `{name}`: {first}", hint=mend)
            raise LoadError([problem]) from error

    async def put(self, data: bytes, count: int | None = None) -> Ref:
        """Keep ``data`` and return its ref, with ``count`` as the number of items if it is a list.

        Nothing is written when the blob is there already. A blob appears whole or not at all, whenever the
        process may die: it is written under another name and renamed, or uploaded in one request.

        Raises:
            StoreError: ``store_unavailable``.
        """
        ref = Ref(digest=digest(data), size=len(data), count=count)
        path = _path(ref)
        try:
            # The size is compared since a power failure can leave a renamed file without its data.
            if await self._size(path) != ref.size:
                await obstore.put_async(self._backend, path, data, use_multipart=False)
        except (BaseError, OSError, ValueError) as error:
            raise self._unavailable(error, "write", ref) from error
        self._cache.add(ref.digest, data)
        return ref

    async def put_parts(self, parts: AsyncIterator[bytes], count: int | None = None) -> Ref:
        """`put` of a blob that comes in parts, which go through a temporary file: never more than some are held.

        Raises:
            StoreError: ``store_unavailable``; whatever ``parts`` raises.
        """
        hashed = hashlib.sha256()
        with tempfile.NamedTemporaryFile(prefix="ferrata-") as file:

            def take(part: bytes) -> None:
                hashed.update(part)
                file.write(part)

            try:
                async for part in parts:
                    await asyncio.to_thread(take, part)
                await asyncio.to_thread(file.flush)
            except OSError as error:
                first, mend = _explain(error)
                raise StoreError("store_unavailable", f"can't write {file.name}: {first}", mend) from error
            ref = Ref(digest=f"sha256:{hashed.hexdigest()}", size=file.tell(), count=count)
            path = _path(ref)
            try:
                if await self._size(path) != ref.size:
                    await obstore.put_async(self._backend, path, Path(file.name), max_concurrency=4)
            except (BaseError, OSError, ValueError) as error:
                raise self._unavailable(error, "write", ref) from error
        return ref

    async def get(self, ref: Ref) -> bytes:
        """The blob's bytes, checked against size and digest.

        Raises:
            StoreError: any of its codes.
        """
        path = _path(ref)
        data = self._cache.get(ref.digest)
        if data is None:
            data = await self._fetch(path, ref)
            if digest(data) != ref.digest:
                raise self._damaged(path, ref, len(data))
            self._cache.add(ref.digest, data)
        if len(data) != ref.size:
            raise StoreError(
                "bad_ref",
                f"the ref says {ref.size} bytes, but the blob {ref.digest} in the store {self._name} has {len(data)}",
                "use the ref as Ferrata gave it",
            )
        return data

    async def find(self, digest: str) -> Ref:
        """The ref of the only blob whose digest begins so; `sha256:` may be left out.

        Raises:
            StoreError: ``blob_missing``, ``store_unavailable``, or ``bad_ref``: this is no beginning of a digest, or
                that of several blobs.
        """
        text = digest.strip().lower().removeprefix("sha256:")
        if not _PREFIX.fullmatch(text):
            message = f"`{digest[:100]}` is no digest: it must be `sha256:` and hexadecimal digits"
            raise StoreError("bad_ref", message, "give at least the first four digits")
        place = f"the store {self._name}"
        found: dict[str, int] = {}
        try:
            if len(text) == DIGITS:
                size = await self._size(f"sha256/{text[:2]}/{text[2:]}")
                found = {} if size is None else {text: size}
            else:
                async for page in obstore.list(self._backend, f"sha256/{text[:2]}"):
                    for meta in page:
                        name = text[:2] + meta["path"].rpartition("/")[2]
                        if name.startswith(text) and len(name) == DIGITS:
                            found[name] = meta["size"]
        except (BaseError, OSError, ValueError) as error:
            first, mend = _explain(error)
            raise StoreError("store_unavailable", f"can't look into {place}: {first}", mend) from error
        if not found:
            message = f"no blob in {place} has a digest that begins with `sha256:{text}`"
            raise StoreError("blob_missing", message, AS_WORKERS)
        if len(found) > 1:
            shown = ", ".join(f"sha256:{name[: len(text) + 4]}..." for name in sorted(found)[:3])
            raise StoreError("bad_ref", f"{len(found)} blobs in {place} begin so: {shown}", "give more digits")
        ((name, size),) = found.items()
        return Ref(digest=f"sha256:{name}", size=size)

    async def put_json(self, value: JSON) -> Ref:
        """Keep ``value`` as compact JSON text; the ref's ``count`` is the length if it is a list.

        Raises:
            Failure: class ``invalid_output`` if it isn't JSON.
            StoreError: ``store_unavailable``.
        """
        return await self.put(encode(value), len(value) if isinstance(value, list) else None)

    async def get_json(self, ref: Ref) -> JSON:
        """The JSON value in a blob; a new object every time.

        Raises:
            StoreError: any of its codes; ``bad_ref`` if the blob isn't JSON.
        """
        data = await self.get(ref)
        try:
            # What takes milliseconds is parsed in a thread, so that heartbeats and other tasks get their turn.
            return json.loads(data) if len(data) < LARGE_JSON else await asyncio.to_thread(json.loads, data)
        except ValueError as error:
            raise StoreError(
                "bad_ref", f"the blob {ref.digest} in the store {self._name} isn't JSON: {error}"
            ) from error

    async def as_value(self, value: JSON, limit: int = INLINE_LIMIT, *, data: bytes | None = None) -> Value:
        """``value`` ready to travel: inline if its JSON text (``data``, if it is known) has at most ``limit`` bytes,
        else stored.

        Raises:
            Failure: class ``invalid_output`` if it isn't JSON.
            StoreError: ``store_unavailable``.
        """
        data = encode(value) if data is None else data
        if len(data) <= limit:
            return Value(inline=value, size=len(data))
        ref = await self.put(data, len(value) if isinstance(value, list) else None)
        return Value(ref=ref, size=len(data))

    async def load(self, value: Value) -> JSON:
        """What ``value`` stands for, from the store if it isn't inline.

        Raises:
            StoreError: any of its codes.
        """
        return value.inline if value.ref is None else await self.get_json(value.ref)

    async def stream(self, ref: Ref) -> AsyncGenerator[bytes, None]:
        """The blob's bytes in blocks, for one that may be too large to be held. That they are what the digest says is
        known at their end only, so nothing may come of them before.

        Raises:
            StoreError: any of its codes.
        """
        path, hashed, size = _path(ref), hashlib.sha256(), 0
        try:
            answer = await obstore.get_async(self._backend, path)
            async for part in answer.stream(min_chunk_size=STREAM_BYTES):
                block = bytes(part)
                hashed.update(block)
                size += len(block)
                yield block
        except FileNotFoundError as error:
            raise self._missing(ref) from error
        except (BaseError, OSError, ValueError) as error:
            raise self._unavailable(error, "read", ref) from error
        if f"sha256:{hashed.hexdigest()}" != ref.digest:
            raise self._damaged(path, ref, size)

    async def _size(self, path: str) -> int | None:
        try:
            return (await obstore.head_async(self._backend, path))["size"]
        except FileNotFoundError:
            return None

    async def _fetch(self, path: str, ref: Ref) -> bytes:
        try:
            answer = await obstore.get_async(self._backend, path)
            return bytes(await answer.bytes_async())
        except FileNotFoundError as error:
            raise self._missing(ref) from error
        except (BaseError, OSError, ValueError) as error:
            raise self._unavailable(error, "read", ref) from error

    def _missing(self, ref: Ref) -> StoreError:
        return StoreError(
            "blob_missing",
            f"the blob {ref.digest} is not in the store {self._name}",
            "all workers must use the same FERRATA_STORE, and blobs that a run names must not be deleted",
        )

    def _damaged(self, path: str, ref: Ref, size: int) -> StoreError:
        wanted = "" if size == ref.size else f" (it should have {ref.size} bytes)"
        return StoreError(
            "blob_damaged",
            f"the blob {ref.digest} in the store {self._name} is damaged: its {size} bytes have another digest{wanted}",
            f"restore {path} from a backup, or delete it and run again what made it",
        )

    def _unavailable(self, error: Exception, verb: str, ref: Ref) -> StoreError:
        first, mend = _explain(error)
        message = f"can't {verb} the blob {ref.digest} ({ref.size} bytes) in the store {self._name}: {first}"
        return StoreError("store_unavailable", message, mend)


class _Cache:
    """The most recently used blobs by digest, up to a number of bytes; one that would take a quarter of them or more
    isn't kept, since it would drive out many that are asked for again and again."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held = 0
        self._blobs: OrderedDict[str, bytes] = OrderedDict()

    def get(self, key: str) -> bytes | None:
        data = self._blobs.get(key)
        if data is not None:
            self._blobs.move_to_end(key)
        return data

    def add(self, key: str, data: bytes) -> None:
        if key in self._blobs or len(data) * 4 >= self._budget:
            return
        self._blobs[key] = data
        self._held += len(data)
        while self._held > self._budget:
            self._held -= len(self._blobs.popitem(last=False)[1])


def _path(ref: Ref) -> str:
    """Where a blob lies: ``sha256/ab/cdef...``, so that no folder holds too many. Refs come from people too
    (snapshots), so a digest that could name anything else is refused."""
    if not _DIGEST.fullmatch(ref.digest):
        raise StoreError(
            "bad_ref", f"`{ref.digest[:100]}` is no digest: it must be `sha256:` and 64 hexadecimal digits"
        )
    kind, _, text = ref.digest.partition(":")
    return f"{kind}/{text[:2]}/{text[2:]}"


def _backend(url: str, reading: bool) -> ObjectStore:
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url):
        return _folder(Path(url).absolute(), reading)
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"a file URL has three slashes; write the plain path {parts.netloc}{parts.path}")
        return _folder(Path(unquote(parts.path)), reading)
    if parts.scheme == "memory":
        return from_url("memory:///")
    return from_url(url, retry_config=_RETRIES)


def _folder(path: Path, reading: bool) -> LocalStore:
    if not reading:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path))
    if not os.access(path, os.R_OK | os.X_OK | (0 if reading else os.W_OK)):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return LocalStore(path)


def _explain(error: Exception) -> tuple[str, str | None]:
    """What went wrong in one line (obstore adds a dump of its internals after it), and how to mend it."""
    first = str(error).split("\n", 1)[0].strip() or type(error).__name__
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (match := _OS_ERROR.search(first)):
        number = int(match[1])
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return first, "check the credentials and rights of the worker in that object store"
    return first, None if number is None else _MENDS.get(number)
