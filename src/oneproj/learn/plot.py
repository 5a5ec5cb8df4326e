"""Pictures of fitted estimators, as scikit-learn's Displays: numbers first, then axes.

- ``TradeOffDisplay``: what a tighter budget costs, over alpha or tolerance.
- ``GroupRatesDisplay``: a rate in each group, before and after.
- ``ScoreHistogramDisplay``: the scores of each class, with the thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from oneproj.errors import InvalidProblemError
from oneproj.learn.base import AbstractClassifier
from oneproj.learn.capped import AbstainingClassifier, NeymanPearsonClassifier
from oneproj.learn.fair import FairClassifier
from oneproj.learn.tables import Array, read_groups
from oneproj.progress import require
from oneproj.rates.bounds import Count, check_share

KEPT, PAID, LIMIT = "#3d6fb4", "#c2562f", "#666666"
"""Colours of what is kept, of what it costs, and of bounds."""
BINS = 40
"""Bars of a histogram."""


@dataclass(frozen=True)
class Interval:
    """A share with its exact two-sided confidence interval (Clopper and Pearson).

    Example:
        >>> share = Interval.of([True, False, False, False], confidence=0.9)
        >>> share.value, round(share.low, 3), round(share.high, 3)
        (0.25, 0.013, 0.751)
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, events: Sequence[bool] | Array, confidence: float) -> Interval:
        """The share of events, and an interval that misses the truth rarely."""
        happened = np.asarray(events, dtype=bool)
        count, error = Count(int(happened.sum()), len(happened)), (1 - confidence) / 2
        return cls(count.observed, count.lower(error), count.upper(error))


def _error_bars(intervals: Sequence[Interval]) -> Array:
    """Lengths of the bars below and above, as matplotlib wants them."""
    return np.array(
        [[i.value - i.low for i in intervals], [i.high - i.value for i in intervals]]
    )


def _axes(ax: Any) -> Any:  # noqa: ANN401 - axes of matplotlib
    if ax is not None:
        return ax
    _, made = require("matplotlib.pyplot", "learn").subplots(layout="constrained")
    return made


class TradeOffDisplay:
    """What a tighter budget costs: rates on new rows over alpha or tolerance.

    One curve is what the budget caps, with a bar up to its confidence bound: a bar
    that ends below the dashed line is a budget that is confirmed. The other is what it
    costs: misses, abstentions or errors, with an exact interval.

    Args:
        values: The budgets.
        kept: For each, the capped rate on the new rows, with its confidence bound as
            ``high``; of several the one with the highest bound.
        paid: For each, what it costs.
        parameter: The name of the budget.
        names: What the two curves show.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> from oneproj.learn import NeymanPearsonClassifier
        >>> X, y = make_classification(900, random_state=0)
        >>> display = TradeOffDisplay.from_estimator(
        ...     NeymanPearsonClassifier(steps=20, random_state=0), X[:600], y[:600],
        ...     X_test=X[600:], y_test=y[600:], values=[0.1, 0.3], draw=False)
        >>> display.kept[0].value <= 0.1, display.names
        (True, ('false positive rate', 'miss rate'))
    """

    def __init__(
        self,
        values: Sequence[float],
        kept: Sequence[Interval],
        paid: Sequence[Interval],
        *,
        parameter: str = "alpha",
        names: tuple[str, str] = ("kept", "paid"),
    ) -> None:
        self.values, self.kept, self.paid = list(values), list(kept), list(paid)
        self.parameter, self.names = parameter, names

    @classmethod
    def from_estimator(
        cls,
        estimator: AbstractClassifier,
        X: object,
        y: object,
        *,
        X_test: object,
        y_test: object,
        values: Sequence[float],
        fit_params: Mapping[str, object] | None = None,
        test_params: Mapping[str, object] | None = None,
        confidence: float = 0.95,
        draw: bool = True,
        ax: Any = None,  # noqa: ANN401 - axes of matplotlib
    ) -> TradeOffDisplay:
        """Fit a copy of the estimator for each budget, and measure it on new rows.

        Args:
            estimator: A ``NeymanPearsonClassifier``, ``AbstainingClassifier`` (alpha)
                or ``FairClassifier`` (tolerance); it is not changed.
            X: Rows to fit.
            y: Their labels.
            X_test: New rows.
            y_test: Their labels.
            values: The budgets.
            fit_params: More arguments of ``fit``, such as ``sensitive_features``.
            test_params: The same for the new rows.
            confidence: Of each interval by itself.
            draw: Whether to call ``plot``.
            ax: Axes of matplotlib; None for new ones.
        """
        parameter = "tolerance" if isinstance(estimator, FairClassifier) else "alpha"
        measure, names = _cost_of(estimator)
        check_share("confidence", confidence, "It is that of the error bars.")
        kept, paid = [], []
        for value in values:
            copy = clone(estimator).set_params(**{parameter: value})
            copy.fit(X, y, **(fit_params or {}))
            found = copy.confirm(X_test, y_test, **(test_params or {}))
            worst = max(found.checks.values(), key=lambda c: c.confidence_bound)
            high = worst.confidence_bound
            kept.append(Interval(worst.observed, worst.observed, high))
            paid.append(Interval.of(measure(copy, X_test, y_test), confidence))
        display = cls(values, kept, paid, parameter=parameter, names=names)
        return display.plot(ax=ax) if draw else display

    def plot(self, ax: Any = None) -> TradeOffDisplay:  # noqa: ANN401 - matplotlib's
        """Draw both curves, and the budget as a dashed line.

        Args:
            ax: Axes of matplotlib; None for new ones.
        """
        self.ax_ = _axes(ax)
        self.figure_ = self.ax_.figure
        curves = zip((self.kept, self.paid), self.names, (KEPT, PAID), strict=True)
        for intervals, name, color in curves:
            self.ax_.errorbar(
                self.values,
                [i.value for i in intervals],
                yerr=_error_bars(intervals),
                marker="o",
                capsize=3,
                color=color,
                label=name,
            )
        ends = [min(self.values), max(self.values)]
        self.ax_.plot(ends, ends, "--", color=LIMIT, label=f"budget: {self.parameter}")
        self.ax_.set(xlabel=self.parameter, ylabel="rate on new rows")
        self.ax_.set_ylim(bottom=min(0.0, *(i.low for i in self.kept)))
        self.ax_.legend()
        return self


