"""Items out of files: JSON lists, JSONL and CSV, plain and gzipped; what is wrong is named with its line."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from activities import item_files
from activities.item_files import ListError, ListParser, NotAListError, read_items
from graph.compiled import Format
from graph.errors import Failure
from graph.values import JSON

ROOT = Path(__file__).parent.parent


def items(data: bytes | str, form: Format = "jsonl") -> list[JSON]:
    return list(read_items(io.BytesIO(data.encode() if isinstance(data, str) else data), form, "x"))


def wrong(data: bytes | str, form: Format = "jsonl") -> Failure:
    with pytest.raises(Failure) as caught:
        items(data, form)
    assert caught.value.failure_class == "invalid_input"
    assert caught.value.details["file"] == "x"
    return caught.value


ODD: list[JSON] = [None, True, -0.5, 10**30, "", "日本語 🎉", [], {}, {"a": [1, {"b": None}]}, "line\u2028break\n"]


# JSONL


def test_jsonl_gives_each_line_as_it_is() -> None:
    text = "\n".join(json.dumps(item, ensure_ascii=False) for item in ODD)
    assert items(text) == items(text + "\n") == items(text.replace("\n", "\r\n")) == ODD
    assert [type(item) for item in items("1\n1.0\n1e2")] == [int, float, float]


def test_blank_lines_of_jsonl_are_passed_over_but_counted() -> None:
    assert items("\n1\n  \n\r\n2\n\n") == [1, 2]
    assert wrong("\n\n1\n\n{").details["line"] == 5
    assert items("") == items("\n \n") == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a": 1,}', "column 9"),
        ('{"a": 1', "isn't JSON"),
        ("{'a': 1}", "column 2"),
        ("1 2", "Extra data at column 3"),
        ("NaN", "NaN is no JSON number"),
        ("[1, -Infinity]", "-Infinity is no JSON number"),
        ("1e999", "1e999 is too large to be a number"),
        ("9" * 5000, "isn't JSON"),
        ('"\\ud800"', "can't be an item"),
        ("[" * 100 + "]" * 100, "nests deeper than 99 levels"),
        ("[" * 100_000, "isn't JSON"),
    ],
    ids=lambda value: value[:12],
)
def test_a_bad_line_of_jsonl_is_named(line: str, said: str) -> None:
    failure = wrong(f'{{"good": 1}}\n{line}\n{{"good": 2}}\n')
    assert failure.code == "bad_line"
    assert failure.message.startswith("line 2 of `x` ")
    assert said in failure.message
    assert failure.details["line"] == 2


def test_the_items_before_a_bad_line_are_read() -> None:
    found = read_items(io.BytesIO(b"1\n2\nx\n"), "jsonl", "x")
    assert (next(found), next(found)) == (1, 2)
    with pytest.raises(Failure, match="line 3 of `x`"):
        next(found)


# Text


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_a_byte_order_mark_is_left_out(form: Format) -> None:
    text = {"json": '["é"]', "jsonl": '"é"', "csv": "é\né"}[form]
    assert items(b"\xef\xbb\xbf" + text.encode(), form) == items(text, form)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_only_utf_8_is_read(form: Format) -> None:
    text = {"json": '["a",\n"é"]', "jsonl": '"a"\n"é"', "csv": "a\né"}[form]
    failure = wrong(text.encode("latin-1"), form)
    assert failure.code == "bad_line"
    assert failure.details["line"] == 2
    assert "UTF-8" in failure.message
    assert wrong(text.encode("utf-16"), form).message == "`x` is UTF-16 text; save it as UTF-8"


def test_a_bad_byte_is_named_with_its_place() -> None:
    assert "byte 4 is 0xe9" in wrong(b'"ok"\n"ab\xe9"').message


# CSV


def test_csv_gives_an_object_of_texts_for_each_row() -> None:
    text = 'id,name\r\n1,"Smith, Jo"\r\n2,"say ""hi"""\r\n3,\r\n'
    assert items(text, "csv") == [
        {"id": "1", "name": "Smith, Jo"},
        {"id": "2", "name": 'say "hi"'},
        {"id": "3", "name": ""},
    ]


def test_a_quoted_field_of_csv_may_have_line_breaks_and_lines_still_count() -> None:
    text = 'a,b\n"one\ntwo\r\nthree",2\nbad\n'
    found = read_items(io.BytesIO(text.encode()), "csv", "x")
    assert next(found) == {"a": "one\ntwo\r\nthree", "b": "2"}
    with pytest.raises(Failure, match="line 5 of `x` has 1 field, and the header 2"):
        next(found)


