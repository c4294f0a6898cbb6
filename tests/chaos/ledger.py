"""What a run's histories and its log of calls say together: that nothing concluded twice or was called afterwards."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.client import WorkflowHistory

Activity = tuple[str, str]
"""The run id of the history that scheduled it, and its id there."""


@dataclass
class Ledger:
    """All activities of some histories."""

    requests: dict[Activity, str] = field(default_factory=dict)
    """What each was asked: workflow, name and arguments."""
    concluded: dict[Activity, int] = field(default_factory=dict)
    """At which try those concluded that completed or failed."""
    losses: int = 0

    def read(self, history: WorkflowHistory) -> None:
        """Take in one history."""
        planned: dict[int, Activity] = {}
        tries: dict[int, int] = {}
        for event in history.events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                planned[event.event_id] = (history.run_id, scheduled.activity_id)
                arguments = " ".join(payload.data.decode() for payload in scheduled.input.payloads)
                request = f"{history.workflow_id} {scheduled.activity_type.name} {arguments}"
                self.requests[planned[event.event_id]] = request
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                started = event.activity_task_started_event_attributes
                tries[started.scheduled_event_id] = started.attempt
                self.losses += started.attempt - 1
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                timed_out = event.activity_task_timed_out_event_attributes
                timeout = timed_out.failure.timeout_failure_info.timeout_type
                assert timeout == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
                self.losses += 1
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                number = event.activity_task_completed_event_attributes.scheduled_event_id
                self.concluded[planned[number]] = tries[number]
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                number = event.activity_task_failed_event_attributes.scheduled_event_id
                self.concluded[planned[number]] = tries[number]

    def assert_each_request_concluded_once(self) -> None:
        """No attempt, binding, check, chunk or escalation was concluded a second time by being scheduled again."""
        counted = Counter(self.requests[activity] for activity in self.concluded)
        assert set(counted) == set(self.requests.values())
        assert [request for request, times in counted.items() if times > 1] == []


def assert_nothing_concluded_is_called_again(ledger: Ledger, calls: list[dict[str, Any]]) -> int:
    """For each attempt (of a node or of an item): no try of it was called twice, a call that returned belongs to its
    conclusion in history, and after that one there was no other. Returns how many calls were repeats."""
    attempts: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for call in calls:
        attempts[call["run"], call["key"], call["number"]].append(call)
    repeats = 0
    for attempt, lines in attempts.items():
        starts = [(number, activity_of(line), line["try"]) for number, line in enumerate(lines) if is_start(line)]
        assert len({start[1:] for start in starts}) == len(starts), (attempt, lines)
        concluding = [
            number
            for number, line in enumerate(lines)
            if not is_start(line) and line["try"] <= ledger.concluded.get(activity_of(line), 0)
        ]
        # In one activity: a chunk of a map that calls an item again asks for something else than the chunk before.
        assert len({activity_of(lines[number]) for number in concluding}) == 1, (attempt, lines)
        assert starts[-1][0] < concluding[-1], (attempt, lines)
        assert starts[-1][2] <= ledger.concluded.get(starts[-1][1], 0), (attempt, lines)
        repeats += len(starts) - 1
    return repeats


def activity_of(call: dict[str, Any]) -> Activity:
    """Which activity made a call."""
    return (call["run_id"], call["activity"])


def is_start(call: dict[str, Any]) -> bool:
    """Whether a line tells of a call's beginning."""
    return bool(call["event"] == "start")
