"""Showing what lies in the store: what ``ferrata show`` prints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable

import typer

from activities.settings import Settings
from activities.store import Store
from activities.stored import StoredMap, recognise
from cli.supervisor import EXIT_CONFIG
from graph.errors import FerrataError, LoadError, OperateError, Problem
from graph.values import JSON, encode


def show_blob(ref: str, *, lines: bool) -> int:
    """Print the JSON value whose digest is or begins with ``ref``, or why it can't be had. Returns the exit code."""
    try:
        asyncio.run(_print(Settings.from_env(), ref, lines=lines))
    except LoadError as error:
        typer.echo(error.message, err=True)
        return EXIT_CONFIG
    except FerrataError as error:
        hint = f" -> {error.hint}" if error.hint else ""
        typer.echo(f"[{error.code}] {error.message}{hint}", err=True)
        return 1
    return 0


async def _print(settings: Settings, ref: str, *, lines: bool) -> None:
    async for text in blob_texts(settings, ref, lines=lines):
        typer.echo(text, nl=False)


async def blob_texts(settings: Settings, ref: str, *, lines: bool) -> AsyncIterator[bytes]:
    """The value as UTF-8, indented, or with ``lines`` each item of a list on a line of its own, in parts. Of a map's
    output, those are its values.

    Raises:
        LoadError: there is no store where the settings say.
        StoreError: the blob can't be had.
        OperateError: ``not_a_list``: ``lines`` were asked of something else.
    """
    if settings.store.startswith("memory:"):
        message = "FERRATA_STORE is a memory store, which only its worker sees"
        raise LoadError([Problem(code="bad_setting", message=message, hint="use a folder or an object store")])
    store = Store.open(settings.store, reading=True)
    found = await store.find(ref)
    stored = await recognise(store, found)
    if not lines:
        if stored is None:
            value: JSON = await store.get_json(found)
        else:
            value = json.loads(b"".join([text async for text in stored.texts()]))
        yield json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n"
    elif stored is None:
        value = await store.get_json(found)
        if not isinstance(value, list):
            raise OperateError("not_a_list", f"{found.digest} is no list", "leave out `--lines`")
        yield as_lines(value)
    else:
        async for page in (stored.values if isinstance(stored, StoredMap) else stored).pages():
            yield as_lines(page)


def as_lines(items: Iterable[JSON]) -> bytes:
    """Each item's JSON on a line of its own."""
    return b"".join(encode(item) + b"\n" for item in items)
