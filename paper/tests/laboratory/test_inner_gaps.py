"""Lemma 1: the gap of the inner loop stays below its bound and decays like 1/K."""

from __future__ import annotations

import numpy as np
import pytest

from oneproj_paper.laboratory.inner_gaps import InnerGaps, measure_inner_gaps
from oneproj_paper.laboratory.problems import nonconvex_problem

INNER_STEPS = [10**2, 10**3, 10**4, 10**5, 10**6]
DELTAS = [0.5, 0.1, 0.02]
PROBLEM = nonconvex_problem()


@pytest.fixture(scope="module")
def smooth() -> InnerGaps:
    """The minimiser of H is strictly feasible and off the kink: H is smooth there."""
    center = np.array([0.4, 0.3])
    return measure_inner_gaps(PROBLEM, center, INNER_STEPS, trials=256, seed=1)


@pytest.fixture(scope="module")
def sharp() -> InnerGaps:
    """The minimiser of H sits on the kink of f and on the boundary at once."""
    center = PROBLEM.solutions[0]
    return measure_inner_gaps(PROBLEM, center, INNER_STEPS, trials=256, seed=1)


@pytest.mark.parametrize("delta", DELTAS)
def test_quantiles_stay_below_the_bound(
    smooth: InnerGaps, sharp: InnerGaps, delta: float
) -> None:
    for found in (smooth, sharp):
        assert found.gaps.min() >= 0
        assert (found.quantiles(delta) <= found.bounds(delta)).all()


@pytest.mark.parametrize("delta", DELTAS)
def test_gaps_decay_like_1_over_k_where_h_is_smooth(
    smooth: InnerGaps, delta: float
) -> None:
    slope, low, high = smooth.slope(delta, np.random.default_rng(0))
    assert low <= -1.0 <= high
    assert high - low < 0.1
    assert slope == pytest.approx(-1.0, abs=0.05)


@pytest.mark.parametrize("delta", DELTAS)
def test_gaps_decay_like_log_k_over_k_where_h_is_sharp(
    sharp: InnerGaps, delta: float
) -> None:
    """log K / K has the slope -1 + 1/log K: -0.88 on average over these K."""
    rng = np.random.default_rng(0)
    plain, low, high = sharp.slope(delta, rng)
    assert -0.95 < low <= plain <= high < -0.85
    corrected, low, high = sharp.slope(delta, rng, logarithm=True)
    assert -1.05 < low <= corrected <= high < -0.95
