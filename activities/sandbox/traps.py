"""Turns a guest's trap into a failure of the right class.

A trap is what remains when the prelude's refusals were got around or memory, stack or fuel ran out in the middle of
C code. wasmtime's text holds the backtrace, and in it the name of the stub that was met, so even these say what
was denied.
"""

from __future__ import annotations

import re

from graph.errors import Failure

_STUBS: tuple[tuple[str, str], ...] = (
    (r"filesystem_|\bdescriptor_|preopens_", "reading files needs `grants: {read: [...]}`"),
    (r"(wall|monotonic)_clock_|poll_", "there is no clock, and no grant for one: bind `${run.started}` in `input`"),
    (r"random_get|insecure_", "there is no randomness, and no grant for it: use random.Random(seed)"),
    (r"tcp_|udp_|ip_name_lookup|instance_network|sockets_", "the network needs `grants: {fetch: [...]}`"),
    (r"environment_get", "environment variables need `grants: {env: [...]}`"),
)
"""libc's WASI imports (as they appear in a backtrace) and the denial that each means."""

_FRAME = re.compile(r"^\s*\d+:.*?-?\s*(\S+?)!(.+)$", re.MULTILINE)
_CAUSE = re.compile(r"wasm trap: (.+)")


def classify(text: str) -> Failure:
    """The failure for a trap whose wasmtime message is ``text``; fuel, time and cancellation are known already."""
    names = [name for module, name in _FRAME.findall(text) if "<wasm function" not in name]
    cause = _CAUSE.search(text)
    reason = cause[1].strip() if cause else text.strip().splitlines()[-1].strip()
    where = names[0] if names else None
    for name in names[:4]:
        for pattern, denial in _STUBS:
            if re.match(pattern, name):
                return Failure("denied", f"the script was stopped: {denial}", details={"trap": name})
    details = {"trap": reason} | ({"at": where} if where else {})
    if reason.startswith("realloc return") or any(
        "alloc_error" in name or "cabi_realloc" in name or "panic_on_null" in name for name in names
    ):
        return Failure("out_of_memory", "the sandbox needed more than its `memory` limit", details=details)
    if "call stack exhausted" in reason:
        message = "the sandbox's stack is exhausted: too deep a recursion, or too deeply nested data"
        return Failure("wasm_trap", message, details=details)
    if where in ("exit_exit", "abort", "_Exit"):
        return Failure("wasm_trap", "the script ended its interpreter; use fail(code, message)", details=details)
    if where is not None and where.startswith(("stdout_", "stderr_", "stdin_")):
        return Failure("wasm_trap", "the interpreter gave up, or the script wrote past print()", details=details)
    return Failure("wasm_trap", f"the sandbox trapped: {reason}", details=details)
