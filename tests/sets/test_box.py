"""The box: clamping, to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oneproj
from oneproj import InvalidProblemError
from oneproj.sets import Box

HALF, SINGLE, DOUBLE = torch.float16, torch.float32, torch.float64
examples = settings(derandomize=True, deadline=None, max_examples=50)


def test_outside_it_is_the_distance_inside_the_nearest_face() -> None:
    box = Box(torch.tensor([0.0, -1.0]), torch.tensor([2.0, 5.0]))
    for x, expected, normal in (
        ([5.0, 9.0], 5.0, [0.6, 0.8]),  # a corner, 3 and 4 away
        ([-2.0, 0.0], 2.0, [-1.0, 0.0]),
        ([1.75, 0.0], -0.25, [1.0, 0.0]),
        ([1.0, -0.5], -0.5, [0.0, -1.0]),
        ([2.0, 5.0], 0.0, [1.0, 0.0]),
    ):
        point = torch.tensor(x, requires_grad=True)
        residual = box.residual(point)
        (gradient,) = torch.autograd.grad(residual, point)
        assert residual.item() == pytest.approx(expected, abs=1e-6)
        assert gradient.tolist() == pytest.approx(normal)


@examples
@given(seed=st.integers(0, 2**31))
def test_it_clamps_like_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, center = 3 * rng.normal(size=(2, 4, 3))
    width = rng.exponential(size=(4, 3))
    lower, upper = center - width, center + width
    box = Box(torch.tensor(lower), torch.tensor(upper))
    p = np.clip(x, lower, upper)
    assert np.array_equal(box.project(torch.tensor(x)).numpy(), p)
    outside = np.linalg.norm(x - p)
    faces = np.maximum(lower - x, x - upper)
    expected = outside if outside > 0 else faces.max()
    assert box.residual(torch.tensor(x)).item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, SINGLE, DOUBLE])
def test_bounds_are_rounded_inwards_and_never_more(dtype: torch.dtype) -> None:
    bounds = torch.linspace(-3, 3, 97, dtype=DOUBLE) / 3
    for start in (-9.0, 9.0):
        w = torch.full((97,), start, dtype=dtype, requires_grad=True)
        done = oneproj.project(w, {"box": Box(bounds, bounds + 0.5).on(w)})
        assert done.residuals["box"] <= 0
        x = w.detach()
        assert bool((x.double() >= bounds).all())
        assert bool((x.double() <= bounds + 0.5).all())
        beyond = torch.nextafter(x, torch.full_like(x, start)).double()
        assert bool(((beyond < bounds) | (beyond > bounds + 0.5)).all())


def test_a_bound_of_zero_gives_zero_whatever_the_margin() -> None:
    w = torch.tensor([-1.0, 100.0], requires_grad=True)
    oneproj.project(w, {"signs": Box(lower=0.0).on(w)})
    assert w.tolist() == [0.0, 100.0]
    assert Box(0.0, 1.0).project(w.detach(), margin=0.1).tolist() == [0.0, 1.0]


def test_violations_whose_squares_underflow_are_seen() -> None:
    x = torch.tensor([-3e-200, -4e-200], dtype=DOUBLE)
    assert Box(lower=0.0).residual(x).item() == 5e-200


def test_some_entries_may_be_free_and_some_fixed() -> None:
    lower = torch.tensor([-math.inf, 1.0, 0.5])
    upper = torch.tensor([2.0, math.inf, 0.5])
    p = Box(lower, upper).project(torch.tensor([-50.0, -50.0, 9.0]))
    assert p.tolist() == [-50.0, 1.0, 0.5]
    assert Box(lower, upper).residual(p).item() == 0.0


def test_bounds_are_copied() -> None:
    lower = torch.zeros(2)
    box = Box(lower)
    lower.fill_(9.0)
    assert box.project(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (1.0, 0.5, "lower bound is 5.000e-01 above"),
        (math.nan, None, "lower bound of a box holds NaN"),
        (0.0, math.nan, "upper bound of a box holds NaN"),
        (math.inf, None, "lower < inf"),
        (None, -math.inf, "upper > -inf"),
        (None, None, "needs a finite bound"),
        (-math.inf, math.inf, "needs a finite bound"),
        (torch.zeros(2), torch.ones(3), r"shape \(2,\), the upper \(3,\)"),
    ],
)
def test_what_is_no_box_is_refused(lower: object, upper: object, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        Box(lower, upper)  # type: ignore[arg-type]


def test_what_does_not_fit_the_tensor_is_refused() -> None:
    w = torch.zeros(3, requires_grad=True)
    with pytest.raises(InvalidProblemError, match=r"upper bound has shape \(2,\)"):
        Box(0.0, torch.ones(2)).on(w)
    with pytest.raises(InvalidProblemError, match=r"No torch\.float32 number"):
        Box(0.1, 0.1).on(w)
    Box(0.1, 0.1).on(w.detach().double())
