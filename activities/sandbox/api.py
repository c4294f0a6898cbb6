"""What a caller of the sandbox passes in and gets back; no wasmtime in sight."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graph.limits import DEFAULT_FUEL, DEFAULT_MEMORY, DEFAULT_OUTPUT_BYTES, DEFAULT_TIMEOUT_MS
from graph.values import JSON

Host: TypeAlias = Callable[[str, str], str]
"""Answers a script's call to the host: ``(name, JSON payload) -> JSON reply``. The one name yet is ``infer``,
with payload ``{"messages" | "prompt", "system", "max_tokens", "temperature", "model", "format"}`` and reply
``{"output": str or JSON}``. A :class:`graph.errors.Failure` raised here goes back into the script, which may catch it;
any other exception (:class:`Cancelled` too) stops the guest and comes out of ``run_script`` as it is. Called on the
thread that runs the script; may block."""


@dataclass(frozen=True)
class SandboxLimits:
    """``fuel`` in wasm instructions, ``memory`` and ``output_bytes`` in bytes, ``timeout`` in seconds of wall time
    (host calls included). See :mod:`graph.limits`."""

    fuel: int = DEFAULT_FUEL
    memory: int = DEFAULT_MEMORY
    timeout: float = DEFAULT_TIMEOUT_MS / 1000
    output_bytes: int = DEFAULT_OUTPUT_BYTES


class Cancelled(Exception):
    """The call was cancelled. Not a Failure: it climbs no ladder and is never recorded against the node."""


class Cancel:
    """Stops a running guest from any thread, within 0.2 s. Set before the start, the guest doesn't start at all."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


@dataclass(frozen=True)
class ScriptResult:
    """What a script returned: as JSON text (compact, UTF-8 encodable) and parsed; fuel used; what it printed."""

    output_json: str
    output: JSON
    fuel: int
    logs: list[str]


@dataclass(frozen=True)
class OutcomeError:
    """Why an expression yielded nothing: ``invalid_input`` if it couldn't be evaluated (a missing key, a type
    error), ``invalid_output`` if its value isn't JSON."""

    failure_class: Literal["invalid_input", "invalid_output"]
    message: str


@dataclass(frozen=True)
class Outcome:
    """One expression's value, or its error; ``value`` counts only where ``error`` is None."""

    value: JSON = None
    error: OutcomeError | None = None
