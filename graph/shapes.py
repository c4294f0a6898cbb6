"""Values of a likely but wrong shape, refused with the mend written out; any other goes on to the models.

Run before pydantic's own validation: see :mod:`graph.spec`.
"""

from __future__ import annotations

from typing import Any

from graph.durations import understood
from graph.mends import CODE, looks_like_code, quoted
from graph.spec_errors import Finding, refuse, wrong_type
from graph.times import parse_time

UNITS = {"milliseconds": "ms", "seconds": "s", "minutes": "m", "hours": "h", "days": "d"}


def short(text: str) -> str:
    """A text of the author's as messages show it."""
    return text if len(text) <= 60 else text[:57] + "..."


def checks_as_list(data: Any) -> Any:
    """`accept`: a list, however many checks there are."""
    mend = None
    if isinstance(data, str):
        mend = f"write `accept: [{{expr: {quoted(short(data))}}}]`"
    elif isinstance(data, dict):
        mend = _entries(data) or "write `- expr: EXPRESSION` below it"
    if mend is not None:
        raise refuse(Finding("wrong_type", "`accept` is a list of checks", mend))
    return data


def rungs_as_list(data: Any) -> Any:
    """`on_fail`: a list, however many rungs there are."""
    mend = None
    if isinstance(data, str):
        word, _, rest = data.partition(" ")
        rungs = {"retry": f"retry: {rest or 2}", "reroute": "reroute: {model: NAME}"}
        mend = f"write `on_fail: [{short(rungs.get(word.rstrip(':'), 'escalate'))}]`"
    elif isinstance(data, dict):
        mend = _entries(data) or "write `- escalate` below it"
    if mend is not None:
        raise refuse(Finding("wrong_type", "`on_fail` is a list of rungs", mend))
    return data


def function_as_text(data: Any) -> Any:
    """`function`: `module:name` in one text."""
    name = data.get("name") or data.get("function") if isinstance(data, dict) else None
    if isinstance(name, str):
        module = data.get("module")
        whole = f"{module}:{name}" if isinstance(module, str) else name
        raise wrong_type("`function`", "a text", data, f"write `function: {short(whole)}`")
    return data


def wait_as_object(data: Any) -> Any:
    """`wait`: an object that says whether for a time, until a time or for a reply."""
    if isinstance(data, dict):
        findings = [
            Finding("unknown_key", f"`{key}` isn't a key of `wait`", f"write `for: {_counted(data[key], unit)}`", key)
            for key, unit in UNITS.items()
            if key in data
        ]
        if "reply" in data and data["reply"] is None:
            mend = "write `reply: true` for any value, or its schema"
            findings.append(Finding("wrong_type", "`reply` has no value", mend, "reply"))
        if findings:
            raise refuse(*findings)
        return data
    message = "`wait` says whether it is `for` a time, `until` a time, or for a `reply`"
    raise refuse(Finding("wrong_type", message, _wait_mend(data)))


def _wait_mend(data: Any) -> str:
    if isinstance(data, int | float) and not isinstance(data, bool):
        return f"write `wait: {{for: {data}s}}` for seconds or `wait: {{for: {data}m}}` for minutes"
    text = data.strip() if isinstance(data, str) else ""
    if text in ("reply", "approval", "signal", "human"):
        return "write `wait: {reply: true}`, or the reply's schema"
    if "${" in text:
        return f"write `wait: {{for: {quoted(short(text))}}}`, or `until` with a time"
    try:
        parse_time(text)
    except ValueError:
        return f"write `wait: {{for: {understood(text) or '5m'}}}`"
    return f"write `wait: {{until: {text}}}`"


def _counted(number: Any, unit: str) -> str:
    """So many of a unit, as a duration."""
    if isinstance(number, str) and "${" in number:
        return quoted(short(number) + unit)
    return f"{number}{unit}" if isinstance(number, int | float) and not isinstance(number, bool) else "90s"


def nodes_by_name(data: Any) -> Any:
    """`nodes`: an object, whose keys are the names."""
    if isinstance(data, list):
        first = data[0] if data and isinstance(data[0], dict) else {}
        name = first.get("name") or first.get("id") or next(iter(first), None)
        mend = f"write each below its name, without `-`, as in `nodes: {{{short(str(name or 'fetch'))}: {{value: 1}}}}`"
        raise wrong_type("`nodes`", "an object", data, mend)
    if isinstance(data, dict) and (lines := [key for key in data if looks_like_code(key)]):
        raise refuse(*(Finding("bad_name", f"`{short(key)}` isn't a node's name", CODE, key) for key in lines))
    return data


def _entries(data: dict[str, Any]) -> str:
    """The mend for an object where a list of its entries should be; empty if there is none."""
    entries = []
    for key, value in list(data.items())[:4]:
        shown = short(str(value)) if isinstance(value, int | str) and "\n" not in str(value) else "..."
        entries.append(f"`- {key}`" if value is None else f"`- {key}: {shown}`")
    return f"write {' and '.join(entries)}" if entries else ""
