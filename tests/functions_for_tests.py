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
        before = map(json.loads, file)
        same = [line for line in before if all(line.get(k) == what.get(k) for k in ("run", "key"))]
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


def batch_source(run: str, tasks: list[int]) -> list[int]:
    """Notes the call and gives the tasks."""
    note("batch_source", run=run, key="")
    return tasks


def batch(run: str, tasks: list[int]) -> list[int]:
    """Ten times each task, all or nothing, with a cache of its own that outlives a failed call. Task 20 fails once."""
    cache = Path(os.environ["TEST_LOG"], f"batch-{run}")
    cache.mkdir(exist_ok=True)
    late = False
    for task in tasks:
        done = cache / str(task)
        if done.exists():
            continue
        computed = note("batch_task", run=run, key=str(task))
        if task == 20 and computed == 0:
            late = True
        else:
            done.write_text(str(task * 10))
    if late:
        raise ApplicationError("task 20 took too long", {"task": 20}, type="TIMEOUT")
    return [int((cache / str(task)).read_text()) for task in tasks]


def batch_summary(run: str, results: list[int]) -> dict[str, Any]:
    """Notes the call and adds up."""
    note("batch_summary", run=run, key="")
    return {"total": sum(results), "results": results}


async def slow_once(run: str, seconds: float, key: str = "") -> int:
    """Takes ``seconds`` at the first call, none later; gives back the number of calls before."""
    calls = note("slow_once", run=run, key=key)
    if calls == 0:
        await asyncio.sleep(seconds)
    return calls


def slow_failure(run: str, seconds: float, code: str, key: str = "") -> Any:
    """Fails with ``code`` after ``seconds``, in a thread."""
    note("slow_failure", run=run, key=key)
    time.sleep(seconds)
    raise ApplicationError("failed late", type=code)


def rejected_then_big(run: str) -> dict[str, Any]:
    """First a value that the checks reject, which stands in no graph; then the one they want."""
    if note("rejected_then_big", run=run, key="") == 0:
        return {"from": f"rejected-value-{run}"}
    return {"from": "big"}


def deep(levels: int) -> Any:
    """A list in a list, and so on."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def fail_as(code: str, message: str = "told to fail", details: Any = None) -> Any:
    """Fails with ``code``."""
    raise ApplicationError(message, *([] if details is None else [details]), type=code)


async def gate(run: str) -> str:
    """Waits until somebody makes the file ``open-<run>`` beside the notes."""
    note("gate", run=run, key="")
    while not Path(os.environ["TEST_LOG"], f"open-{run}").exists():
        await asyncio.sleep(0.02)
    return "open"


def odd_error(kind: str) -> BaseException:
    """What no function should raise."""
    return {
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
        "stop": StopIteration(1),
        "generator": GeneratorExit(),
        "surrogate": ValueError("half \ud800"),
        "huge": ValueError("x" * 3_000_000),
        "huge code": ApplicationError("told to fail", type="C" * 2_500_000),
        "bytes": ApplicationError("told to fail", b"\xff", type="BYTES"),
        "huge details": ApplicationError("told to fail", "x" * 2_500_000, type="DETAILS"),
        "worker_shutdown": ApplicationError("told to fail", type="worker_shutdown"),
    }[kind]


def raise_odd(kind: str) -> Any:
    """Raises it in a thread."""
    raise odd_error(kind)


async def raise_odd_async(kind: str) -> Any:
    """Raises it on the event loop."""
    raise odd_error(kind)


def badly_typed(value: Missing) -> Any:  # type: ignore[name-defined] # noqa: F821
    """Has a type hint that can't be read."""
    return value


largest = max
"""A function without a signature that Python knows."""


def grow(run: str, value: int) -> dict[str, Any]:
    """Its own next input, one larger: for loops."""
    note("grow", run=run, key="", value=value)
    return {"run": run, "value": value + 1}


def keyed(key: str, **rest: Any) -> dict[str, Any]:
    """The big model's answer with the ``key`` of the input."""
    return {"from": "big", "input": key}


def step(run: str, key: str, fails: int = 0, sources: list[Any] | None = None) -> dict[str, Any]:
    """Notes start and end; the first ``fails`` calls fail. Takes a little longer or shorter by its key."""
    calls = note("step_start", run=run, key=key)
    time.sleep(sum(key.encode()) % 5 / 100)
    note("step_end", run=run, key=key)
    if calls < fails:
        raise ApplicationError("told to fail", type="TOLD")
    return {"key": key, "sources": sources}


def texts(count: int, size: int) -> list[str]:
    """So many texts of ``size`` characters."""
    return ["x" * size] * count


def numbers(count: int) -> list[int]:
    """The first ``count`` numbers."""
    return list(range(count))


async def fail_once_called(run: str, name: str, code: str, seconds: float = 0) -> Any:
    """Waits until the function ``name`` noted a call of this run, and ``seconds`` more; then fails with ``code``."""
    path = Path(os.environ["TEST_LOG"], f"{name}.jsonl")
    while not path.exists() or run not in path.read_text():
        await asyncio.sleep(0.05)
    await asyncio.sleep(seconds)
    raise ApplicationError(f"{name} was called", type=code)


def consume(run: str, key: str, parts: list[Any]) -> list[Any]:
    """Empties the list that it is given; the first call fails. Gives back what the list held."""
    calls = note("consume", run=run, key=key, parts=list(parts))
    held, parts[:] = list(parts), []
    if calls == 0:
        raise ApplicationError("told to fail", type="TOLD")
    return held