class GroupRatesDisplay:
    """A rate in each group as bars, before and after, with exact intervals.

    Args:
        groups: The labels of the groups.
        rates: Name of a classifier to its rate in each group, in the order to draw.
        rate: What the rate is.

    Example:
        >>> display = GroupRatesDisplay.from_predictions(
        ...     {"before": [1, 1, 0, 1], "after": [1, 0, 0, 1]},
        ...     sensitive_features=["a", "a", "b", "b"], draw=False)
        >>> [share.value for share in display.rates["after"]]
        [0.5, 0.5]
    """

    def __init__(
        self,
        groups: Sequence[object],
        rates: Mapping[str, Sequence[Interval]],
        *,
        rate: str = "positive rate",
    ) -> None:
        self.groups, self.rates, self.rate = list(groups), dict(rates), rate

    @classmethod
    def from_estimator(
        cls,
        estimator: object,
        X: object,
        y: object = None,
        *,
        sensitive_features: object,
        baseline: object = None,
        positive: object = None,
        confidence: float = 0.95,
        draw: bool = True,
        ax: Any = None,  # noqa: ANN401 - axes of matplotlib
    ) -> GroupRatesDisplay:
        """Compare the predictions of a fitted classifier with those of another.

        Args:
            estimator: Fitted; the one "after".
            X: Rows, as a rule new ones.
            y: Their labels: the rate is then that among positive rows, the true
                positive rate. None for the share of all rows that is predicted
                positive.
            sensitive_features: The group of each row.
            baseline: A fitted classifier, the one "before"; None for none.
            positive: The positive label; the last of ``estimator.classes_`` if None.
            confidence: Of each interval by itself.
            draw: Whether to call ``plot``.
            ax: Axes of matplotlib; None for new ones.
        """
        fitted: Any = estimator
        before: Any = baseline
        label = fitted.classes_[-1] if positive is None else positive
        predictions = {} if before is None else {"before": before.predict(X) == label}
        predictions["after"] = fitted.predict(X) == label
        where = None if y is None else np.asarray(y) == label
        return cls.from_predictions(
            predictions,
            sensitive_features=sensitive_features,
            where=where,
            rate="positive rate" if y is None else "true positive rate",
            confidence=confidence,
            draw=draw,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        predictions: Mapping[str, Sequence[bool] | Array],
        *,
        sensitive_features: object,
        where: Array | None = None,
        rate: str = "positive rate",
        confidence: float = 0.95,
        draw: bool = True,
        ax: Any = None,  # noqa: ANN401 - axes of matplotlib
    ) -> GroupRatesDisplay:
        """Compute the share of events in each group.

        Args:
            predictions: Name to one event per row, such as "predicted positive".
            sensitive_features: The group of each row.
            where: Which rows count; None for all.
            rate: What the share is called.
            confidence: Of each interval by itself.
            draw: Whether to call ``plot``.
            ax: Axes of matplotlib; None for new ones.
        """
        check_share("confidence", confidence, "It is that of the error bars.")
        first = next(iter(predictions.values()))
        labels, groups = read_groups(sensitive_features, first)
        counted = np.ones(len(groups), dtype=bool) if where is None else where
        members = [(groups.numpy() == j) & counted for j in range(len(labels))]
        found = {
            name: [Interval.of(np.asarray(events)[m], confidence) for m in members]
            for name, events in predictions.items()
        }
        display = cls(labels, found, rate=rate)
        return display.plot(ax=ax) if draw else display

    def plot(self, ax: Any = None) -> GroupRatesDisplay:  # noqa: ANN401 - matplotlib's
        """Draw a bar for each group and classifier.

        Args:
            ax: Axes of matplotlib; None for new ones.
        """
        self.ax_ = _axes(ax)
        self.figure_ = self.ax_.figure
        width = 0.8 / len(self.rates)
        at, colors = np.arange(len(self.groups)), [LIMIT, KEPT, PAID]
        for k, (name, shares) in enumerate(self.rates.items()):
            self.ax_.bar(
                at + (k - (len(self.rates) - 1) / 2) * width,
                [share.value for share in shares],
                width=0.9 * width,
                yerr=_error_bars(shares),
                capsize=3,
                color=colors[(k + 2 - len(self.rates)) % len(colors)],
                label=name,
            )
        self.ax_.set_xticks(at, [str(group) for group in self.groups])
        self.ax_.set(xlabel="group", ylabel=self.rate)
        self.ax_.legend()
        return self


