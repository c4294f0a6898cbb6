"""Items out of a stream of bytes, one after the other: JSONL, CSV, and JSON lists, each plain or gzipped.

Nothing here holds more than one item and a block of bytes, however large the stream is. What can't be read is named
with its line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

import ijson

from graph.compiled import Format
from graph.errors import Failure
from graph.limits import MAX_OUTPUT_BYTES, MIB
from graph.values import DEPTH_LIMIT, JSON, check_depth, encode, trim

LARGEST_ITEM: Final = MAX_OUTPUT_BYTES
"""Bytes of one item: as of any value."""
BLOCK: Final = 256 * 1024
"""Bytes read at once. Not few: with each block, the parser of JSON goes again over a text that isn't complete yet."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_ITEM_DEPTH: Final = DEPTH_LIMIT - 1
"""Levels of an item: the list itself is one."""


def read_items(file: BinaryIO, form: Format, name: str) -> Iterator[JSON]:
    """The items in ``file``, which messages call ``name``.

    A gzipped stream is known by its first bytes, so nobody needs to say so.

    Raises:
        Failure: ``invalid_input`` with the code ``bad_line``: a line (or an item of a JSON list) can't be read, and
            the message names it; or ``bad_file``: the file as a whole can't be.
    """
    zipped = file.read(2) == _GZIP
    file.seek(0)
    # A reader around it, since a line of a gzipped file is then found by C code too.
    stream = io.BufferedReader(gzip.GzipFile(fileobj=file), BLOCK) if zipped else file
    reader = _Reader(stream, name)
    try:
        yield from reader.read(form)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        ends = "ends too early" if isinstance(error, EOFError) else "is damaged"
        raise reader.bad_file(f"is gzipped, and {ends}, after line {reader.line}; copy or write it again") from None
    except OSError as error:
        raise reader.bad_file(f"can't be read: {error.strerror or error}") from None


class _Reader:
    """Reads one stream. ``line`` is the number of the line read last, counted from 1."""

    def __init__(self, stream: BinaryIO | io.BufferedReader, name: str) -> None:
        self._stream = stream
        self._name = name
        self.line = 0
        self._start = 0
        """Where the text begins: after the mark that some programs put there."""
        self._begin = 1
        """The line where the row of CSV that is being read begins."""
        self._size = 0
        """How many characters that row has so far."""

    def read(self, form: Format) -> Iterator[JSON]:
        """The items of a stream of that format."""
        mark = self._stream.read(3)
        if mark.startswith(_UTF16):
            raise self.bad_file("is UTF-16 text; save it as UTF-8")
        self._start = 3 if mark == _BOM else 0
        self._stream.seek(self._start)
        if form == "jsonl":
            return self._jsonl()
        return self._csv() if form == "csv" else self._json()

    def bad_file(self, wrong: str) -> Failure:
        """The failure that the file as a whole can't be read; ``wrong`` goes on after its name."""
        return Failure("invalid_input", f"`{self._name}` {wrong}", code="bad_file", details={"file": self._name})

    def _bad_line(self, wrong: str, line: int | None = None, **details: JSON) -> Failure:
        line = line or self.line
        message = f"line {line} of `{self._name}` {wrong}"
        return Failure("invalid_input", message, code="bad_line", details={"file": self._name, "line": line, **details})

    # Lines

    def _lines(self) -> Iterator[str]:
        """The lines as texts, with their ends. Never more of one than an item may take."""
        while data := self._stream.readline(LARGEST_ITEM + 1):
            self.line += 1
            if len(data) > LARGEST_ITEM:
                raise self._bad_line(f"is longer than {LARGEST_ITEM // MIB} MiB, which is the most an item may take")
            try:
                yield data.decode()
            except UnicodeDecodeError as error:
                wrong = f"isn't UTF-8 text: byte {error.start + 1} is 0x{data[error.start]:02x}; save the file as UTF-8"
                raise self._bad_line(wrong, byte=error.start + 1) from None

    # JSONL

    def _jsonl(self) -> Iterator[JSON]:
        for text in self._lines():
            if not text.isspace():
                yield self._parsed(text)

    def _parsed(self, text: str) -> JSON:
        try:
            item = _DECODER.decode(text)
        except json.JSONDecodeError as error:
            raise self._bad_line(f"isn't JSON: {error.msg} at column {error.colno}", column=error.colno) from None
        except (ValueError, RecursionError) as error:
            raise self._bad_line(f"isn't JSON: {error}") from None
        try:
            if _SURROGATE.search(text):
                encode(item)  # half of a pair of them is no character
            if text.count("[") + text.count("{") > _ITEM_DEPTH:
                check_depth(item, _ITEM_DEPTH)
        except Failure as failure:
            raise self._bad_line(f"can't be an item: {failure.message}") from None
        return item

    # CSV

    def _csv(self) -> Iterator[JSON]:
        if csv.field_size_limit() < LARGEST_ITEM:  # of the whole process; by default 128 KiB
            csv.field_size_limit(LARGEST_ITEM)
        rows = self._rows()
        header = next(rows, None)
        if header is None:
            return
        self._check_header(header)
        for row in rows:
            if len(row) != len(header):
                fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
                raise self._bad_line(f"has {fields}, and the header {len(header)}", self._begin)
            yield dict(zip(header, row, strict=True))

    def _rows(self) -> Iterator[list[str]]:
        """The rows that aren't blank."""
        rows = csv.reader(self._bounded(), strict=True)
        while True:
            self._begin, self._size = self.line + 1, 0
            try:
                row = next(rows, None)
            except csv.Error as error:
                raise self._bad_row(str(error)) from None
            if row is None:
                return
            if row:
                yield row

    def _bounded(self) -> Iterator[str]:
        """The lines, while a row of them isn't too large: after a quote that is never closed, all are of one row."""
        for text in self._lines():
            self._size += len(text)
            if self._size > LARGEST_ITEM:
                wrong = f"begins a row of more than {LARGEST_ITEM // MIB} MiB; is a closing quote missing?"
                raise self._bad_line(wrong, self._begin)
            if "\0" in text:
                raise self._bad_line("has a null character: it isn't CSV")
            yield text

    def _bad_row(self, said: str) -> Failure:
        if "unexpected end of data" in said:
            return self._bad_line("begins a quoted field that is never closed", self._begin)
        if "new-line" in said:
            said = "a carriage return within a field; save the file with line feeds, or quote the field"
        return self._bad_line(f"isn't CSV: {said}")

    def _check_header(self, header: list[str]) -> None:
        if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
            raise self._bad_line("is a header without commas: fields must be separated by commas", self._begin)
        seen: set[str] = set()
        for name in header:
            if name in seen:
                raise self._bad_line(f"names the column `{trim(name, 100)}` twice", self._begin)
            seen.add(name)

    # JSON

    def _json(self) -> Iterator[JSON]:
        parser = ListParser()
        try:
            while block := self._stream.read(BLOCK):
                yield from parser.feed(block)
                self.line += block.count(b"\n")
            yield from parser.close()
        except NotAListError as error:
            mend = "; if each line is an item of its own, say `format: jsonl`" if error.what == "an object" else ""
            raise self.bad_file(f"holds {error.what}, not a list{mend}") from None
        except ListError as error:
            raise self._bad_item(parser, error) from None

    def _bad_item(self, parser: ListParser, error: ListError) -> Failure:
        """The failure that an item can't be read, with its line. The parser knows no lines, so the last block that it
        got is given to another one line by line, after all that came before."""
        again, before = ListParser(), max(0, parser.fed - BLOCK)
        self._stream.seek(self._start)
        self.line = 1
        try:
            while again.fed < before:
                self._again(again, self._stream.read(min(BLOCK, before - again.fed)))
            while line := self._stream.readline(BLOCK):
                self._again(again, line)
        except ListError:
            pass  # here it is
        return self._bad_line(f"(item {parser.count}) can't be read: {error}", item=parser.count)

    def _again(self, parser: ListParser, data: bytes) -> None:
        parser.feed(data)
        self.line += data.count(b"\n")


