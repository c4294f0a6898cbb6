"""Everything that people send has one argument. Another number of them would fail the workflow task for ever, before
any code of the workflow could say so; this interceptor says it."""

from __future__ import annotations

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from workflows.requests import EXAMPLE, refusal

MALFORMED = RawValue(Payload())
"""What a signal's handler gets instead of several arguments: nothing that it could read."""


class OneArgument(Interceptor):
    """Install it on every worker and replayer of these workflows."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> object:
        if len(input.args) > 1:
            message = f"a run takes one argument, such as {EXAMPLE}; it was given {len(input.args)}"
            raise refusal("bad_request", message)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        # A signal that nobody handles by its name comes as name and list of arguments, whatever their number.
        if len(input.args) != 1 and workflow.get_signal_handler(input.signal) is not None:
            input.args = [MALFORMED]
        await super().handle_signal(input)
