"""The threshold's promise, counted over many draws with known truth."""

from __future__ import annotations

import pytest
import torch

from oneproj import OneprojWarning
from oneproj.learn.calibration import calibrated_threshold

DRAWS = 2000


@pytest.mark.parametrize(("rows", "alpha"), [(200, 0.05), (70, 0.1)])
def test_new_scores_seldom_exceed_it_too_often(rows: int, alpha: float) -> None:
    # Of uniform scores, a share 1 - t exceeds the threshold t.
    scores = torch.rand(DRAWS, rows, generator=torch.Generator().manual_seed(0))
    found = [calibrated_threshold(s, alpha, 0.1, what="the cap") for s in scores]
    failures = sum(1 - t > alpha for t in found if t is not None)
    spread = (DRAWS * 0.1 * 0.9) ** 0.5
    assert failures <= DRAWS * 0.1 + 3 * spread
    assert sum(found) / DRAWS < 1 - 0.3 * alpha  # and it is not needlessly high


def test_too_few_rows_promise_nothing() -> None:
    with pytest.warns(OneprojWarning, match="takes 59 of them, so nothing is promised"):
        assert calibrated_threshold(torch.arange(58.0), 0.05, 0.05, what="it") is None
