"""The only clock of workflow code: workflow time, the same in every replay."""

from __future__ import annotations

from temporalio import workflow


def now() -> int:
    """Workflow time in milliseconds since the epoch."""
    return round(workflow.time() * 1000)
