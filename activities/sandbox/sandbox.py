"""The sandbox as activities use it: run a script, evaluate expressions, check a script's syntax."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from wasmtime import component

from activities.sandbox import cache
from activities.sandbox.api import Cancel, Cancelled, Host, Outcome, OutcomeError, SandboxLimits, ScriptResult
from activities.sandbox.builder import ensure_component
from activities.sandbox.engine import load_component
from activities.sandbox.guests import Call, Guest, new_linker
from graph.errors import Failure, Problem
from graph.values import JSON

_WARM_CALLS = 1000
_WARM_BYTES = 1024 * 1024
"""A warm instance is replaced after so many calls, or one with a larger scope: wasm memory never shrinks."""
_WARM_INSTANCES = 4
_EXHAUSTING = ("wasm_trap", "out_of_fuel", "out_of_memory", "timeout")
"""Failures after which an instance is dead, or has no room left."""


class Sandbox:
    """Runs guests. One per process is enough; every method blocks and may be called from several threads at once.

    Args:
        component_file: the guest's component; by default the one in the cache, built first if need be (10 s).
        cache_folder: where compiled code lies; by default ``.ferrata/sandbox``, see ``FERRATA_CACHE``.

    Raises:
        FerrataError: the component can't be built or loaded, or the cache isn't private.
    """

    def __init__(self, component_file: Path | None = None, cache_folder: Path | None = None) -> None:
        folder = cache_folder or cache.default_cache()
        self.component = component_file or ensure_component(folder)
        self._code = load_component(self.component, folder)
        self._linker = new_linker()
        self._warm: list[Guest] = []
        self._lock = threading.Lock()
        # At the interpreter's exit wasmtime's own finalizers come too late to work.
        weakref.finalize(self, _release, self._warm, self._linker, self._code)

    def run_script(
        self,
        source: str,
        filename: str,
        first_line: int,
        input_json: bytes | str,
        limits: SandboxLimits,
        *,
        feedback_json: bytes | str = "null",
        host: Host | None = None,
        cancel: Cancel | None = None,
    ) -> ScriptResult:
        """Call ``run(input)`` of a script in an instance of its own.

        Args:
            source: the script; errors name it ``filename``, and count lines from ``first_line``.
            input_json: its input as JSON text.
            feedback_json: what was wrong with the attempt before, for a script with a parameter ``feedback``.
            host: answers `infer`; without one it is denied.

        Raises:
            Failure: any class but those of other kinds; details say where.
            Cancelled: ``cancel`` was set, before or during the call.
        """
        script = _clean(source), filename, first_line
        call = Call(limits, host, cancel)
        _start(cancel)
        guest = self._fresh(limits.memory)
        try:
            return _run(guest, call, script, as_text(input_json), as_text(feedback_json))
        finally:
            guest.close()

    def shared(self) -> SharedInstance:
        """An instance for scripts that may share one, by one thread at a time. Close it in the end."""
        return SharedInstance(self._fresh)

    def script(self, source: str, filename: str, first_line: int) -> ReusedScript:
        """A script to be called many times, by one thread at a time. Close it in the end."""
        return ReusedScript(self._fresh, (_clean(source), filename, first_line))

    def evaluate_many(
        self,
        expressions: Sequence[str],
        shared_json: bytes | str,
        scopes_json: bytes | str,
        limits: SandboxLimits,
        *,
        cancel: Cancel | None = None,
    ) -> tuple[list[Sequence[JSON] | None], int]:
        """Evaluate the same expressions over each of a JSON list of scopes, which the object ``shared_json`` completes:
        the values for each, or None where `evaluate` has something to say; and the fuel that all took.

        Raises:
            Failure: a limit was met, by all together; or the guest trapped.
            Cancelled: ``cancel`` was set.
        """
        shared, scopes = as_text(shared_json), as_text(scopes_json)
        call = Call(limits, None, cancel)
        _start(cancel)
        guest = self._take(limits.memory)
        try:
            answer = guest.call(
                "evaluate-many", call, json.dumps(list(expressions)), shared, scopes, limits.output_bytes
            )
        except BaseException:
            guest.close()
            raise
        self._put_back(guest, len(shared) + len(scopes) + len(answer))
        return [found or None for found in json.loads(answer)], call.fuel

    def evaluate(
        self,
        expressions: Sequence[str],
        scope_json: bytes | str,
        limits: SandboxLimits,
        *,
        cancel: Cancel | None = None,
    ) -> list[Outcome]:
        """Evaluate expressions over one scope (a JSON object of names and values), in order.

        Limits are for all of them together. Instances are reused: nothing an expression can do outlives its call.

        Raises:
            Failure: a limit was met (out_of_fuel, out_of_memory, timeout, too_large), or the guest trapped.
            Cancelled: ``cancel`` was set.
        """
        text = as_text(scope_json)
        call = Call(limits, None, cancel)
        _start(cancel)
        guest = self._take(limits.memory)
        try:
            answer = guest.call("evaluate", call, json.dumps(list(expressions)), text, limits.output_bytes)
        except BaseException:
            guest.close()
            raise
        self._put_back(guest, len(text) + len(answer))
        return [
            Outcome(value=value) if kind == "ok" else Outcome(error=OutcomeError(kind, value))
            for kind, value in json.loads(answer)
        ]

    def check_syntax(self, source: str, filename: str, first_line: int = 1) -> list[Problem]:
        """What is wrong with a script before it runs: not Python (3.14), no ``run(input)``, missing imports.

        Nothing is executed. Problems of another code than ``bad_script`` are warnings.
        """
        limits = SandboxLimits()
        guest = self._take(limits.memory)
        try:
            answer = guest.call("check", Call(limits), _clean(source), filename, first_line)
        except Failure as failure:  # nested too deeply for the parser's stack
            return [Problem(code="bad_script", message=failure.message, file=filename, line=first_line)]
        self._put_back(guest, len(source))
        return [_problem(found, filename) for found in json.loads(answer)]

    def modules(self) -> list[str]:
        """The standard modules that scripts may import."""
        guest = self._take(SandboxLimits().memory)
        answer = guest.call("modules", Call(SandboxLimits()))
        self._put_back(guest, 0)
        names: list[str] = json.loads(answer)
        return names

    def _take(self, memory: int) -> Guest:
        """An idle instance with this memory limit, or a fresh one."""
        with self._lock:
            for guest in self._warm:
                if guest.memory == memory:
                    self._warm.remove(guest)
                    return guest
        return self._fresh(memory)

    def _fresh(self, memory: int) -> Guest:
        return Guest(self._linker, self._code, memory)

    def _put_back(self, guest: Guest, size: int) -> None:
        if guest.calls < _WARM_CALLS and size <= _WARM_BYTES:
            with self._lock:
                self._warm.append(guest)
                spare = self._warm.pop(0) if len(self._warm) > _WARM_INSTANCES else None
            guest = spare or guest
            if spare is None:
                return
        guest.close()


class SharedInstance:
    """An instance that serves scripts again and again, each time with a fresh namespace. One that trapped, ran out of
    something or has served long is replaced."""

    def __init__(self, fresh: Callable[[int], Guest]) -> None:
        self._fresh = fresh
        self._guest: Guest | None = None

    def run_script(
        self,
        source: str,
        filename: str,
        first_line: int,
        input_json: bytes | str,
        limits: SandboxLimits,
        *,
        feedback_json: bytes | str = "null",
        cancel: Cancel | None = None,
    ) -> ScriptResult:
        """Call ``run(input)`` of a script; arguments and errors as `Sandbox.run_script`."""
        call = Call(limits, None, cancel)
        script = _clean(source), filename, first_line
        with self._instance(call) as guest:
            return _run(guest, call, script, as_text(input_json), as_text(feedback_json))

    @contextmanager
    def _instance(self, call: Call) -> Iterator[Guest]:
        _start(call.cancel)
        guest = self._guest
        if guest is None or guest.memory != call.limits.memory or guest.calls >= _WARM_CALLS:
            self.close()
            guest = self._guest = self._fresh(call.limits.memory)
        try:
            yield guest
        except Failure as failure:
            if failure.failure_class in _EXHAUSTING:
                self.close()
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the instance's memory back."""
        if self._guest is not None and self._guest.alive:
            self._guest.close()
        self._guest = None


