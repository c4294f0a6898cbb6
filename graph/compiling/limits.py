"""A node's limits: the author's within the bounds of the language, or the defaults."""

from __future__ import annotations

from graph import limits as bounds
from graph.compiled import Limits
from graph.compiling.context import Context
from graph.durations import format_duration
from graph.problems import Path
from graph.spec import NodeSpec


def node_limits(context: Context, spec: NodeSpec, path: Path, kind: str | None) -> Limits:
    """The limits of the node at ``path``. A child run and a wait have no timeout of their own but the longest there
    is."""

    def within(key: str, value: int | None, default: int, low: int, high: int, unit: str) -> int:
        if value is None:
            return default
        if not low <= value <= high:
            message = f"`{key}` must be between {_shown(low, unit)} and {_shown(high, unit)}"
            context.place.problem("bad_value", message, (*path, key))
        return value

    most = bounds.MAX_WAIT_MS if kind == "wait" else bounds.MAX_TIMEOUT_MS
    standard = most if kind in ("graph", "wait") else bounds.DEFAULT_TIMEOUT_MS
    timeout = within("timeout", spec.timeout, standard, bounds.MIN_TIMEOUT_MS, most, "ms")
    if spec.deadline is not None and spec.deadline < bounds.MIN_TIMEOUT_MS:
        least = format_duration(bounds.MIN_TIMEOUT_MS)
        context.place.problem("bad_value", f"`deadline` must be at least {least}", (*path, "deadline"))
    return Limits(
        timeout=timeout,
        deadline=spec.deadline,
        fuel=within("fuel", spec.fuel, bounds.DEFAULT_FUEL, bounds.MIN_FUEL, bounds.MAX_FUEL, ""),
        memory=within("memory", spec.memory, bounds.DEFAULT_MEMORY, bounds.MIN_MEMORY, bounds.MAX_MEMORY, "B"),
        output_bytes=within(
            "output_bytes", spec.output_bytes, bounds.DEFAULT_OUTPUT_BYTES, 1, bounds.MAX_OUTPUT_BYTES, "B"
        ),
    )


def _shown(value: int, unit: str) -> str:
    if unit == "ms":
        return format_duration(value)
    return f"{value // bounds.MIB}MiB" if unit == "B" and value >= bounds.MIB else f"{value}{unit}"
