"""The rule of the ladder: which step follows a failed attempt."""

from __future__ import annotations

from graph.compiled import Escalate, Reroute, Retry, Rung
from graph.ladder import LONGEST_DELAY, Attempt, Climb, Escalation, Exhausted, Step


def climb(ladder: list[Rung], *failures: str) -> list[Step]:
    """The steps after each of these failures (a class, or ``class/code``)."""
    state = Climb(ladder)
    steps = []
    for failure in failures:
        failure_class, _, code = failure.partition("/")
        steps.append(state.next(failure_class, code or failure_class))
    return steps


def test_no_ladder_is_exhausted_at_once() -> None:
    assert climb([], "rejected") == [Exhausted()]


def test_retry_two_gives_two_further_attempts() -> None:
    one = Attempt("retry", 0)
    assert climb([Retry(times=2)], *["rejected"] * 3) == [one, one, Exhausted()]


def test_a_reroute_sticks_and_retries_after_it_are_on_the_new_implementation() -> None:
    ladder = [Retry(times=1), Reroute(implementation=1), Retry(times=2), Escalate()]
    steps = climb(ladder, *["rejected"] * 5)
    attempts = [step.implementation for step in steps if isinstance(step, Attempt)]
    assert attempts == [0, 1, 1, 1]
    assert steps[-1] == Escalation("escalations")


def test_after_escalation_nothing_is_left() -> None:
    assert climb([Escalate(queue="q")], "rejected", "rejected") == [Escalation("q"), Exhausted()]


def test_invalid_input_passes_over_everything_to_escalate() -> None:
    ladder = [Retry(times=5, on=["invalid_input"]), Reroute(implementation=1), Escalate()]
    assert climb(ladder, "invalid_input") == [Escalation("escalations")]
    assert climb([Retry(times=5)], "invalid_input/some_code") == [Exhausted()]


def test_a_rung_applies_to_the_classes_and_codes_it_names() -> None:
    ladder = [Retry(times=1, on=["timeout", "BUSY"]), Escalate()]
    assert isinstance(climb(ladder, "timeout")[0], Attempt)
    assert isinstance(climb(ladder, "function_error/BUSY")[0], Attempt)
    assert climb(ladder, "rejected") == [Escalation("escalations")]


def test_a_rung_passed_over_is_not_met_again() -> None:
    ladder = [Retry(times=3, on=["timeout"]), Retry(times=1), Escalate()]
    steps = climb(ladder, "timeout", "rejected", "timeout")
    assert [type(step) for step in steps] == [Attempt, Attempt, Escalation]


def test_delays_back_off_up_to_their_limit() -> None:
    ladder: list[Rung] = [Retry(times=4, delay=1000, backoff=3, max_delay=5000)]
    delays = [step.delay for step in climb(ladder, *["lost"] * 4) if isinstance(step, Attempt)]
    assert delays == [1000, 3000, 5000, 5000]


def test_a_back_off_beyond_all_numbers_is_a_year() -> None:
    ladder: list[Rung] = [Retry(times=1000, delay=1000, backoff=100)]
    steps = climb(ladder, *["lost"] * 1000)
    assert max(step.delay for step in steps if isinstance(step, Attempt)) == LONGEST_DELAY


def test_an_attempt_carries_the_options_of_its_rung() -> None:
    assert climb([Retry(times=1, feedback=True, fuel=4, memory=2)], "out_of_fuel") == [
        Attempt("retry", 0, 0, feedback=True, fuel=4, memory=2)
    ]
    assert climb([Reroute(implementation=2, feedback=True)], "rejected") == [Attempt("reroute", 2, feedback=True)]
