"""What all estimators share: reading tables, splitting rows, training, predicting."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)
from torch import Tensor, nn
from torch.nn.functional import softplus

from oneproj.arguments import (
    at_most_five,
    check_count,
    check_flag,
    check_number,
    plain,
)
from oneproj.errors import (
    InfeasibleError,
    InvalidProblemError,
    warn,
)
from oneproj.learn.models import ModelLike, Score, make_network
from oneproj.problem.functions import CHUNK_SIZE, function, mean
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractExpression, AbstractTerm
from oneproj.rates.confirm import Confirmation, confirm
from oneproj.results import Solution
from oneproj.training.solve import solve

Array: TypeAlias = np.ndarray[Any, Any]
Constraints: TypeAlias = Mapping[str, AbstractTerm]
BINARY = 2
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
    shift_steps: int = 20
    """Stochastic gradients by which shifts are trained. They begin where the caps are
    reached, which is the best place, so more would find nothing."""
    most_groups: int = 100
    """Groups that are compared: each pair is two bounds. 20 groups take 26 seconds of
    100 updates on 2,000 rows, and twice as many take four times as long."""


DEFAULTS = LearnDefaults()


@dataclass(frozen=True)
class Rows:
    """Rows of a table with their labels, as tensors.

    Attributes:
        x: The columns in their own units, float64, shape (n, columns).
        y: 1.0 for the second of the sorted classes, else 0.0.
        groups: The group of each row, from 0; None without groups.

    Example:
        >>> rows = Rows(torch.zeros(3, 2), torch.tensor([0.0, 1.0, 1.0]))
        >>> len(rows), len(rows.of(rows.y == 1))
        (3, 2)
    """

    x: Tensor
    y: Tensor
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def of(self, chosen: Tensor) -> Rows:
        """The rows where a mask is True."""
        groups = None if self.groups is None else self.groups[chosen]
        return Rows(self.x[chosen], self.y[chosen], groups)

    def with_rows(self, others: Rows) -> Rows:
        """These rows, then others; without groups."""
        return Rows(torch.cat([self.x, others.x]), torch.cat([self.y, others.y]))

    def strata(self) -> Tensor:
        """A number for each pair of class and group."""
        classes = self.y.long()
        return classes if self.groups is None else classes + BINARY * self.groups

    def digest(self) -> str:
        """A hash of all rows in their order, with labels and groups."""
        found = hashlib.sha256(self.x.numpy().tobytes())
        found.update(self.strata().numpy().tobytes())
        return found.hexdigest()


def held_out_rows(
    strata: Tensor, fraction: float, generator: torch.Generator
) -> Tensor:
    """Choose this share of the rows of every stratum at random, as a mask.

    The share is rounded; a stratum keeps at least one row.

    Example:
        >>> strata = torch.tensor([0] * 8 + [1] * 4 + [2])
        >>> mask = held_out_rows(strata, 0.25, torch.Generator().manual_seed(0))
        >>> [int(mask[strata == j].sum()) for j in range(3)]
        [2, 1, 0]
    """
    mask = torch.zeros(len(strata), dtype=torch.bool)
    for stratum in set(strata.tolist()):
        (at,) = (strata == stratum).nonzero(as_tuple=True)
        count = min(round(fraction * len(at)), len(at) - 1)
        order = torch.randperm(len(at), generator=generator)
        mask[at[order[:count]]] = True
    return mask


def logistic_losses(scores: Tensor, y: Tensor) -> Tensor:
    """``log(1 + exp(-(2y - 1) s))`` of each row.

    Example:
        >>> logistic_losses(torch.tensor([50.0]), torch.tensor([1.0])).item() < 1e-9
        True
    """
    return softplus((1 - 2 * y) * scores)


def logistic_risk(score: Callable[[Tensor], Tensor], rows: Rows) -> AbstractExpression:
    """The average logistic loss of a score over rows.

    Example:
        >>> w = torch.zeros(1, requires_grad=True)
        >>> rows = Rows(torch.ones(2, 1), torch.tensor([0.0, 1.0]))
        >>> round(logistic_risk(lambda x: x @ w, rows).value(), 4)
        0.6931
    """

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return logistic_losses(score(x), y)

    return mean(losses, data=(rows.x, rows.y))


class Scores(nn.Module):
    """One or more scores of the same rows, side by side.

    Example:
        >>> x = torch.zeros(3, 2, dtype=torch.float64)
        >>> Scores([Score(nn.Linear(2, 1).double(), x) for _ in range(2)], 2)(x).shape
        torch.Size([3, 2])
    """

    def __init__(self, each: list[Score], columns: int) -> None:
        super().__init__()
        self.each, self.columns = nn.ModuleList(each), columns

    def __getitem__(self, j: int) -> Score:
        """The score of that number."""
        return cast("Score", self.each[j])

    def fits(self, columns: int, scores: int) -> bool:
        """Whether it has this number of scores, of rows with this number of columns."""
        return (self.columns, len(self.each)) == (columns, scores)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of each row, shape (n, scores)."""
        return torch.stack([score(x) for score in self.each], dim=-1)


class AbstractClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the estimators; a derived class has ``fit`` and its own parameters.

    Attributes:
        classes_: The two labels, sorted; the second one is the positive class.
        model_: The trained module; it takes rows in the units of the table.
        solution_: What ``oneproj.solve`` returned.
        multipliers_: Of each constraint: by about how much the objective would fall
            per unit by which its bound is loosened.
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
    classes_: Array
    n_features_in_: int
    model_: Scores
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
        self.classes_, index = np.unique(_binary(labels), return_inverse=True)
        if len(self.classes_) < BINARY:
            message = (
                f"y holds only one class, {self.classes_.tolist()[0]!r}. A classifier "
                "needs rows of two classes: check how the table was split."
            )
            raise InvalidProblemError(message)
        return Rows(_dense(table), torch.as_tensor(index, dtype=torch.float64))

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
        return _dense(
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

    def _split(self, rows: Rows, generator: torch.Generator) -> tuple[Rows, Rows]:
        """The rows to train on, and those held out, a share of every stratum."""
        why = "It is the share of rows that training never sees."
        share = check_share(
            "validation_fraction", self.validation_fraction, why, zero=True
        )
        held_out = held_out_rows(rows.strata(), share, generator)
        kept = vars(self).get("model_") if self.warm_start else None
        if isinstance(kept, Scores) and kept.columns == rows.x.shape[1]:
            held_out = self._never_seen(rows)
        else:  # if this fit fails, no later one goes on from a model of other rows
            self.__dict__.pop("model_", None)
        self._kept_out = rows.digest(), held_out
        return rows.of(~held_out), rows.of(held_out)

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

    def _make_model(self, x: Tensor, generator: torch.Generator, scores: int) -> bool:
        """Make the scores, or keep those of the last fit with ``warm_start``.

        Returns:
            Whether they were kept.
        """
        columns = x.shape[1]
        kept = vars(self).get("model_") if self.warm_start else None
        if isinstance(kept, Scores) and kept.fits(columns, scores):
            return True
        nets = [make_network(self.model, columns, generator) for _ in range(scores)]
        self.model_ = Scores([Score(net, x) for net in nets], columns)
        return False

    def _solve(
        self,
        objective: AbstractExpression,
        constraints: Constraints,
        seed: int,
        module: nn.Module | None = None,
    ) -> None:
        """Train the model, or a part of it, in place; keep what ``solve`` returns."""
        trained = self.model_.train() if module is None else module.train()
        problem = Problem(trained.parameters(), objective, constraints, model=trained)
        self._run(problem, seed, self.steps)
        self.model_.eval()

    def _run(self, problem: Problem, seed: int, steps: int) -> None:
        try:
            self.solution_ = solve(problem, steps=steps, seed=seed, progress=False)
        except InfeasibleError as error:
            error.add_note(
                f"{type(self).__name__} found no model that keeps its constraints on "
                "the rows to train on. Loosen them, train for more steps, or give more "
                "rows: with few of them only some rates can occur."
            )
            raise
        self.multipliers_ = dict(self.solution_.certificate.multipliers)

    def _penalised(
        self, risk: AbstractExpression, rows: Rows, module: nn.Module | None = None
    ) -> AbstractExpression:
        """Add the penalty ``C`` to a mean over rows.

        It is on the matrices of the model, or of a part of it, and so not on
        intercepts. benchmarks/NOTES.md has the measurements behind its default.
        """
        if math.isinf(self.C):
            return risk
        module = self.model_ if module is None else module
        weights = [p for p in module.parameters() if p.ndim > 1]
        scale = 0.5 / (self.C * len(rows))

        def penalty() -> Tensor:
            return scale * torch.stack([w.square().sum() for w in weights]).sum()

        return risk + function(penalty) if weights else risk

    @abstractmethod
    def _constraints(self, rows: Rows) -> Constraints:
        """The constraints on these rows, at the current thresholds."""

    def _confirm_held_out(self, rows: Rows) -> None:
        """Bound the constraints on new rows, from rows that training did not see."""
        self.confirmation_ = None
        if not len(rows):
            return
        try:
            self.confirmation_ = self._bounds(rows)
        except InvalidProblemError as error:
            warn(f"There is no confirmation, from {len(rows)} held-out rows: {error}")

    def confirm(self, X: object, y: object) -> Confirmation:
        """Bound the constraints on new rows, from such rows.

        Args:
            X: Rows that training did not see; of the source, for a transfer.
            y: Their labels.

        Returns:
            What ``oneproj.confirm`` found, at the confidence of this estimator; 0.95
            if that is None.
        """
        return self._bounds(self._labelled(X, y))

    def _bounds(self, rows: Rows, **options: Any) -> Confirmation:  # noqa: ANN401
        """What ``oneproj.confirm`` finds on rows that training did not see."""
        confidence = self.confidence
        sure = DEFAULTS.confidence if confidence is None else confidence
        return confirm(self._constraints(rows), sure, **options)

    # --- predicting -------------------------------------------------------------------

    def _scores(self, X: object) -> Array:
        """The raw scores of the rows of a table, shape (n, scores)."""
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

    def _score(self, x: Tensor) -> Tensor:
        """The differentiable score of rows, in the units of the table."""
        scores: Tensor = self.model_(x)
        return scores.squeeze(-1)

    def decision_function(self, X: object) -> Array:
        """Return by how much the score of each row exceeds the threshold.

        Args:
            X: Rows with the columns that ``fit`` saw.

        Returns:
            Shape (n,); positive where ``predict`` says the second class.
        """
        scores = self._scores(X)[:, 0]
        found: Array = scores - self.threshold_
        return found

    def predict(self, X: object) -> Array:
        """Return the predicted label of each row; the same rows give the same labels.

        Args:
            X: Rows with the columns that ``fit`` saw.
        """
        positive = self.decision_function(X) > 0
        found: Array = self.classes_[positive.astype(int)]
        return found


def check_share(name: str, value: object, why: str, *, zero: bool = False) -> float:
    """Return a number between 0 and 1, both excluded, as Python's own float.

    Args:
        name: Of the parameter.
        value: Of the parameter.
        why: What it is for.
        zero: Whether 0 is allowed as well.

    Example:
        >>> check_share("alpha", 5, "It caps a rate.")
        Traceback (most recent call last):
        ...
        oneproj.errors.InvalidProblemError: alpha must be a number between 0 and 1,
        got 5. It caps a rate.
    """
    number = plain(value)
    if isinstance(number, int | float) and not isinstance(number, bool):
        share = float(number)
        if 0 < share < 1 or (zero and share == 0):
            return share
    message = f"{name} must be a number between 0 and 1, got {value!r}. {why}"
    raise InvalidProblemError(message)


def _binary(y: Array) -> Array:
    """Refuse labels that are not classes, or more than two of them."""
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind == "binary":
        return y
    classes = np.unique(y).tolist()
    message = (
        f"Only binary classification is supported. The type of the target is {kind}, "
        f"with {len(classes)} classes: {at_most_five(classes)}. Merge classes, or fit "
        "one estimator for each class c against the others: fit(X, y == c)."
    )
    raise InvalidProblemError(message)


def _dense(X: Any) -> Tensor:  # noqa: ANN401 - an array or a sparse one
    """Rows as a tensor with memory of its own."""
    if not sparse.issparse(X):
        return torch.from_numpy(np.array(X, dtype=np.float64, order="C"))
    try:
        return torch.from_numpy(X.toarray(order="C"))
    except MemoryError as error:
        rows, columns = X.shape
        error.add_note(
            f"A sparse table is made dense: {rows} rows of {columns} columns take "
            f"{8e-9 * rows * columns:.3g} GB. Reduce the columns first, for example "
            "with sklearn.decomposition.TruncatedSVD in a Pipeline."
        )
        raise
