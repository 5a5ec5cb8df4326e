"""Caps on the errors of a class: few misses under a cap, or abstain rather than err."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError, warn
from oneproj.learn.base import (
    DEFAULTS,
    AbstractClassifier,
    AbstractThresholdClassifier,
    Constraints,
)
from oneproj.learn.models import ModelLike, own_random_numbers
from oneproj.learn.tables import BINARY, Array, Rows
from oneproj.rates.bounds import Count, check_share, rows_needed
from oneproj.rates.calibration import order_statistic
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

    One logistic score is trained. By it, or by its negative, rows are refused for a
    capped class where they exceed a threshold. That is chosen on rows that training
    did not see, or so that the cap holds on the rows that were trained on. To train all
    weights under the caps was no better on new rows (``benchmarks/NOTES.md``, "Promises
    for new rows").

    Attributes:
        guaranteed_: Whether the caps are promised for new rows.
    """

    guaranteed_: bool
    _caps: tuple[Cap, ...]
    _cuts: Array
    """For each cap: a row is refused for the class where ``_refusal`` is above it."""

    def _fit_capped(self, rows: Rows, seed: int) -> Rows:
        """Train the scores, choose the cuts; return the rows held out, each once."""
        self._cuts = np.zeros(len(self._caps))
        with own_random_numbers(seed) as generator:
            train, held_out = self._split(rows, generator)
            self._make_model(train.x, generator)
            self._minimise_loss(self._score, train, {}, seed)
        self._cut_at_caps(train)
        self._calibrate(held_out)
        return held_out[0]

    def _split(
        self, rows: Rows, generator: torch.Generator
    ) -> tuple[Rows, tuple[Rows, ...]]:
        """Hold out no rows without a confidence."""
        if self.confidence is None:
            self._kept_out = None
            return rows, (rows.of(rows.y > 1),)
        return super()._split(rows, generator)

    def _is_judged(self, rows: Rows) -> Tensor:
        return torch.isin(rows.y, torch.tensor([float(c.of_class) for c in self._caps]))

    def _cut_at_caps(self, rows: Rows) -> None:
        """Choose the least cuts at which the caps hold on the rows trained on."""
        for k, cap in enumerate(self._caps):
            own = self._refusals(k, rows).sort().values
            allowed = math.floor(cap.share * len(own))
            self._cuts[k] = _just_above(own[-1 - allowed], own)

    def _refusal(self, k: int, x: Tensor) -> Tensor:
        """What refuses rows for the class of a cap: the score, negated for class 1."""
        return -self._score(x) if self._caps[k].of_class else self._score(x)

    def _refusals(self, k: int, rows: Rows) -> Tensor:
        """What refuses the rows of the class of a cap, without gradients."""
        of_class = self._caps[k].of_class
        scores = torch.from_numpy(self._scores_of(rows.x[rows.y == of_class]))
        return -scores if of_class else scores

    def _constraints(self, rows: Rows) -> Constraints:
        made = {}
        for k, cap in enumerate(self._caps):
            own = rows.x[rows.y == cap.of_class]
            cut = float(self._cuts[k])
            score = partial(self._refusal, k)
            refused = positive_rate(score, data=own, threshold=cut)
            made[cap.name] = refused <= cap.share
        return made

    def _calibrate(self, held_out: Sequence[Rows]) -> None:
        """Choose the cuts so that the caps hold on new rows; keep what is promised."""
        self.confirmation_, self.guaranteed_ = None, False
        if self.confidence is None:
            return
        # The classes have different rows, which are independent: confidences multiply.
        error = 1 - self.confidence ** (1 / len(self._caps))
        checks: dict[str, ConstraintCheck] = {}
        for k, cap in enumerate(self._caps):
            scores = [self._refusals(k, rows) for rows in held_out]
            cut = float(self._cuts[k])
            found = calibrate_threshold(scores, cap, error, trained=cut)
            self._cuts[k] = found.threshold
            if found.check is not None:
                checks[cap.name] = found.check
        if len(checks) == len(self._caps):  # else one cap has no row to judge it by
            self.confirmation_ = Confirmation(checks, self.confidence, "independent")
            self.guaranteed_ = self.confirmation_.holds


