"""Few misses under a cap on false positives."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from oneproj import InvalidProblemError, OneprojWarning
from oneproj.learn import NeymanPearsonClassifier


def test_the_cap_holds_on_new_rows(table, new_table) -> None:
    clf = NeymanPearsonClassifier(alpha=0.1, steps=60, random_state=0)
    clf.fit(table.X, table.y)
    assert clf.guaranteed_
    assert clf.confirmation_.holds
    flagged = clf.predict(new_table.X) == 1
    assert flagged[new_table.y == 0].mean() <= 0.1
    # Misses are no more than a few points above those of a threshold that knows the
    # truth, on the scores of a logistic regression.
    plain = LogisticRegression().fit(table.X, table.y)
    scores = plain.decision_function(new_table.X)
    ideal = np.quantile(scores[new_table.y == 0], 0.9)
    misses = (~flagged[new_table.y == 1]).mean()
    assert misses <= (scores[new_table.y == 1] <= ideal).mean() + 0.15


def test_without_confidence_the_cap_is_on_the_rows_themselves(table) -> None:
    clf = NeymanPearsonClassifier(0.1, confidence=None, steps=60, random_state=0)
    clf.fit(table.X, table.y)
    assert not clf.guaranteed_
    assert clf.confirmation_ is None
    negatives = table.y == 0
    assert clf.predict(table.X)[negatives].mean() <= 0.1
    assert clf.predict(table.X)[negatives].mean() > 0.08  # the budget is used
    assert clf.solution_.residuals["false positive rate"] <= 0


def test_too_few_rows_are_said(table) -> None:
    clf = NeymanPearsonClassifier(alpha=0.01, steps=5, random_state=0)
    with pytest.warns(OneprojWarning, match="takes 299 of them"):
        clf.fit(table.X, table.y)
    assert not clf.guaranteed_
    assert not clf.confirmation_.holds


def test_new_rows_can_be_confirmed(table, new_table) -> None:
    clf = NeymanPearsonClassifier(alpha=0.2, steps=30, random_state=0)
    clf.fit(table.X, table.y)
    check = clf.confirm(new_table.X, new_table.y)["false positive rate"]
    assert check.rows == (new_table.y == 0).sum()
    assert check.observed == clf.predict(new_table.X)[new_table.y == 0].mean()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 5}, "alpha must be a number between 0 and 1, got 5"),
        ({"confidence": 1.0}, "confidence must be a number between 0 and 1, got 1.0"),
    ],
)
def test_parameters_are_checked(parameters, message, table) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        NeymanPearsonClassifier(**parameters).fit(table.X, table.y)


def test_no_held_out_row_means_no_promise(table) -> None:
    clf = NeymanPearsonClassifier(
        alpha=0.1, steps=5, validation_fraction=0.0, random_state=0
    )
    with pytest.warns(OneprojWarning, match="0 rows were held out"):
        clf.fit(table.X, table.y)
    assert not clf.guaranteed_
    assert clf.confirmation_ is None
