"""What the nodes of the chaos run call. Each call is noted before it begins and after it ends, with the activity that
made it, so that it can be told afterwards which calls were repeated and whether they might have been."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError


def note(event: str, key: str, number: int) -> None:
    """Append one line to the log, whole or not at all."""
    info = activity.info()
    line = {
        "event": event,
        "run": info.workflow_id,
        "run_id": info.workflow_run_id,
        "activity": info.activity_id,
        "try": info.attempt,
        "key": key,
        "number": number,
    }
    with Path(os.environ["TEST_LOG"], "calls.jsonl").open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.write(json.dumps(line).encode() + b"\n")


def work(
    key: str, value: Any = None, fails: int = 0, seconds: float = 0, feedback: dict[str, Any] | None = None
) -> Any:
    """Takes ``seconds`` and gives back ``value``; the first ``fails`` attempts fail. Which attempt it is, the feedback
    says: a call that is repeated because a process was killed does what the first one did."""
    number = int(feedback["code"].removeprefix("TOLD_")) if feedback else 0
    note("start", key, number)
    time.sleep(seconds)
    note("end", key, number)
    if number < fails:
        raise ApplicationError("told to fail", type=f"TOLD_{number + 1}")
    return value


@activity.defn
def foreign(key: str, value: Any, seconds: float) -> Any:
    """The same, as a Temporal activity of its own that never fails."""
    return work(key, value, seconds=seconds)
