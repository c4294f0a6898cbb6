"""Ordinary Temporal activities, as a user would have them, that test graphs call by name."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from functions_for_tests import note


@activity.defn
async def greet(name: str) -> str:
    """Greets."""
    return f"hello {name}"


@activity.defn(name="add")
def add(left: int, right: int) -> int:
    """Adds, in a thread."""
    return left + right


@activity.defn
async def fail_with(run: str, code: str, times: int) -> str:
    """Fails with ``code`` the first ``times`` calls of a run."""
    if note("fail_with", run=run, key="") < times:
        raise ApplicationError("told to fail", {"more": 1}, type=code)
    return "done"


@activity.defn
async def step(value: int) -> int:
    """One more."""
    return value + 1


@activity.defn
def sleep_in_thread(seconds: float) -> str:
    """Sleeps in a thread, without heartbeats of its own."""
    time.sleep(seconds)
    return "slept"


@activity.defn
async def large_result(size: int) -> Any:
    """A text of ``size`` characters."""
    return "x" * size


@activity.defn
async def odd_result(kind: str) -> Any:
    """Something that isn't JSON, or hardly."""
    nested: Any = []
    for _ in range(150):
        nested = [nested]
    return {"bytes": b"\xff\xfe", "nan": float("nan"), "deep": nested, "nothing": None}[kind]


@activity.defn
async def odd_failure(kind: str) -> Any:
    """Fails in a way that is hard to keep."""
    raise {
        "bytes": ApplicationError("told to fail", b"\xff", type="BYTES"),
        "huge details": ApplicationError("told to fail", "x" * 1_500_000, type="DETAILS"),
        "huge message": ApplicationError("m" * 1_500_000, type="MESSAGE"),
        "huge code": ApplicationError("told to fail", type="C" * 100_000),
        "worker_shutdown": ApplicationError("told to fail", type="worker_shutdown"),
    }[kind]


@activity.defn
async def take_nothing() -> str:
    """Has no parameters."""
    return "nothing taken"


@activity.defn
async def refuse(run: str) -> str:
    """Always fails, and tells Temporal not to try again."""
    note("refuse", run=run, key="")
    raise ApplicationError("never", type="NEVER", non_retryable=True)


@activity.defn
async def bytes_result() -> bytes:
    """What JSON can't hold."""
    return b"\x00\xff"


@activity.defn
async def sleep_for(run: str, seconds: float) -> str:
    """Notes how it ended."""
    note("sleep_for", run=run, key="", event="start")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("sleep_for", run=run, key="", event="cancelled")
        raise
    return "slept"


@activity.defn
def divide(left: int, right: int) -> float:
    """Divides, in a thread."""
    return left / right


@activity.defn
async def sleep_once(run: str, seconds: float) -> int:
    """Takes ``seconds`` at the first call, none later; gives back the number of calls before."""
    calls = note("sleep_once", run=run, key="")
    if calls == 0:
        await asyncio.sleep(seconds)
    return calls


@activity.defn
async def fail_at_length(size: int) -> str:
    """Fails with a message and details of ``size`` characters each."""
    raise ApplicationError("m" * size, "d" * size, type="LONG")


@activity.defn
def nap_once(run: str, seconds: float) -> int:
    """As `sleep_once`, in a thread."""
    calls = note("nap_once", run=run, key="")
    end = time.monotonic() + (0 if calls else seconds)
    while time.monotonic() < end:
        time.sleep(0.05)
    return calls
