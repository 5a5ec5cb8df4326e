"""The threshold's promise, counted over many draws with known truth."""

from __future__ import annotations

import pytest
import torch

from oneproj import OneprojWarning
from oneproj.learn.capped import CalibratedThreshold, Cap, calibrate_threshold

DRAWS = 2000


def calibrate(scores: torch.Tensor, alpha: float, error: float) -> CalibratedThreshold:
    return calibrate_threshold([scores], Cap("rate", 0, alpha), error, trained=-1.0)


@pytest.mark.parametrize(("rows", "alpha"), [(200, 0.05), (70, 0.1)])
def test_new_scores_seldom_exceed_it_too_often(rows: int, alpha: float) -> None:
    # Of uniform scores, a share 1 - t exceeds the threshold t.
    scores = torch.rand(DRAWS, rows, generator=torch.Generator().manual_seed(0))
    made = [calibrate(s, alpha, 0.1) for s in scores]
    found = [each.threshold for each in made]
    failures = sum(1 - t > alpha for t in found)
    spread = (DRAWS * 0.1 * 0.9) ** 0.5
    assert failures <= DRAWS * 0.1 + 3 * spread
    assert sum(found) / DRAWS < 1 - 0.3 * alpha  # and it is not needlessly high


def test_too_few_rows_promise_nothing() -> None:
    with pytest.warns(OneprojWarning, match="takes 59 of them, so nothing is promised"):
        found = calibrate(torch.arange(58.0), 0.05, 0.05)
    assert found.threshold == -1.0  # the trained one
    assert not found.check.holds


def test_its_bound_holds_although_the_scores_chose_the_threshold() -> None:
    scores = torch.rand(DRAWS, 200, generator=torch.Generator().manual_seed(1))
    made = [calibrate(s, 0.05, 0.1) for s in scores]
    wrong = sum(1 - each.threshold > each.check.confidence_bound for each in made)
    spread = (DRAWS * 0.1 * 0.9) ** 0.5
    assert abs(wrong - DRAWS * 0.1) <= 3 * spread  # exact, so neither more nor fewer
    assert {each.check.holds for each in made} == {True}
    # Ties: a threshold above equal scores leaves fewer of them, not a smaller bound.
    tied = calibrate((scores[0] * 5).floor(), 0.05, 0.1)
    assert tied.check.observed == 0
    assert tied.check.confidence_bound == made[0].check.confidence_bound
