"""Default limits of one attempt, and the bounds within which a graph file may set its own.

Units: fuel in wasm instructions (roughly), memory and output in bytes, times in milliseconds.
"""

from __future__ import annotations

from typing import Final

from graph.values import KIB

MIB: Final = 1024 * KIB

DEFAULT_FUEL: Final = 100_000_000_000
"""About 20 seconds of pure Python in the sandbox; a small script takes about half a million."""
MIN_FUEL: Final = 1_000_000
MAX_FUEL: Final = 10_000_000_000_000

DEFAULT_MEMORY: Final = 256 * MIB
"""The sandbox's own interpreter takes about 25 MiB of it."""
MIN_MEMORY: Final = 32 * MIB
MAX_MEMORY: Final = 4096 * MIB - 64 * KIB
"""Wasm addresses have 32 bits."""

DEFAULT_TIMEOUT_MS: Final = 60_000
MIN_TIMEOUT_MS: Final = 10
MAX_TIMEOUT_MS: Final = 24 * 3600 * 1000

MAX_WAIT_MS: Final = 365 * 24 * 3600 * 1000
"""How long a `wait` node may wait; also the default of its `timeout`."""

DEFAULT_OUTPUT_BYTES: Final = 8 * MIB
MAX_OUTPUT_BYTES: Final = 32 * MIB
"""A larger value keeps a process so busy with encoding it that the server would take the process for lost."""

IN_FLIGHT: Final = 100
"""Attempts of one run in flight at once: more only fills the server's pending lists."""

TOLD: Final = 20
"""How often a run is told how far the items of one of its maps are, at most."""
RESULTS_KEPT: Final = 100
"""References to the results of a map's chunks that travel through history; more are folded into one."""

MAX_LOG_LINES: Final = 200
MAX_LOG_BYTES: Final = 16 * KIB
"""What an attempt may print; more is cut, and the log says so."""
