"""Scripts and expressions in a sandbox: CPython compiled to wasm, with no way out but the host's two functions.

``guest/`` is what runs inside; ``builder`` makes it one component; ``engine`` and ``guests`` run it within limits;
:class:`Sandbox` is the interface. Security rests on the component importing nothing, not on what the guest refuses.
"""

from activities.sandbox.api import Cancel, Cancelled, Host, Outcome, OutcomeError, SandboxLimits, ScriptResult
from activities.sandbox.sandbox import Sandbox, SharedInstance

__all__ = [
    "Cancel",
    "Cancelled",
    "Host",
    "Outcome",
    "OutcomeError",
    "Sandbox",
    "SandboxLimits",
    "ScriptResult",
    "SharedInstance",
]
