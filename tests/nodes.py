"""Nodes that test graphs are made of: calls of the functions in functions_for_tests, which note what was called."""

from __future__ import annotations

from typing import Any

from graph.values import JSON
from runs import Runs

RUN = "${run.id}"


def call(function: str, /, **input: JSON) -> dict[str, Any]:
    """A function node that notes its run."""
    return {"function": f"functions_for_tests:{function}", "input": {"run": RUN, **input}}


def count(key: str, value: JSON = None, **more: JSON) -> dict[str, Any]:
    """A node that notes its call under ``key`` and gives ``value``."""
    return {**call("count", key=key, value=value), **more}


def failing(code: str = "BAD", key: str = "failing", **more: JSON) -> dict[str, Any]:
    """A node that fails with ``code``."""
    return {**call("script", key=key, replies=[{"fail": code}]), **more}


def slow(seconds: float, key: str = "slow", value: JSON = "slow", **more: JSON) -> dict[str, Any]:
    """A node that takes ``seconds``."""
    return {**call("slow", seconds=seconds, key=key, value=value), **more}


def failing_late(seconds: float, code: str, key: str = "late", **more: JSON) -> dict[str, Any]:
    """A node that fails with ``code`` after ``seconds``."""
    return {**call("slow_failure", seconds=seconds, code=code, key=key), **more}


def failing_once_called(name: str, seconds: float = 0) -> dict[str, Any]:
    """A node that fails with `BAD`, ``seconds`` after the function ``name`` was called."""
    return call("fail_once_called", name=name, code="BAD", seconds=seconds)


def keys(runs: Runs, run: str, name: str = "count") -> list[str]:
    """The keys of a run's calls, in order."""
    return [entry["key"] for entry in runs.calls(name, run)]


async def executions(runs: Runs, run: str, node: str) -> list[dict[str, Any]]:
    """A node's executions as the run tells."""
    state = await runs.query(run, "state")
    found: list[dict[str, Any]] = state["nodes"][node]["executions"]
    return found
