"""A classifier whose rates differ little between groups."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import permutations
from typing import Any, Literal, Self, TypeAlias

import torch
from torch import Tensor

from oneproj import rates
from oneproj.arguments import at_most_five
from oneproj.errors import InvalidProblemError, OneprojWarning, warn
from oneproj.learn.base import DEFAULTS, AbstractGroupClassifier, Constraints
from oneproj.learn.models import ModelLike
from oneproj.learn.tables import Rows
from oneproj.problem.terms import AbstractExpression, AbstractTerm
from oneproj.rates.bounds import check_share
from oneproj.rates.functions import Score
from oneproj.results import Solution

Parity = Literal[
    "demographic_parity", "equal_opportunity", "equalized_odds", "error_parity"
]
Rate: TypeAlias = Callable[..., rates.Rate]
PARITIES: dict[str, dict[str, Rate]] = {
    "demographic_parity": {"positive rate": rates.positive_rate},
    "equal_opportunity": {"true positive rate": rates.true_positive_rate},
    "equalized_odds": {
        "true positive rate": rates.true_positive_rate,
        "false positive rate": rates.false_positive_rate,
    },
    "error_parity": {"error rate": rates.error_rate},
}
"""The rates that each notion of parity compares between groups."""
CLASS_OF_RATE = {"true positive rate": 1, "false positive rate": 0}
"""The class whose rows a rate is about; all rows where it is not listed."""


class FairClassifier(AbstractGroupClassifier):
    """Fit a logistic model whose decisions treat groups alike, within a tolerance.

    For any two groups the rate of the one exceeds that of the other by at most the
    tolerance: counted on the decisions for the rows that were trained on, exactly.
    ``confirmation_`` says what holds on new rows, from rows that were held out.
    Predictions are deterministic and need no group. The columns are standardised
    inside.

    Args:
        constraint: ``"demographic_parity"`` compares the share of rows predicted
            positive; ``"equal_opportunity"`` that share among positive rows;
            ``"equalized_odds"`` that share among positive and among negative rows;
            ``"error_parity"`` the share of errors.
        tolerance: Largest difference between two groups, between 0 and 1.
        confidence: That all bounds of ``confirmation_`` hold together.
        model: None for a linear score, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``.
        C: Inverse strength of an L2 penalty on weights, as in ``LogisticRegression``:
            their squares over ``2 C n`` are added to the mean loss of n rows.
            Intercepts are free; infinity for no penalty.
        steps: Stochastic gradients of the training.
        validation_fraction: Share of rows of each class and group held out for
            ``confirmation_``; 0 for none.
        warm_start: Whether ``fit`` goes on from the model of the last ``fit``.
            The same table keeps the rows that were held out; of another one none is.
        random_state: A seed, a ``RandomState``, or None for NumPy's global one.

    The positive class is the second of the sorted labels. With k groups there are
    k (k - 1) constraints for each rate. ``score`` is the accuracy: a ``GridSearchCV``
    over ``tolerance`` tends to the loosest.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(600, shift=0.1, random_state=0)
        >>> group = X[:, 0] > 0
        >>> clf = FairClassifier("demographic_parity", tolerance=0.02, random_state=0)
        >>> clf = clf.fit(X, y, sensitive_features=group)
        >>> clf.solution_.feasible, clf.groups_
        (True, [False, True])
    """

    groups_: list[Any]

    def __init__(
        self,
        constraint: Parity = "demographic_parity",
        tolerance: float = 0.05,
        *,
        confidence: float = 0.95,
        model: ModelLike = None,
        C: float = 1.0,
        steps: int = 500,
        validation_fraction: float = 0.2,
        warm_start: bool = False,
        random_state: Any = None,  # noqa: ANN401 - an int, a RandomState or None
    ) -> None:
        self.constraint = constraint
        self.tolerance = tolerance
        self.confidence = confidence
        self.model = model
        self.C = C
        self.steps = steps
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: object, y: object, sensitive_features: object = None) -> Self:
        """Train under parity.

        Args:
            X: A table of numbers: array, DataFrame, or sparse, which is made dense.
            y: Labels of two classes.
            sensitive_features: The group of each row, of any type; with several columns
                every combination that occurs is a group. Required.
        """
        seed, rows = self._seed(), self._read(X, y)
        check_share("tolerance", self.tolerance, "It caps a difference of two rates.")
        rows = self._grouped(rows, X, sensitive_features)
        self._check_groups(rows)
        self._fit_constrained(rows, seed)
        return self

    def _prepare_start(self, rows: Rows) -> None:
        """Reject all rows: rates of positives then agree, a feasible start."""
        self.model_.shift.fill_(-self._scores_of(rows.x).max())

    def _minimise_loss(
        self,
        score: Callable[[Tensor], Tensor],
        rows: Rows,
        constraints: Constraints,
        seed: int,
    ) -> Solution:
        with warnings.catch_warnings():
            if not self.warm_start:  # the start rejects all rows, which is said below
                start = "The answer is the start"
                warnings.filterwarnings("ignore", start, OneprojWarning)
            solution = super()._minimise_loss(score, rows, constraints, seed)
        self._warn_of_one_decision(rows, len(constraints))
        return solution

    def _warn_of_one_decision(self, rows: Rows, bounds: int) -> None:
        """Say that the fitted classifier does not tell rows apart."""
        positive = self._scores_of(rows.x) > 0
        if positive.any() and not positive.all():
            return
        label = self.classes_.tolist()[int(positive.all())]
        k = len(self.groups_)
        fewer = "fewer groups (merge small ones), " if k > 2 else ""  # noqa: PLR2004 - a pair
        warn(
            f"The fitted classifier predicts {label!r} for every row trained on: it "
            "keeps parity, but tells no rows apart. Training found no better model "
            f"within the {bounds} bounds between {k} groups. Try a larger tolerance "
            f"(it is {self.tolerance:g}), {fewer}or more steps (there were "
            f"{self.steps})."
        )

    def _check_groups(self, rows: Rows) -> None:
        if self.constraint not in PARITIES:
            known = ", ".join(repr(name) for name in PARITIES)
            message = f"constraint must be one of {known}, got {self.constraint!r}."
            raise InvalidProblemError(message)
        if len(self.groups_) < 2:  # noqa: PLR2004 - a pair to compare
            message = (
                f"sensitive_features holds one group only, {self.groups_[0]!r}: there "
                "is nothing to compare. Check how the table was split."
            )
            raise InvalidProblemError(message)
        if len(self.groups_) > DEFAULTS.most_groups:
            k = len(self.groups_)
            message = (
                f"sensitive_features holds {k} groups, {at_most_five(self.groups_)}. "
                f"Every pair is bounded both ways: {k * (k - 1)} bounds would take "
                f"hours. At most {DEFAULTS.most_groups} groups are compared. Is the "
                "column an identifier or a number? Cut it into groups first, or merge "
                "small ones."
            )
            raise InvalidProblemError(message)
        for name in PARITIES[self.constraint]:
            for j, label in enumerate(self.groups_):
                if not _members(rows, j, name).any():
                    of = self.classes_.tolist()[CLASS_OF_RATE[name]]
                    message = (
                        f"Group {label!r} has no row of class {of!r}, so it has no "
                        f"{name}. Merge small groups, or compare another rate."
                    )
                    raise InvalidProblemError(message)

    def _warn_of_small_groups(self, rows: Rows) -> None:
        """Say where one row changes a rate by more than the tolerance."""
        for name in PARITIES[self.constraint]:
            sizes = [
                int(_members(rows, j, name).sum()) for j in range(len(self.groups_))
            ]
            fewest = min(sizes)
            if fewest * self.tolerance < 1:
                label = self.groups_[sizes.index(fewest)]
                warn(
                    f"Group {label!r} has {fewest} row(s) to train on for its {name}: "
                    f"one of them changes it by {1 / fewest:.2g}, more than the "
                    f"tolerance, {self.tolerance:g}. Such parity is met by chance, or "
                    "by one decision for all. Give more rows, merge small groups, or "
                    "allow a larger tolerance."
                )
                return

    def _split(
        self, rows: Rows, generator: torch.Generator
    ) -> tuple[Rows, tuple[Rows, ...]]:
        train, held_out = super()._split(rows, generator)
        self._warn_of_small_groups(train)
        return train, held_out

    def _constraints(self, rows: Rows) -> Constraints:
        made: dict[str, AbstractTerm] = {}
        for name, rate in PARITIES[self.constraint].items():
            each = [
                _rate(rate, self._score, rows, _members(rows, j, name), name)
                for j in range(len(self.groups_))
            ]
            for a, b in permutations(range(len(each)), 2):
                pair = f"{name}: {self.groups_[a]} - {self.groups_[b]}"
                made[pair] = each[a] - each[b] <= self.tolerance
        return made


def _members(rows: Rows, group: int, rate: str) -> Tensor:
    """Whether each row is of a group, and of the class that a rate is about."""
    chosen = torch.ones(len(rows), dtype=torch.bool)
    if rows.groups is not None:
        chosen = rows.groups == group
    if rate in CLASS_OF_RATE:
        chosen = chosen & (rows.y == CLASS_OF_RATE[rate])
    return chosen


def _rate(
    rate: Rate, score: Score, rows: Rows, where: Tensor, name: str
) -> AbstractExpression:
    """The rate of some rows, whose gradient follows their losses: few errors.

    The groups are masks over one table, so that ``confirm`` knows that no row is in two
    of them, also where rows are equal.
    """
    data = rows.x if name == "positive rate" else (rows.x, rows.y)
    return rate(score, data=data, where=where).with_loss_gradient(rows.y)
