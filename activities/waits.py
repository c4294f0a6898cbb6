"""What a `wait` node waits for, bound to times; and which checks a reply can pass before its node runs."""

from __future__ import annotations

from typing import Any

from activities.evaluate import Environment
from graph.compiled import CompiledNode, SchemaCheck, Wait
from graph.durations import format_duration, parse_duration
from graph.errors import Failure
from graph.limits import MAX_WAIT_MS
from graph.spec_errors import json_type
from graph.times import EXAMPLE, parse_time
from graph.values import digest, encode
from graph.wire import Bound


async def bind_wait(wait: Wait, env: Environment) -> Bound:
    """How long a node waits, or until when; nothing of either for a reply. Raises Failure ``invalid_input``."""
    if wait.what == "reply":
        return Bound()
    time = await env.bind(wait.time)
    if wait.what == "for":
        return Bound(duration=duration(time), input=digest(encode(time)))
    return Bound(until=moment(time), input=digest(encode(time)))


def duration(given: Any) -> int:
    """The milliseconds of a bound duration."""
    try:
        found = parse_duration(given)
    except ValueError as error:
        raise Failure("invalid_input", f"`for`: {error}") from error
    if found > MAX_WAIT_MS:
        raise Failure("invalid_input", f"`for` is {format_duration(found)}; at most {format_duration(MAX_WAIT_MS)}")
    return found


def moment(given: Any) -> int:
    """The milliseconds since the epoch of a bound RFC 3339 time. One that has passed is no mistake."""
    if not isinstance(given, str):
        raise Failure("invalid_input", f"`until` must be a time such as {EXAMPLE}, not {json_type(given)}")
    try:
        return parse_time(given)
    except ValueError as error:
        raise Failure("invalid_input", f"`until`: {error}") from error


def only_schemas(node: CompiledNode) -> CompiledNode:
    """The node with those of its checks that need no other node's value."""
    return node.model_copy(update={"checks": [check for check in node.checks if isinstance(check, SchemaCheck)]})
