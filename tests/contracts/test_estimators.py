"""What every estimator of ``oneproj.learn`` promises: one suite for all of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import oneproj
from oneproj import learn

STEPS = 12
ROWS = 160


@dataclass(frozen=True)
class Flagged:
    """At most this share is flagged; it prints the same in every process."""

    most: float

    def __call__(self, score: Callable[[Any], Any], X: Any, y: Any) -> dict[str, Any]:
        del y
        return {"flagged": oneproj.rates.positive_rate(score, data=X) <= self.most}


def rows(X: Any) -> int:
    return X.shape[0] if sparse.issparse(X) else len(np.asarray(X))


class FairByTurns(learn.FairClassifier):
    """The groups are every second row: scikit-learn's checks pass X and y alone."""

    def fit(self, X: Any, y: Any) -> FairByTurns:
        return super().fit(X, y, sensitive_features=np.arange(rows(X)) % 2)


class TransferFromItself(learn.TransferClassifier):
    """The source is the target, scaled: scikit-learn's checks pass X and y alone."""

    def fit(self, X: Any, y: Any) -> TransferFromItself:
        try:
            source = X * (1 + 2**-30)
        except TypeError:  # a list, or a table that is refused
            source = X
        return super().fit(X, y, X_source=source, y_source=y)


ESTIMATORS = [
    # Caps and confidences for tables of 20 to 200 rows.
    learn.NeymanPearsonClassifier(0.3, 0.8, steps=STEPS),
    learn.AbstainingClassifier(0.3, 0.8, steps=STEPS),
    learn.ConstrainedClassifier(Flagged(0.8), steps=40),
    FairByTurns(tolerance=0.3, steps=40),
    TransferFromItself(tolerance=0.1, steps=STEPS),
]
BUDGETS = ["alpha", "alpha", "confidence", "tolerance", "tolerance"]
IDS = [type(each).__name__ for each in ESTIMATORS]

every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=IDS)
solved = pytest.mark.parametrize("estimator", ESTIMATORS[2:], ids=IDS[2:])
"""Those that train under constraints; the others choose thresholds."""
few_rows = pytest.mark.filterwarnings("ignore::oneproj.OneprojWarning")


@few_rows  # tables of 10 rows are too small for a promise, and a warning says so
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def X() -> Any:
    return np.random.default_rng(0).normal(size=(ROWS, 3)).round(2)


@pytest.fixture(scope="module")
def y(X: Any) -> Any:
    noise = np.random.default_rng(1).normal(size=ROWS)
    return np.where(X[:, 0] + 0.5 * noise > 0, "yes", "no")


@few_rows
@every
def test_fitted_attributes(estimator: Any, X: Any, y: Any) -> None:
    clf = clone(estimator).set_params(random_state=0).fit(X, y)
    assert isinstance(clf.confirmation_, oneproj.Confirmation)
    assert clf.classes_.tolist() == ["no", "yes"]


@few_rows
@solved
def test_the_solution_is_that_of_the_constraints(
    estimator: Any, X: Any, y: Any
) -> None:
    clf = clone(estimator).set_params(random_state=0).fit(X, y)
    assert isinstance(clf.solution_, oneproj.Solution)
    assert clf.solution_.feasible
    assert set(clf.multipliers_) == set(clf.solution_.residuals)
    assert set(clf.confirmation_.checks) == set(clf.solution_.residuals)
    again = pickle.loads(pickle.dumps(clf))  # noqa: S301 - our own
    assert again.solution_.to_dict() == clf.solution_.to_dict()


@few_rows
@every
def test_same_seed_same_bits_and_no_global_randomness(
    estimator: Any, X: Any, y: Any
) -> None:
    of_torch, of_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (clone(estimator).set_params(random_state=3) for _ in "ab")
    first.fit(X, y)
    torch.rand(1)
    second.fit(X, y)
    for a, b in zip(first.model_.parameters(), second.model_.parameters(), strict=True):
        assert torch.equal(a, b)
    torch.set_rng_state(of_torch)
    clone(first).fit(X, y)
    assert torch.equal(torch.get_rng_state(), of_torch)
    assert np.array_equal(np.random.get_state()[1], of_numpy)  # noqa: NPY002
    other = clone(first).set_params(random_state=4).fit(X, y)
    assert not torch.equal(
        next(other.model_.parameters()), next(first.model_.parameters())
    )


@few_rows
@every
def test_containers_and_pickles_predict_the_same(
    estimator: Any, X: Any, y: Any
) -> None:
    clf = clone(estimator).set_params(random_state=0)
    expected = clf.fit(X, y).predict(X)
    names = ["a", "b", "c"]
    frame = pd.DataFrame(X, columns=names, index=np.arange(ROWS)[::-1])
    assert np.array_equal(clone(clf).fit(frame, pd.Series(y)).predict(frame), expected)
    assert clone(clf).fit(frame, y).feature_names_in_.tolist() == names
    for kind in (sparse.csr_array, sparse.csc_matrix):
        assert np.array_equal(clone(clf).fit(kind(X), y).predict(kind(X)), expected)
    again = pickle.loads(pickle.dumps(clf))  # noqa: S301 - our own
    assert np.array_equal(again.predict(X), expected)


@few_rows
@every
@pytest.mark.parametrize(
    "model", [(4,), lambda k: nn.Sequential(nn.Dropout(0.2), nn.Linear(k, 1))]
)
def test_networks_and_modules(estimator: Any, X: Any, y: Any, model: Any) -> None:
    first, second = (
        clone(estimator).set_params(random_state=0, model=model).fit(X, y) for _ in "ab"
    )
    assert np.array_equal(first.predict(X), second.predict(X))
    assert not first.model_.training


@few_rows
@every
def test_warm_start_goes_on(estimator: Any, X: Any, y: Any) -> None:
    clf = clone(estimator).set_params(random_state=0, warm_start=True).fit(X, y)
    module = clf.model_
    assert clf.fit(X, y).model_ is module
    assert clf.fit(X[:, :2], y).model_ is not module  # other columns: a new one
    assert clf.set_params(warm_start=False).fit(X[:, :2], y).model_ is not module


@few_rows
@pytest.mark.parametrize(
    ("estimator", "budget"), list(zip(ESTIMATORS, BUDGETS, strict=True)), ids=IDS
)
def test_pipelines_and_searches(estimator: Any, budget: str, X: Any, y: Any) -> None:
    clf = make_pipeline(StandardScaler(), clone(estimator).set_params(random_state=0))
    name = f"{type(estimator).__name__.lower()}__{budget}"
    search = GridSearchCV(clf, {name: [0.25, 0.5]}, cv=2, error_score="raise")
    search.fit(X, y)
    assert search.predict(X).shape == (ROWS,)


@every
def test_nothing_is_predicted_before_fit(estimator: Any, X: Any) -> None:
    with pytest.raises(NotFittedError):
        clone(estimator).predict(X)
