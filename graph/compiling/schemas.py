"""JSON Schemas of a graph: inline or from a file, proved well-formed before anything runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from graph.compiling.context import Context
from graph.compiling.keywords import misspelt_keywords
from graph.files import FileProblem
from graph.problems import Path
from graph.spec_errors import json_type
from graph.values import JSON

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def load_schema(context: Context, given: JSON, path: Path) -> JSON:
    """The schema at ``path``, from its file if it names one. None (and a problem) if it isn't a sound schema."""
    if isinstance(given, dict) and set(given) == {"file"} and isinstance(given["file"], str):
        return _from_file(context, given["file"], path)
    found = _fault(given)
    if found is None:
        for where, message, mend in misspelt_keywords(given):
            context.place.warn("unknown_keyword", message, (*path, *where), mend, key=True)
        return given
    message, where, hint = found
    context.place.problem("bad_schema", f"{_shown(where)}: {message}", (*path, *where), hint)
    return None


def _from_file(context: Context, file: str, path: Path) -> JSON:
    try:
        text = context.files.read(file).decode()
        schema = json.loads(text)
    except FileProblem as problem:
        context.place.problem("bad_file", str(problem), (*path, "file"), problem.hint)
        return None
    except UnicodeDecodeError:
        context.place.problem("bad_schema", f"`{file}` isn't UTF-8 text", (*path, "file"))
        return None
    except RecursionError:
        context.place.problem("bad_schema", f"`{file}` is nested too deep", (*path, "file"))
        return None
    except ValueError as error:
        line, column = getattr(error, "lineno", None), getattr(error, "colno", None)
        context.place.in_file(file, "bad_schema", f"`{file}` isn't JSON: {error}", line, column, None)
        return None
    found = _fault(schema)
    if found is None:
        for where, message, mend in misspelt_keywords(schema):
            shown = f"{_shown(where[:-1])} in `{file}`: {message}"
            context.place.in_file(file, "unknown_keyword", shown, None, None, mend, warning=True)
        return schema
    message, where, hint = found
    context.place.in_file(file, "bad_schema", f"{_shown(where)} in `{file}`: {message}", None, None, hint)
    return None


def _fault(schema: Any) -> tuple[str, Path, str | None] | None:
    """What is wrong with ``schema``, where in it, and the mend."""
    if not isinstance(schema, dict | bool):
        mend = None
        if isinstance(schema, str):
            mend = f"write `{{{'type' if schema in TYPES else 'file'}: {schema[:60]}}}`"
        return f"a schema is an object (or true or false), not {json_type(schema)}", (), mend
    try:
        dialect = schema.get("$schema", DIALECT) if isinstance(schema, dict) else DIALECT
        if not isinstance(dialect, str) or dialect.rstrip("#") != DIALECT:
            mend = f"leave out `$schema`, or write `{DIALECT}`"
            return "only JSON Schema 2020-12 is understood", ("$schema",), mend
        error = best_match(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema))
        if error is not None:
            return _plain(error.message), tuple(error.absolute_path), None
        return _bad_reference(schema, schema, ())
    except RecursionError:
        return "nested too deep", (), None


def _bad_reference(here: Any, root: Any, path: Path) -> tuple[str, Path, str | None] | None:
    """A `$ref` that leaves the schema or names nothing in it, or a `pattern` that isn't one."""
    if isinstance(here, dict):
        for key in ("$ref", "$dynamicRef"):
            target = here.get(key)
            if isinstance(target, str) and (problem := _reference_problem(target, root)):
                return problem, (*path, key), "copy what it names into `$defs`, and write `#/$defs/NAME`"
        pattern = here.get("pattern")
        if isinstance(pattern, str) and (problem := _pattern_problem(pattern)):
            return problem, (*path, "pattern"), None
    children: Iterable[tuple[str | int, Any]] = ()
    if isinstance(here, dict):
        children = here.items()
    elif isinstance(here, list):
        children = enumerate(here)
    for step, value in children:
        if step in ("const", "enum", "default", "examples"):
            continue
        if found := _bad_reference(value, root, (*path, step)):
            return found
    return None


def _reference_problem(target: str, root: Any) -> str | None:
    if not target.startswith("#"):
        return f"`{target[:100]}` is outside the schema"
    if target == "#" or not target.startswith("#/"):
        return None
    if resolve_pointer(root, target) is None:
        return f"`{target[:100]}` names nothing in the schema"
    return None


def resolve_pointer(root: Any, target: str) -> Any:
    """What the local reference ``#/...`` names in ``root``; None if nothing."""
    here = root
    for step in target[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and key in here:
            here = here[key]
        elif isinstance(here, list) and key.isdigit() and int(key) < len(here):
            here = here[int(key)]
        else:
            return None
    return here


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"`{pattern[:60]}` isn't a regular expression: {error}"
    return None


def _plain(message: str) -> str:
    return message if len(message) <= 300 else message[:297] + "..."


def _shown(path: Path) -> str:
    return "the schema" if not path else "the schema at `" + "/".join(str(step) for step in path) + "`"