class ReusedScript(SharedInstance):
    """A script and an instance that serves it alone: for the items of a map."""

    def __init__(self, fresh: Callable[[int], Guest], script: tuple[str, str, int]) -> None:
        super().__init__(fresh)
        self._script = script

    def run_many(
        self, inputs_json: bytes | str, limits: SandboxLimits, *, cancel: Cancel | None = None
    ) -> tuple[list[tuple[JSON] | None], int]:
        """Call ``run`` for each of a JSON list of inputs: the output of each, or None where `run` has something to say;
        and the fuel that all took.

        Raises:
            Failure: a limit was met, by all together; or the guest trapped.
            Cancelled: ``cancel`` was set.
        """
        call = Call(limits, None, cancel)
        with self._instance(call) as guest:
            answer = guest.call("run-many", call, *self._script, as_text(inputs_json), limits.output_bytes)
        try:
            found = json.loads(answer, parse_constant=_refuse_constant)
            return [(each[0],) if each else None for each in found], call.fuel
        except (ValueError, TypeError, LookupError, RecursionError) as error:  # the script meddled with the guest
            raise Failure("invalid_output", f"the outputs aren't JSON: {error}") from error


def _run(guest: Guest, call: Call, script: tuple[str, str, int], input: str, feedback: str) -> ScriptResult:
    """One call of a script. Raises as `Sandbox.run_script`."""
    output = guest.call("run", call, *script, input, feedback, call.limits.output_bytes)
    try:
        value = json.loads(output, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # only a script that meddled with the guest gets here
        raise Failure("invalid_output", f"the output isn't JSON: {error}") from error
    return ScriptResult(output, value, call.fuel, call.logs)


def _release(warm: list[Guest], linker: component.Linker, code: component.Component) -> None:
    for guest in warm:
        guest.close()
    linker.close()
    code.close()


def as_text(json_text: bytes | str) -> str:
    """JSON text as a string."""
    return json_text if isinstance(json_text, str) else json_text.decode()


def _problem(found: dict[str, Any], filename: str) -> Problem:
    imports = found["message"].startswith(("import ", "this fails if it is reached: import "))
    hint = "docs/scripts.md lists the modules there are" if imports else None
    return Problem(**{"code": "bad_script", "file": filename, "hint": hint, **found})


def _start(cancel: Cancel | None) -> None:
    if cancel is not None and cancel.cancelled:
        raise Cancelled("the attempt was cancelled before it started")


def _clean(source: str) -> str:
    """Text that can cross into the guest; a lone surrogate becomes a question mark."""
    return source.encode("utf-8", "replace").decode()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} isn't JSON")
