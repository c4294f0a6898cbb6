"""Builds the sandbox ahead: ``python -m activities.sandbox.build [--out DIR]``. Skipped when up to date."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from activities.sandbox import cache
from activities.sandbox.builder import ensure_component
from activities.sandbox.engine import load_component
from graph.errors import FerrataError


def main() -> None:
    """Build and compile ahead, saying what was done."""
    parser = argparse.ArgumentParser(prog="python -m activities.sandbox.build", description="Build the sandbox.")
    parser.add_argument("--out", type=Path, default=None, help="folder for the component and its compiled code")
    folder = parser.parse_args().out or cache.default_cache()
    try:
        started = time.perf_counter()
        path = ensure_component(folder)
        built = time.perf_counter()
        load_component(path, folder)
    except FerrataError as error:
        sys.exit(f"{error.message}\n{error.hint or ''}".strip())
    print(f"sandbox: {path} ({built - started:.1f} s), compiled ahead ({time.perf_counter() - built:.1f} s)")


if __name__ == "__main__":
    main()
