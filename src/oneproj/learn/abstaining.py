"""A classifier that abstains rather than err too often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from oneproj import rates
from oneproj.errors import InvalidProblemError
from oneproj.learn.base import (
    BINARY,
    AbstractClassifier,
    Array,
    Constraints,
    Rows,
    check_share,
)
from oneproj.learn.calibration import calibrate_threshold
from oneproj.learn.models import ModelLike, own_random_numbers
from oneproj.problem.functions import mean


class AbstainingClassifier(AbstractClassifier):
    """Abstain seldom, and err on at most a share ``alpha`` of the rows of each class.

    Two scores are trained, one per class; class j is accepted where score j is high
    enough. Where both classes are accepted the classifier abstains; where neither is,
    it predicts the class that is nearer to acceptance. Training minimises the
    ambiguity of appendix D.2 of the paper, the mean of ``[1 + s_0]_+ [1 + s_1]_+``,
    while at most a share ``alpha[j]`` of the rows of class j are not accepted for
    their class, counted on the decisions. It starts from one logistic score and its
    negative, shifted to keep the caps, and is never worse than that.

    With a confidence, the promise is about new rows: over the draw of the training
    rows, both class errors on rows from the same source are at most alpha, together
    with at least this probability. The thresholds for that are chosen on rows that
    training did not see, by the exact binomial rule. If there are too few of them, a
    warning says how many are needed, and ``guaranteed_`` is False. With
    ``confidence=None`` the caps are on the rows that were trained on, exactly. The
    columns are standardised inside.

    Args:
        alpha: Cap on the share of errors among the rows of a class, or a pair of caps.
        confidence: With which both caps hold on new rows, between 0 and 1; or None.
        model: None for linear scores, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``; it
            is called once for each score.
        C: Inverse strength of an L2 penalty on the weights, as in scikit-learn's
            ``LogisticRegression``: the sum of their squares, divided by ``2 C n``, is
            added to the mean over n rows that is minimised. Intercepts are free;
            infinity for no penalty.
        steps: Stochastic gradients of each of the two trainings.
        validation_fraction: Share of the rows of each class held out for thresholds.
        warm_start: Whether ``fit`` goes on from the model of the last ``fit``.
            The same table keeps the rows that were held out; of another one none is.
        random_state: A seed, a ``RandomState``, or None for NumPy's global one.

    Attributes:
        thresholds_: Score j accepts class j from this value on.
        abstain_label_: What ``predict`` returns where it abstains: -1, or one less than
            the smallest label if that is -1 or less; ``"abstain"`` for labels that are
            not numbers.
        coverage_: Share of the held-out rows, or of all if none is, that get a label.
        guaranteed_: Whether the caps are promised for new rows.

    ``score`` counts an abstention as an error.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(1000, flip_y=0.2, random_state=0)
        >>> clf = AbstainingClassifier(alpha=0.1, random_state=0).fit(X, y)
        >>> sorted(set(clf.predict(X).tolist())), clf.guaranteed_
        ([-1, 0, 1], True)
    """

    thresholds_: Array

    def __init__(
        self,
        alpha: float | Sequence[float] = 0.1,
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
        """Train the two scores, then choose their thresholds.

        Args:
            X: A table of numbers: array, DataFrame, or sparse, which is made dense.
            y: Labels of two classes.
        """
        seed, rows = self._seed(), self._read(X, y)
        self._caps = _as_caps(self.alpha)
        self.abstain_label_ = _abstain_label(self.classes_)
        self.thresholds_ = np.zeros(BINARY)
        with own_random_numbers(seed) as generator:
            train, held_out = rows, rows.of(rows.y > 1)
            if self.confidence is None:
                self._kept_out = None
            else:
                train, held_out = self._split(rows, generator)
            if not self._make_model(train.x, generator, scores=BINARY):
                self._pretrain(train, seed)
                self._open(train)
            ambiguity = self._penalised(mean(self._ambiguity, data=train.x), train)
            constraints = self._constraints(train)
            self._solve(ambiguity, constraints, seed, pretrained=True)
        self._promise({})
        if self.confidence is not None:
            self._calibrate(held_out, self.confidence)
        seen = held_out if len(held_out) else rows
        accepted = self._accepted(self._scores_of(seen.x))
        self.coverage_ = float((~accepted.all(axis=1)).mean())
        return self

    def _open(self, rows: Rows) -> None:
        """Start from one trained score and its negative, shifted to keep the caps."""
        first, second = self.model_[0], self.model_[1]
        first.load_state_dict(second.state_dict())
        first.sign.fill_(-1.0)
        scores = torch.from_numpy(self._scores_of(rows.x))
        for j, cap in enumerate(self._caps):
            own = scores[rows.y == j, j].sort().values
            self.model_[j].shift.fill_(-own[math.floor(cap * len(own))])

    def _calibrate(self, rows: Rows, confidence: float) -> None:
        """Move the thresholds so that both caps hold on new rows."""
        # The rows of the two classes are independent: the confidences multiply.
        error = 1 - math.sqrt(confidence)
        scores, checks = torch.from_numpy(self._scores_of(rows.x)), {}
        for j, (label, cap) in enumerate(
            zip(self.classes_.tolist(), self._caps, strict=True)
        ):
            refusals = -scores[rows.y == j, j]
            what = f"the cap on errors of class {label!r}"
            found = calibrate_threshold(refusals, cap, error, what=what)
            self.thresholds_[j] = -(found.threshold or 0.0)
            checks[f"errors of class {label}"] = found.check
        self._promise(checks)

    def _ambiguity(self, x: Tensor) -> Tensor:
        """The hinge surrogate of "both classes are accepted", for each row."""
        accepts: Tensor = (1.0 + self.model_(x)).relu()
        return accepts.prod(dim=-1)

    def _constraints(self, rows: Rows) -> Constraints:
        return {
            f"errors of class {label}": self._refusals(rows, j) <= self._caps[j]
            for j, label in enumerate(self.classes_.tolist())
        }

    def _refusals(self, rows: Rows, j: int) -> rates.Rate:
        """The share of the rows of class j whose score is below its threshold."""

        def refuses(x: Tensor) -> Tensor:
            scores: Tensor = self.model_(x)
            return -scores[:, j]

        of_class = rows.x[rows.y == j]
        threshold = -float(self.thresholds_[j])
        return rates.positive_rate(refuses, data=of_class, threshold=threshold)

    def _accepted(self, scores: Array) -> Array:
        accepted: Array = scores >= self.thresholds_
        return accepted

    def class_scores(self, X: object) -> Array:
        """Return by how much each score exceeds its threshold, shape (n, 2).

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        scores = self._scores(X)
        found: Array = scores - self.thresholds_
        return found

    def predict_set(self, X: object) -> Array:
        """Return which classes are accepted for each row, as booleans (n, 2).

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        return self._accepted(self._scores(X))

    def predict(self, X: object) -> Array:
        """Return the label of each row, or ``abstain_label_``.

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        scores = self._scores(X)
        chosen = (scores - self.thresholds_).argmax(axis=1)
        chosen[self._accepted(scores).all(axis=1)] = BINARY
        labels = np.append(self.classes_, self.abstain_label_)
        found: Array = labels[chosen]
        return found


def _as_caps(alpha: object) -> tuple[float, ...]:
    why = "It caps the share of errors among the rows of a class."
    if not isinstance(alpha, Sequence | np.ndarray) or isinstance(alpha, str):
        return (check_share("alpha", alpha, why),) * BINARY
    if len(alpha) == BINARY:
        return tuple(check_share("An entry of alpha", cap, why) for cap in alpha)
    message = (
        "alpha must be one number, or a pair for the two sorted classes, got "
        f"{alpha!r}."
    )
    raise InvalidProblemError(message)


def _abstain_label(classes: Array) -> Any:  # noqa: ANN401 - as the labels are
    """A label that is not one of the classes, of their kind."""
    if np.issubdtype(classes.dtype, np.number) or classes.dtype == bool:
        return min(-1, math.floor(classes.min()) - 1)
    label = "abstain"
    while label in classes:
        label = f"_{label}"
    return label
