"""Durations: what people may write, what is refused and why, and that text and milliseconds agree."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph.durations import LONGEST, format_duration, parse_duration

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tests may share a busy machine


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1.5s", 1500),
        ("0.5h", 1_800_000),
        ("250ms", 250),
        ("1s500ms", 1500),
        ("0s", 0),
        ("1d2h3m4s5ms", 93_784_005),
        ("3650d", LONGEST),
    ],
)
def test_durations_are_whole_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (90, "`90` has no unit: write `90s` for seconds or `90m` for minutes"),
        ("90", "write `90s`"),
        (1.5, "write `1.5s`"),
        (-5, "no unit"),
        (True, "not a boolean"),
        (None, "not null"),
        (["1s"], "not a list"),
        ("", "isn't a duration"),
        ("soon", "write `90s`, `1h30m` or `2d`"),
        ("5 min", "write `5m`"),
        ("2 Hours 30 minutes", "write `2h30m`"),
        ("1H", "write `1h`"),
        ("10 msec", "write `10ms`"),
        ("-1s", "isn't a duration"),
        ("1h 30m", "write `1h30m`"),
        ("30m1h", "the larger first"),
        ("1s1s", "each unit once"),
        ("1.5ms", "whole number of milliseconds"),
        ("3651d", "longer than ten years"),
        ("9" * 1000 + "d", "isn't a duration"),
        (float("nan"), "no unit"),
        ("١s", "isn't a duration"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_mend(wrong: object, says: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_duration(wrong)
    assert says in str(caught.value)


@relaxed
@given(st.integers(0, LONGEST))
def test_a_formatted_duration_reads_back_exactly(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@relaxed
@given(st.text(st.sampled_from("0123456789.smhd -x")) | st.text(max_size=80))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= parse_duration(text) <= LONGEST


def test_formatted_durations_read_well() -> None:
    shown = [format_duration(ms) for ms in (0, 250, 1500, 90_000, 5_400_000, 172_800_000, 61_250)]
    assert shown == ["0s", "250ms", "1.5s", "1m30s", "1h30m", "2d", "1m1.25s"]
    with pytest.raises(ValueError, match="negative"):
        format_duration(-1)
