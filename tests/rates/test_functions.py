"""Rates count exactly, whatever the group, the weights and the threshold are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oneproj
from oneproj import rates

X = torch.tensor([[1.0], [2.0], [-3.0], [4.0], [-1.0], [0.0]])
Y = torch.tensor([0, 1, 0, 1, 1, 0])


def score(rows: Tensor) -> Tensor:
    return rows[:, 0]


LABELLED = [
    rates.false_positive_rate,
    rates.false_negative_rate,
    rates.true_positive_rate,
    rates.true_negative_rate,
    rates.error_rate,
]


def expected(name: str, accepted: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """The rate by its textbook definition."""
    rows, counted = {
        "false_positive_rate": (~y, accepted),
        "false_negative_rate": (y, ~accepted),
        "true_positive_rate": (y, accepted),
        "true_negative_rate": (~y, ~accepted),
        "error_rate": (np.ones_like(y), accepted != y),
    }[name]
    return float(w[rows & counted].sum() / w[rows].sum())


@settings(max_examples=40, deadline=None)
@given(data=st.data(), n=st.integers(4, 30), threshold=st.sampled_from([-0.5, 0.0, 1]))
def test_a_rate_is_its_textbook_count(
    data: st.DataObject, n: int, threshold: float
) -> None:
    draw = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    s = draw.integers(-2, 3, n).astype(np.float32)  # with ties at the threshold
    y, where = draw.random(n) < 0.5, draw.random(n) < 0.7
    y[:2], where[:2] = [True, False], True  # both classes are in the group
    weights = draw.random(n) + 0.1
    given_x = torch.from_numpy(s)[:, None]
    for rate in LABELLED:
        term = rate(
            score, (given_x, y), where=where, threshold=threshold, weights=weights
        )
        own = expected(rate.__name__, (s > threshold)[where], y[where], weights[where])
        assert term.value() == pytest.approx(own, rel=1e-12)
        plain = rate(score, (given_x, y), where=where, threshold=threshold)
        k, n_rows = plain.counts().events, plain.counts().rows
        assert plain.value() == k / n_rows
        ones = np.ones(int(where.sum()))
        assert plain.value() == pytest.approx(
            expected(rate.__name__, (s > threshold)[where], y[where], ones)
        )


def test_a_positive_rate_needs_no_labels() -> None:
    assert rates.positive_rate(score, X).value() == 0.5
    assert rates.positive_rate(score, X, threshold=1.5).counts().events == 2


def test_rows_are_those_of_the_class_and_the_group() -> None:
    fpr = rates.false_positive_rate(score, (X, Y), where=[1, 1, 1, 0, 0, 0])
    assert fpr.rows.tolist() == [0, 2]
    assert fpr.events().tolist() == [True, False]
    assert fpr.size == 2


def test_chunks_do_not_change_the_count() -> None:
    whole = rates.error_rate(score, (X, Y))
    parts = rates.error_rate(score, (X, Y), chunk_size=2)
    assert whole.counts() == parts.counts()


def test_rates_add_up_with_other_terms() -> None:
    w = torch.ones(1, requires_grad=True)
    mean = oneproj.mean(lambda rows: rows @ w, X)
    gap = rates.positive_rate(score, X) - 0.5 * mean + 1.0
    assert gap.value() == pytest.approx(0.5 - 0.5 * 0.5 + 1.0)
    assert (gap >= 1.25).value() == pytest.approx(0.0)


def test_the_rows_may_be_a_dict_or_a_dataset() -> None:
    by_name = rates.false_positive_rate(lambda b: b["x"][:, 0], ({"x": X}, Y))
    dataset = torch.utils.data.TensorDataset(X)
    listed = rates.false_positive_rate(lambda b: b[0][:, 0], (dataset, Y))
    assert by_name.value() == listed.value() == pytest.approx(1 / 3)


class TestPrecision:
    def test_it_is_the_share_of_accepted_rows(self) -> None:
        found = rates.precision(score, (X, Y))
        assert found.value() == pytest.approx(2 / 3)
        assert found.counts()[:2] == (2, 3)

    @pytest.mark.parametrize(("p", "holds"), [(0.6, True), (0.7, False)])
    def test_its_bound_holds_where_it_does(self, p: float, *, holds: bool) -> None:
        assert ((rates.precision(score, (X, Y)) >= p).value() <= 0) == holds

    def test_weights_count(self) -> None:
        found = rates.precision(score, (X, Y), weights=[3.0, 1, 1, 1, 1, 1])
        assert found.value() == pytest.approx(2 / 5)
        assert (found >= 0.39).value() <= 0 < (found >= 0.41).value()

    def test_accepting_nothing_satisfies_it(self) -> None:
        found = rates.precision(score, (X, Y), threshold=9.0)
        assert np.isnan(found.value())
        assert (found >= 0.9).value() <= 0

    def test_an_upper_bound_is_refused(self) -> None:
        with pytest.raises(oneproj.InvalidProblemError, match="from below"):
            _ = rates.precision(score, (X, Y)) <= 0.5

    @pytest.mark.parametrize("p", [0, 1.0, 2.0, "a"])
    def test_a_bound_outside_of_0_and_1_is_refused(self, p: float) -> None:
        with pytest.raises(oneproj.InvalidProblemError, match="between 0 and 1"):
            _ = rates.precision(score, (X, Y)) >= p

    def test_arithmetic_is_refused(self) -> None:
        with pytest.raises(oneproj.InvalidProblemError, match="ratio"):
            _ = rates.precision(score, (X, Y)) + 1.0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([-1, 1, -1, 1, 1, -1], "y > 0"),
        ([0, 1, 2, 0, 1, 2], "0 and 1"),
        ([0, 1], "one entry per row"),
        (torch.full((6,), torch.nan), "0 and 1"),
    ],
)
def test_labels_must_be_0_and_1(labels: list[int], message: str) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        rates.error_rate(score, (X, labels))


def test_rows_without_labels_are_refused() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=r"\(rows, labels\)"):
        rates.error_rate(score, X)


@pytest.mark.parametrize("where", [[0] * 6, Y == 1])
def test_an_empty_group_is_refused(where: object) -> None:
    inside = int(torch.as_tensor(where).sum())
    told = f"3 are of its class, {inside} inside where=, and none is both"
    with pytest.raises(oneproj.InvalidProblemError, match=told):
        rates.false_positive_rate(score, (X, Y), where=where)


def test_a_group_without_weight_is_refused() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="positive weight"):
        rates.true_positive_rate(score, (X, Y), weights=(Y == 0).double())


@pytest.mark.parametrize("weights", [[1.0] * 5, [-1.0] + [1.0] * 5, [torch.nan] * 6])
def test_weights_must_be_nonnegative_numbers(weights: list[float]) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="weights must be"):
        rates.positive_rate(score, X, weights=weights)


def test_a_threshold_that_moves_belongs_into_the_score() -> None:
    cut = torch.zeros(2, requires_grad=True)
    with pytest.raises(oneproj.InvalidProblemError, match="part of the score"):
        rates.positive_rate(score, X, threshold=cut)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda rows: rows, "one number per row"),
        (lambda rows: rows[:, 0] > 0, "not the decision"),
        (lambda rows: 1.0, "one number per row"),  # noqa: ARG005 - any rows
    ],
)
def test_a_score_is_one_number_per_row(wrong: object, message: str) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        rates.positive_rate(wrong, X).value()  # type: ignore[arg-type]


def test_a_score_that_is_nan_is_an_error_not_a_rejection() -> None:
    with pytest.raises(oneproj.NonFiniteError):
        rates.positive_rate(lambda rows: rows[:, 0].log(), X).value()


class TestImpossibleBounds:
    @pytest.mark.parametrize("bound", [5, -0.1, 1.01])
    def test_of_a_rate_are_refused(self, bound: float) -> None:
        fpr = rates.false_positive_rate(score, (X, Y))
        for compare in (fpr.__le__, fpr.__ge__):
            with pytest.raises(oneproj.InvalidProblemError, match="0 and 1") as error:
                compare(bound)
            assert f"{bound:g}" in str(error.value)
            assert "0.05" in str(error.value)

    def test_of_a_difference_are_refused(self) -> None:
        a = rates.positive_rate(score, X, where=Y == 0)
        b = rates.positive_rate(score, X, where=Y == 1)
        with pytest.raises(oneproj.InvalidProblemError, match="-1 and 1"):
            _ = a - b <= 2
        with pytest.raises(oneproj.InvalidProblemError, match="-1 and 1"):
            _ = a - b >= -1.5

    def test_ends_of_the_range_and_other_terms_are_allowed(self) -> None:
        fpr = rates.false_positive_rate(score, (X, Y))
        w = torch.ones(1, requires_grad=True)
        size = oneproj.function(w.sum)
        assert (fpr <= 1).value() <= 0
        assert (fpr >= 0).value() <= 0
        assert (fpr + size <= 9).value() <= 0
