"""Instances of the guest: how a call enters one, how it calls out, and how it is stopped."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from wasmtime import WasmtimeError, component

from activities.sandbox import engine, traps
from activities.sandbox.api import Cancel, Cancelled, Host, SandboxLimits
from graph.errors import FAILURE_CLASSES, Failure
from graph.limits import MAX_LOG_BYTES, MAX_LOG_LINES
from graph.values import CODE_LIMIT, trim

_current = threading.local()
_START_FUEL = 1_000_000_000
"""Enough to start an instance; not counted against a script."""
_LOG_IN_DETAILS = 20


class Call:
    """One call into a guest: its limits, what the guest printed, and why it was stopped."""

    def __init__(self, limits: SandboxLimits, host: Host | None = None, cancel: Cancel | None = None) -> None:
        self.limits = limits
        self.host = host
        self.cancel = cancel
        self.logs: list[str] = []
        self.fuel = 0
        self.error: BaseException | None = None
        """What the host raised that isn't the script's to catch."""
        self._deadline = time.monotonic() + limits.timeout
        self._stopped: Exception | None = None

    def must_stop(self) -> bool:
        """See :class:`engine.Running`."""
        if self.cancel is not None and self.cancel.cancelled:
            self._stopped = Cancelled("the attempt was cancelled")
        elif time.monotonic() >= self._deadline:
            message = f"the attempt took longer than its `timeout` of {self.limits.timeout:g} s"
            self._stopped = Failure("timeout", message, details={"limit": self.limits.timeout})
        return self._stopped is not None

    def reason(self, trap: WasmtimeError, fuel_left: int) -> BaseException:
        """What a trap of this call means."""
        if self.error is not None:
            return self.error
        if self._stopped is not None:
            return self._stopped
        if fuel_left == 0:
            message = f"the attempt used up its `fuel` of {self.limits.fuel}"
            return Failure("out_of_fuel", message, details={"limit": self.limits.fuel})
        return traps.classify(str(trap))

    def log(self, line: str) -> None:
        if len(self.logs) < MAX_LOG_LINES:  # the guest's own bound; a script may have got around it
            self.logs.append(line[:MAX_LOG_BYTES])

    def answer(self, name: str, payload: str) -> tuple[str, str]:
        """Answer the guest's call to the host: ``("ok", reply)`` or ``("err", failure)``, both JSON.

        A script that reaches past `infer` can send anything: what isn't a call of it never gets to the host.
        """
        try:
            self._check(name, payload)
            if self.host is None:
                raise Failure("denied", f"{name}(): model calls need `grants: {{models: [...]}}`")
            return "ok", self.host(name, payload)
        except Failure as failure:
            return "err", failure_json(failure)

    def _check(self, name: str, payload: str) -> None:
        if len(payload) > self.limits.output_bytes:
            message = f"{name}() with {len(payload)} characters, at most {self.limits.output_bytes} (`output_bytes`)"
            raise Failure("too_large", message)
        try:
            known = name == "infer" and isinstance(json.loads(payload), dict)
        except (ValueError, RecursionError):
            known = False
        if not known:
            raise Failure("unsupported", "the host answers infer(...) alone")


class Guest:
    """One instance. Good for many calls until one of them traps.

    Raises:
        Failure: class ``out_of_memory`` if ``memory`` (bytes) is too little even to start.
    """

    def __init__(self, linker: component.Linker, code: component.Component, memory: int) -> None:
        self.memory = memory
        self.calls = 0
        self.store = engine.new_store(memory)
        self.store.set_fuel(_START_FUEL)
        try:
            self.instance = linker.instantiate(self.store, code)
        except WasmtimeError as error:
            self.close()
            raise Failure("out_of_memory", f"{memory} bytes of `memory` are too few to start a script") from error

    def call(self, function: str, call: Call, *arguments: Any) -> str:
        """Call an export that yields JSON text, within the call's limits.

        Raises:
            Failure: what the guest reported, or its trap; after a trap the instance is dead.
            Cancelled: the call was cancelled.
        """
        export = self.instance.get_func(self.store, function)
        if export is None:
            raise RuntimeError(f"the sandbox component has no export {function!r}")
        self.calls += 1
        outer = getattr(_current, "call", None)
        _current.call = call
        self.store.set_fuel(call.limits.fuel)
        try:
            with engine.CLOCK.watching(call):
                self.store.set_epoch_deadline(1)
                result = export(self.store, *arguments)
        except WasmtimeError as trap:
            left = self.store.get_fuel()
            call.fuel = call.limits.fuel - left
            reason = call.reason(trap, left)
            self.close()
            raise with_log(reason, call) from None
        finally:
            _current.call = outer
        call.fuel = call.limits.fuel - self.store.get_fuel()
        if isinstance(result, str):
            return result
        if result.tag == "ok":
            return str(result.payload)
        raise with_log(failure_from(result.payload), call)

    @property
    def alive(self) -> bool:
        return self.memory > 0

    def close(self) -> None:
        """Give the instance's memory back now, not when the collector comes by."""
        self.memory = 0
        self.store.close()


def new_linker() -> component.Linker:
    """The guest's two imports. They find their call by the thread, which never changes during one."""
    linker = component.Linker(engine.engine())
    with linker.root() as root:
        root.add_func("call", _call)
        root.add_func("log", _log)
    return linker


def _call(_store: object, name: str, payload: str) -> component.Variant:
    call: Call = _current.call
    try:
        tag, text = call.answer(name, payload)
    except BaseException as error:
        # Kept aside: wasmtime-py hands exceptions over in a variable that all threads share.
        call.error = error
        raise WasmtimeError("the host raised") from None
    finally:
        _current.call = call  # the host may have run another guest meanwhile
    return component.Variant(tag, text)


def _log(_store: object, line: str) -> None:
    call: Call = _current.call
    call.log(line)


def failure_json(failure: Failure) -> str:
    data = {
        "class": failure.failure_class,
        "code": failure.code,
        "message": failure.message,
        "details": failure.details,
    }
    return json.dumps(data)


def failure_from(text: str) -> Failure:
    """The failure in a guest's report. A script may have forged it: nothing in it is taken for granted."""
    try:
        data = json.loads(text)
        failure_class, message = data["class"], str(data["message"])
        if failure_class not in FAILURE_CLASSES or not isinstance(data["details"], dict):
            raise ValueError(failure_class)
        return Failure(failure_class, message, code=trim(str(data["code"]), CODE_LIMIT), details=data["details"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return Failure("script_error", "the script reported a failure that can't be read")


def with_log(error: BaseException, call: Call) -> BaseException:
    """A failure with the fuel that it took, and in its details the last lines that the script printed."""
    if isinstance(error, Failure):
        error.fuel = call.fuel
    if isinstance(error, Failure) and call.logs:
        error.details["log"] = [line[:200] for line in call.logs[-_LOG_IN_DETAILS:]]
    return error
