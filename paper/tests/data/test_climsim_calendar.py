"""ClimSim's clock: no leap years, steps of 20 minutes."""

from __future__ import annotations

from datetime import timedelta

import cftime
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oneproj_paper.data.climsim_calendar import date_of, days_of, times_from

EXAMPLES = settings(derandomize=True, deadline=None, max_examples=100)


@EXAMPLES
@given(days=st.integers(365, 365 * 12), steps=st.integers(1, 500))
def test_dates_are_those_of_the_noleap_calendar(days: int, steps: int) -> None:
    date = int(date_of(np.array(days)))
    assert int(days_of(np.array(date))) == days
    begin = cftime.datetime(1, 1, 1, calendar="noleap")
    there = begin + timedelta(days=days - 365)
    assert date == there.year * 10_000 + there.month * 100 + there.day
    later = there + timedelta(minutes=20 * 7 * (steps - 1))
    seconds = later.hour * 3600 + later.minute * 60
    expected = (later.year * 10_000 + later.month * 100 + later.day) * 100_000 + seconds
    assert int(times_from(date, steps, 7)[-1]) == expected


def test_the_parts_of_the_hub_follow_each_other() -> None:
    # 26,280 steps, every seventh, are seven years; 3,755 end within the eighth.
    train, val = times_from(10_201, 26_281, 7), times_from(80_201, 3_755, 7)
    assert train[-1] == val[0] == 80_201 * 100_000
    assert val[-1] // 100_000 == 90_131
