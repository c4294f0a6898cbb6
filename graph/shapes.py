"""Values of a likely but wrong shape, refused with the mend written out; any other goes on to the models.

Run before pydantic's own validation: see :mod:`graph.spec`.
"""

from __future__ import annotations

from typing import Any

from graph.mends import CODE, looks_like_code, quoted
from graph.spec_errors import Finding, refuse, wrong_type


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
