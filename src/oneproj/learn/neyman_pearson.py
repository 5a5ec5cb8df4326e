"""A classifier with few misses under a cap on false positives."""

from __future__ import annotations

import math
from typing import Any, Self

import torch

from oneproj import rates
from oneproj.learn.base import (
    AbstractThresholdClassifier,
    Constraints,
    Rows,
    check_share,
    logistic_risk,
)
from oneproj.learn.calibration import calibrate_threshold
from oneproj.learn.models import ModelLike, own_random_numbers


class NeymanPearsonClassifier(AbstractThresholdClassifier):
    """Miss few positives while at most a share ``alpha`` of negatives is flagged.

    With a confidence, the promise is about new rows: over the draw of the training
    rows, the false positive rate of the fitted classifier on rows from the same source
    is at most alpha, with at least this probability. It holds for every sample size
    and every distribution of independent rows. With ``confidence=None`` the cap is on
    the false positives among the rows that were trained on, exactly, and nothing is
    promised about new ones.

    A logistic score is trained without a cap, then shifted to keep it, and from there
    trained to have few misses under the cap, counted on the decisions for negative
    rows; the bound changes the weight of these rows in the loss. Then the threshold is
    chosen on negative rows that training did not see: the smallest of their scores
    that is high enough by the exact binomial rule of Tong, Feng and Li (2018). If there
    are too few of them for that, a warning says how many are needed, the threshold
    stays the trained one, and ``guaranteed_`` is False. The columns are standardised
    inside.

    Args:
        alpha: Cap on the false positive rate, between 0 and 1.
        confidence: With which the cap holds on new rows, between 0 and 1; or None.
        model: None for a linear score, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``.
        C: Inverse strength of an L2 penalty on the weights, as in scikit-learn's
            ``LogisticRegression``: the sum of their squares, divided by ``2 C n``, is
            added to the mean over n rows that is minimised. Intercepts are free;
            infinity for no penalty.
        steps: Stochastic gradients of each of the two trainings.
        validation_fraction: Share of the negative rows held out for the threshold.
        warm_start: Whether ``fit`` goes on from the model of the last ``fit``.
            The same table keeps the rows that were held out; of another one none is.
        random_state: A seed, a ``RandomState``, or None for NumPy's global one.

    Attributes:
        guaranteed_: Whether the cap is promised for new rows.

    The positive class is the second of the sorted labels. There are no probabilities:
    the score is trained for one operating point.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(1000, random_state=0)
        >>> clf = NeymanPearsonClassifier(alpha=0.1, random_state=0)
        >>> clf = clf.fit(X[:700], y[:700])
        >>> clf.guaranteed_
        True
        >>> negative = y[700:] == 0
        >>> float(clf.predict(X[700:])[negative].mean()) <= 0.1
        True
    """

    def __init__(
        self,
        alpha: float = 0.05,
        confidence: float | None = 0.95,
        *,
        model: ModelLike = None,
        C: float = 1.0,
        steps: int = 500,
        validation_fraction: float = 0.5,
        warm_start: bool = False,
        random_state: Any = None,  # noqa: ANN401 - an int, a RandomState or None
    ) -> None:
        self.alpha = alpha
        self.confidence = confidence
        self.model = model
        self.C = C
        self.steps = steps
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: object, y: object) -> Self:
        """Train the score, then choose its threshold.

        Args:
            X: A table of numbers: array, DataFrame, or sparse, which is made dense.
            y: Labels of two classes.
        """
        seed, rows = self._seed(), self._read(X, y)
        check_share("alpha", self.alpha, "It caps the false positive rate.")
        with own_random_numbers(seed) as generator:
            train, held_out = self._split(rows, generator)
            self.threshold_ = 0.0
            if not self._make_model(train.x, generator, scores=1):
                self._pretrain(train, seed)
                self._open(train)
            positive = train.of(train.y == 1)
            misses = self._penalised(logistic_risk(self._score, positive), positive)
            self._solve(misses, self._constraints(train), seed, pretrained=True)
        self._promise({})
        if self.confidence is not None:
            error, cap = 1 - self.confidence, "the cap on false positives"
            scores = torch.from_numpy(self._scores_of(held_out.x)[:, 0])
            found = calibrate_threshold(scores, self.alpha, error, what=cap)
            self.threshold_ = 0.0 if found.threshold is None else found.threshold
            self._promise({"false positive rate": found.check})
        return self

    def _open(self, rows: Rows) -> None:
        """Start from a logistic score, shifted to keep the cap."""
        scores = self._scores_of(rows.x[rows.y == 0])[:, 0]
        scores.sort()
        allowed = math.floor(self.alpha * len(scores))
        self.model_[0].shift.fill_(-scores[-1 - allowed])

    def _split(self, rows: Rows, generator: torch.Generator) -> tuple[Rows, Rows]:
        """Hold out negative rows only, and none without a confidence."""
        if self.confidence is None:
            self._kept_out = None
            return rows, rows.of(rows.y > 1)
        train, held_out = super()._split(rows, generator)
        positive = rows.of(rows.y == 1)
        return train.of(train.y == 0).with_rows(positive), held_out.of(held_out.y == 0)

    def _constraints(self, rows: Rows) -> Constraints:
        flagged = rates.false_positive_rate(
            self._score, data=(rows.x, rows.y), threshold=self.threshold_
        )
        flagged = flagged.with_loss_gradient(rows.y)
        return {"false positive rate": flagged <= self.alpha}
