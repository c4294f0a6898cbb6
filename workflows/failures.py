"""Failures as Temporal carries them: a run's or an attempt's own failure says all there is to say in its message and
details, and frames of the SDK below it would only hide that. Whatever nobody foresaw keeps its stack trace."""

from __future__ import annotations

from dataclasses import replace

from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError


class FailureConverter(DefaultFailureConverter):
    """Temporal's, but for the stack traces of failures that are meant."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """See the base class."""
        super().to_failure(exception, payload_converter, failure)
        if is_meant(exception):
            failure.stack_trace = ""


def is_meant(exception: BaseException) -> bool:
    """Whether it is a failed attempt, with its record in its details, or a failed run, with its envelope."""
    if not isinstance(exception, ApplicationError) or not exception.details:
        return False
    details = exception.details[0]
    return isinstance(details, dict) and ("failure_class" in details or details.get("status") == "failed")


DATA_CONVERTER = replace(pydantic_data_converter, failure_converter_class=FailureConverter)
"""What the clients of workers and replayers of these workflows convert with."""
