"""Learning a new table while an old one is not forgotten."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from oneproj import InvalidProblemError, OneprojWarning
from oneproj.learn import TransferClassifier


def tables(rows: int, seed: int) -> tuple[np.ndarray, ...]:
    """A target and a source, whose best lines differ."""
    rng = np.random.default_rng(seed)
    X, X_source = rng.normal(size=(2, rows, 3))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    y_source = (X_source[:, 0] - 0.3 * X_source[:, 1] > 0).astype(int)
    return X, y, X_source, y_source


def test_source_errors_stay_within_the_tolerance() -> None:
    X, y, X_source, y_source = tables(300, 0)
    clf = TransferClassifier(
        0.05, steps=80, validation_fraction=0, random_state=0, confidence=0.9
    )
    clf.fit(X, y, X_source, y_source)
    errors = (clf.predict(X_source) != y_source).mean()
    assert errors <= clf.source_error_ + 0.05 + 1e-12
    forgetful = LogisticRegression().fit(X, y)
    assert (forgetful.predict(X_source) != y_source).mean() > clf.source_error_ + 0.1
    reference = LogisticRegression().fit(X_source, y_source)
    assert clf.score(X, y) > reference.score(X, y) + 0.01  # and it learned the target


def test_held_out_source_rows_are_confirmed() -> None:
    X, y, X_source, y_source = tables(300, 0)
    clf = TransferClassifier(0.3, steps=20, random_state=0)
    clf.fit(X, y, X_source, y_source)
    check = clf.confirmation_["source errors"]
    assert check.rows == 60
    assert check.bound == pytest.approx(clf.source_error_ + 0.3)
    again = clf.confirm(X_source, y_source)
    assert again["source errors"].rows == 300


def test_source_rows_that_the_target_has_are_not_held_out() -> None:
    X, y, X_source, y_source = tables(300, 0)
    both = np.vstack([X[:150], X_source[:150]]), np.hstack([y[:150], y_source[:150]])
    clf = TransferClassifier(0.3, steps=20, random_state=0).fit(
        *both, X_source, y_source
    )
    assert 20 <= clf.confirmation_["source errors"].rows <= 40  # of 60
    with pytest.warns(OneprojWarning, match="is also a target row"):
        clf.fit(X, y, X, y)
    assert clf.confirmation_ is None


def test_what_is_missing_is_said() -> None:
    X, y, X_source, y_source = tables(40, 0)
    with pytest.raises(InvalidProblemError, match="fit needs the source rows"):
        TransferClassifier().fit(X, y)
    with pytest.raises(InvalidProblemError, match=r"not in y: \[5\]"):
        TransferClassifier().fit(X, y, X_source, np.full(40, 5))
    with pytest.raises(ValueError, match="has 2 features"):
        TransferClassifier().fit(X, y, X_source[:, :2], y_source)
    with pytest.raises(InvalidProblemError, match="tolerance must be"):
        TransferClassifier(tolerance=-1).fit(X, y, X_source, y_source)


def test_a_pipeline_transforms_the_source_too() -> None:
    X, y, X_source, y_source = tables(200, 0)
    far = [1000.0, -1000.0, 0.0]
    with sklearn.config_context(enable_metadata_routing=True):
        clf = TransferClassifier(0.05, steps=60, random_state=0)
        clf = clf.set_fit_request(X_source=True, y_source=True)
        steps = [("scale", StandardScaler()), ("clf", clf)]
        pipeline = Pipeline(steps, transform_input=["X_source"])
        pipeline.fit(X + far, y, X_source=X_source + far, y_source=y_source)
    assert pipeline[-1].solution_.feasible
    assert pipeline[-1].source_error_ < 0.15
