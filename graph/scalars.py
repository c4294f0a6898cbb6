"""The small types of the graph file: texts, expressions, durations, sizes, factors, each with its own messages."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from graph.durations import format_duration, parse_duration, understood
from graph.limits import MAX_WAIT_MS
from graph.spec_errors import Finding, json_type, refuse, wrong_type
from graph.times import EXAMPLE, parse_time

SIZE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(r"([0-9]{1,12})\s?([A-Za-z]+)")
_FACTOR = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)x")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
LARGEST_FACTOR = 1000


def _text(data: Any) -> Any:
    if not isinstance(data, str):
        raise wrong_type("this", "a text", data)
    if not data.strip():
        raise refuse(Finding("bad_value", "this text is empty"))
    return data


Text: TypeAlias = Annotated[str, BeforeValidator(_text, json_schema_input_type=str)]
"""A text that isn't empty."""


def _expr(data: Any) -> Any:
    if isinstance(data, bool):
        return "true" if data else "false"
    if not isinstance(data, str):
        raise wrong_type("an expression", "a text", data)
    text = data.strip()
    if not text:
        raise refuse(Finding("bad_expression", "this expression is empty"))
    if text.startswith("${") and text.endswith("}"):
        mend = f"write `{text[2:-1].strip()}`"
        raise refuse(Finding("bad_expression", "this is a bare expression, without `${` and `}`", mend))
    return data


Expr: TypeAlias = Annotated[str, BeforeValidator(_expr, json_schema_input_type=str | bool)]
"""A bare expression; YAML's true and false are expressions too."""


def _duration(data: Any) -> Any:
    if isinstance(data, bool) or not isinstance(data, str | int | float):
        raise wrong_type("a duration", "a text such as `90s`", data)
    try:
        return parse_duration(str(data))
    except ValueError as error:
        message, _, mend = str(error).partition(": ")
        raise refuse(Finding("bad_duration", message, mend or None)) from error


Duration: TypeAlias = Annotated[
    int,
    BeforeValidator(_duration, json_schema_input_type=Annotated[str, Field(examples=["90s", "1h30m", "2d"])]),
]
"""A span of time such as `90s`, `1h30m`, `2d`, read as milliseconds."""


def _is_bound(data: Any) -> bool:
    """Whether a text has expressions in it, so that only a run knows what it says."""
    return isinstance(data, str) and "${" in data.replace("$${", "")


def _wait_for(data: Any) -> Any:
    if not _is_bound(data) and _duration(data) > MAX_WAIT_MS:
        raise refuse(Finding("bad_value", f"a node waits at most {format_duration(MAX_WAIT_MS)}"))
    return data


WaitFor: TypeAlias = Annotated[
    str,
    BeforeValidator(_wait_for, json_schema_input_type=Annotated[str, Field(examples=["5m", "${input.minutes}m"])]),
]
"""A duration, or a template of one: kept as it is written."""


def _wait_until(data: Any) -> Any:
    if not isinstance(data, str):
        raise wrong_type("a time", "a text", data, f"write `{EXAMPLE}`")
    if _is_bound(data):
        return data
    try:
        parse_time(data)
    except ValueError as error:
        message, _, mend = str(error).rpartition(": write ")
        mend = f"write {mend}"
        if known := understood(data):
            mend = f"write `for: {known}`"
        elif " " in data.strip():
            mend += ", or a time computed by `${...}`; an expression is what ends a loop: `repeat: {until: ...}`"
        raise refuse(Finding("bad_time", message, mend)) from error
    return data


WaitUntil: TypeAlias = Annotated[
    str, BeforeValidator(_wait_until, json_schema_input_type=Annotated[str, Field(examples=[EXAMPLE, "${input.at}"])])
]
"""An RFC 3339 time with its offset, or a template of one: kept as it is written."""


def _size(data: Any) -> Any:
    if isinstance(data, int) and not isinstance(data, bool):
        if data < 1:
            raise refuse(Finding("bad_size", "a size is at least one byte"))
        return data
    if not isinstance(data, str):
        raise wrong_type("a size", "a text such as `64MiB`", data)
    match = _SIZE.fullmatch(data.strip())
    units = {unit.lower(): size for unit, size in SIZE_UNITS.items()}
    if match is None or match[2].lower() not in units or int(match[1]) == 0:
        raise refuse(
            Finding("bad_size", f"`{data[:60]}` isn't a size", f"write `64MiB`; units: {', '.join(SIZE_UNITS)}")
        )
    return int(match[1]) * units[match[2].lower()]


Size: TypeAlias = Annotated[int, BeforeValidator(_size, json_schema_input_type=str | int)]
"""A number of bytes, as `64MiB`, `256MB` or a plain number."""


def _factor(data: Any) -> Any:
    match = _FACTOR.fullmatch(data) if isinstance(data, str) else None
    if match is None:
        shown = data if isinstance(data, int | float | str) and not isinstance(data, bool) else json_type(data)
        mend = f"write `{data}x`" if isinstance(data, int | float) and not isinstance(data, bool) else "write `4x`"
        raise refuse(
            Finding("bad_value", f"`{str(shown)[:60]}` isn't a factor: these attempts get so many times", mend)
        )
    factor = float(match[1])
    if not 1 <= factor <= LARGEST_FACTOR:
        raise refuse(Finding("bad_value", f"a factor is between 1x and {LARGEST_FACTOR}x"))
    return factor


Factor: TypeAlias = Annotated[
    float, BeforeValidator(_factor, json_schema_input_type=Annotated[str, Field(pattern=r"^[0-9.]+x$")])
]
"""How many times the node's limit, as `4x`."""


def _tolerance(data: Any) -> Any:
    if isinstance(data, int) and not isinstance(data, bool) and 0 <= data <= 10**9:
        return str(data)
    match = _PERCENT.fullmatch(data.strip()) if isinstance(data, str) else None
    if match is None or float(match[1]) > 100:
        raise refuse(Finding("bad_value", "`failures` is a number of items, or a share of them", 'write `2` or `"5%"`'))
    return f"{match[1]}%"


Tolerance: TypeAlias = Annotated[str, BeforeValidator(_tolerance, json_schema_input_type=int | str)]
"""A number of items, or a percentage."""
