"""A classifier that abstains rather than err too often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from oneproj.errors import InvalidProblemError
from oneproj.learn.base import BINARY, Array, check_share
from oneproj.learn.capped import AbstractCappedClassifier, Cap
from oneproj.learn.models import ModelLike


class AbstainingClassifier(AbstractCappedClassifier):
    """Abstain seldom, and err on at most a share ``alpha`` of the rows of each class.

    There are two scores, one per class; class j is accepted where score j is high
    enough. Where both classes are accepted the classifier abstains; where neither is,
    it predicts the class that is nearer to acceptance. The scores are one logistic
    score and its negative, each shifted to accept few rows of the other class, which
    would be ambiguous, while at most a share ``alpha[j]`` of the rows of class j are
    not accepted for their class, counted on the decisions.

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
            is called once for each class.
        C: Inverse strength of an L2 penalty on the weights, as in scikit-learn's
            ``LogisticRegression``: the sum of their squares, divided by ``2 C n``, is
            added to the mean over n rows that is minimised. Intercepts are free;
            infinity for no penalty.
        steps: Stochastic gradients of the training of the score.
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

    _refusing_sign = -1.0
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
        labels = self.classes_.tolist()
        self._caps = tuple(
            Cap(f"errors of class {label}", of_class=j, share=share)
            for j, (label, share) in enumerate(
                zip(labels, _as_shares(self.alpha), strict=True)
            )
        )
        self.abstain_label_ = _abstain_label(self.classes_)
        held_out = self._fit_capped(rows, seed)
        self.thresholds_ = 0.0 - self._cuts
        judged = held_out if len(held_out) else rows
        accepted = self._accepted(self._scores_of(judged.x))
        self.coverage_ = float((~accepted.all(axis=1)).mean())
        return self

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


def _as_shares(alpha: object) -> tuple[float, ...]:
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