def test_blank_lines_of_csv_are_passed_over() -> None:
    assert items("\na\n\n1\n\n", "csv") == [{"a": "1"}]
    assert items("a,b\n", "csv") == items("", "csv") == []


def test_a_column_without_a_name_is_kept_but_names_are_distinct() -> None:
    assert items(",a\n0,x\n", "csv") == [{"": "0", "a": "x"}]
    assert "the column `a` twice" in wrong("a,b,a\n1,2,3\n", "csv").message


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a,b\n1,2\n1\n", 3, "has 1 field, and the header 2"),
        ("a,b\n1,2,3\n", 2, "has 3 fields, and the header 2"),
        ('a,b\n1,"x"y\n', 2, "isn't CSV"),
        ('a,b\n1,2\n3,"never closed\nand\nso on\n', 3, "begins a quoted field that is never closed"),
        ("a;b\n1;2\n", 1, "without commas"),
        ("a\tb\n1\t2\n", 1, "without commas"),
        ("a,b\n1,\0\n", 2, "null character"),
        ("a,b\r1,2\r", 1, "carriage return"),
    ],
    ids=["few", "many", "quote", "unclosed", "semicolons", "tabs", "null", "cr"],
)
def test_a_bad_row_of_csv_is_named(text: str, line: int, said: str) -> None:
    failure = wrong(text, "csv")
    assert (failure.code, failure.details["line"]) == ("bad_line", line)
    assert said in failure.message


def test_a_field_of_csv_may_be_large() -> None:
    assert items("a\n" + "x" * 1_000_000 + "\n", "csv") == [{"a": "x" * 1_000_000}]


# JSON lists


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_gives_each_item_as_it_is(indent: int | None) -> None:
    given = [item for item in ODD if item != 10**30]
    assert items(json.dumps(given, indent=indent), "json") == given
    assert [type(item) for item in items("[1, 1.0, 1e2, true]", "json")] == [int, float, float, bool]
    assert items(" \n [ ] \n", "json") == []


def test_a_json_list_of_more_than_one_block_is_read_whole() -> None:
    given = [{"n": n, "text": "é" * 500} for n in range(1000)]
    assert items(json.dumps(given, ensure_ascii=False), "json") == given


@pytest.mark.parametrize(
    ("text", "line", "item", "said"),
    [
        ('[\n1,\n{"a": }\n]', 3, 1, "unallowed token"),
        ("[1,\n2", 2, 2, "the file ends before its list does"),
        ("[1,\n2]\n\n3", 4, 2, "there is more after the list"),
        ("[1,\n\nNaN]", 3, 1, "invalid char"),
        ("[1,\n1e999]", 2, 1, "too large"),
        (f"[1,\n{10**30}]", 2, 1, "more than 64 bits"),
        (f"[1,\n{'[' * 100}{']' * 100}]", 2, 1, "nests deeper than 99 levels"),
        ("[1,]", 1, 1, "unallowed token"),
    ],
    ids=["token", "end", "garbage", "nan", "large", "bits", "deep", "comma"],
)
def test_what_is_wrong_with_a_json_list_is_named_with_line_and_item(text: str, line: int, item: int, said: str) -> None:
    failure = wrong(text, "json")
    assert (failure.code, failure.details["line"], failure.details["item"]) == ("bad_line", line, item)
    assert said in failure.message


def test_a_mistake_far_into_a_json_list_is_named_with_its_line() -> None:
    text = "[\n" + ",\n".join(json.dumps({"n": n, "x": "y" * 90}) for n in range(5000)) + ",\noops]"
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode(), gzip.compress(text.encode())):
        failure = wrong(data, "json")
        assert (failure.details["line"], failure.details["item"]) == (5002, 5000)


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"items": [1]}', "holds an object, not a list"), ('"x"', "holds a text"), ("5", "something else")],
)
def test_json_that_is_no_list_is_refused(text: str, said: str) -> None:
    failure = wrong(text, "json")
    assert failure.code == "bad_file"
    assert said in failure.message


def test_an_empty_json_file_is_no_list() -> None:
    assert "ends before its list does" in wrong("", "json").message
    assert "ends before its list does" in wrong(" " * 100_000, "json").message


# Size


