"""Calibration: the chosen value is right as often as stated, and no more careful."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from oneproj import InvalidProblemError, rates

GRID = [2.5, 2.2, 2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.0]


def family_over(x: Tensor, alpha: float) -> Callable[[float], dict[str, Any]]:
    """Constraints on the share of rows above a threshold."""

    def family(threshold: float) -> dict[str, Any]:
        accepted = rates.positive_rate(lambda r: r, data=x, threshold=threshold)
        return {"accepted": accepted <= alpha}

    return family


def test_the_last_value_before_the_first_failure_is_chosen() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=800))
    found = rates.calibrate(family_over(x, 0.1), GRID)
    each = [rates.calibrate(family_over(x, 0.1), [value]).holds for value in GRID]
    first = each.index(False)
    assert found.value == GRID[first - 1]
    assert found.tried == tuple(GRID[: first + 1])
    assert found.holds
    assert found.confirmation is not None
    bound = found.confirmation["accepted"].confidence_bound
    assert bound <= 0.1
    assert bound > 0.06  # the least conservative


def test_no_value_passes() -> None:
    x = torch.zeros(30)
    found = rates.calibrate(family_over(x, 0.1), [-1.0, -2.0])
    assert (found.value, found.holds, found.tried) == (None, False, (-1.0,))
    assert "none was confirmed" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["confirmation"] is None


def test_all_pass() -> None:
    found = rates.calibrate(family_over(torch.zeros(90), 0.1), GRID)
    assert found.value == GRID[-1]
    assert json.loads(json.dumps(found.to_dict()))["confirmation"]["holds"] is True
    assert "accepted" in str(found)


def test_the_choice_is_wrong_no_more_often_than_stated() -> None:
    rng, trials, error = np.random.default_rng(5), 250, 0.2
    wrong = 0
    for _ in range(trials):
        x = torch.from_numpy(rng.normal(size=150))
        chosen = rates.calibrate(family_over(x, 0.0805), GRID, 1 - error).value
        wrong += chosen is not None and stats.norm.sf(chosen) > 0.0805
    assert stats.binom.sf(wrong - 1, trials, error) > 1e-5
    assert wrong > 0


def test_training_rows_and_ranges_are_checked() -> None:
    x = torch.rand(60, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InvalidProblemError, match="in the training data"):
        rates.calibrate(family_over(x, 0.1), GRID, training=x[:30])
    with pytest.raises(InvalidProblemError, match="no values"):
        rates.calibrate(family_over(x, 0.1), [])


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_neyman_pearson_threshold_fails_as_often_as_stated(alpha: float) -> None:
    rng, trials, error = np.random.default_rng(2), 1500, 0.1
    rows = 120
    true = [
        stats.norm.sf(rates.neyman_pearson_threshold(s, alpha, 1 - error))
        for s in rng.normal(size=(trials, rows))
    ]
    wrong = sum(rate > alpha for rate in true)
    # Exact: the probability is that of the rank, at most the error.
    rank = next(
        k for k in range(1, rows + 1) if stats.binom.sf(k - 1, rows, 1 - alpha) <= error
    )
    exact = stats.binom.sf(rank - 1, rows, 1 - alpha)
    assert stats.binomtest(wrong, trials, exact).pvalue > 1e-5
    assert exact <= error


def test_ties_make_the_threshold_only_safer() -> None:
    rng, trials, wrong = np.random.default_rng(0), 400, 0
    for _ in range(trials):
        scores = rng.integers(0, 10, size=100)
        threshold = rates.neyman_pearson_threshold(scores, 0.15, 0.9)
        wrong += np.mean(np.arange(10) > threshold) > 0.15
    assert stats.binom.sf(wrong - 1, trials, 0.1) > 1e-5


def test_the_threshold_is_the_confirmed_one() -> None:
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=500))
    threshold = rates.neyman_pearson_threshold(scores, 0.05)
    family = family_over(scores, 0.05)
    lower = float(scores[scores < threshold].max())
    assert rates.calibrate(family, [threshold]).holds
    assert not rates.calibrate(family, [lower]).holds


def test_both_class_errors_hold_together_as_often_as_stated() -> None:
    rng, trials, error, alpha = np.random.default_rng(8), 1500, 0.1, 0.1
    wrong, abstained = 0, []
    for _ in range(trials):
        negative, positive = rng.normal(-0.5, size=150), rng.normal(0.5, size=90)
        found = rates.abstention_thresholds(negative, positive, alpha, 1 - error)
        false_alarm = stats.norm.sf(found.above, loc=-0.5)
        miss = stats.norm.cdf(found.below, loc=0.5)
        wrong += max(false_alarm, miss) > alpha
        abstained.append(found.above - found.below)
    assert stats.binom.sf(wrong - 1, trials, error) > 1e-5
    assert wrong > 0.03 * trials  # and not by abstaining always
    assert min(abstained) > 0


def test_thresholds_that_cross_become_one() -> None:
    rng, trials, error, alpha = np.random.default_rng(8), 600, 0.1, 0.1
    wrong = 0
    for _ in range(trials):
        negative, positive = rng.normal(-1.3, size=150), rng.normal(1.3, size=90)
        found = rates.abstention_thresholds(negative, positive, (alpha, 0.2), 1 - error)
        assert found.below <= found.above
        false_alarm = stats.norm.sf(found.above, loc=-1.3)
        wrong += false_alarm > alpha or stats.norm.cdf(found.below, loc=1.3) > 0.2
    assert stats.binom.sf(wrong - 1, trials, error) > 1e-5
    decided = found.decide(torch.tensor([-9.0, 9.0]))
    assert decided.tolist() == [0, 1]


REFUSED: list[tuple[str, Callable[[], object], str]] = [
    (
        "too few",
        lambda: rates.neyman_pearson_threshold(torch.rand(58), 0.05),
        "takes 59 rows",
    ),
    ("none", lambda: rates.neyman_pearson_threshold([], 0.05), "has 0 rows"),
    (
        "NaN",
        lambda: rates.neyman_pearson_threshold([0.0, float("nan")], 0.5),
        "1 NaN or infinite",
    ),
    ("shape", lambda: rates.neyman_pearson_threshold(torch.rand(9, 1), 0.5), "9, 1"),
    ("alpha", lambda: rates.neyman_pearson_threshold(torch.rand(9), 5), "0.05, for"),
    (
        "confidence",
        lambda: rates.neyman_pearson_threshold(torch.rand(9), 0.5, 1.0),
        "between 0 and 1",
    ),
    (
        "class",
        lambda: rates.abstention_thresholds(torch.rand(99), torch.rand(9), 0.1),
        "positive_scores has 9 rows",
    ),
    (
        "three",
        lambda: rates.abstention_thresholds(
            torch.rand(99),
            torch.rand(99),
            (0.1, 0.1, 0.1),  # type: ignore[arg-type]
        ),
        "a pair",
    ),
]


@pytest.mark.parametrize(
    ("call", "match"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_it_is_refused_in_words(call: Callable[[], object], match: str) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        call()
