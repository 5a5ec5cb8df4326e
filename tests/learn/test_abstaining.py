"""Abstaining rather than erring."""

from __future__ import annotations

import numpy as np
import pytest

from oneproj import InvalidProblemError, OneprojWarning
from oneproj.learn import AbstainingClassifier


@pytest.fixture(scope="module")
def fitted(table) -> AbstainingClassifier:
    clf = AbstainingClassifier(alpha=(0.1, 0.2), steps=60, random_state=0)
    return clf.fit(table.X, table.y)


def test_both_class_errors_hold_on_new_rows(fitted, new_table) -> None:
    assert fitted.guaranteed_
    assert fitted.confirmation_.holds
    predicted = fitted.predict(new_table.X)
    for label, cap in ((0, 0.1), (1, 0.2)):
        wrong = predicted[new_table.y == label] == 1 - label
        assert 0.01 < wrong.mean() <= cap
    assert 0.02 < (predicted == -1).mean() < 0.6


def test_sets_labels_and_coverage_agree(fitted, new_table) -> None:
    accepted = fitted.predict_set(new_table.X)
    predicted = fitted.predict(new_table.X)
    assert np.array_equal(accepted.all(axis=1), predicted == fitted.abstain_label_)
    alone = accepted.sum(axis=1) == 1
    assert np.array_equal(accepted[alone].argmax(axis=1), predicted[alone])
    share = (predicted != -1).mean()
    assert abs(fitted.coverage_ - share) < 0.08
    assert np.array_equal(fitted.class_scores(new_table.X) >= 0, accepted)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([0, 1], -1), ([-1, 1], -2), (["no", "yes"], "abstain"), ([False, True], -1)],
)
def test_the_label_of_abstention_is_no_class(labels, expected, table) -> None:
    y = np.array(labels)[table.y]
    clf = AbstainingClassifier(0.05, confidence=None, steps=5, random_state=0)
    predicted = clf.fit(table.X, y).predict(table.X)
    assert clf.abstain_label_ == expected
    assert set(predicted.tolist()) <= {*labels, expected}
    assert expected in predicted.tolist()


def test_without_confidence_the_caps_are_on_the_rows_themselves(table) -> None:
    clf = AbstainingClassifier(0.1, confidence=None, steps=30, random_state=0)
    clf.fit(table.X, table.y)
    accepted = clf.predict_set(table.X)
    for label in (0, 1):
        refused = ~accepted[table.y == label, label]
        assert 0.08 < refused.mean() <= 0.1  # and the budget is used
    assert clf.coverage_ == (~accepted.all(axis=1)).mean()
    assert clf.confirmation_ is None


def test_too_few_rows_are_said(table) -> None:
    clf = AbstainingClassifier(alpha=0.01, steps=5, random_state=0)
    with pytest.warns(OneprojWarning) as caught:
        clf.fit(table.X, table.y)
    for label, warning in enumerate(caught):
        assert f"errors of class {label}, 0.01" in str(warning.message)
    assert not clf.guaranteed_


def test_alpha_is_checked(table) -> None:
    for alpha in (0.0, (0.1, 0.2, 0.3), (0.1, 2), "few"):
        with pytest.raises(InvalidProblemError, match="alpha"):
            AbstainingClassifier(alpha).fit(table.X, table.y)


def test_no_held_out_row_means_no_promise(table) -> None:
    clf = AbstainingClassifier(
        alpha=0.1, steps=5, validation_fraction=0.0, random_state=0
    )
    with pytest.warns(OneprojWarning, match="0 rows were held out"):
        clf.fit(table.X, table.y)
    assert not clf.guaranteed_
    assert clf.confirmation_ is None


def test_what_is_guaranteed_is_what_the_confirmation_says() -> None:
    # With 145 rows of each class held out the rule of one class, whose error is
    # 1 - sqrt(.95), finds a threshold; half of the error would not: 146 are needed.
    rng = np.random.default_rng(0)
    y = np.arange(580) % 2
    X = rng.normal(size=(580, 2)) + y[:, None]
    alpha = 1 - (1 - 0.95**0.5) ** (1 / 145)
    alpha = (alpha + 1 - 0.025 ** (1 / 145)) / 2
    clf = AbstainingClassifier(alpha, steps=5, random_state=0).fit(X, y)
    assert [check.rows for check in clf.confirmation_.checks.values()] == [145, 145]
    assert clf.guaranteed_
    assert clf.confirmation_.holds
    assert "its bound holds by that choice" in str(clf.confirmation_)


def test_a_class_without_held_out_rows_leaves_nothing_promised(table) -> None:
    y = np.zeros_like(table.y)
    y[table.X[:, 0].argmax()] = 1  # one row, which is trained on
    clf = AbstainingClassifier(alpha=0.2, steps=5, random_state=0)
    with pytest.warns(OneprojWarning, match="0 rows were held out for the cap on the"):
        clf.fit(table.X, y)
    assert clf.confirmation_ is None  # not one that holds for the other class alone
    assert not clf.guaranteed_
