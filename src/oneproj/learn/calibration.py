"""Thresholds chosen on rows that training did not see, and what they promise."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from oneproj.errors import warn
from oneproj.learn.base import DEFAULTS
from oneproj.rates.bounds import Count, neyman_pearson_rank, rows_needed
from oneproj.rates.confirm import ConstraintCheck


class CalibratedThreshold(NamedTuple):
    """A threshold, and the bound on how many new scores exceed it."""

    threshold: float | None
    """None if there are too few scores for any."""
    check: ConstraintCheck | None
    """The bound on the share of new scores above the threshold; None without scores."""


def calibrate_threshold(
    scores: Tensor, alpha: float, error: float, *, what: str
) -> CalibratedThreshold:
    """Return the least threshold that new scores exceed with probability <= alpha.

    It lies just above one of the scores given: the score of a row is rounded
    differently in other batches, and equal rows must get equal decisions. Over the draw
    of the scores, the probability that a new score exceeds it is above alpha with
    probability at most ``error``.

    The bound is honest although the same scores chose the threshold. Its rank among
    them depends on their number alone, and the probability above the k-th of n scores
    is at most the exact binomial bound for n - k events, with probability 1 - error.

    Args:
        scores: Of rows that training did not see, all of the kind that is counted. The
            trained threshold is 0.
        alpha: Cap on the share of new scores above the threshold.
        error: Probability with which the promise may fail.
        what: Is promised, for the warning that there are too few scores.

    Example:
        >>> import torch
        >>> found = calibrate_threshold(torch.arange(100.0), 0.1, 0.05, what="the cap")
        >>> round(found.threshold, 3), found.check.observed
        (95.0, 0.04)
        >>> round(found.check.confidence_bound, 4), found.check.holds
        (0.0892, True)
    """
    n, rank = len(scores), neyman_pearson_rank(len(scores), alpha, error)
    threshold = None
    if rank is None:
        needed = rows_needed(alpha, error)
        warn(
            f"{n} rows were held out for {what}, {alpha:g}. To promise it for new rows "
            f"with confidence {1 - error:.4g} takes {needed} of them, so nothing is "
            "promised: the threshold is the trained one. Give more rows of that class, "
            "a larger validation_fraction or alpha, or a smaller confidence."
        )
    else:
        room = DEFAULTS.score_rounding * max(1.0, float(scores.abs().max()))
        threshold = float(scores.double().kthvalue(rank).values) + room
    if n == 0:
        return CalibratedThreshold(None, None)
    events = int((scores > (0.0 if threshold is None else threshold)).sum())
    counted = events if rank is None else n - rank
    bound, holds = Count(counted, n).upper(error), rank is not None
    method = "order statistic" if holds else "exact binomial"
    if holds:
        bound = min(bound, alpha)  # equal up to rounding, by the choice of the rank
    check = ConstraintCheck(events / n, "<=", alpha, bound, n, holds, method)
    return CalibratedThreshold(threshold, check)
