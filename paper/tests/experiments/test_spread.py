"""Means, standard deviations and ratios against the standard library's exact ones."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj_paper.experiments.spread import speedup, spread

NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_spread_is_the_sample_one(values: list[float]) -> None:
    found = spread(values)
    assert found.runs == len(values)
    assert found.mean == pytest.approx(statistics.mean(values), rel=1e-12, abs=1e-9)
    assert found.sd == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-6)


def test_known_values() -> None:
    found = spread([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert found.mean == 5.0
    assert found.sd == math.sqrt(32 / 7)  # n - 1, not n
    assert found.text(2) == "5.00 \N{PLUS-MINUS SIGN} 2.14"


def test_one_run_has_no_spread() -> None:
    assert spread([3.0]).sd is None
    assert spread([3.0]).text(1) == "3.0"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_shown(bad: float) -> None:
    assert math.isnan(spread([1.0, bad]).mean)
    assert spread([bad, -bad, 1.0]).text(2) == "nan \N{PLUS-MINUS SIGN} nan"
    assert spread([bad]).text(2) == "nan"


def test_speedup_is_the_ratio_of_means() -> None:
    # The mean of the ratios would be (10/1 + 10/9) / 2 = 5.6.
    assert speedup(spread([10.0, 10.0]), spread([1.0, 9.0])) == 2.0
    assert speedup(spread([1.0]), spread([0.0])) == math.inf
