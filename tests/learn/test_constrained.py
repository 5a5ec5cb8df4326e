"""Constraints of the user's own."""

from __future__ import annotations

import numpy as np
import pytest

import oneproj
from oneproj.learn import ConstrainedClassifier


def flagged(score, X, _):
    return {"flagged": oneproj.rates.positive_rate(score, data=X) <= 0.2}


def test_the_constraint_holds_on_the_rows_trained_on(table) -> None:
    clf = ConstrainedClassifier(
        flagged, steps=60, validation_fraction=0, random_state=0
    )
    clf.fit(table.X, table.y)
    assert 0.1 < clf.predict(table.X).mean() <= 0.2
    assert clf.confirmation_ is None


def test_it_sees_rows_in_their_own_units_and_groups_by_label(table) -> None:
    seen = []

    def constraints(score, X, y, group):
        seen.append((X.mean(dim=0).numpy(), y.unique().tolist(), set(group)))
        rate = oneproj.rates.positive_rate(score, data=X[group == "b"])
        return {"of b": rate <= 0.3}

    clf = ConstrainedClassifier(constraints, steps=30, random_state=0)
    clf.fit(table.X, table.y, sensitive_features=table.group)
    assert len(seen) == 2  # rows to train on, rows held out
    means, labels, groups = seen[0]
    assert np.allclose(means, table.X.mean(axis=0), rtol=0.1, atol=0.2)
    assert labels == [0.0, 1.0]
    assert groups == {"a", "b"}
    assert set(clf.confirmation_.checks) == {"of b"}
    found = clf.confirm(table.X, table.y, sensitive_features=table.group)
    assert found["of b"].rows == (table.group == "b").sum()


def test_probabilities_are_those_of_the_scores(table) -> None:
    clf = ConstrainedClassifier(steps=60, random_state=0).fit(table.X, table.y)
    p = clf.predict_proba(table.X)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(p[:, 1] > 0.5, clf.predict(table.X) == 1)
    assert abs(p[:, 1].mean() - table.y.mean()) < 0.1


def test_means_are_confirmed_with_their_range(table) -> None:
    def constraints(score, X, _):
        return {"size": oneproj.mean(lambda x: score(x).sigmoid(), X) <= 0.4}

    clf = ConstrainedClassifier(constraints, steps=20, random_state=0)
    with pytest.warns(oneproj.OneprojWarning, match="no confirmation.*needs their ran"):
        clf.fit(table.X, table.y)
    assert clf.confirmation_ is None
    clf.set_params(range=(0, 1)).fit(table.X, table.y)
    assert clf.confirmation_["size"].rows == 120


def test_what_is_no_dict_is_refused(table) -> None:
    clf = ConstrainedClassifier(lambda *_: [1], steps=5)
    with pytest.raises(oneproj.InvalidProblemError, match="returned a list"):
        clf.fit(table.X, table.y)
