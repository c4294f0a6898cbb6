"""The workflows: structure only. They schedule; activities evaluate.

Everything here runs inside Temporal's workflow sandbox and must be deterministic: no I/O, no expressions,
no schemas, no clock but workflow time.
"""

from __future__ import annotations

from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.arguments import OneArgument
from workflows.escalation_queue import EscalationQueue, UpgradingEscalationQueue
from workflows.failures import DATA_CONVERTER
from workflows.run_graph import RunGraph
from workflows.run_map import RunMap

WORKFLOWS: list[type] = [RunGraph, RunMap, EscalationQueue]
VERSIONED_WORKFLOWS: list[type] = [RunGraph, RunMap, UpgradingEscalationQueue]
"""The same for a worker with a build id, on which what doesn't say otherwise stays on its build."""

INTERCEPTORS = [OneArgument()]
"""What workers and replayers of these workflows must have."""


def workflow_runner() -> SandboxedWorkflowRunner:
    """Temporal's workflow sandbox, passing through what workflows import.

    `graph` is pure (no I/O, no clock), so importing it anew for every run would only cost time.
    """
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("graph", "workflows")
    )


def replayer() -> Replayer:
    """Replays recorded histories against the workflows as they are now: a test of every change to them."""
    return Replayer(
        workflows=WORKFLOWS,
        workflow_runner=workflow_runner(),
        interceptors=INTERCEPTORS,
        data_converter=DATA_CONVERTER,
    )
