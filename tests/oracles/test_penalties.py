"""Penalties: values, weights against finite differences, huge arguments."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj import Hinge, InvalidProblemError, Softplus, function
from oneproj.oracles import AbstractPenalty

examples = settings(derandomize=True, deadline=None, max_examples=100)
STRENGTH = st.floats(1e-3, 1e3)
SMOOTHING = st.floats(1e-3, 1e3)
NUMBERS = st.floats(-1e3, 1e3)
VECTORS = st.lists(NUMBERS, min_size=1, max_size=5, unique=True)
Combine = Literal["max", "sum"]
COMBINE: tuple[Combine, ...] = ("max", "sum")


def real(values: Any) -> Tensor:  # noqa: ANN401 - a number or a list
    return torch.tensor(values, dtype=torch.float64)


def hinge(c: float, strength: float) -> float:
    return strength * max(c, 0.0)


def softplus(c: float, strength: float, smoothing: float) -> float:
    return smoothing * float(np.logaddexp(0.0, strength * c / smoothing))


# --- values -------------------------------------------------------------------


@examples
@given(c=VECTORS, lam=STRENGTH, gamma=SMOOTHING)
def test_values_are_those_of_the_formula(
    c: list[float], lam: float, gamma: float
) -> None:
    for combine, worst in (("max", [max(c)]), ("sum", c)):
        near = {"rel": 1e-12, "abs": 1e-12}
        expected = sum(hinge(u, lam) for u in worst)
        found = Hinge(lam, combine=combine).value(real(c))
        assert found.item() == pytest.approx(expected, **near)
        expected = sum(softplus(u, lam, gamma) for u in worst)
        found = Softplus(lam, gamma, combine=combine).value(real(c))
        assert found.item() == pytest.approx(expected, **near)


@examples
@given(c=NUMBERS, lam=STRENGTH, gamma=SMOOTHING)
def test_softplus_lies_between_the_hinge_and_the_hinge_plus_gamma_log_2(
    c: float, lam: float, gamma: float
) -> None:
    lower = Hinge(lam).value(real(c)).item()
    value = Softplus(lam, gamma).value(real(c)).item()
    assert lower <= value <= (lower + gamma * math.log(2)) * (1 + 1e-15)


def test_both_ends_of_that_interval_are_attained() -> None:
    penalty = Softplus(3.0, 0.5)
    assert penalty.value(real(0.0)).item() == pytest.approx(0.5 * math.log(2))
    assert penalty.value(real(100.0)).item() == 300.0
    assert penalty.value(real(-1000.0)).item() == 0.0


# --- weights ------------------------------------------------------------------


@pytest.mark.parametrize("combine", COMBINE)
@examples
@given(c=VECTORS, lam=STRENGTH, gamma=st.floats(0.1, 1e3))
def test_weights_are_finite_differences_of_the_value(
    c: list[float], lam: float, gamma: float, combine: Combine
) -> None:
    h = 1e-5
    # Away from the kinks: at u = 0, and where the maximum changes hands.
    c = [u if abs(u) > 2 * h else 1.0 for u in c]
    c = [u + 1e-3 * k for k, u in enumerate(sorted(c))]
    point = real(c)
    for penalty in (Hinge(lam, combine), Softplus(lam, gamma, combine)):
        # The error of a central difference: third derivative, and rounding.
        curvature = 0.0 if isinstance(penalty, Hinge) else lam**3 / gamma**2
        rounding = 1e-15 * (penalty.value(point).item() + lam * 1e3) / h
        weights = penalty.weights(point)
        for j, step in enumerate(h * torch.eye(len(c), dtype=torch.float64)):
            slope = (penalty.value(point + step) - penalty.value(point - step)) / (
                2 * h
            )
            error = h**2 * curvature + rounding
            assert weights[j].item() == pytest.approx(slope.item(), abs=error)


@pytest.mark.parametrize("combine", COMBINE)
def test_the_hinge_has_no_weight_at_zero(combine: Combine) -> None:
    penalty = Hinge(5.0, combine)
    assert penalty.weights(real([0.0, -0.0, -1.0])).tolist() == [0.0, 0.0, 0.0]
    tiny = 5e-324
    assert penalty.weights(real([tiny, -tiny])).tolist() == [5.0, 0.0]


def test_max_pushes_on_the_worst_alone_and_sum_on_each() -> None:
    c = real([1.0, 3.0, -2.0, 2.0])
    assert Hinge(5.0).weights(c).tolist() == [0.0, 5.0, 0.0, 0.0]
    assert Hinge(5.0, "sum").weights(c).tolist() == [5.0, 5.0, 0.0, 5.0]
    soft = Softplus(5.0, 2.0).weights(c)
    assert soft.count_nonzero() == 1
    assert soft[1].item() == pytest.approx(5.0 / (1 + math.exp(-7.5)))
    each = Softplus(5.0, 2.0, combine="sum").weights(c)
    assert each.tolist() == pytest.approx(
        [5.0 / (1 + math.exp(-2.5 * u)) for u in c.tolist()]
    )


def test_of_equals_the_first_gets_the_weight() -> None:
    assert Hinge(2.0).weights(real([1.0, 3.0, 3.0])).tolist() == [0.0, 2.0, 0.0]


# --- the differentiable call --------------------------------------------------


@pytest.mark.parametrize("combine", COMBINE)
@examples
@given(c=VECTORS, lam=STRENGTH, gamma=SMOOTHING)
def test_the_call_has_the_value_and_exactly_the_weights_as_gradient(
    c: list[float], lam: float, gamma: float, combine: Combine
) -> None:
    for penalty in (Hinge(lam, combine), Softplus(lam, gamma, combine)):
        point = real(c).requires_grad_()
        value = penalty(point)
        (gradient,) = torch.autograd.grad(value, point)
        assert value.item() == penalty.value(point).item()
        assert torch.equal(gradient, penalty.weights(point))
        assert penalty.weigh(c) == gradient.tolist()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize("combine", COMBINE)
def test_weights_keep_the_shape_and_dtype(
    shape: tuple[int, ...], combine: Combine
) -> None:
    for dtype in (torch.float32, torch.float64):
        c = torch.ones(shape, dtype=dtype, requires_grad=True)
        for penalty in (Hinge(2.0, combine), Softplus(2.0, 1.0, combine)):
            assert penalty.weights(c).shape == c.shape
            assert penalty.weights(c).dtype == penalty(c).dtype == dtype
            assert penalty(c).shape == penalty.value(c).shape == ()
            assert not penalty.value(c).requires_grad
            assert not penalty.weights(c).requires_grad


@pytest.mark.parametrize("combine", COMBINE)
def test_no_constraints_cost_nothing(combine: Combine) -> None:
    for penalty in (Hinge(2.0, combine), Softplus(2.0, 1.0, combine)):
        assert penalty.value(real([])).item() == 0.0
        assert penalty.weights(real([])).shape == (0,)


def test_the_chain_rule_through_a_users_model() -> None:
    w = real([1.0, 2.0]).requires_grad_()
    (w.sum() + Hinge(5.0)(w.square().sum() - 1.0)).backward()
    # grad = 1 + 5 * 2 w
    assert w.grad is not None
    assert w.grad.tolist() == [11.0, 21.0]


# --- huge arguments -----------------------------------------------------------

HUGE = [(torch.float64, 1e300), (torch.float32, 1e38)]
PENALTIES: dict[str, AbstractPenalty] = {
    "hinge": Hinge(2.0),
    "hinge sum": Hinge(2.0, "sum"),
    "softplus": Softplus(2.0, 1e-3),
    "softplus sum": Softplus(2.0, 1e-3, "sum"),
}


@pytest.mark.parametrize(("dtype", "huge"), HUGE)
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_huge_arguments_stay_finite_and_right(
    penalty: AbstractPenalty, dtype: torch.dtype, huge: float
) -> None:
    for sign, value, weight in ((1, 2 * huge, 2.0), (-1, 0.0, 0.0)):
        c = torch.tensor([sign * huge], dtype=dtype, requires_grad=True)
        called = penalty(c)
        (gradient,) = torch.autograd.grad(called, c)
        expected = torch.tensor(value, dtype=dtype)
        torch.testing.assert_close(penalty.value(c), expected)
        torch.testing.assert_close(called.detach(), expected)
        assert penalty.weights(c).tolist() == gradient.tolist() == [weight]


@examples
@given(
    c=st.floats(allow_nan=False, allow_infinity=False, width=32),
    gamma=st.floats(1e-6, 1e6),
)
def test_softplus_is_finite_and_monotone_on_all_of_float32(
    c: float, gamma: float
) -> None:
    penalty = Softplus(1.0, gamma)
    u = torch.tensor(c)
    assert 0 <= penalty.value(u).item() < math.inf
    assert 0 <= penalty.weights(u).item() <= 1.0


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_strength_or_smoothing_that_cannot_penalise_is_refused(bad: float) -> None:
    strength = f"strength must be one finite number > 0, got {bad}"
    with pytest.raises(InvalidProblemError, match=strength):
        Hinge(bad)
    with pytest.raises(InvalidProblemError, match=strength):
        Softplus(bad, 1.0)
    smoothing = f"smoothing must be one finite number > 0, got {bad}.*oneproj.Hinge"
    with pytest.raises(InvalidProblemError, match=smoothing):
        Softplus(1.0, bad)


def test_an_unknown_combination_is_refused() -> None:
    for make in (lambda c: Hinge(1.0, c), lambda c: Softplus(1.0, 1.0, c)):
        with pytest.raises(InvalidProblemError, match=r'"max".*"sum".*got .mean'):
            make("mean")


def test_a_term_in_place_of_a_tensor_is_told_where_it_belongs() -> None:
    risk = function(lambda: torch.ones(()))
    with pytest.raises(InvalidProblemError, match=r"Terms, .* are for oneproj\.solve"):
        Hinge(1.0)(risk - 0.3)  # type: ignore[arg-type]


@pytest.mark.parametrize("c", [0.5, [torch.tensor(0.5)], np.ones(2)])
def test_values_without_a_gradient_are_refused(c: Any) -> None:  # noqa: ANN401 - anything
    kind = type(c).__name__
    with pytest.raises(
        InvalidProblemError, match=f"got a {kind}, through which no grad"
    ):
        Hinge(1.0)(c)


@pytest.mark.parametrize("bad", [None, "5", "auto"])
def test_a_strength_is_a_number(bad: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(
        InvalidProblemError, match=f"one finite number > 0, got {bad!r}"
    ):
        Hinge(bad)
    with pytest.raises(
        InvalidProblemError, match=f"one finite number > 0, got {bad!r}"
    ):
        Softplus(1.0, smoothing=bad)
