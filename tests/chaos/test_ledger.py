"""That the ledger notices what must not happen: the chaos run itself never shows it any of that."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.ledger import Ledger, assert_nothing_concluded_is_called_again


def call(event: str, attempt: int, activity: str = "1") -> dict[str, Any]:
    return {"event": event, "run": "w", "run_id": "r", "activity": activity, "try": attempt, "key": "work", "number": 0}


ONCE = [call("start", 1), call("end", 1)]


def ledger(**concluded: int) -> Ledger:
    """One of activities that were all asked the same."""
    return Ledger(
        requests={("r", activity.lstrip("a")): "work" for activity in concluded},
        concluded={("r", activity.lstrip("a")): attempt for activity, attempt in concluded.items() if attempt},
    )


@pytest.mark.parametrize(
    ("calls", "concluded", "repeats"),
    [
        (ONCE, {"a1": 1}, 0),
        ([call("start", 1), call("start", 2), call("end", 2)], {"a1": 2}, 1),
        ([*ONCE, call("start", 2), call("end", 2)], {"a1": 2}, 1),
        ([call("start", 1), call("start", 1, "2"), call("end", 1, "2")], {"a1": 0, "a2": 1}, 1),
    ],
    ids=["undisturbed", "killed in it", "killed before it was told", "scheduled again after a loss"],
)
def test_what_may_be_repeated_is_counted(calls: list[dict[str, Any]], concluded: dict[str, int], repeats: int) -> None:
    assert assert_nothing_concluded_is_called_again(ledger(**concluded), calls) == repeats


@pytest.mark.parametrize(
    ("calls", "concluded"),
    [
        ([*ONCE, call("start", 2)], {"a1": 1}),
        ([*ONCE, call("start", 2), call("end", 2)], {"a1": 1}),
        ([*ONCE, call("start", 1, "2"), call("end", 1, "2")], {"a1": 1, "a2": 0}),
        ([*ONCE, call("start", 1, "2"), call("end", 1, "2")], {"a1": 1, "a2": 1}),
        ([*ONCE, *ONCE], {"a1": 1}),
        ([call("start", 1)], {"a1": 1}),
        (ONCE, {"a1": 0}),
    ],
    ids=[
        "called again",
        "called again to its end",
        "another activity",
        "concluded by another",
        "twice in one try",
        "no end",
        "no conclusion",
    ],
)
def test_what_may_not_happen_is_noticed(calls: list[dict[str, Any]], concluded: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        assert_nothing_concluded_is_called_again(ledger(**concluded), calls)


def test_what_is_asked_for_twice_and_concluded_twice_is_noticed() -> None:
    ledger(a1=1, a2=0).assert_each_request_concluded_once()
    with pytest.raises(AssertionError):
        ledger(a1=1, a2=1).assert_each_request_concluded_once()
