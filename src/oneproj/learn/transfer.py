"""A classifier for a new table that stays good on an old one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from oneproj import rates
from oneproj.errors import InvalidProblemError, warn
from oneproj.learn.base import (
    AbstractThresholdClassifier,
    Constraints,
    ProbabilityMixin,
)
from oneproj.learn.models import ModelLike, own_random_numbers
from oneproj.learn.tables import Rows
from oneproj.rates.bounds import check_share


class TransferClassifier(ProbabilityMixin, AbstractThresholdClassifier):
    """Fit a logistic model to new rows while its errors on old rows stay few.

    A reference is fitted to the source rows alone; ``source_error_`` is its share of
    errors there. Then the model is fitted to the target rows, from that reference on,
    and its share of errors on the source rows stays at most ``source_error_ +
    tolerance``: counted on the decisions for the source rows that were trained on,
    exactly. ``confirmation_`` says what holds on new source rows, from source rows
    that were held out. The columns are standardised inside, with the target rows'
    mean and scale.

    Args:
        tolerance: By how much the share of source errors may rise, between 0 and 1.
        confidence: That the bound of ``confirmation_`` holds.
        model: None for a linear score, widths of hidden layers such as ``(64, 32)``, or
            a function of the number of columns that returns a ``torch.nn.Module``.
        C: Inverse strength of an L2 penalty on weights, as in ``LogisticRegression``:
            their squares over ``2 C n`` are added to the mean loss of n rows.
            Intercepts are free; infinity for no penalty.
        steps: Stochastic gradients of each of the two trainings.
        validation_fraction: Share of source rows of each class held out for
            ``confirmation_``; 0 for none. No target row is held out.
        warm_start: Whether ``fit`` goes on from the model of the last ``fit``.
            The same table keeps the rows that were held out; of another one none is.
        random_state: A seed, a ``RandomState``, or None for NumPy's global one.

    Attributes:
        source_error_: Of the reference, on the source rows that were trained on.

    In a ``Pipeline`` earlier steps transform X alone, unless it is made with
    ``transform_input=["X_source"]``. ``score`` is the accuracy on the rows it is given,
    of the target: a ``GridSearchCV`` over ``tolerance`` tends to the loosest.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(700, random_state=0)
        >>> clf = TransferClassifier(tolerance=0.02, random_state=0)
        >>> clf = clf.fit(X[:100], y[:100], X_source=X[100:], y_source=y[100:])
        >>> clf.solution_.feasible, clf.source_error_ < 0.2
        (True, True)
    """

    def __init__(
        self,
        tolerance: float = 0.02,
        *,
        confidence: float = 0.95,
        model: ModelLike = None,
        C: float = 1.0,
        steps: int = 500,
        validation_fraction: float = 0.2,
        warm_start: bool = False,
        random_state: Any = None,  # noqa: ANN401 - an int, a RandomState or None
    ) -> None:
        self.tolerance = tolerance
        self.confidence = confidence
        self.model = model
        self.C = C
        self.steps = steps
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(
        self,
        X: object,
        y: object,
        X_source: object = None,
        y_source: object = None,
    ) -> Self:
        """Train on the target under a cap on the source errors.

        Args:
            X: The target table: array, DataFrame, or sparse, which is made dense.
            y: Its labels, of two classes.
            X_source: The source table, with the same columns. Required.
            y_source: Its labels, of the same classes. Required.
        """
        seed, target = self._seed(), self._read(X, y)
        check_share("tolerance", self.tolerance, "It is added to a share of errors.")
        source = self._read_source(X_source, y_source)
        with own_random_numbers(seed) as generator:
            train, held_out = self._split(source, generator)
            held_out = self._not_trained_on(held_out, target)
            self._make_model(target.x, generator)
            self.threshold_ = 0.0
            self._minimise_loss(self._score, train, {}, seed)
            errors = rates.error_rate(self._score, data=(train.x, train.y))
            self.source_error_ = errors.value()
            constraints = self._constraints(train)
            self._keep(self._minimise_loss(self._score, target, constraints, seed))
        self._confirm_held_out(held_out)
        return self

    def _not_trained_on(
        self, held_out: Sequence[Rows], target: Rows
    ) -> tuple[Rows, ...]:
        """The readings of the held-out source, without rows that the target has."""
        kept = tuple(rows.of(~rows.among(target)) for rows in held_out)
        if len(held_out[0]) and not len(kept[0]):
            warn(
                "Every source row that was held out is also a target row, which is "
                "trained on, so there is no confirmation. Give source rows that are "
                "not in the target, or call confirm with rows that no fit has seen."
            )
        return kept

    def _read_source(self, X: object, y: object) -> Rows:
        if X is None or y is None:
            message = (
                "fit needs the source rows: fit(X, y, X_source=..., y_source=...). In "
                "cross_validate and the like pass params= with both, with "
                "sklearn.set_config(enable_metadata_routing=True) and "
                ".set_fit_request(X_source=True, y_source=True)."
            )
            raise InvalidProblemError(message)
        return self._labelled(X, y)

    def _constraints(self, rows: Rows) -> Constraints:
        errors = rates.error_rate(self._score, data=(rows.x, rows.y))
        most = min(self.source_error_ + self.tolerance, 1.0)
        return {"source errors": errors <= most}