def test_an_item_list_that_is_one_huge_line_is_refused_as_jsonl_and_read_as_json() -> None:
    one = b"[" + b",".join([b'"' + b"x" * 1000 + b'"'] * 40_000) + b"]"
    assert len(one) > item_files.LARGEST_ITEM
    failure = wrong(b"1\n" + one, "jsonl")
    assert "line 2 of `x` is longer than 32 MiB" in failure.message
    assert "line 1 of `x` is longer than 32 MiB" in wrong(b"a," + b"b" * item_files.LARGEST_ITEM, "csv").message
    assert sum(1 for _ in read_items(io.BytesIO(one), "json", "x")) == 40_000


def test_an_item_that_is_too_large_is_refused() -> None:
    huge = b"x" * (item_files.LARGEST_ITEM + 2 * item_files.BLOCK)
    failure = wrong(b'[1,\n"' + huge + b'"]', "json")
    assert (failure.details["item"], failure.details["line"]) == (1, 2)
    assert "larger than 32 MiB" in failure.message
    lines = b"\n".join([b"x" * 1_000_000] * 40)
    assert "line 3 of `x` begins a row of more than 32 MiB" in wrong(b'a\nb\n"' + lines + b'"\n', "csv").message


# Gzip


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_gzip_is_known_by_its_first_bytes(form: Format) -> None:
    text = {"json": "[1, 2]", "jsonl": "1\n2\n", "csv": "a\n1\n2\n"}[form]
    assert items(gzip.compress(text.encode()), form) == items(text, form)
    parts = {"json": "[1,| 2]", "jsonl": "1\n|2\n", "csv": "a\n1\n|2\n"}[form].split("|")
    assert items(b"".join(gzip.compress(part.encode()) for part in parts), form) == items(text, form)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_a_gzip_file_that_was_cut_off_or_damaged_is_refused(form: Format) -> None:
    lines = [json.dumps({"n": n}) for n in range(10_000)]
    text = {"json": f"[{','.join(lines)}]", "jsonl": "\n".join(lines), "csv": "a\n" + "x\n" * 10_000}[form]
    data = gzip.compress(text.encode())
    cut = wrong(data[: len(data) // 2], form)
    assert cut.code == "bad_file"
    assert "ends too early" in cut.message
    damaged = bytearray(data)
    damaged[-8] ^= 0xFF  # the checksum
    assert "is damaged" in wrong(bytes(damaged), form).message
    assert "is damaged" in wrong(data + b"garbage", form).message


def test_a_gzip_bomb_ends_at_the_bound_of_a_line() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b"\0" * 2**20) for _ in range(400)) + packer.flush()
    assert len(bomb) < 2**20
    for form in ("jsonl", "csv"):
        assert "longer than 32 MiB" in wrong(bomb, form).message
    assert wrong(bomb, "json").code == "bad_file"


# The parser of lists


def test_a_list_may_come_byte_by_byte() -> None:
    parser, found = ListParser(), []
    for byte in b' [1, "\xc3\xa9", {"a": [2]}] ':
        found += parser.feed(bytes([byte]))
    assert found + parser.close() == [1, "é", {"a": [2]}]
    assert parser.count == 3


def test_a_list_that_is_none_is_told_at_once() -> None:
    with pytest.raises(NotAListError, match="an object"):
        ListParser().feed(b' {"a": 1}')
    parser = ListParser()
    parser.feed(b"[1")
    with pytest.raises(ListError, match="ends before"):
        parser.close()


# Memory

MEASURE = """
import sys
from activities.item_files import read_items

def high() -> int:
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

path, form = sys.argv[1:]
before = high()
with open(path, "rb") as file:
    count = sum(1 for _ in read_items(file, form, "x"))
print(count, high() - before)
"""


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.jsonl.gz"])
def test_a_file_of_300_megabytes_is_read_with_flat_memory(tmp_path: Path, name: str) -> None:
    path, count = tmp_path / name, 30_000
    field = "x" * 10_000
    begin, line, between, end = {
        "json": ("[", f'{{"a": "{field}"}}', ",", "]"),
        "jsonl": ("", f'{{"a": "{field}"}}', "\n", "\n"),
        "csv": ("a,b\n", f"{field},1", "\n", "\n"),
    }[name.split(".")[1]]
    block = between.join([line] * 1000)
    with gzip.open(path, "wt", compresslevel=1) if name.endswith("gz") else path.open("w") as file:
        file.write(begin)
        for number in range(count // 1000):
            file.write((between if number else "") + block)
        file.write(end)
    form = name.split(".")[1]
    command = [sys.executable, "-c", MEASURE, str(path), form]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    found, kilobytes = map(int, done.stdout.split())
    path.unlink()
    assert found == count
    assert kilobytes < 20_000
