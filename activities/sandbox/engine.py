"""The one wasmtime engine of a process: its configuration, compiled components, and the clock that can stop guests.

A guest is stopped by *epochs*: a thread raises the engine's epoch every 20 ms while guests run, and at each step
the running guest's own callback decides whether it goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from functools import cache as once
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from wasmtime import Config, Engine, Store, WasmtimeError, component

# wasmtime-py wraps no epoch callback yet; the C functions below are its generated bindings.
from wasmtime import _ffi as ffi

from activities.sandbox import cache
from graph.errors import FerrataError

WASM_STACK = 1024 * 1024
"""Bytes of stack a guest may use: room for Python's own recursion limit, well below the 8 MiB of a thread."""
TICK = 0.02
"""Seconds between looks at a running guest's deadline and cancellation."""
SUFFIX = ".cwasm"
CONFIGURATION = f"fuel epoch nan stack={WASM_STACK}"
"""Part of the cache key; changes with :func:`engine`."""

log = logging.getLogger("sandbox")


@once
def engine() -> Engine:
    """The process's engine. A forked child must not use it: start processes by spawning."""
    config = Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.cranelift_nan_canonicalization = True  # the same bits of NaN on every processor
    config.max_wasm_stack = WASM_STACK
    made = Engine(config)
    atexit.register(made.close)  # its own finalizer comes too late at the interpreter's exit
    return made


def load_component(path: Path, folder: Path) -> component.Component:
    """Compiled code of the component at ``path``: from the cache in ``folder``, or compiled (in about ten seconds)
    and kept there. One process compiles, others wait for it.

    Raises:
        FerrataError: code ``bad_component`` if it can't be read or isn't a component.
    """
    cache.open_cache(folder)
    try:
        wasm = path.read_bytes()
    except OSError as error:
        raise FerrataError("bad_component", f"the sandbox component {path} can't be read: {error.strerror}") from error
    made_from = f"{hashlib.sha256(wasm).hexdigest()} {version('wasmtime')} {CONFIGURATION}"
    key = "code-" + hashlib.sha256(made_from.encode()).hexdigest()[:32]
    if (loaded := _load(folder, key)) is not None:
        return loaded
    with cache.lock(folder):
        if (loaded := _load(folder, key)) is not None:
            return loaded
        log.info("compiling the script sandbox for this machine (about 10 s, once) ...")
        try:
            compiled = component.Component(engine(), wasm)
        except WasmtimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise FerrataError("bad_component", f"{path} isn't a wasm component: {reason}") from error
        cache.store(folder, key, SUFFIX, compiled.serialize())
        return compiled


def _load(folder: Path, key: str) -> component.Component | None:
    """The compiled code in the cache, if it is intact and this processor can run it."""
    found = cache.find(folder, key, SUFFIX)
    if found is None:
        return None
    try:
        return component.Component.deserialize_file(engine(), str(found))
    except WasmtimeError:  # made for another processor: compile again
        found.unlink(missing_ok=True)
        return None


class Running(Protocol):
    """A call that the clock looks at."""

    def must_stop(self) -> bool:
        """Whether the guest must stop now. Asked on the guest's own thread; must not raise."""


_current = threading.local()


_EpochCallback = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(ffi.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ffi.wasmtime_update_deadline_kind_t),
)


def _at_epoch(_context: Any, _data: Any, delta: Any, kind: Any) -> int:
    """Called by wasmtime inside the guest when its epoch has passed: an error's address stops it, 0 lets it go on."""
    call: Running | None = getattr(_current, "call", None)
    if call is not None and call.must_stop():
        return ctypes.cast(WasmtimeError("stopped")._consume(), ctypes.c_void_p).value or 0
    delta[0] = 1
    kind[0] = 0  # WASMTIME_UPDATE_DEADLINE_CONTINUE
    return 0


_on_epoch = _EpochCallback(_at_epoch)
_no_finalizer = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))


def new_store(memory: int) -> Store:
    """A store whose guest may have ``memory`` bytes and is asked every tick whether to stop."""
    store = Store(engine())
    store.set_limits(memory_size=memory)
    ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), _on_epoch, None, _no_finalizer)
    store.set_epoch_deadline(1)
    return store


class Clock:
    """Raises the engine's epoch while at least one guest runs; idle otherwise."""

    def __init__(self) -> None:
        self._running = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watching(self, call: Running) -> Iterator[None]:
        """Let ``call`` be asked every tick, on this thread, whether to stop."""
        outer = getattr(_current, "call", None)
        _current.call = call
        with self._wake:
            self._running += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="sandbox-clock", daemon=True)
                self._thread.start()
            self._wake.notify()
        try:
            yield
        finally:
            _current.call = outer
            with self._wake:
                self._running -= 1

    def _tick(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._running > 0)
            time.sleep(TICK)
            engine().increment_epoch()


CLOCK = Clock()
