"""Bounds: closed forms, exact coverage by enumeration, coverage by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from oneproj.rates.bounds import (
    Average,
    Count,
    Known,
    Part,
    neyman_pearson_rank,
    rows_needed,
    upper_of_sum,
)

GRID = np.linspace(0.0, 1.0, 41)
ERRORS = st.floats(1e-4, 0.5)


def too_often(misses: int, trials: int, error: float) -> bool:
    """Whether misses are more than chance allows at this error: once in 10^5 tests."""
    return bool(stats.binom.sf(misses - 1, trials, error) < 1e-5)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 50), (49, 50), (50, 50), (7, 1000)])
@pytest.mark.parametrize("error", [0.1, 0.05, 0.001])
def test_a_rate_has_the_bounds_of_clopper_and_pearson(
    k: int, n: int, error: float
) -> None:
    less = stats.binomtest(k, n, alternative="less").proportion_ci(1 - error, "exact")
    more = stats.binomtest(k, n, alternative="greater")
    assert Count(k, n).upper(error) == pytest.approx(less.high, rel=1e-9)
    low = more.proportion_ci(1 - error, "exact").low
    assert Count(k, n).lower(error) == pytest.approx(low, rel=1e-9, abs=1e-12)


def test_zero_events_give_the_closed_form() -> None:
    for n in (1, 20, 300):
        assert Count(0, n).upper(0.05) == pytest.approx(1 - 0.05 ** (1 / n))
    assert (Count(0, 0).lower(0.05), Count(0, 0).upper(0.05)) == (0.0, 1.0)


@given(st.integers(0, 200), st.integers(0, 200), ERRORS, ERRORS)
def test_bounds_of_a_rate_are_monotone(k: int, more: int, e: float, f: float) -> None:
    n = k + more
    small, large = sorted((e, f))
    rate = Count(k, n)
    room = 1e-12  # the last digits are those of the special functions
    assert 0 <= rate.lower(small) <= rate.lower(large) + room <= 1 + room
    assert 0 <= rate.upper(large) <= rate.upper(small) + room <= 1 + room
    assert rate.upper(e) <= Count(k + 1, n + 1).upper(e) + room
    assert Count(k, n + 1).upper(e) <= rate.upper(e) + room
    assert rate.lower(e) == pytest.approx(1 - Count(more, n).upper(e), abs=1e-9)


def worst_coverage(a: float, b: float, n: int, m: int, error: float) -> float:
    """The least coverage of the bound on a p + b q over a grid of p and q, exactly."""

    def upper(k: int, j: int) -> float:
        pair = [Part(a, Count(k, n)), Part(b, Count(j, m))]
        return upper_of_sum(pair, error, different_rows=True)

    uppers = np.array([[upper(k, j) for j in range(m + 1)] for k in range(n + 1)])
    worst = 1.0
    for p, q in itertools.product(GRID, GRID):
        masses = np.outer(
            stats.binom.pmf(np.arange(n + 1), n, p),
            stats.binom.pmf(np.arange(m + 1), m, q),
        )
        covered = float(masses[uppers >= a * p + b * q - 1e-12].sum())
        worst = min(worst, covered)
    return worst


@pytest.mark.parametrize(
    ("a", "b", "n", "m", "error"),
    [
        (1.0, -1.0, 9, 6, 0.05),
        (1.0, -1.0, 5, 12, 0.2),
        (0.5, 0.5, 7, 8, 0.05),
        (-2.0, -0.3, 6, 5, 0.1),
    ],
)
def test_the_bound_of_two_rates_covers_all_rates(
    a: float, b: float, n: int, m: int, error: float
) -> None:
    # And not by being far too wide: somewhere it is missed nearly as often as allowed.
    assert 1 - error - 1e-9 <= worst_coverage(a, b, n, m, error) <= 1 - error / 4


def test_the_exact_bound_of_a_gap_is_nearly_as_tight_as_the_normal_one() -> None:
    for k, n, j, m in [
        (300, 1000, 250, 1000),
        (30, 1000, 25, 1000),
        (400, 4000, 90, 900),
    ]:
        p, q = k / n, j / m
        normal = 1.6449 * math.sqrt(p * (1 - p) / n + q * (1 - q) / m)
        gap = [Part(1.0, Count(k, n)), Part(-1.0, Count(j, m))]
        room = upper_of_sum(gap, 0.05, different_rows=True) - (p - q)
        union = upper_of_sum(gap, 0.05) - (p - q)
        assert 0.9 * normal < room < 1.2 * normal
        assert room < union


def test_a_gap_to_a_rate_of_zero_costs_nothing_more_than_the_rate() -> None:
    gap = [Part(1.0, Count(0, 50)), Part(-1.0, Count(0, 60))]
    alone = Count(0, 50).upper(0.05)
    assert alone <= upper_of_sum(gap, 0.05, different_rows=True) < 1.02 * alone


@pytest.mark.parametrize("different_rows", [True, False])
def test_bounds_of_a_gap_grow_as_the_error_shrinks(*, different_rows: bool) -> None:
    gap = [Part(1.0, Count(12, 80)), Part(-1.0, Count(20, 100))]
    uppers = [
        upper_of_sum(gap, error, different_rows=different_rows)
        for error in (0.3, 0.1, 0.05, 0.01, 1e-4)
    ]
    assert uppers == sorted(uppers)
    assert -0.05 < uppers[0] < uppers[-1] < 1


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.integers(1, 300)), min_size=1, max_size=4),
    ERRORS,
    st.data(),
)
def test_the_parts_of_a_sum_share_the_error(
    given_parts: list[tuple[float, int]], error: float, data: st.DataObject
) -> None:
    counts = [Count(data.draw(st.integers(0, n)), n) for _, n in given_parts]
    parts = [Part(a, t) for (a, _), t in zip(given_parts, counts, strict=True)]
    upper = upper_of_sum(parts, error)
    assert upper <= math.fsum(max(a, 0.0) for a, _ in parts) + 1e-9
    each = error / max(sum(a != 0 for a, _ in parts), 1)
    bounds = [a * (t.upper(each) if a > 0 else t.lower(each)) for a, t in parts]
    assert upper == pytest.approx(math.fsum(bounds))


def test_what_is_known_takes_no_share_of_the_error() -> None:
    rate = Count(5, 100)
    both = [Part(1.0, rate), Part(2.0, Known(0.25))]
    assert upper_of_sum(both, 0.05) == pytest.approx(0.5 + rate.upper(0.05))
    assert upper_of_sum([Part(2.0, Known(0.25))], 0.05) == 0.5
    assert Known(0.25).lower(0.05) == 0.25
    same = [Part(1.0, rate), Part(0.0, Count(1, 2))]
    assert upper_of_sum(same, 0.05) == rate.upper(0.05)


SAMPLES = {
    "uniform": lambda rng, n: rng.random(n),
    "coin": lambda rng, n: (rng.random(n) < 0.1).astype(float),
    "rare": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "narrow": lambda rng, n: rng.beta(30, 10, n),
}
MEANS = {"uniform": 0.5, "coin": 0.1, "rare": 0.01, "narrow": 0.75}


@pytest.mark.parametrize(
    ("name", "error"),
    [("uniform", 0.05), ("coin", 0.3), ("rare", 0.05), ("narrow", 0.3)],
)
def test_bounds_by_betting_cover_the_mean(name: str, error: float) -> None:
    rng, trials, over, under = np.random.default_rng(1), 800, 0, 0
    for _ in range(trials):
        found = Average(SAMPLES[name](rng, 120), 0.0, 1.0, 0.05)
        over += found.upper(error) < MEANS[name]
        under += found.lower(error) > MEANS[name]
    assert not too_often(over, trials, error)
    assert not too_often(under, trials, error)


def test_too_often_sees_a_level_that_is_twice_too_large() -> None:
    assert too_often(round(800 * 0.1), 800, 0.05)
    assert not too_often(round(800 * 0.05), 800, 0.05)


def test_betting_is_tighter_than_hoeffding_where_values_vary_little() -> None:
    rng = np.random.default_rng(0)
    values = rng.beta(30, 10, 500)
    hoeffding = math.sqrt(math.log(1 / 0.05) / (2 * 500))
    room = Average(values, 0.0, 1.0, 0.05).upper(0.05) - values.mean()
    assert 0 < room < 0.4 * hoeffding


def test_a_mean_moves_with_its_range() -> None:
    values = np.random.default_rng(0).random(50)
    unit = Average(values, 0.0, 1.0, 0.05)
    wide = Average(10 * values - 3, -3.0, 7.0, 0.05)
    assert wide.upper(0.01) == pytest.approx(10 * unit.upper(0.01) - 3)
    assert wide.lower(0.01) == pytest.approx(10 * unit.lower(0.01) - 3)
    assert wide.observed == pytest.approx(10 * unit.observed - 3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), ERRORS, ERRORS)
def test_bounds_of_a_mean_are_monotone(values: list[float], e: float, f: float) -> None:
    small, large = sorted((e, f))
    mean = Average(np.array(values), 0.0, 1.0, 0.05)
    assert mean.upper(large) <= mean.upper(small) <= 1
    assert 0 <= mean.lower(small) <= mean.lower(large)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("rows", [20, 59, 500])
def test_the_rank_is_the_smallest_that_is_valid(alpha: float, rows: int) -> None:
    def violation(k: int) -> float:
        return float(stats.binom.sf(k - 1, rows, 1 - alpha))

    rank = neyman_pearson_rank(rows, alpha, 0.05)
    valid = [k for k in range(1, rows + 1) if violation(k) <= 0.05]
    assert rank == (min(valid) if valid else None)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_rows_needed_is_where_a_rank_appears(alpha: float) -> None:
    rows = rows_needed(alpha, 0.05)
    assert neyman_pearson_rank(rows, alpha, 0.05) == rows
    assert neyman_pearson_rank(rows - 1, alpha, 0.05) is None
    assert Count(0, rows).upper(0.05) <= alpha < Count(0, rows - 1).upper(0.05)
