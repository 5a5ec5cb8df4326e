"""Input that is refused, sparse tables, and the penalty."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from oneproj import InvalidProblemError, OneprojWarning, Status, rates
from oneproj.learn import (
    AbstainingClassifier,
    ConstrainedClassifier,
    NeymanPearsonClassifier,
)

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.arange(40) % 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a number between"),
        ({"warm_start": "no"}, "warm_start must be True or False"),
        ({"confidence": 2}, "confidence must be a number between 0 and 1, got 2"),
        ({"C": 0.0}, "C must be one number > 0, got 0.0"),
        ({"model": "mlp"}, "model must be None"),
    ],
)
def test_parameters_are_checked_when_fitted(
    parameters: dict[str, object], message: str
) -> None:
    clf = ConstrainedClassifier(**parameters)
    with pytest.raises(InvalidProblemError, match=message):
        clf.fit(X, Y)


def test_three_classes_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"Only binary.*with 3 classes"):
        ConstrainedClassifier().fit(X, np.arange(40) % 3)
    message = r"with 10 classes: \[0, 1, 2, 3, 4, ...\], 10 in all\. Merge.*y == c"
    with pytest.raises(InvalidProblemError, match=message):
        ConstrainedClassifier().fit(X, np.arange(40) % 10)
    one = ConstrainedClassifier(steps=2).fit(X, np.arange(40) % 10 == 3)
    assert one.classes_.tolist() == [False, True]


def test_one_class_is_refused_by_its_label() -> None:
    with pytest.raises(InvalidProblemError, match="only one class, 'yes'"):
        ConstrainedClassifier().fit(X, ["yes"] * 40)


def test_a_sparse_table_is_fitted_like_a_dense_one() -> None:
    fits = [
        ConstrainedClassifier(steps=20, random_state=0).fit(table, Y).predict(X)
        for table in (X, sparse.csr_array(X), sparse.csc_array(X))
    ]
    assert fits[0].tolist() == fits[1].tolist() == fits[2].tolist()


def test_a_sparse_table_that_is_too_large_says_what_to_do() -> None:
    wide = sparse.csr_array((40, 2**44))
    with pytest.raises(MemoryError) as error:
        ConstrainedClassifier().fit(wide, Y)
    (note,) = error.value.__notes__
    assert "made dense: 40 rows of 17592186044416 columns take 5.63e+06 GB" in note


def test_the_penalty_is_that_of_logistic_regression() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)  # separable: without a penalty there is no minimum
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    for C in (0.02, 0.2):
        clf = ConstrainedClassifier(
            C=C, steps=2000, validation_fraction=0.0, random_state=0
        ).fit(X, y)
        found = np.hstack([p.detach().flatten() for p in clf.model_.parameters()])
        plain = LogisticRegression(C=C, tol=1e-8).fit(z, y)
        expected = np.hstack([plain.coef_[0], plain.intercept_])
        assert found == pytest.approx(expected, abs=0.02)


def test_without_a_penalty_weights_are_larger() -> None:
    y = (X[:, 0] > 0).astype(int)
    sizes = []
    for C in (1.0, np.inf):
        clf = ConstrainedClassifier(C=C, model=(4,), steps=200, random_state=0)
        weights = [p for p in clf.fit(X, y).model_.parameters() if p.ndim > 1]
        sizes.append(sum(float(p.detach().square().sum()) for p in weights))
    assert sizes[1] > 1.5 * sizes[0]


def few_flagged(score: Callable[[Tensor], Tensor], X: Tensor, y: Tensor) -> Any:
    del y
    return {"flagged": rates.positive_rate(score, data=X) <= 0.5}


class Interrupting(nn.Linear):
    """Ctrl-C is pressed in its 400th call."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 400:
            signal.raise_signal(signal.SIGINT)
        return super().forward(x)


def test_ctrl_c_ends_the_training_and_not_the_fit() -> None:
    clf = ConstrainedClassifier(
        few_flagged, model=lambda k: Interrupting(k, 1), steps=2000, random_state=0
    )
    with pytest.warns(OneprojWarning, match="Ctrl-C ended this run after update"):
        clf.fit(X, Y)
    assert clf.solution_.status is Status.INTERRUPTED
    assert clf.solution_.residuals["flagged"] <= 0
    assert clf.confirmation_ is not None
    assert clf.predict(X).shape == (40,)


@pytest.mark.parametrize("estimator", [NeymanPearsonClassifier, AbstainingClassifier])
def test_ctrl_c_while_a_score_is_trained_leaves_caps_that_hold(estimator: Any) -> None:
    clf = estimator(
        0.3, None, model=lambda k: Interrupting(k, 1), steps=2000, random_state=0
    )
    with pytest.warns(OneprojWarning, match="status of the solution is INTERRUPTED"):
        clf.fit(X, Y)
    for check in clf.confirm(X, Y).checks.values():
        assert check.observed <= 0.3
    assert not clf.model_.training
