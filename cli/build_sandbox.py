"""Builds the sandbox ahead: ``python -m cli.build_sandbox [--out DIR]``. Says nothing when it is up to date."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from pathlib import Path

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
TIDY_SECONDS = 2.0
"""What the builder, which gets the terminal's Ctrl-C too, may take to end and leave no files."""


def main() -> int:
    """Build and compile ahead, saying so only if it must be done. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cli.build_sandbox", description="Build the sandbox.")
    parser.add_argument("--out", type=Path, default=None, help="folder for the component and its compiled code")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    wrong: list[BaseException] = []

    def build() -> None:
        try:
            from activities.sandbox import cache
            from activities.sandbox.builder import ensure_component
            from activities.sandbox.engine import load_component

            folder = options.out or cache.default_cache()
            load_component(ensure_component(folder), folder)
        except BaseException as error:  # raised again by the thread that waits
            wrong.append(error)

    # In a thread of its own, imports included: Ctrl-C reaches Python code only, compiling is ten seconds of something
    # else, and whenever it comes it is no error.
    building = threading.Thread(target=build, daemon=True)
    building.start()
    try:
        building.join()
    except KeyboardInterrupt:
        building.join(TIDY_SECONDS)
        print("stopped", flush=True)
        os._exit(INTERRUPTED)
    from graph.errors import FerrataError

    for error in wrong:
        if not isinstance(error, FerrataError):
            raise error
        print(f"{error.message}\n{error.hint or ''}".strip(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
