"""The items of a map from a file or from the store, one after the other: whoever iterates holds as many as it wants.

Which file may be read is :mod:`activities.grants`' to say, how its format is read :mod:`activities.item_files`'.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import partial
from typing import BinaryIO, Final

from activities.evaluate import Environment
from activities.grants import bad_file, open_granted
from activities.item_files import ListError, ListParser, NotAListError, read_items
from activities.sandbox import Cancel
from activities.store import StoreError
from activities.stored import StoredList, StoredMap, recognise
from activities.tools import Tools
from graph.compiled import FileSource, Source
from graph.errors import Failure
from graph.sources import SHOWN, absolute, format_of
from graph.spec_errors import json_type
from graph.values import JSON, Ref, trim

MOST_AT_ONCE: Final = 1000
"""Items read before those who wait for the event loop get their turn."""
SLICE: Final = 0.02
"""Seconds after which they get it in any case. It bounds what is held too: large items take longer to read."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


async def open_items(source: Source, env: Environment) -> AsyncGenerator[JSON, None]:
    """The items of ``source``, whose templates are filled in from ``env``.

    Raises:
        Failure: ``invalid_input``, with the code ``bad_file`` or ``bad_line`` if the file or a line of it can't be
            read, or with that of a StoreError; ``denied`` if the node may not read the file.
        StoreError: transient.
    """
    if isinstance(source, FileSource):
        items = file_items(source, await env.bind(source.path), env.tools)
    else:
        items = stored_items(await env.bind(source.ref), env.tools)
    async with aclosing(items):
        async for item in items:
            yield item


async def file_items(source: FileSource, path: JSON, tools: Tools) -> AsyncGenerator[JSON, None]:
    """The items in the file ``path``. Raises Failure."""
    if not isinstance(path, str) or not path:
        raise Failure("invalid_input", f"`over: {{file: ...}}` needs a path; it is {json_type(path)}", code="bad_file")
    form = source.format or format_of(path)
    if form is None:
        message = f"has an ending that tells no format: it is none of {SHOWN}; say `format: json`, `jsonl` or `csv`"
        raise bad_file(path, message)
    folder = absolute(source.root, source.base)
    # In a thread from the start: a disk on the network may make anything wait.
    file = await tools.in_guest_thread(lambda _: open_granted(path, folder, source.read, tools.settings.read_folders))
    with file:
        items = unchanged(file, read_items(file, form, path), path)
        done = False
        while not done:
            some, done = await tools.in_guest_thread(lambda _: a_few(items))
            for item in some:
                yield item


def unchanged(file: BinaryIO, items: Iterator[JSON], name: str) -> Iterator[JSON]:
    """``items``, read from ``file``, which nobody may write to meanwhile. Raises Failure ``bad_file`` if it changed."""
    before = os.fstat(file.fileno())
    yield from items
    after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise bad_file(name, "changed while it was read; write it under another name, and rename it when it is done")


def a_few(items: Iterator[JSON]) -> tuple[list[JSON], bool]:
    """The next items, and whether those were the last."""
    some: list[JSON] = []
    until = time.monotonic() + SLICE
    for item in items:
        some.append(item)
        if len(some) >= MOST_AT_ONCE or time.monotonic() >= until:
            return some, False
    return some, True


async def stored_items(given: JSON, tools: Tools) -> AsyncGenerator[JSON, None]:
    """The items of the list in the store that ``given`` refers to, plain or in pages. Raises Failure, StoreError."""
    parser = ListParser()
    try:
        ref = await _ref(given, tools)
        stored = await recognise(tools.store, ref)
        if isinstance(stored, StoredMap):
            raise NotAListError("a map's output")
        if isinstance(stored, StoredList):
            async for page in stored.pages():
                for item in page:
                    yield item
            return
        async for block in tools.store.stream(ref):
            for item in await tools.in_guest_thread(partial(_feed, parser, block)):
                yield item
        for item in parser.close():
            yield item
    except StoreError as error:
        if error.transient:
            raise
        raise Failure("invalid_input", f"`over: {{ref: ...}}`: {error.message}", code=error.code) from error
    except ListError as error:
        message = f"`over: {{ref: ...}}`: what lies in the store isn't a list, at item {parser.count}: {error}"
        raise Failure("invalid_input", message, code="bad_ref") from None


def _feed(parser: ListParser, block: bytes, _: Cancel) -> list[JSON]:
    return parser.feed(block)


async def _ref(given: JSON, tools: Tools) -> Ref:
    """The reference that a digest, a reference, or an object with one under `ref` means. Raises Failure, StoreError."""
    if isinstance(given, dict) and isinstance(given.get("ref"), dict):
        given = given["ref"]
    digest = given.get("digest") if isinstance(given, dict) else given
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        shown = f"`{trim(digest, 100)}`" if isinstance(digest, str) else json_type(given)
        message = f"`over: {{ref: ...}}` needs a reference, as `sha256:...` or {{digest, size}}; it is {shown}"
        raise Failure("invalid_input", message, code="bad_ref")
    return await tools.store.find(digest)
