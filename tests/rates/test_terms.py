"""A rate as a term: its value on batches, its gradient, its surrogates, its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj import rates
from oneproj.problem.terms import Constraint


def normal(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))


def make(
    n: int = 400, *, seed: int = 0, weights: Tensor | None = None
) -> tuple[Tensor, rates.Rate]:
    x, w = normal(n, seed), torch.tensor([1.0, 0.5], requires_grad=True)
    return w, rates.error_rate(lambda b: b @ w, (x, x[:, 1] > 0), weights=weights)


def test_a_minibatch_counts_its_rows() -> None:
    _, rate = make()
    events = rate.events()
    at = torch.tensor([3, 3, 50, 7])
    assert rate.examples(at).tolist() == events[at].float().tolist()
    assert rate.batch_value(None).item() == pytest.approx(rate.value())


def test_weighted_examples_average_to_the_rate() -> None:
    weights = torch.rand(400, generator=torch.Generator().manual_seed(1)) + 0.1
    _, rate = make(weights=weights)
    full = rate.full_pass(None)
    assert full.each is not None
    assert full.each.double().mean().item() == pytest.approx(rate.value())
    assert rate.batch_value(None).item() == pytest.approx(rate.value())


def test_the_gradient_is_that_of_the_expected_count() -> None:
    # The sign of a . x is wrong with probability angle / pi for normal x: the slope of
    # the error with respect to the angle of the weights is 1 / pi.
    w, rate = make(100_000)
    _, (slope,) = rate.value_and_gradient([w])
    turned = torch.tensor([-0.5, 1.0]) / 1.25**0.5  # one radian per unit, over |w|
    assert float(slope @ turned) * 1.25**0.5 == pytest.approx(-1 / torch.pi, rel=0.05)


def test_the_gradient_does_not_grow_the_scores() -> None:
    # No decision changes if all scores are doubled, also where few rows are counted.
    x, w = normal(5000), torch.tensor([1.0, 0.5, -2.5], requires_grad=True)
    rate = rates.positive_rate(lambda b: b @ w[:2] + w[2], x)
    assert 0 < rate.value() < 0.02
    _, (slope,) = rate.value_and_gradient([w])
    along = float(slope @ w.detach()) / float(slope.norm() * w.detach().norm())
    _, (plain,) = rate.surrogate().value_and_gradient([w])
    biased = float(plain @ w.detach()) / float(plain.norm() * w.detach().norm())
    assert abs(along) < 0.2 * abs(biased)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_small_and_saturated_scores_have_a_gradient(scale: float, shift: float) -> None:
    x, w = normal(500), torch.tensor([1.0, 0.5], requires_grad=True)
    b = torch.tensor(shift, requires_grad=True)
    rate = rates.positive_rate(lambda rows: scale * (rows @ w + b), x)
    _, (_, slope) = rate.value_and_gradient([w, b])
    assert float(slope) > 1e-3  # the rate grows with the bias


def test_a_model_of_zeros_has_a_gradient() -> None:
    x, w = normal(50) + 1.0, torch.zeros(2, requires_grad=True)
    rate = rates.positive_rate(lambda rows: rows @ w, x)
    value, (slope,) = rate.value_and_gradient([w])
    assert value == 0.0
    assert float(slope.norm()) > 0


def test_the_surrogate_is_near() -> None:
    _, rate = make(5000)
    assert rate.surrogate().value() == pytest.approx(rate.value(), abs=0.02)


BOUNDED: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Any]] = {
    "false positives": lambda s, x, y: rates.false_positive_rate(s, (x, y)) <= 0.2,
    "recall": lambda s, x, y: rates.true_positive_rate(s, (x, y)) >= 0.7,
    "errors": lambda s, x, y: rates.error_rate(s, (x, y), threshold=0.5) <= 0.3,
    "weighted": lambda s, x, y: (
        rates.false_negative_rate(s, (x, y), weights=x[:, 1].abs() + 0.01) <= 0.4
    ),
    "precision": lambda s, x, y: rates.precision(s, (x, y)) >= 0.6,
    "gap": lambda s, x, y: (
        rates.positive_rate(s, x, where=y) - rates.positive_rate(s, x, where=~y) <= 0.9
    ),
    "two caps": lambda s, x, y: (
        rates.false_positive_rate(s, (x, y)) + rates.false_negative_rate(s, (x, y))
        <= 0.8
    ),
}


@pytest.mark.parametrize("name", BOUNDED)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    shift=st.floats(-3, 3),
    width=st.sampled_from([0.01, 1.0, None]),
)
def test_the_upper_surrogate_implies_the_count(
    name: str, seed: int, scale: float, shift: float, width: float | None
) -> None:
    x = normal(40, seed)
    y = x[:, 0] > 0
    y[0], y[1] = True, False
    stated = BOUNDED[name](lambda b: scale * (b[:, 0] + shift), x, y)
    implied = rates.upper_surrogate(stated, width=width)
    assert implied.value() >= stated.value() - 1e-6
    if implied.value() <= 0:
        assert stated.value() <= 0


@pytest.mark.parametrize("name", ["false positives", "recall", "errors", "weighted"])
def test_the_upper_surrogate_can_be_met_and_its_projection_proven(name: str) -> None:
    x = normal(300).double()
    w = torch.tensor([-1.0, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
    y = x[:, 0] + 0.3 * x[:, 1] > 0
    stated = BOUNDED[name](lambda b: b @ w[:2] + w[2], x, y)
    implied = rates.upper_surrogate(stated, width=1.0, linear=True)
    assert stated.value() > 0
    found = oneproj.project(w, {"implied": implied})
    assert stated.value() <= 0
    assert found.lower_bound is not None
    assert found.lower_bound >= 0.999 * found.distance > 0


def test_the_upper_surrogate_is_for_rates() -> None:
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(oneproj.InvalidProblemError, match="takes a constraint on rate"):
        rates.upper_surrogate(oneproj.function(w.norm) <= 1.0)
    _, rate = make()
    with pytest.raises(oneproj.InvalidProblemError, match="'near', 'upper', 'lower'"):
        rate.surrogate("hinge")  # type: ignore[arg-type]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_gradient_changes_the_weights_of_the_loss(*, weighted: bool) -> None:
    # Acceptances minus rejections of the right rows: a combination of their losses.
    x, w = normal(300), torch.tensor([1.0, 0.5], requires_grad=True)
    y, mask = x[:, 1] > 0, x[:, 0] > -0.5
    weights = torch.rand(300, generator=torch.Generator().manual_seed(1)) + 0.1
    each = weights if weighted else None
    rate = rates.positive_rate(lambda b: b @ w, x, where=mask, weights=each)
    rate = rate.with_loss_gradient(y)
    value, (slope,) = rate.value_and_gradient([w])
    scores = (x @ w)[mask]
    losses = softplus(torch.where(y[mask], -scores, scores))
    sign = torch.where(y[mask], -1.0, 1.0)
    share = weights[mask] / weights[mask].sum() if weighted else 1 / mask.sum()
    (expected,) = torch.autograd.grad((share * sign * losses).sum(), [w])
    assert torch.allclose(slope, expected, atol=1e-6)
    accepted = scores > 0
    assert value == pytest.approx(float((share * accepted).sum()))
    (batch,) = torch.autograd.grad(rate.batch_value(None), [w])
    assert torch.allclose(batch, expected, atol=1e-6)


def test_labels_of_the_loss_gradient_are_checked() -> None:
    _, rate = make()
    with pytest.raises(oneproj.InvalidProblemError, match="labels must be 0 and 1"):
        rate.with_loss_gradient(torch.full((400,), 2))


class TestParts:
    def test_bound_and_sense_are_folded_in(self) -> None:
        _, a = make()
        _, b = make(300, seed=1)
        gap = a - 2.0 * b + 0.5
        for constraint in (gap <= 0.1, gap >= 0.1, a <= 0.3, a <= b):
            found = rates.parts(constraint)
            total = sum(k * t.value() for k, t in found.weighted) + found.constant
            assert total == pytest.approx(constraint.value())

    def test_a_set_has_none(self) -> None:
        w = torch.ones(2, requires_grad=True)
        assert rates.parts(oneproj.sets.Ball(1.0).on(w)).rates == ()

    def test_a_precision_says_what_it_bounds(self) -> None:
        x = normal(50)
        stated = rates.precision(lambda b: b[:, 0], (x, x[:, 1] > 0)) >= 0.3
        assert isinstance(stated, Constraint)
        assert stated.term.least == 0.3  # type: ignore[attr-defined]
        assert len(rates.parts(stated).rates) == 2


def test_minibatches_of_a_rare_class_are_made_of_its_rows() -> None:
    x = normal(1000)
    y = torch.arange(1000) < 5
    misses = rates.false_negative_rate(lambda b: b[:, 0], (x, y))
    everyone = rates.positive_rate(lambda b: b[:, 0], x)
    drawn = misses.draw(64, torch.Generator().manual_seed(0))
    assert drawn is not None
    assert set(misses.rows[drawn].tolist()) <= set(range(5))
    # Also in a sum with a rate over many rows, every minibatch has 64 rows of it.
    gap = misses - everyone
    at = gap.draw(64, torch.Generator().manual_seed(0))
    assert at is not None
    assert gap.size == 1000
    values = torch.stack([gap.batch_value(at[k::2]) for k in range(2)])
    assert bool(torch.isfinite(values).all())


def test_rounding_casts_doubt_on_rows_at_the_threshold() -> None:
    x = torch.tensor([[1.0], [2.0], [1e-9], [-1.0]])
    rate = rates.positive_rate(lambda rows: rows[:, 0], x)
    assert rate.doubt() == 0.25


def test_values_are_those_of_evaluation_mode() -> None:
    """Also where the model trains: no count updates the statistics of batch norm."""
    draws = torch.Generator().manual_seed(0)
    x = 3.0 * torch.randn(200, 5, generator=draws) + 1.0
    y = (x[:, 0] > 2).float()
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 1))
    data = (x, y)

    def score(rows: Tensor) -> Tensor:
        made: Tensor = model(rows)
        return made.squeeze(-1)

    fpr = oneproj.rates.false_positive_rate(score, data=data)
    precision = oneproj.rates.precision(score, data=data)
    bound = oneproj.rates.upper_surrogate(fpr <= 0.1)

    def values() -> list[float]:
        found = [fpr.value(), fpr.counts().rate, precision.value(), bound.value()]
        return [*found, (fpr - 0.5).value()]

    model.eval()
    expected = values()
    model.train()
    assert values() == expected
    assert model[0].num_batches_tracked == 0


@pytest.mark.parametrize("width", [0.0, -0.5, "a"])
def test_a_width_of_a_surrogate_is_positive(width: Any) -> None:  # noqa: ANN401 - wrong ones
    """With a negative one a feasible surrogate would say nothing of the count."""
    x = torch.tensor([1.0, 2.0, 3.0])
    accepted = oneproj.rates.positive_rate(lambda rows: rows, data=x)
    with pytest.raises(oneproj.InvalidProblemError, match="width must be"):
        oneproj.rates.upper_surrogate(accepted <= 0.5, width=width)
