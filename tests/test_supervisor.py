"""The supervisor, over small real child processes: restarts, giving up, draining, and dying together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.supervisor import EXIT_CONFIG, EXIT_SOFTWARE
from worker_process import assert_gone

ROOT = Path(__file__).resolve().parent.parent

SUPERVISE = """
import asyncio, os, sys
from cli.supervisor import Child, Supervisor, configure_logging
configure_logging("supervisor")
children = [Child(f"child-{i}", (sys.executable, "-c", code)) for i, code in enumerate(sys.argv[1:], 1)]
sys.exit(asyncio.run(Supervisor(children, environment=os.environ, ready_message="all here").run()))
"""
CHILD = """
import json, os, signal, sys, time
from cli.processes import die_with_parent
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
die_with_parent(int(arguments["--parent"]))
def say(**word):
    os.write(int(arguments["--status-fd"]), json.dumps(word).encode() + b"\\n")
"""
SERVES = CHILD + "say(ready=True); time.sleep(60)"
DRAINS = CHILD + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); say(ready=True); time.sleep(60)"
IGNORES = CHILD + "signal.signal(signal.SIGTERM, signal.SIG_IGN); say(ready=True); time.sleep(60)"

Start = Callable[..., "Supervised"]


class Supervised:
    """A supervisor in a process of its own, and what it logged."""

    def __init__(self, log: Path, children: tuple[str, ...]) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen([sys.executable, "-c", SUPERVISE, *children], cwd=ROOT, stderr=output)

    def read(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, count: int = 1, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while self.read().count(text) < count:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.read()}"
            time.sleep(0.02)

    def pids(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"as process (\d+)", self.read())]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(CODE, ...)`: a supervisor with a child for each Python text."""
    started: list[Supervised] = []

    def start(*children: str) -> Supervised:
        started.append(Supervised(tmp_path / f"{len(started)}.log", children))
        return started[-1]

    yield start
    for supervised in started:
        supervised.process.kill()
        supervised.process.wait()


def test_ready_is_said_once_all_children_serve(start: Start) -> None:
    supervised = start(SERVES, CHILD + "time.sleep(1); say(ready=True); time.sleep(60)")
    supervised.wait_for("started child-2")
    time.sleep(0.5)
    assert "worker ready" not in supervised.read()
    supervised.wait_for("worker ready: all here")


def test_a_child_that_dies_is_started_again_and_the_others_are_left_alone(start: Start) -> None:
    supervised = start(SERVES, SERVES)
    supervised.wait_for("worker ready")
    first, second = supervised.pids()
    os.kill(second, signal.SIGKILL)
    supervised.wait_for("worker ready again")
    assert "child-2 was killed by SIGKILL: restarting child-2 in 0.5 s" in supervised.read()
    assert len(supervised.pids()) == 3
    os.kill(first, 0)


def test_the_delay_grows_while_a_child_keeps_dying(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "served"
    once = f"\nif os.path.exists({str(mark)!r}): sys.exit(3)\nopen({str(mark)!r}, 'w').close()"
    supervised = start(CHILD + once + "\nsay(ready=True); sys.exit(3)")
    supervised.wait_for("restarting", count=3)
    delays = re.findall(r"child-1 ended with exit code 3: restarting child-1 in (\S+) s", supervised.read())
    assert delays == ["0.5", "1.0", "2.0"]


def test_a_child_that_can_never_start_ends_the_whole_with_its_reason_said_once(start: Start) -> None:
    refuses = CHILD + f"say(stop={EXIT_CONFIG}, message='FERRATA_X is wrong'); sys.exit({EXIT_CONFIG})"
    supervised = start(refuses, refuses, SERVES)
    assert supervised.process.wait(20) == EXIT_CONFIG
    assert supervised.read().count("FERRATA_X is wrong") == 1
    assert "restarting" not in supervised.read()
    assert_gone(supervised.pids())


def test_a_child_that_crashes_before_it_ever_served_is_no_restart_loop(start: Start) -> None:
    supervised = start(CHILD + "sys.exit(5)")
    assert supervised.process.wait(20) == EXIT_SOFTWARE
    assert "child-1 ended with exit code 5" in supervised.read()
    assert "restarting" not in supervised.read()


def test_what_served_once_is_started_again_even_if_it_says_that_it_can_not(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "served"
    then = f"\nif os.path.exists({str(mark)!r}):\n    say(stop=69, message='no server'); sys.exit(69)"
    supervised = start(CHILD + then + f"\nopen({str(mark)!r}, 'w').close(); say(ready=True); sys.exit(1)")
    supervised.wait_for("no server: restarting child-1", count=2)
    assert supervised.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_drains(start: Start, number: signal.Signals) -> None:
    supervised = start(DRAINS, DRAINS)
    supervised.wait_for("worker ready")
    supervised.process.send_signal(number)
    assert supervised.process.wait(10) == 0
    assert_gone(supervised.pids())


def test_a_second_signal_kills_what_does_not_drain(start: Start) -> None:
    supervised = start(IGNORES, DRAINS)
    supervised.wait_for("worker ready")
    supervised.process.terminate()
    supervised.wait_for("draining")
    time.sleep(0.3)
    assert supervised.process.poll() is None
    supervised.process.terminate()
    assert supervised.process.wait(10) == 0
    assert "SIGTERM again: killing what still runs" in supervised.read()
    assert_gone(supervised.pids())


def test_children_die_with_a_supervisor_that_is_killed(start: Start) -> None:
    supervised = start(SERVES, IGNORES)
    supervised.wait_for("worker ready")
    supervised.process.kill()
    supervised.process.wait()
    assert_gone(supervised.pids())
