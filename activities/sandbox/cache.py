"""A folder of derived files that is never trusted blindly: private to the user, written atomically, each file named
by what it was made from and by the digest of its content.

So a half-written, truncated or altered file is simply not found, and many processes may start at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from graph.errors import FerrataError

UNUSED = 30 * 24 * 3600
"""Seconds after which a file that no process loaded is removed."""
PROJECT = Path(__file__).resolve().parents[2]


def default_cache() -> Path:
    """``$FERRATA_CACHE``, as a worker's settings read it, or ``.ferrata/sandbox`` under the project's root."""
    folder = os.environ.get("FERRATA_CACHE", "").strip()
    return Path(folder).absolute() if folder else PROJECT / ".ferrata" / "sandbox"


def open_cache(folder: Path) -> None:
    """Make ``folder`` (mode 0700), or see that it is private.

    Raises:
        FerrataError: code ``bad_cache`` if it can't be made, or if someone else could write to it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        if found.st_uid == os.getuid() and found.st_mode & 0o077:
            folder.chmod(0o700)
            found = folder.stat()
    except OSError as error:
        raise FerrataError("bad_cache", f"the sandbox cache {folder} can't be used: {error.strerror}", HINT) from error
    if found.st_uid not in (0, os.getuid()) or stat.S_IMODE(found.st_mode) & 0o022:
        raise FerrataError("bad_cache", f"the sandbox cache {folder} belongs to another user", HINT)


HINT = "set FERRATA_CACHE to a folder of your own"


def find(folder: Path, key: str, suffix: str) -> Path | None:
    """The intact file made from ``key``, marked as used, or None; damaged ones are removed."""
    for path in sorted(folder.glob(f"{key}-*{suffix}")):
        with contextlib.suppress(FileNotFoundError):  # another process may be tidying up too
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if path.name == f"{key}-{digest}{suffix}":
                with contextlib.suppress(OSError):  # a read-only cache, shipped with an image
                    path.touch()
                return path
            path.unlink(missing_ok=True)
    return None


def store(folder: Path, key: str, suffix: str, data: bytes | bytearray) -> Path:
    """Write ``data`` (mode 0600), visible whole or not at all, and return where. Files long unused make room."""
    for old in folder.glob("*-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > UNUSED:
                old.unlink()
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"{key}-{digest}{suffix}"
    handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """One process at a time makes files here; the others wait and then find them. Ends with its process."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
