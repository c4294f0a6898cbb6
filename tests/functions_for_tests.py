"""Functions that test graphs call. Each notes its calls in a file, so that calls are counted where they happen."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from temporalio.exceptions import ApplicationError


def note(name: str, **what: Any) -> int:
    """Append one line to the file ``name``; returns how many lines with the same ``run`` and ``key`` came before."""
    path = Path(os.environ["TEST_LOG"], f"{name}.jsonl")
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        same = [line for line in file if {k: json.loads(line).get(k) for k in ("run", "key")} == {k: what.get(k) for k in ("run", "key")}]
        file.write(json.dumps({"time": time.time(), "pid": os.getpid(), **what}) + "\n")
    return len(same)


def echo(value: Any = None) -> Any:
    """Gives back its argument."""
    return value


def count(run: str, key: str = "", value: Any = None) -> Any:
    """Notes the call under ``count`` and gives back ``value``."""
    note("count", run=run, key=key)
    return value


def script(run: str, replies: list[Any], key: str = "") -> Any:
    """The first reply at the first call, and so on; the last repeats. ``{"fail": CODE}`` fails with that code."""
    number = note("script", run=run, key=key)
    reply = replies[min(number, len(replies) - 1)]
    if isinstance(reply, dict) and "fail" in reply:
        raise ApplicationError(reply.get("message", "told to fail"), type=reply["fail"])
    return reply


async def slow(run: str, seconds: float, value: Any = None, key: str = "") -> Any:
    """Notes start and end of a call that takes ``seconds``."""
    note("slow", run=run, key=key, event="start")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("slow", run=run, key=key, event="cancelled")
        raise
    note("slow", run=run, key=key, event="end")
    return value


def with_feedback(run: str, feedback: dict[str, Any] | None = None) -> dict[str, Any]:
    """Shows the feedback it was given."""
    note("feedback", run=run, key="", feedback=feedback)
    return {"from": "big" if feedback else "small", "feedback": feedback}


def not_json(kind: str) -> Any:
    """Something that isn't JSON."""
    return {"set": {1, 2}, "bytes": b"x", "nan": float("nan"), "object": object(), "surrogate": "\ud800"}[kind]


def typed(name: str, size: int = 1) -> dict[str, Any]:
    """Has type hints."""
    return {"name": name, "size": size}


def crash(message: str = "boom") -> Any:
    """Raises an ordinary exception."""
    raise KeyError(message)


def large(size: int) -> str:
    """A text of ``size`` characters."""
    return "x" * size
