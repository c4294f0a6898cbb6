"""Points in time as people write them."""

from __future__ import annotations

import pytest

from graph.times import parse_time


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:01.5+01:00", 1500),
        ("2030-01-31T08:00:00Z", 1_896_076_800_000),
        ("2030-01-31 08:00-00:30", 1_896_078_600_000),
        ("0001-01-01T00:00:00+23:59", 0),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
    ],
)
def test_a_time_is_read_with_its_offset(text: str, ms: int) -> None:
    assert parse_time(text) == ms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "isn't a time: write `2030-01-31T08:00:00Z`"),
        ("tomorrow", "isn't a time: write `2030-01-31T08:00:00Z`"),
        ("2030-02-30T08:00:00Z", "isn't a time"),
        ("x" * 1000, "x...` isn't a time"),
        ("2030-01-31", "has no offset: write `2030-01-31T00:00:00Z`"),
        ("2030-01-31T08:00:00", "has no offset: write `2030-01-31T08:00:00Z`"),
    ],
)
def test_what_is_no_time_is_refused_with_the_mend(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="write") as caught:
        parse_time(text)
    assert message in str(caught.value)
