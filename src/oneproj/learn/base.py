"""What all estimators share: reading tables, splitting rows, training, predicting."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)
from torch import Tensor
from torch.nn.functional import softplus

from oneproj.arguments import at_most_five, check_count, check_flag, check_number
from oneproj.errors import InfeasibleError, InvalidProblemError, warn
from oneproj.learn.models import (
    ModelLike,
    Score,
    make_network,
    own_random_numbers,
)
from oneproj.learn.tables import (
    BINARY,
    Array,
    Rows,
    as_dense,
    check_binary,
    held_out_rows,
    read_groups,
    readings,
)
from oneproj.problem.functions import CHUNK_SIZE, function, mean
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractExpression, AbstractTerm
from oneproj.rates.bounds import check_share
from oneproj.rates.confirm import Confirmation, ConstraintCheck, Range, confirm
from oneproj.results import Solution
from oneproj.training.solve import solve

Constraints: TypeAlias = Mapping[str, AbstractTerm]
SPARSE = ("csr", "csc")
"""Sparse formats that are read directly; scikit-learn converts others."""
LARGEST_SEED = 2**31 - 1
"""Seeds are drawn below this; torch and NumPy both take them."""


@dataclass(frozen=True)
class LearnDefaults:
    """The numbers behind the estimators."""

    confidence: float = 0.95
    """Of ``confirm`` where the estimator has none."""
    score_rounding: float = 1e-9
    """By how much a threshold exceeds the score that it is chosen by, relative to the
    largest: far above what the order of sums changes a score by in float64."""
    most_groups: int = 100
    """Groups that are compared: each pair is two bounds. 20 groups take 26 seconds of
    100 updates on 2,000 rows, and twice as many take four times as long."""


DEFAULTS = LearnDefaults()


def logistic_risk(score: Callable[[Tensor], Tensor], rows: Rows) -> AbstractExpression:
    """The mean of ``log(1 + exp(-(2y - 1) s))`` over rows, with s their scores.

    Example:
        >>> w = torch.zeros(1, requires_grad=True)
        >>> rows = Rows(torch.ones(2, 1), torch.tensor([0.0, 1.0]))
        >>> round(logistic_risk(lambda x: x @ w, rows).value(), 4)
        0.6931
    """

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return softplus((1 - 2 * y) * score(x))

    return mean(losses, data=(rows.x, rows.y))


class AbstractClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the estimators; a derived class has ``fit`` and its own parameters.

    Attributes:
        classes_: The two labels, sorted; the second one is the positive class.
        model_: The trained module; it takes rows in the units of the table.
        solution_: What ``oneproj.solve`` returned. ``NeymanPearsonClassifier`` and
            ``AbstainingClassifier`` have none: no constraint was trained under, and
            their caps are met by thresholds that are chosen afterwards.
        multipliers_: Of each constraint: by about how much the objective would fall
            per unit by which its bound is loosened. None either for those two.
        confirmation_: Bounds on new rows from the held-out rows; None if there are
            none, or if nothing can be said, with a warning that has the reason.
            Thresholds that these rows chose are order statistics of them, whose bounds
            hold by construction; else they are those of ``oneproj.confirm``.
    """

    confidence: float | None
    model: ModelLike
    C: float
    steps: int
    validation_fraction: float
    warm_start: bool
    random_state: Any
    range: Range | Mapping[str, Range] | None = None
    classes_: Array
    n_features_in_: int
    model_: Score
    solution_: Solution
    multipliers_: dict[str, float]
    confirmation_: Confirmation | None
    _kept_out: tuple[str, Tensor] | None = None
    """A table, by its digest, and those of its rows that the model never saw."""

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - a class of scikit-learn
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    # --- reading ----------------------------------------------------------------------

    def _read(self, X: object, y: object) -> Rows:
        """Check the table and its labels; remember the classes."""
        table, labels = validate_data(
            self, X, y, accept_sparse=SPARSE, dtype=np.float64, ensure_min_samples=2
        )
        self.classes_, index = np.unique(check_binary(labels), return_inverse=True)
        if len(self.classes_) < BINARY:
            message = (
                f"y holds only one class, {self.classes_.tolist()[0]!r}. A classifier "
                "needs rows of two classes: check how the table was split."
            )
            raise InvalidProblemError(message)
        return Rows(as_dense(table), torch.as_tensor(index, dtype=torch.float64))

    def _labelled(self, X: object, y: object) -> Rows:
        """Read new rows with labels of the classes that ``fit`` saw."""
        check_is_fitted(self, "classes_")
        x, labels = self._table(X), column_or_1d(y)
        check_consistent_length(x, labels)
        unknown = set(np.unique(labels).tolist()) - set(self.classes_.tolist())
        if unknown:
            message = (
                f"The labels hold classes that are not in y: "
                f"{at_most_five(sorted(unknown, key=str))}; it has "
                f"{self.classes_.tolist()}."
            )
            raise InvalidProblemError(message)
        positive = torch.as_tensor(labels == self.classes_[1], dtype=torch.float64)
        return Rows(x, positive)

    def _table(self, X: object) -> Tensor:
        """Check rows against the columns that ``fit`` saw; return them as a tensor."""
        return as_dense(
            validate_data(self, X, accept_sparse=SPARSE, dtype=np.float64, reset=False)
        )

    def _seed(self) -> int:
        """Check the shared parameters, and draw the seed of this fit."""
        steps = "It is the number of stochastic gradients of the training."
        check_count("steps", self.steps, steps)
        inverse = "It is the inverse strength of the penalty on weights; inf for none."
        check_number("C", self.C, inverse, infinite=True)
        check_flag("warm_start", self.warm_start, "It continues the last fit.")
        if self.confidence is not None:
            sure = "It is the probability with which bounds on new rows hold."
            check_share("confidence", self.confidence, sure)
        rng = check_random_state(self.random_state)
        return int(rng.randint(LARGEST_SEED))

    def _split(
        self, rows: Rows, generator: torch.Generator
    ) -> tuple[Rows, tuple[Rows, ...]]:
        """The rows to train on, and the readings of those held out.

        No row of one side is equal to a row of the other.
        """
        why = "It is the share of rows that training never sees."
        share = check_share(
            "validation_fraction", self.validation_fraction, why, zero=True
        )
        held_out = held_out_rows(rows, share, generator)
        if self._goes_on(rows.x):
            held_out = self._never_seen(rows)
        else:  # if this fit fails, no later one goes on from a model of other rows
            self.__dict__.pop("model_", None)
        held_out &= self._is_judged(rows)
        self._kept_out = rows.digest(), held_out
        judged = rows.of(held_out)
        train = rows.of(~rows.among(judged))
        return train, readings(judged, train)

    def _is_judged(self, rows: Rows) -> Tensor:
        """Whether each row would be of use if it is held out, as a mask."""
        return torch.ones(len(rows), dtype=torch.bool)

    def _goes_on(self, x: Tensor) -> bool:
        """Whether the model of the last fit is the start of this one."""
        kept = vars(self).get("model_") if self.warm_start else None
        return isinstance(kept, Score) and len(kept.mean) == x.shape[1]

    def _never_seen(self, rows: Rows) -> Tensor:
        """Rows that the model of the last fit was not trained on, if that is known."""
        if self._kept_out is not None and self._kept_out[0] == rows.digest():
            return self._kept_out[1]
        warn(
            "warm_start goes on from a model that was trained on another table, or on "
            "all rows of this one: it may have seen any of these rows, so none can be "
            "held out, and nothing is promised for new rows. Fit with "
            "warm_start=False, or call confirm with rows that no fit has seen."
        )
        return torch.zeros(len(rows), dtype=torch.bool)

    # --- training ---------------------------------------------------------------------

    def _make_model(self, x: Tensor, generator: torch.Generator) -> None:
        """Make the model, unless that of the last fit is kept."""
        if not self._goes_on(x):
            network = make_network(self.model, x.shape[1], generator)
            self.model_ = Score(network, x)

    def _minimise_loss(
        self,
        score: Callable[[Tensor], Tensor],
        rows: Rows,
        constraints: Constraints,
        seed: int,
    ) -> Solution:
        """Minimise the logistic loss of a score of the model, plus the penalty ``C``.

        The penalty is on the matrices of the model, and so not on intercepts.
        benchmarks/NOTES.md has the measurements behind its default.
        """
        risk, model = logistic_risk(score, rows), self.model_.train()
        weights = [p for p in model.parameters() if p.ndim > 1]
        if weights and not math.isinf(self.C):
            scale = 0.5 / (self.C * len(rows))

            def penalty() -> Tensor:
                return scale * torch.stack([w.square().sum() for w in weights]).sum()

            risk = risk + function(penalty)
        try:
            problem = Problem(model.parameters(), risk, constraints, model=model)
            return solve(problem, steps=self.steps, seed=seed, progress=False)
        except InfeasibleError as error:
            error.add_note(
                f"{type(self).__name__} found no model that keeps its constraints on "
                "the rows to train on. Loosen them, train for more steps, or give more "
                "rows: with few of them only some rates can occur."
            )
            raise
        finally:
            model.eval()

    def _keep(self, solution: Solution) -> None:
        """Remember what ``solve`` returned for the model under its constraints."""
        self.solution_ = solution
        self.multipliers_ = dict(solution.certificate.multipliers)

    def _score(self, x: Tensor) -> Tensor:
        """The differentiable score of rows, in the units of the table."""
        scores: Tensor = self.model_(x)
        return scores

    @abstractmethod
    def _constraints(self, rows: Rows) -> Constraints:
        """The constraints on these rows, at the current thresholds."""

    def _confirm_held_out(self, held_out: Sequence[Rows]) -> None:
        """Bound the constraints on new rows, from readings of rows held out."""
        self.confirmation_ = None
        if not len(held_out[0]):
            return
        try:
            made = [self._constraints(rows) for rows in held_out]
            if made[0]:
                self.confirmation_ = self._bounds(made)
        except InvalidProblemError as error:
            count = len(held_out[0])
            warn(f"There is no confirmation, from {count} held-out rows: {error}")

    def confirm(self, X: object, y: object) -> Confirmation:
        """Bound the constraints on new rows, from such rows.

        Args:
            X: Rows that training did not see; of the source, for a transfer.
            y: Their labels.

        Returns:
            What ``oneproj.confirm`` found, at the confidence of this estimator; 0.95
            if that is None. Where rows are equal, the worse of two bounds: one counts
            equal rows once, the other all of them.
        """
        return self._confirmed(self._labelled(X, y))

    def _confirmed(self, rows: Rows) -> Confirmation:
        """Bound the constraints on new rows, from these."""
        return self._bounds([self._constraints(each) for each in readings(rows)])

    def _bounds(self, made: Sequence[Constraints]) -> Confirmation:
        """What ``oneproj.confirm`` finds on each reading of some rows; the worst."""
        confidence = self.confidence
        sure = DEFAULTS.confidence if confidence is None else confidence
        found = [confirm(each, sure, range=self.range) for each in made]

        def excess(check: ConstraintCheck) -> float:
            over = check.confidence_bound - check.bound
            return over if check.sense == "<=" else -over

        checks = {
            name: max((each[name] for each in found), key=excess)
            for name in found[0].checks
        }
        return replace(found[0], checks=checks)

    # --- predicting -------------------------------------------------------------------

    def _scores(self, X: object) -> Array:
        """The raw scores of the rows of a table, shape (n,)."""
        check_is_fitted(self, "model_")
        return self._scores_of(self._table(X))

    def _scores_of(self, x: Tensor) -> Array:
        with torch.no_grad():
            starts = range(0, max(len(x), 1), CHUNK_SIZE)  # no rows are a chunk too
            parts = [self.model_(x[k : k + CHUNK_SIZE]) for k in starts]
        found: Array = torch.cat(parts).numpy()
        return found


