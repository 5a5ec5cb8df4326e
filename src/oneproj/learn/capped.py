"""What estimators with a cap on the errors of a class share: training, thresholds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from oneproj.errors import OneprojWarning, warn
from oneproj.learn.base import (
    BINARY,
    DEFAULTS,
    AbstractClassifier,
    Array,
    Constraints,
    Rows,
    logistic_risk,
)
from oneproj.learn.models import own_random_numbers
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractExpression
from oneproj.rates.bounds import Count, neyman_pearson_rank, rows_needed
from oneproj.rates.confirm import Confirmation, ConstraintCheck
from oneproj.rates.functions import positive_rate


class Cap(NamedTuple):
    """A cap on the share of the rows of a class that are refused for it.

    Example:
        >>> Cap("false positive rate", of_class=0, share=0.05).share
        0.05
    """

    name: str
    """Of the constraint."""
    of_class: int
    """The class that it is about, 0 or 1."""
    share: float
    """The share that may be refused."""


class AbstractCappedClassifier(AbstractClassifier):
    """Base of the estimators that cap the errors of one class, or of both.

    One logistic score is trained, on all rows to train on. Each capped class gets a
    copy of it, by which rows are refused for that class. Then only the copies' shifts
    are trained: to refuse many rows of the other class, while the refused rows of the
    own class are within the cap, counted on decisions. Last, thresholds are chosen on
    rows that training did not see. To train all weights under the caps was no better on
    new rows (``benchmarks/NOTES.md``, "Promises for new rows").

    Attributes:
        guaranteed_: Whether the caps are promised for new rows.
    """

    _refusing_sign: ClassVar[float]
    """1 where high scores refuse the class, -1 where low ones do."""
    guaranteed_: bool
    _caps: tuple[Cap, ...]
    _cuts: Array
    """For each cap: a row is refused where ``_refusing_sign * score`` is above it."""

    def _fit_capped(self, rows: Rows, seed: int) -> Rows:
        """Train the scores, choose the cuts; return the rows that were held out."""
        self._cuts = np.zeros(len(self._caps))
        with own_random_numbers(seed) as generator:
            train, held_out = self._split(rows, generator)
            self._make_model(train.x, generator, scores=len(self._caps))
            self._train_score(train, seed)
            self._train_shifts(train, seed)
        self._calibrate(held_out)
        return held_out

    def _split(self, rows: Rows, generator: torch.Generator) -> tuple[Rows, Rows]:
        """Hold out rows of the capped classes only, and none without a confidence."""
        if self.confidence is None:
            self._kept_out = None
            return rows, rows.of(rows.y > 1)
        train, held_out = super()._split(rows, generator)
        for free in {0, 1} - {cap.of_class for cap in self._caps}:
            train = train.of(train.y != free).with_rows(rows.of(rows.y == free))
            held_out = held_out.of(held_out.y != free)
        return train, held_out

    def _train_score(self, rows: Rows, seed: int) -> None:
        """Train the last score without caps; the others become copies of it."""
        last = self.model_[-1]
        last.shift.zero_()  # of the last fit, with warm_start
        risk = self._penalised(logistic_risk(last, rows), rows, last)
        self._solve(risk, {}, seed, last)
        trained = {name: value.clone() for name, value in last.state_dict().items()}
        for k, cap in enumerate(self._caps):
            self.model_[k].load_state_dict(trained)
            sign = self._refusing_sign * (1 - BINARY * cap.of_class)
            self.model_[k].sign.fill_(sign)

    def _train_shifts(self, rows: Rows, seed: int) -> None:
        """Shift the scores to the caps, and no farther."""
        for k, cap in enumerate(self._caps):
            own = self._refusals(k, rows.x[rows.y == cap.of_class]).sort().values
            allowed = math.floor(cap.share * len(own))
            self.model_[k].shift.fill_(-self._refusing_sign * own[-1 - allowed])
        losses = [self._acceptances(k, rows) for k in range(len(self._caps))]
        constraints = self._constraints(rows)
        shifts = [self.model_[k].shift.requires_grad_() for k in range(len(losses))]
        problem = Problem(shifts, sum(losses[1:], losses[0]), constraints)
        with warnings.catch_warnings():  # to go back to the start is an ordinary end
            warnings.filterwarnings("ignore", "The answer is the start", OneprojWarning)
            self._run(problem, seed, DEFAULTS.shift_steps)
        for shift in shifts:
            shift.requires_grad = False

    def _refusing(self, k: int) -> Callable[[Tensor], Tensor]:
        """The differentiable score by which rows are refused for the class of a cap."""
        return lambda x: self._refusing_sign * self.model_[k](x)

    def _refusals(self, k: int, x: Tensor) -> Tensor:
        """By how much rows are refused for the class of a cap, without gradients."""
        return torch.from_numpy(self._refusing_sign * self._scores_of(x)[:, k])

    def _acceptances(self, k: int, rows: Rows) -> AbstractExpression:
        """The mean loss of rows of the other class, which should be refused."""
        others = rows.x[rows.y != self._caps[k].of_class]
        refused = Rows(others, torch.ones(len(others), dtype=others.dtype))
        return logistic_risk(self._refusing(k), refused)

    def _constraints(self, rows: Rows) -> Constraints:
        made = {}
        for k, cap in enumerate(self._caps):
            own = rows.x[rows.y == cap.of_class]
            cut = float(self._cuts[k])
            refused = positive_rate(self._refusing(k), data=own, threshold=cut)
            made[cap.name] = refused.with_loss_gradient([0] * len(own)) <= cap.share
        return made

    def _calibrate(self, rows: Rows) -> None:
        """Choose the cuts so that the caps hold on new rows; keep what is promised."""
        self.confirmation_, self.guaranteed_ = None, False
        if self.confidence is None:
            return
        # The classes have different rows, which are independent: confidences multiply.
        error = 1 - self.confidence ** (1 / len(self._caps))
        checks: dict[str, ConstraintCheck] = {}
        for k, cap in enumerate(self._caps):
            scores = self._refusals(k, rows.x[rows.y == cap.of_class])
            found = calibrate_threshold(scores, cap.share, error, what=cap.name)
            self._cuts[k] = 0.0 if found.threshold is None else found.threshold
            if found.check is not None:
                checks[cap.name] = found.check
        if len(checks) == len(self._caps):  # else one cap has no row to judge it by
            self.confirmation_ = Confirmation(checks, self.confidence, "independent")
            self.guaranteed_ = self.confirmation_.holds


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
        what: Is capped, for the warning that there are too few scores.

    Example:
        >>> import torch
        >>> found = calibrate_threshold(torch.arange(100.0), 0.1, 0.05, what="rate")
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
            f"{n} rows were held out for the cap on the {what}, {alpha:g}. To promise "
            f"it for new rows with confidence {1 - error:.4g} takes {needed} of them, "
            "so nothing is promised: the threshold is the trained one. Give more rows "
            "of that class, a larger validation_fraction or alpha, or a smaller "
            "confidence."
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
