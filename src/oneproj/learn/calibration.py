"""Thresholds chosen on rows that training did not see."""

from __future__ import annotations

from torch import Tensor

from oneproj.errors import warn
from oneproj.rates.bounds import rows_needed
from oneproj.rates.calibration import neyman_pearson_threshold

ROUNDING = 1e-9
"""Relative; far above what the order of sums changes a score by in float64."""


def calibrated_threshold(
    scores: Tensor, alpha: float, error: float, *, what: str
) -> float | None:
    """Return the least threshold that new scores exceed with probability <= alpha.

    It lies just above one of the scores given: the score of a row is rounded
    differently in other batches, and equal rows must get equal decisions. Over the draw
    of the scores, the probability that a new score exceeds it is above alpha with
    probability at most ``error``.

    Args:
        scores: Of rows that training did not see, all of the kind that is counted.
        alpha: Cap on the share of new scores above the threshold.
        error: Probability with which the promise may fail.
        what: Is promised, for the warning.

    Returns:
        The threshold; None, with a warning, if there are too few scores for any.

    Example:
        >>> import torch
        >>> scores = torch.arange(100.0)
        >>> round(calibrated_threshold(scores, 0.1, 0.05, what="the cap"), 3)
        95.0
    """
    needed = rows_needed(alpha, error)
    if len(scores) >= needed:
        room = ROUNDING * max(1.0, float(scores.abs().max()))
        return neyman_pearson_threshold(scores, alpha, 1 - error) + room
    warn(
        f"{len(scores)} rows were held out for {what}, {alpha:g}. To promise it for "
        f"new rows with confidence {1 - error:.4g} takes {needed} of them, so nothing "
        "is promised: the threshold is the trained one. Give more rows of that class, "
        "a larger validation_fraction or alpha, or a smaller confidence."
    )
    return None
