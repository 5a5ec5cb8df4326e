"""Sums, differences and multiples of terms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oneproj
from oneproj import InvalidProblemError, NonFiniteError, function, mean
from oneproj.problem import AbstractTerm


def risk(w: Tensor, n: int, seed: int = 0) -> AbstractTerm:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return mean(lambda batch: (batch @ w).square(), x)


@pytest.fixture
def w() -> Tensor:
    return torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)


def test_arithmetic_means_what_it_says(w: Tensor) -> None:
    a, b, size = risk(w, 7), risk(w, 5, seed=1), function(w.norm)
    va, vb, vs = a.value(), b.value(), size.value()
    written: dict[AbstractTerm, float] = {
        a + b: va + vb,
        a - b: va - vb,
        -a: -va,
        2 * a - b / 4 + size * 3: 2 * va - vb / 4 + 3 * vs,
        1 - a: 1 - va,
        a - 1.5: va - 1.5,
        3 + a: 3 + va,
        sum([a, b, size]): va + vb + vs,  # type: ignore[dict-item] - begins with 0
        np.float64(2.0) * a: 2 * va,
        a * torch.tensor(2.0): 2 * va,
        (a - b) - (a - b): 0.0,
    }
    for expression, value in written.items():
        assert expression.value() == pytest.approx(value, rel=1e-14, abs=1e-14)


def test_value_gradient_and_full_pass_agree_with_autograd(w: Tensor) -> None:
    combination = 2 * risk(w, 7) - risk(w, 3, seed=1) + 0.5 * function(w.norm) + 4.0
    whole = combination.batch_value(None)
    (slope,) = torch.autograd.grad(whole, [w])
    value, gradient = combination.value_and_gradient([w])
    full = combination.full_pass([w])
    assert combination.value() == value == full.value
    assert value == pytest.approx(whole.item(), rel=1e-14)
    assert full.gradient is not None
    for found in (gradient[0], full.gradient[0]):
        torch.testing.assert_close(found, slope, rtol=1e-13, atol=1e-14)
    assert combination.full_pass(None).gradient is None


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    factors=st.lists(st.floats(-5, 5), min_size=4, max_size=4),
)
def test_the_mean_over_its_examples_is_the_combination(
    sizes: list[int], factors: list[float]
) -> None:
    """Unbiased whatever the sizes: every example of every part has its exact share."""
    w = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    parts = [risk(w, n, seed=n) for n in sizes]
    start: AbstractTerm = function(w.norm)
    whole = sum((a * t for a, t in zip(factors, parts, strict=False)), start)
    assert whole.size == max(sizes)
    everyone = torch.arange(max(sizes))
    each = whole.full_pass(None).each
    assert each is not None
    torch.testing.assert_close(whole.examples(everyone), each)
    expected = pytest.approx(whole.value(), rel=1e-12, abs=1e-12)
    assert whole.batch_value(everyone).item() == expected


def test_a_minibatch_has_as_many_examples_of_every_part() -> None:
    met: dict[str, list[Tensor]] = {"large": [], "small": []}

    def watched(name: str, data: Tensor) -> AbstractTerm:
        def fn(batch: Tensor) -> Tensor:
            met[name].append(batch)
            return batch * w

        return mean(fn, data)

    w = torch.tensor(1.0, requires_grad=True)
    gap = watched("large", torch.arange(100.0)) - watched("small", torch.arange(4.0))
    indices = gap.draw(8, torch.Generator().manual_seed(0))
    assert indices is not None
    gap.batch_value(indices)
    (large,), (small,) = met["large"], met["small"]
    assert large.tolist() == indices.tolist()
    assert small.tolist() == [i // 25 for i in indices.tolist()]


def test_terms_without_data_have_nothing_to_draw(w: Tensor) -> None:
    both = function(w.norm) + function(w.sum)
    assert both.size is None
    assert both.draw(3, torch.Generator()) is None
    assert both.full_pass([w]).each is None


def test_terms_are_compared_with_terms(w: Tensor) -> None:
    a, b = risk(w, 7), risk(w, 5, seed=1)
    difference = a.value() - b.value()
    assert (a <= b).value() == pytest.approx(difference)
    assert (a >= b).value() == pytest.approx(-difference)
    assert (a - b <= 0.25).value() == pytest.approx(difference - 0.25)


def test_the_shape_follows_from_the_parts(w: Tensor) -> None:
    convex = function(w.norm, curvature="convex")
    concave = function(lambda: -w.norm(), curvature="concave")
    linear, unknown = function(w.sum, curvature="linear"), function(w.prod)
    assert (convex + 2 * convex).curvature == "convex"
    assert (convex - 2 * concave).curvature == "convex"
    assert (linear - convex).curvature == "concave"
    assert (convex - convex).curvature is None
    assert (convex + unknown).curvature is None
    assert (convex + 0 * unknown).curvature == "convex"
    assert (1 - linear).curvature == "linear"


def test_parts_speak_with_the_name_of_the_whole(w: Tensor) -> None:
    bad = function(lambda: w) - function(w.norm)
    with pytest.raises(InvalidProblemError, match="function of 'gap'"):
        (bad <= 0.0).named("gap").value()
    infinite = function(lambda: w.sum() / 0) - function(w.norm)
    with pytest.raises(NonFiniteError, match="value of 'gap'"):
        (infinite <= 0.0).named("gap").value()


def test_the_model_evaluates_for_every_part() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(0.9))
    x = torch.ones(6, 2)
    both = mean(lambda b: model(b)[:, 0], x) - mean(lambda b: model(b)[:, 0], x[:4])
    judged = (both <= 0.0).named("gap", model.train())
    assert judged.value() == pytest.approx(0.0, abs=1e-6)
    assert model.training


def test_rounding_is_relative_to_the_parts_not_to_their_difference() -> None:
    """Of two means near 1e4 the difference is known to 1e4 eps, and must be < 0."""
    generator = torch.Generator().manual_seed(0)
    x = 1e4 + torch.randn(999, generator=generator)
    w = torch.ones(1, requires_grad=True)
    a, b = mean(lambda t: w * t, x), mean(lambda t: t + 0 * w, x)
    gap = a - b
    found = oneproj.project([w], {"gap": gap <= -0.5})
    assert found.residuals["gap"] <= -1e4 * torch.finfo(torch.float32).eps
    for chunk in (1, 64, 4096):
        again = mean(lambda t: w * t, x, chunk_size=chunk) - b
        assert (again <= -0.5).value() <= 0
    gap.value()
    assert gap.scale() == pytest.approx(2e4, rel=1e-2)


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (lambda t: t * t, r"finite number, but got .*a - r \* b <= 0"),
        (lambda t: t / t, r"finite number, but got .*a - r \* b <= 0"),
        (lambda t: t * math.nan, "finite number, but got nan"),
        (lambda t: t + "1", "added to a term or to a finite number, but got '1'"),
        (lambda t: t + (t <= 1.0), "constraint is made last"),
        (lambda t: t - math.inf, "but got inf"),
        (abs, "two constraints"),
    ],
)
def test_what_has_no_meaning_is_refused(
    w: Tensor, write: Callable[[AbstractTerm], object], match: str
) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        write(function(w.norm))


@pytest.mark.parametrize("oracle", ["exact", "minibatch", "anchored"])
def test_a_gap_between_groups_is_closed(oracle: str) -> None:
    """Least squares with two groups whose risks must not differ by more than 0.1.

    The optimum without it leaves a gap of more than 1; SLSQP is the judge.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(300, generator=generator, dtype=torch.float64)
    y = x.sum(1) + torch.where(torch.arange(300) < 60, 2.0 * x[:, 0] ** 2, 0.3 * noise)
    v = torch.zeros(4, dtype=torch.float64, requires_grad=True)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return (batch[0] @ v[:3] + v[3] - batch[1]).square()

    minority, majority = mean(loss, (x[:60], y[:60])), mean(loss, (x[60:], y[60:]))
    problem = oneproj.Problem(
        [v],
        objective=mean(loss, (x, y)) + 1e-3 * function(lambda: v.square().sum()),
        constraints={"gap": minority - majority <= 0.1},
    )
    best = oneproj.solve(problem, method="slsqp").objective
    with torch.no_grad():
        v.zero_()
    solution = oneproj.solve(problem, steps=600, oracle=oracle)
    assert solution.feasible
    assert solution.residuals["gap"] <= 0
    assert solution.objective <= 1.03 * best


def test_an_expression_prints_as_it_is_written() -> None:
    w = torch.ones(1, requires_grad=True)
    a, b = mean(lambda x: w * x, torch.ones(3)), mean(lambda x: w * x, torch.ones(1))
    size = function(w.norm)
    assert repr(a - 2 * b + 1) == "mean over 3 examples - 2 * mean over 1 example + 1"
    assert repr(-a + size / 2) == (
        "-mean over 3 examples + 0.5 * function of the parameters"
    )
    assert repr(-0.5 * a >= -3) == "-0.5 * mean over 3 examples >= -3"
    assert repr(a <= b) == "mean over 3 examples - mean over 1 example <= 0"
    assert repr(1 - a) == "-mean over 3 examples + 1"


def test_other_arithmetic_is_not_defined() -> None:
    risk = oneproj.mean(lambda batch: batch, data=torch.ones(3))
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = risk**2
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = 1.0 / risk
    with pytest.raises(ZeroDivisionError):
        _ = risk / 0