class ListError(Exception):
    """What is wrong with a JSON list, in a few words."""


class NotAListError(ListError):
    """It is JSON, maybe, but ``what`` instead of a list."""

    def __init__(self, what: str) -> None:
        super().__init__(f"it is {what}, not a list")
        self.what = what


class ListParser:
    """The items of a JSON list whose bytes come in blocks. ``count`` is how many came out, ``fed`` how many bytes went
    in."""

    def __init__(self) -> None:
        self._items = ijson.sendable_list()
        self._parser = ijson.items_coro(self._items, "item", use_float=True)
        self._since = 0
        self._begun = False
        self.count = 0
        self.fed = 0

    def feed(self, block: bytes) -> list[JSON]:
        """The items that are complete now.

        Raises:
            ListError: it isn't JSON or no list, or an item is too large.
        """
        if not self._begun and (head := block.lstrip(b" \t\r\n")):
            self._begun = True
            if not head.startswith(b"["):  # for which the parser below would just find no items
                raise NotAListError({b"{": "an object", b'"': "a text"}.get(head[:1], "something else"))
        self.fed += len(block)
        self._since += len(block)
        self._send(block)
        items = self._taken()
        if items:
            self._since = 0
        elif self._since > LARGEST_ITEM:
            raise ListError(f"it is larger than {LARGEST_ITEM // MIB} MiB, which is the most an item may take")
        return items

    def close(self) -> list[JSON]:
        """The last items. Raises ListError: the list isn't complete."""
        self._send(b"")
        return self._taken()

    def _send(self, block: bytes) -> None:
        try:
            if block:
                self._parser.send(block)
            else:
                self._parser.close()
        except ijson.JSONError as error:
            self.count += len(self._items)  # those of this block that were complete
            raise ListError(_in_words(error)) from None

    def _taken(self) -> list[JSON]:
        items = list(self._items)
        del self._items[:]
        try:
            check_depth(items, _ITEM_DEPTH + 1)
        except Failure:
            self.count += next(number for number, item in enumerate(items) if _is_deep(item))
            raise ListError(f"it nests deeper than {_ITEM_DEPTH} levels") from None
        self.count += len(items)
        return items


def _is_deep(item: JSON) -> bool:
    try:
        check_depth(item, _ITEM_DEPTH)
    except Failure:
        return True
    return False


def _in_words(error: Exception) -> str:
    """The first line of the parser's message, which goes on with a drawing of the place."""
    said = error.args[0]
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    first = text.split("\n", 1)[0].removeprefix("parse error: ").removeprefix("lexical error: ").rstrip(".")
    words = {
        "premature EOF": "the file ends before its list does",
        "integer overflow": "a whole number of more than 64 bits; write it as a text, or use JSONL",
        "numeric (floating point) overflow": "a number too large to be one",
        "invalid bytes in UTF8 string": "a text isn't UTF-8; save the file as UTF-8",
        "trailing garbage": "there is more after the list",
    }
    return words.get(first, first)


def _no_constant(name: str) -> JSON:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large to be a number")
    return number


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
"""Made once: making one takes longer than reading a short line."""
