"""Reading what a run was started with. Whatever was sent, the run starts or ends with a clear error: an
exception here would make Temporal retry the workflow task for ever."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from graph.errors import Failure, OperateError
from graph.nearest import suggest
from graph.values import ANSWER_LIMIT, DEPTH_LIMIT, JSON, check_depth, encode
from graph.wire import LoadRequest
from workflows import logs

KEYS = ("graph", "input", "resume", "redrive", "language")
INTERNAL = {
    "continued": "a run hands to itself",
    "compiled": "a parent run sends",
    "apart": "the run of a map's items sends",
}
PASSED = ("compiled", "value", "resume", "continued", "apart")
"""What runs give one another."""
SNAPSHOT_LEVELS = 10
"""Levels of a snapshot around the values in it."""
EXAMPLE = """{"graph": "examples/licenses/graph.yaml", "input": {...}}"""


NOTHING = RawValue(Payload())
"""What a handler gets when nothing was sent. Raw values are read by hand: whatever comes, no task may fail."""


def read_json(raw: RawValue, depth: int = DEPTH_LIMIT) -> JSON:
    """The JSON that was sent; None for nothing. ``depth`` is how many levels it may have.

    Raises:
        ValueError: it isn't JSON, or nests too deeply.
    """
    if raw is NOTHING:
        return None
    try:
        value: JSON = workflow.payload_converter().from_payload(raw.payload)
    except Exception as error:  # whatever a converter raises, the sender's bytes are at fault
        raise ValueError(f"it isn't JSON: {error}") from error
    try:
        encode(value)
        check_depth(value, depth)
    except Failure as failure:
        raise ValueError(failure.message) from failure
    return value


def read_request(raw: RawValue) -> LoadRequest:
    """The request in a run's start input.

    Raises:
        ApplicationError: it is missing, too large, not JSON, or not of the form that RunGraph takes.
    """
    if raw is NOTHING:
        raise refusal("bad_request", f"RunGraph needs an input such as {EXAMPLE}")
    size = len(raw.payload.data)
    if size > ANSWER_LIMIT:
        raise refusal(
            "too_large",
            f"the run's input is {size} bytes; at most {ANSWER_LIMIT} fit. Put large data in a file or the store and "
            "pass its path",
        )
    try:
        data = read_json(raw, DEPTH_LIMIT + SNAPSHOT_LEVELS)
        if isinstance(data, dict):
            check_depth([data.get("graph"), data.get("input")], DEPTH_LIMIT + 1)
    except (ValueError, Failure) as error:
        raise refusal("bad_request", f"the run's input can't be read: {error}") from None
    if not isinstance(data, dict):
        raise refusal("bad_request", f"the run's input must be an object such as {EXAMPLE}, not {json_type(data)}")
    for key, sender in INTERNAL.items():
        if key in data:
            return read_internal(data, key, sender)
    for key in data:
        if key not in KEYS:
            raise refusal("bad_request", f"unknown key `{key}` in the run's input; {suggest(key, KEYS)}")
    graph, resume, redrive = data.get("graph"), data.get("resume"), data.get("redrive", False)
    if "graph" not in data and resume is None:
        raise refusal("bad_request", f"the run's input lacks `graph`; such as {EXAMPLE}")
    if "graph" in data and not isinstance(graph, (str, dict)):
        raise refusal("bad_request", f"`graph` must be a name, a path or a graph object, not {json_type(graph)}")
    if resume is not None and not isinstance(resume, dict):
        forms = '{"run": ID}, a snapshot, or a reference to one in the store'
        raise refusal("bad_request", f"`resume` must be {forms}, not {json_type(resume)}")
    if not isinstance(redrive, bool):
        raise refusal("bad_request", f"`redrive` must be true or false, not {json_type(redrive)}")
    if redrive and resume is None:
        raise refusal("bad_request", "`redrive` says how to `resume`; give what to resume, too")
    language = data.get("language")
    if language is not None and (isinstance(language, bool) or not isinstance(language, int)):
        raise refusal("bad_request", f"`language` must be a version's number, not {json_type(language)}")
    return LoadRequest(graph=graph, input=data.get("input"), resume=resume, redrive=redrive, language=language)


def read_internal(data: dict[str, Any], key: str, sender: str) -> LoadRequest:
    """What a run gives another, or itself. Raises ApplicationError."""
    with suppress(ValidationError):
        request = LoadRequest.model_validate({name: data[name] for name in PASSED if name in data})
        if getattr(request, key) is not None:
            return request
    raise refusal("bad_request", f"`{key}` is what {sender}; give `graph` instead")


def read_reply(raw: RawValue) -> JSON:
    """What was sent as a reply. Raises OperateError ``bad_request``."""
    try:
        return read_json(raw, DEPTH_LIMIT + 1)
    except ValueError as error:
        raise OperateError("bad_request", f"the reply can't be read: {error}") from None


def refused(error: OperateError) -> ApplicationError:
    """What an update's sender is told."""
    hint = f"; {error.hint}" if error.hint else ""
    return ApplicationError(f"{error.message}{hint}", type=error.code, non_retryable=True)


def refusal(code: str, message: str) -> ApplicationError:
    """A run that ends before it began."""
    logs.failed(code, message)
    envelope = {"status": "failed", "error": {"code": code, "message": message, "node": None, "details": {}}}
    return ApplicationError(message, envelope, type=code, non_retryable=True)


def json_type(value: JSON) -> str:
    """What people call the type of a JSON value, with the beginning of its text."""
    return f"{json.dumps(value, ensure_ascii=False)[:60]}"
