"""Ctrl-C at any time is one line and exit code 130, and what is up to date is done in silence."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from worker_process import ROOT

INTERRUPTED = 130
PYTHON_IS_UP = 0.25
"""Seconds until Python has started, and its own modules are imported."""


def interrupted(command: list[str], after: float) -> tuple[int, str]:
    """Exit code and output of a module that got Ctrl-C ``after`` seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.parametrize("after", [PYTHON_IS_UP, 1.0, 3.0], ids=["at once", "a second later", "while building"])
def test_building_the_sandbox_can_be_interrupted(after: float, tmp_path: Path) -> None:
    code, output = interrupted(["cli.build_sandbox", "--out", str(tmp_path / "sandbox")], after)
    assert code == INTERRUPTED
    announced = ["building the script sandbox (about 25 s, once) ..."]
    assert output.splitlines() in (["stopped"], [*announced, "stopped"])


def test_the_demo_can_be_interrupted_while_it_is_being_imported() -> None:
    code, output = interrupted(["examples.licenses.demo"], PYTHON_IS_UP)
    assert code == INTERRUPTED
    assert "Traceback" not in output
    assert output.splitlines()[-1] in ("stopped", "stopping ...")


def test_a_sandbox_that_is_up_to_date_is_not_talked_about() -> None:
    command = [sys.executable, "-m", "cli.build_sandbox"]
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100)
    assert (done.stdout, done.stderr) == ("", "")
