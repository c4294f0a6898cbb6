"""Makes the guest's component: componentize-py joins CPython and the files in ``guest/`` into one wasm component.

Skipped when the cache holds the one for these very files, so every process may call :func:`ensure_component`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from activities.sandbox import cache
from graph.errors import FerrataError

GUEST = Path(__file__).parent / "guest"
SUFFIX = ".wasm"
BUILDER = "componentize-py"

log = logging.getLogger("sandbox")


def guest_files() -> list[Path]:
    """The inputs of the build, in a fixed order."""
    return sorted(path for path in GUEST.iterdir() if path.suffix in (".py", ".wit"))


def component_key() -> str:
    """Names the component: digest of the guest's files and of the version of componentize-py."""
    digest = hashlib.sha256()
    for path in guest_files():
        data = path.read_bytes()
        digest.update(f"{path.name}:{len(data)}:".encode() + data)
    try:
        digest.update(importlib.metadata.version(BUILDER).encode())
    except importlib.metadata.PackageNotFoundError as error:
        raise FerrataError("no_componentize", f"{BUILDER} isn't installed", "run `make setup`") from error
    return f"component-{digest.hexdigest()[:16]}"


def ensure_component(folder: Path) -> Path:
    """The component for the guest as it is now; built (in about ten seconds) if it isn't in ``folder`` yet.

    Raises:
        FerrataError: the build failed, or componentize-py is missing.
    """
    cache.open_cache(folder)
    key = component_key()
    if found := cache.find(folder, key, SUFFIX):
        return found
    with cache.lock(folder):
        if found := cache.find(folder, key, SUFFIX):
            return found
        log.info("building the script sandbox (about 25 s, once) ...")
        return cache.store(folder, key, SUFFIX, _build())


def _build() -> bytes:
    """Run componentize-py in a folder of its own, on a copy of the inputs alone: all it can see becomes part of the
    component's search path."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "path" / "ferrata").mkdir(parents=True)
        for path in guest_files():
            (work / "path" / "ferrata" / path.name).write_bytes(path.read_bytes())
        (work / "path" / "app.py").write_text("from ferrata.exports import WitWorld\n")
        output = work / f"guest{SUFFIX}"
        program = Path(sys.executable).parent / BUILDER
        command = [program if program.exists() else BUILDER, "--quiet", "-d", "path/ferrata", "-w", "guest"]
        command += ["componentize", "--stub-wasi", "app", "-p", "path", "-o", output.name]
        # Without VIRTUAL_ENV it would search the environment's packages too.
        environment = {**os.environ, "VIRTUAL_ENV": str(work)}
        try:
            done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        except OSError as error:
            raise FerrataError("build_failed", f"{BUILDER} can't be run: {error}", "run `make setup`") from error
        if done.returncode != 0 or not output.exists():
            said = (done.stderr or done.stdout).partition("Stack backtrace")[0].strip()
            raise FerrataError("build_failed", f"{BUILDER} could not build the sandbox:\n{said[-2000:]}")
        return output.read_bytes()
