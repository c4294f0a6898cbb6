"""Worker versioning: this worker as one build of a deployment, and what it tells operators about who gets new runs.

Temporal routes: a run stays on the build that it started on. Which build gets new runs is for operators to say, with
the `temporal` command.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from activities.settings import Settings

PATIENCE: Final = timedelta(seconds=5)
"""How long the server may take to answer: only a hint depends on it."""

log = logging.getLogger("worker")


def deployment_config(settings: Settings) -> WorkerDeploymentConfig | None:
    """What Temporal's workers are told of their build; None: they aren't versioned."""
    if settings.build_id is None:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(settings.deployment, settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


async def tell_routing(settings: Settings, client: Client) -> None:
    """Log whether new runs reach this worker's build, and if not, the command that sends them there."""
    build, deployment = settings.build_id, settings.deployment
    if build is None:
        return
    try:
        current = await current_build(client, deployment)
    except RPCError as error:
        log.warning("the server doesn't say which build of %s is current: %s", deployment, error.message)
        return
    command = set_current(client, deployment, build)
    if current is None:
        log.warning("deployment %s has no current build, so new runs don't reach this one: %s", deployment, command)
    elif current != build:
        log.info("new runs go to build %s of %s; to send them to this one: %s", current, deployment, command)
    else:
        log.info("new runs go to this build, %s of %s", build, deployment)


async def current_build(client: Client, deployment: str) -> str | None:
    """The build of ``deployment`` that new runs go to; None: none yet. Raises RPCError."""
    try:
        answer = await client.workflow_service.describe_worker_deployment(
            DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment),
            timeout=PATIENCE,
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:  # the server makes it a moment after the first poll
            return None
        raise
    return answer.worker_deployment_info.routing_config.current_deployment_version.build_id or None


def set_current(client: Client, deployment: str, build: str) -> str:
    """The command that makes a build the current one."""
    words = ["temporal worker deployment set-current-version", f"--deployment-name {deployment} --build-id {build}"]
    if client.namespace != "default":
        words.append(f"--namespace {client.namespace}")
    return " ".join(words)