class AbstractThresholdClassifier(AbstractClassifier):
    """Base of the estimators with one score: class 1 where it exceeds a threshold.

    Attributes:
        threshold_: Of the score of ``model_``; ``decision_function`` has it subtracted.
    """

    threshold_: float

    def _fit_constrained(self, rows: Rows, seed: int) -> None:
        """Train on some rows under the constraints, and confirm these on the others."""
        self.threshold_ = 0.0
        with own_random_numbers(seed) as generator:
            train, held_out = self._split(rows, generator)
            goes_on = self._goes_on(train.x)
            self._make_model(train.x, generator)
            if not goes_on:
                self._prepare_start(train)
            constraints = self._constraints(train)
            self._keep(self._minimise_loss(self._score, train, constraints, seed))
        self._confirm_held_out(held_out)

    def _prepare_start(self, rows: Rows) -> None:
        """Change the new model before it is trained; by default it is left alone."""

    def decision_function(self, X: object) -> Array:
        """Return by how much the score of each row exceeds the threshold.

        Args:
            X: Rows with the columns that ``fit`` saw.

        Returns:
            Shape (n,); positive where ``predict`` says the second class.
        """
        found: Array = self._scores(X) - self.threshold_
        return found

    def predict(self, X: object) -> Array:
        """Return the predicted label of each row; the same rows give the same labels.

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        positive = self.decision_function(X) > 0
        found: Array = self.classes_[positive.astype(int)]
        return found


class AbstractGroupClassifier(AbstractThresholdClassifier):
    """Base of the estimators whose constraints are about groups of rows.

    Attributes:
        groups_: The labels of the groups; None if ``fit`` got none.
    """

    groups_: list[Any] | None

    def _grouped(self, rows: Rows, X: object, sensitive_features: object) -> Rows:
        """The rows with the group of each; remember the groups."""
        self.groups_, groups = read_groups(sensitive_features, X)
        return replace(rows, groups=groups)

    def confirm(
        self, X: object, y: object, sensitive_features: object = None
    ) -> Confirmation:
        """Bound the constraints on new rows, from such rows.

        Args:
            X: Rows that training did not see.
            y: Their labels.
            sensitive_features: The group of each row, if ``fit`` got it.

        Returns:
            What ``oneproj.confirm`` found, at the confidence of this estimator; where
            rows are equal, the worse of counting them once and counting them all.
        """
        rows = self._labelled(X, y)
        if self.groups_ is not None:
            _, groups = read_groups(sensitive_features, X, known=self.groups_)
            rows = replace(rows, groups=groups)
        return self._confirmed(rows)


class ProbabilityMixin:
    """Probabilities of the classes, for estimators whose score is a logit."""

    decision_function: Callable[[object], Array]

    def predict_proba(self, X: object) -> Array:
        """Return the probability of each class, as the constrained model has it.

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])