class NeymanPearsonClassifier(AbstractCappedClassifier, AbstractThresholdClassifier):
    """Miss few positives while at most a share ``alpha`` of negatives is flagged.

    With a confidence, the promise is about new rows: over the draw of the training
    rows, the false positive rate of the fitted classifier on rows from the same source
    is at most alpha, with at least this probability. It holds for every sample size
    and every distribution of independent rows. Rows that are equal may be copies: the
    threshold is one that holds if they count once, and if each counts. With
    ``confidence=None`` the cap is on the false positives among the rows that were
    trained on, exactly, and nothing is promised about new ones.

    A logistic score is trained. Then the threshold is chosen on negative rows that
    training did not see: the smallest of their scores that is high enough by the exact
    binomial rule of Tong, Feng and Li (2018). If there are too few of them for that, a
    warning says how many are needed, the threshold is the least at which the cap holds
    on the rows trained on, and ``guaranteed_`` is False. The columns are standardised
    inside.

    Args:
        alpha: Cap on the false positive rate, between 0 and 1.
        confidence: With which the cap holds on new rows, between 0 and 1; or None.
        model: None for a linear score, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``.
        C: Inverse strength of an L2 penalty on weights, as in ``LogisticRegression``:
            their squares over ``2 C n`` are added to the mean loss of n rows.
            Intercepts are free; infinity for no penalty.
        steps: Stochastic gradients of the training of the score.
        validation_fraction: Share of the negative rows held out for the threshold.
        warm_start: Whether ``fit`` goes on from the model of the last ``fit``.
            The same table keeps the rows that were held out; of another one none is.
        random_state: A seed, a ``RandomState``, or None for NumPy's global one.

    Attributes:
        guaranteed_: Whether the cap is promised for new rows.

    The positive class is the second of the sorted labels. There are no probabilities:
    the score is trained for one operating point. ``score`` is the accuracy, which says
    nothing about caps: a ``GridSearchCV`` over ``alpha`` tends to the loosest. Choose
    alpha by what false positives cost, and search over ``C`` or ``model``.

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
        alpha = check_share("alpha", self.alpha, "It caps the false positive rate.")
        self._caps = (Cap("false positive rate", of_class=0, share=alpha),)
        self._fit_capped(rows, seed)
        self.threshold_ = float(self._cuts[0])
        return self


class AbstainingClassifier(AbstractCappedClassifier):
    """Abstain seldom, and err on at most a share ``alpha`` of the rows of each class.

    There are two scores, one per class; class j is accepted where score j is high
    enough. Where both classes are accepted the classifier abstains; where neither is,
    it predicts the class that is nearer to acceptance. The scores are one logistic
    score and its negative. Their thresholds are the highest at which at most a share
    ``alpha[j]`` of the rows of class j are not accepted for their class.

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
        model: None for a linear score, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``.
        C: Inverse strength of an L2 penalty on weights, as in ``LogisticRegression``:
            their squares over ``2 C n`` are added to the mean loss of n rows.
            Intercepts are free; infinity for no penalty.
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

    ``score`` is the accuracy: it counts an abstention as an error, and says nothing
    about caps. A ``GridSearchCV`` over ``alpha`` tends to the loosest, which abstains
    least. Choose alpha by what errors cost, and search over ``C`` or ``model``.

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
        accepted = self._excess(self._scores_of(judged.x)) >= 0
        self.coverage_ = float((~accepted.all(axis=1)).mean())
        return self

    def _excess(self, scores: Array) -> Array:
        """By how much each of the two scores of rows exceeds its threshold."""
        both: Array = np.column_stack([-scores, scores]) - self.thresholds_
        return both

    def class_scores(self, X: object) -> Array:
        """Return by how much each score exceeds its threshold, shape (n, 2).

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        return self._excess(self._scores(X))

    def predict_set(self, X: object) -> Array:
        """Return which classes are accepted for each row, as booleans (n, 2).

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        accepted: Array = self.class_scores(X) >= 0
        return accepted

    def predict(self, X: object) -> Array:
        """Return the label of each row, or ``abstain_label_``.

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        excess = self.class_scores(X)
        chosen = excess.argmax(axis=1)
        chosen[(excess >= 0).all(axis=1)] = BINARY
        labels = np.append(self.classes_, self.abstain_label_)
        found: Array = labels[chosen]
        return found


class CalibratedThreshold(NamedTuple):
    """A threshold, and the bound on how many new scores exceed it."""

    threshold: float
    """The trained one if there are too few scores for another."""
    check: ConstraintCheck | None
    """The bound on the share of new scores above the threshold; None without scores."""


def calibrate_threshold(
    scores: Sequence[Tensor], cap: Cap, error: float, *, trained: float
) -> CalibratedThreshold:
    """Return the least threshold that new scores exceed as rarely as a cap says.

    It lies just above one of the scores given: the score of a row is rounded
    differently in other batches, and equal rows must get equal decisions. Over the draw
    of the scores, the probability that a new score exceeds it is above the cap with
    probability at most ``error``.

    The bound is honest although the same scores chose the threshold. Its rank among
    them depends on their number alone, and the probability above the k-th of n scores
    is at most the exact binomial bound for n - k events, with probability 1 - error.

    Args:
        scores: Of rows that training did not see, all of the kind that is counted: one
            sample, or several readings of it, the smallest first, which is reported.
            The threshold holds in each, and the bound is the largest.
        cap: On the share of new scores above the threshold.
        error: Probability with which the promise may fail.
        trained: The threshold if there are too few scores, which a warning says.

    Example:
        >>> cap = Cap("false positive rate", of_class=0, share=0.1)
        >>> found = calibrate_threshold([torch.arange(100.0)], cap, 0.05, trained=0.0)
        >>> round(found.threshold, 3), found.check.observed
        (95.0, 0.04)
        >>> round(found.check.confidence_bound, 4), found.check.holds
        (0.0892, True)
    """
    n, alpha = len(scores[0]), cap.share
    found = [(order_statistic(each, alpha, error), each) for each in scores]
    least = [(at, each) for at, each in found if at is not None]
    holds = len(least) == len(scores)
    if not holds:
        needed = rows_needed(alpha, error)
        which = "different rows" if len(scores) > 1 else "rows"
        warn(
            f"{n} {which} were held out for the cap on the {cap.name}, {alpha:g}. To "
            f"promise it for new rows with confidence {1 - error:.4g} takes {needed} "
            "of them, so nothing is promised: the threshold is the trained one. Give "
            "more rows of that class, a larger validation_fraction or alpha, or a "
            "smaller confidence."
        )
        if n == 0:
            return CalibratedThreshold(trained, None)
    threshold, method = trained, "exact binomial"
    if holds:
        threshold = max(_just_above(at.score, each) for at, each in least)
        method = "order statistic"
    events = [int((each > threshold).sum()) for each in scores]
    counted = [at.above for at, _ in least] if holds else events
    pairs = zip(counted, scores, strict=True)
    bound = max(Count(k, len(each)).upper(error) for k, each in pairs)
    if holds:
        bound = min(bound, alpha)  # equal up to rounding, by the choice of the rank
    check = ConstraintCheck(events[0] / n, "<=", alpha, bound, n, holds, method)
    return CalibratedThreshold(threshold, check)


def _just_above(score: float | Tensor, scores: Tensor) -> float:
    """A score plus what rounding may add to it, in another batch of rows."""
    room = DEFAULTS.score_rounding * max(1.0, float(scores.abs().max()))
    return float(score) + room


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
