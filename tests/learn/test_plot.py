"""Displays: the numbers, and that they can be drawn."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from oneproj import InvalidProblemError
from oneproj.learn import (
    AbstainingClassifier,
    ConstrainedClassifier,
    FairClassifier,
    NeymanPearsonClassifier,
)
from oneproj.learn.plot import (
    GroupRatesDisplay,
    Interval,
    ScoreHistogramDisplay,
    TradeOffDisplay,
)

mpl.use("agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_intervals_are_exact() -> None:
    share = Interval.of(np.arange(10) < 0, confidence=0.9)
    assert (share.value, share.low) == (0.0, 0.0)
    assert share.high == pytest.approx(1 - 0.05**0.1)


@pytest.mark.parametrize(
    ("estimator", "names"),
    [
        (NeymanPearsonClassifier(steps=10), ("false positive rate", "miss rate")),
        (AbstainingClassifier(steps=10), ("larger class error", "abstentions")),
    ],
)
def test_a_trade_off_over_alpha(estimator, names, table, new_table) -> None:
    display = TradeOffDisplay.from_estimator(
        estimator.set_params(random_state=0),
        table.X,
        table.y,
        X_test=new_table.X,
        y_test=new_table.y,
        values=[0.1, 0.3],
    )
    assert display.names == names
    tight, loose = display.paid
    assert tight.low < tight.value < tight.high
    assert tight.value > loose.value  # a smaller budget costs more
    assert display.kept[0].value < display.kept[0].high
    assert display.ax_.get_xlabel() == "alpha"
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert set(texts) == {*names, "budget: alpha"}


def test_a_trade_off_over_tolerance(table, new_table) -> None:
    display = TradeOffDisplay.from_estimator(
        FairClassifier(steps=40, random_state=0),
        table.X,
        table.y,
        X_test=new_table.X,
        y_test=new_table.y,
        values=[0.05, 0.4],
        fit_params={"sensitive_features": table.group},
        test_params={"sensitive_features": new_table.group},
        draw=False,
    )
    assert display.parameter == "tolerance"
    assert display.kept[0].value < display.kept[1].value
    assert display.paid[0].value > display.paid[1].value


def test_a_trade_off_needs_a_budget(table) -> None:
    with pytest.raises(InvalidProblemError, match="not of a ConstrainedClassifier"):
        TradeOffDisplay.from_estimator(
            ConstrainedClassifier(), *table[:2], X_test=0, y_test=0, values=[0.1]
        )


@pytest.mark.parametrize("labelled", [False, True])
def test_group_rates_before_and_after(labelled, table) -> None:
    X, y, group = table
    before = LogisticRegression().fit(X, y)
    after = FairClassifier(tolerance=0.05, steps=40, random_state=0)
    after.fit(X, y, sensitive_features=group)
    display = GroupRatesDisplay.from_estimator(
        after, X, y if labelled else None, sensitive_features=group, baseline=before
    )
    of = y == 1 if labelled else np.ones(len(y), dtype=bool)
    expected = [before.predict(X)[of & (group == g)].mean() for g in "ab"]
    assert [share.value for share in display.rates["before"]] == expected
    assert len(display.ax_.patches) == 4
    assert display.rate == ("true positive rate" if labelled else "positive rate")
    gap = display.rates["after"][0].value - display.rates["after"][1].value
    assert labelled or abs(gap) < abs(expected[0] - expected[1])


def test_score_histograms(table) -> None:
    clf = NeymanPearsonClassifier(0.2, steps=10, random_state=0).fit(*table[:2])
    display = ScoreHistogramDisplay.from_estimator(clf, *table[:2])
    flagged = clf.predict(table.X) == 1
    assert np.array_equal(display.scores["class 1"] > 0, flagged[table.y == 1])
    both = AbstainingClassifier(0.2, steps=10, random_state=0).fit(*table[:2])
    display = ScoreHistogramDisplay.from_estimator(both, *table[:2])
    refused = ~both.predict_set(table.X)[table.y == 0, 0]
    assert np.array_equal(display.scores["class 0"] < 0, refused)
    assert display.ax_.get_xlabel().startswith("score of the own class")
