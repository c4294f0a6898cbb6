"""What a worker's log says of a run: a line when it starts, when it ends and when it escalates.

Temporal's logger leaves out what only happens again on replay. Reasons are cut to one short line.
"""

from __future__ import annotations

from temporalio import workflow

from graph.values import trim
from graph.wire import Entry

LONGEST = 300
"""Bytes of a reason."""


def started(graph: str, nodes: int) -> None:
    """The graph is loaded."""
    workflow.logger.info("run %s: started, graph %s of %d nodes", run_id(), one_line(graph), nodes)


def completed(failures: int, escalations: int) -> None:
    """The run ended well, or well enough."""
    workflow.logger.info("run %s: completed, failures: %d, escalations: %d", run_id(), failures, escalations)


def cancelled() -> None:
    """The run ended because somebody said so."""
    workflow.logger.info("run %s: cancelled", run_id())


def failed(code: str, reason: str, node: str | None = None) -> None:
    """The run ended by a failure, of a node or its own."""
    where = f" at node {node}" if node else ""
    workflow.logger.info("run %s: failed%s [%s] %s", run_id(), where, one_line(code), one_line(reason))


def escalated(entry: Entry, queue: str) -> None:
    """A node, or items of a map, went to people."""
    text = "run %s: node %s escalated to queue %s as %s [%s] %s"
    reason = one_line(entry.reason)
    workflow.logger.info(text, run_id(), entry.node, one_line(queue), entry.id, one_line(entry.code), reason)


def run_id() -> str:
    return one_line(workflow.info().workflow_id)


def one_line(text: str) -> str:
    """``text`` without line breaks and other control characters, and short: people choose it."""
    return trim("".join(c if c.isprintable() else " " for c in text), LONGEST)
