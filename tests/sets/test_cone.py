"""The second-order cone: three cases, and the apex."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oneproj
from oneproj import InvalidProblemError
from oneproj.sets import SecondOrderCone

CONE = SecondOrderCone()
ROOT = math.sqrt(2)
examples = settings(derandomize=True, deadline=None, max_examples=50)


@examples
@given(seed=st.integers(0, 2**31))
def test_agrees_with_clarabel(seed: int) -> None:
    x = 3 * np.random.default_rng(seed).normal(size=4)
    v = cp.Variable(4)
    apart = cp.Minimize(cp.sum_squares(v - x))
    cp.Problem(apart, [cp.norm(v[1:]) <= v[0]]).solve(solver=cp.CLARABEL)
    p = CONE.project(torch.tensor(x))
    np.testing.assert_allclose(p.numpy(), v.value, atol=1e-4)
    outside = np.linalg.norm(x - p.numpy())
    inside = (np.linalg.norm(x[1:]) - x[0]) / ROOT
    found = CONE.residual(torch.tensor(x)).item()
    assert found == pytest.approx(outside if outside > 0 else inside, rel=1e-12)


RIM = [-1 / ROOT, 0.6 / ROOT, 0.8 / ROOT]
AXIS = [-1 / ROOT, 1 / ROOT, 0.0]
APEX = [0.0, 0.0, 0.0]
BEHIND = [-6 / 61**0.5, 3 / 61**0.5, 4 / 61**0.5]


@pytest.mark.parametrize(
    ("x", "nearest", "residual", "normal"),
    [
        ([1.0, 3.0, 4.0], [3.0, 1.8, 2.4], 4 / ROOT, RIM),
        ([-6.0, 3.0, 4.0], APEX, 61**0.5, BEHIND),
        ([6.0, 3.0, 4.0], [6.0, 3.0, 4.0], -1 / ROOT, RIM),
        ([2.0, 0.0, 0.0], [2.0, 0.0, 0.0], -2 / ROOT, AXIS),
        ([-2.0, 0.0, 0.0], APEX, 2.0, [-1.0, 0.0, 0.0]),
        (APEX, APEX, 0.0, AXIS),
    ],
)
def test_every_case(
    x: list[float], nearest: list[float], residual: float, normal: list[float]
) -> None:
    point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    value = CONE.residual(point)
    (gradient,) = torch.autograd.grad(value, point)
    assert value.item() == pytest.approx(residual, rel=1e-14)
    assert gradient.tolist() == pytest.approx(normal, abs=1e-15)
    assert CONE.project(point).tolist() == pytest.approx(nearest, abs=1e-15)


@pytest.mark.parametrize("x", [[1.0, 3.0, 4.0], [-6.0, 3.0, 4.0], [5.1, 3.0, 4.0]])
def test_a_margin_moves_the_apex_up_the_axis(x: list[float]) -> None:
    p = CONE.project(torch.tensor(x, dtype=torch.float64), margin=0.5)
    assert CONE.residual(p).item() == pytest.approx(-0.5, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_projection_is_a_member(dtype: torch.dtype) -> None:
    for seed in range(50):
        g = torch.Generator().manual_seed(seed)
        w = torch.randn(2, 6, generator=g, dtype=dtype, requires_grad=True)
        done = oneproj.project(w, {"cone": CONE.on(w)})
        t, *z = w.detach().double().flatten().tolist()
        assert done.residuals["cone"] <= 0
        assert math.hypot(*z) <= t


def test_one_entry_is_no_cone() -> None:
    with pytest.raises(InvalidProblemError, match=r"two entries or more.*\(1,\)"):
        CONE.on(torch.zeros(1, requires_grad=True))