class ScoreHistogramDisplay:
    """The scores of each class as histograms, with the threshold at 0.

    Of an ``AbstainingClassifier`` each class is shown by its own score: what is left of
    0 are errors. Of the others, what is right of 0 is predicted positive.

    Args:
        scores: Label of a class to the scores of its rows, relative to the threshold.
        xlabel: What the scores are.

    Example:
        >>> display = ScoreHistogramDisplay({"no": [-2.0, -1.0], "yes": [0.5, 2.0]})
        >>> {label: len(scores) for label, scores in display.scores.items()}
        {'no': 2, 'yes': 2}
    """

    def __init__(
        self, scores: Mapping[str, Sequence[float] | Array], *, xlabel: str = "score"
    ) -> None:
        self.scores = {label: np.asarray(s) for label, s in scores.items()}
        self.xlabel = xlabel

    @classmethod
    def from_estimator(
        cls,
        estimator: AbstractClassifier,
        X: object,
        y: object,
        *,
        draw: bool = True,
        ax: Any = None,  # noqa: ANN401 - axes of matplotlib
    ) -> ScoreHistogramDisplay:
        """Compute the scores of rows with a fitted estimator.

        Args:
            estimator: Fitted, with ``decision_function`` or ``class_scores``.
            X: Rows.
            y: Their labels.
            draw: Whether to call ``plot``.
            ax: Axes of matplotlib; None for new ones.
        """
        labels = np.asarray(y)
        if isinstance(estimator, AbstainingClassifier):
            both = estimator.class_scores(X)
            xlabel = "score of the own class minus its threshold"
            columns = [both[:, 0], both[:, 1]]
        else:
            scores = estimator.decision_function(X)
            xlabel = "score minus threshold"
            columns = [scores, scores]
        found = {
            f"class {label}": column[labels == label]
            for label, column in zip(estimator.classes_, columns, strict=True)
        }
        display = cls(found, xlabel=xlabel)
        return display.plot(ax=ax) if draw else display

    def plot(self, ax: Any = None) -> ScoreHistogramDisplay:  # noqa: ANN401 - matplotlib's
        """Draw a histogram for each class, and the threshold.

        Args:
            ax: Axes of matplotlib; None for new ones.
        """
        self.ax_ = _axes(ax)
        self.figure_ = self.ax_.figure
        every = np.concatenate(list(self.scores.values()))
        bins = np.histogram_bin_edges(every, bins=BINS)
        for (label, scores), color in zip(
            self.scores.items(), (KEPT, PAID), strict=True
        ):
            self.ax_.hist(
                scores, bins=bins, density=True, alpha=0.6, color=color, label=label
            )
        self.ax_.axvline(0.0, linestyle="--", color=LIMIT, label="threshold")
        self.ax_.set(xlabel=self.xlabel, ylabel="density")
        self.ax_.legend(loc="upper right")  # to find the best place takes long
        return self


def _cost_of(
    estimator: object,
) -> tuple[Callable[[Any, Any, Any], Array], tuple[str, str]]:
    """What a budget of this estimator costs, as events, and the names of both."""
    if isinstance(estimator, NeymanPearsonClassifier):
        return _misses, ("false positive rate", "miss rate")
    if isinstance(estimator, AbstainingClassifier):
        return _abstentions, ("larger class error", "abstentions")
    if isinstance(estimator, FairClassifier):
        return _errors, ("largest gap", "error rate")
    message = (
        "A trade-off is drawn over alpha or tolerance: of a NeymanPearsonClassifier, "
        "an AbstainingClassifier or a FairClassifier, not of a "
        f"{type(estimator).__name__}."
    )
    raise InvalidProblemError(message)


def _misses(clf: Any, X: Any, y: Any) -> Array:  # noqa: ANN401 - anything array-like
    positive = np.asarray(y) == clf.classes_[1]
    found: Array = clf.predict(X)[positive] != clf.classes_[1]
    return found


def _abstentions(clf: Any, X: Any, y: Any) -> Array:  # noqa: ANN401 - likewise
    del y  # abstentions need no labels
    found: Array = clf.predict_set(X).all(axis=1)
    return found


def _errors(clf: Any, X: Any, y: Any) -> Array:  # noqa: ANN401 - likewise
    found: Array = clf.predict(X) != np.asarray(y)
    return found
