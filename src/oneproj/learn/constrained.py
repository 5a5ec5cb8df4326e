"""A classifier under constraints of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

import numpy as np

from oneproj.errors import InvalidProblemError
from oneproj.learn.base import (
    AbstractGroupClassifier,
    Constraints,
    ProbabilityMixin,
)
from oneproj.learn.models import ModelLike
from oneproj.learn.tables import Rows
from oneproj.rates.confirm import Range

MakeConstraints: TypeAlias = Callable[..., Constraints]
"""``(score, X, y)``, and the group of each row if groups are given, to constraints."""


class ConstrainedClassifier(ProbabilityMixin, AbstractGroupClassifier):
    """Fit a logistic model under constraints that a function of yours states.

    The columns are standardised inside; the constraints see them in their own units.
    The answer satisfies the constraints on the rows that were trained on, exactly.
    ``confirmation_`` says what holds on new rows, from rows that were held out.

    Args:
        constraints: Called as ``constraints(score, X, y)``, or with a fourth argument,
            the group of each row in an array, if ``fit`` gets ``sensitive_features``.
            ``score`` takes rows and returns one differentiable score each, positive
            for the second class; X and y are tensors of float64, y of 0 and 1. It
            returns a dict from names to constraints of ``oneproj``. It is called twice:
            for the rows to train on, and for those held out. None for no constraint.
        confidence: That all bounds of ``confirmation_`` hold together.
        range: Of the losses in means, as ``oneproj.confirm`` takes it: a pair, or a
            dict from the names of constraints to pairs. Without it there is no
            confirmation of a mean; rates need none.
        model: None for a linear score, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``.
        C: Inverse strength of an L2 penalty on weights, as in ``LogisticRegression``:
            their squares over ``2 C n`` are added to the mean loss of n rows.
            Intercepts are free; infinity for no penalty.
        steps: Stochastic gradients of the training.
        validation_fraction: Share of rows held out for ``confirmation_``; 0 for none.
        warm_start: Whether ``fit`` goes on from the model of the last ``fit``.
            The same table keeps the rows that were held out; of another one none is.
        random_state: A seed, a ``RandomState``, or None for NumPy's global one.

    Example:
        >>> import oneproj
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(500, random_state=0)
        >>> def few(score, X, y):
        ...     flagged = oneproj.rates.positive_rate(score, data=X)
        ...     return {"flagged": flagged <= 0.3}
        >>> clf = ConstrainedClassifier(few, random_state=0).fit(X, y)
        >>> clf.solution_.feasible, clf.confirmation_["flagged"].rows
        (True, 100)
    """

    def __init__(
        self,
        constraints: MakeConstraints | None = None,
        *,
        confidence: float = 0.95,
        range: Range | Mapping[str, Range] | None = None,  # noqa: A002 - as in confirm
        model: ModelLike = None,
        C: float = 1.0,
        steps: int = 500,
        validation_fraction: float = 0.2,
        warm_start: bool = False,
        random_state: Any = None,  # noqa: ANN401 - an int, a RandomState or None
    ) -> None:
        self.constraints = constraints
        self.confidence = confidence
        self.range = range
        self.model = model
        self.C = C
        self.steps = steps
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: object, y: object, sensitive_features: object = None) -> Self:
        """Train under the constraints.

        Args:
            X: A table of numbers: array, DataFrame, or sparse, which is made dense.
            y: Labels of two classes.
            sensitive_features: The group of each row, for the constraints; optional.
        """
        seed, rows = self._seed(), self._read(X, y)
        self.groups_ = None
        if sensitive_features is not None:
            rows = self._grouped(rows, X, sensitive_features)
        self._fit_constrained(rows, seed)
        return self

    def _constraints(self, rows: Rows) -> Constraints:
        if self.constraints is None:
            return {}
        given: list[Any] = [self._score, rows.x, rows.y]
        if rows.groups is not None:
            labels = np.empty(len(self.groups_ or ()), dtype=object)
            labels[:] = self.groups_
            given.append(labels[rows.groups.numpy()])
        made = self.constraints(*given)
        if isinstance(made, Mapping):
            return made
        message = (
            f"constraints= returned a {type(made).__name__}. It must return a dict "
            'from names to constraints, such as {"size": term <= 1.0}.'
        )
        raise InvalidProblemError(message)
