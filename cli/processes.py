"""Child processes that never outlive their parent, even when it is killed with SIGKILL.

On Linux the kernel does it (``PR_SET_PDEATHSIG``). Elsewhere there is no such promise: a child that is Python
watches its parent's id instead, and a foreign program is stopped only when its parent ends in order.

Imports nothing but the standard library: this file is also run by path, as the launcher of foreign programs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 0.5


def die_with_parent(parent: int, *, watch: bool = True) -> None:
    """Have this process killed as soon as the process ``parent`` (an id) is gone; exits at once if it is already.

    The kernel watches the *thread* that started this process, so start children from a thread that lives as long as
    the parent does. ``watch=False`` leaves out the fallback thread for systems without ``prctl``.
    """
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    elif watch:
        threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()
    # The parent may have died before the kernel was told to watch it.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def tied(command: Sequence[str]) -> list[str]:
    """The command line that runs ``command``, a foreign program, tied to the life of the calling process."""
    return [sys.executable, "-IS", os.path.abspath(__file__), str(os.getpid()), *command]


def main() -> None:
    """Launcher: ``processes.py PARENT PROGRAM [ARGUMENT...]`` becomes PROGRAM, which dies with PARENT."""
    parent, *command = sys.argv[1:]
    die_with_parent(int(parent), watch=False)  # the setting survives exec, a thread would not
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
