"""Closed-form sets: signed distances, nearest points, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.sets import AbstractSet, Ball, Halfspace, Simplex

examples = settings(derandomize=True, deadline=None, max_examples=50)
SEEDS = st.integers(0, 2**31)
SCALES = st.floats(1e-2, 1e2)


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# --- the ball -----------------------------------------------------------------


@examples
@given(seed=SEEDS, radius=SCALES)
def test_a_balls_residual_is_the_distance_to_its_sphere(
    seed: int, radius: float
) -> None:
    x, c = normal(2, 3, seed=seed), normal(2, 3, seed=seed + 1)
    for center in (None, c):
        offset = x.numpy() if center is None else (x - c).numpy()
        expected = np.sqrt((offset**2).sum()) - radius
        found = Ball(radius, center).residual(x)
        assert found.shape == ()
        assert found.item() == pytest.approx(expected, abs=1e-12)


def test_a_ball_projects_radially() -> None:
    center = torch.tensor([1.0, 1.0])
    ball = Ball(5.0, center)
    assert ball.project(torch.tensor([7.0, 9.0])).tolist() == [4.0, 5.0]
    assert ball.project(torch.tensor([7.0, 9.0]), margin=2.5).tolist() == [2.5, 3.0]
    for inside in ([4.0, 5.0], [2.0, 1.0], [1.0, 1.0]):
        assert ball.project(torch.tensor(inside)).tolist() == inside


def test_a_margin_beyond_the_radius_stops_at_the_center() -> None:
    x = torch.tensor([3.0, 4.0])
    assert Ball(1.0).project(x, margin=2.0).tolist() == [0.0, 0.0]
    center = torch.tensor([1.0, 1.0])
    assert torch.equal(Ball(1.0, center).project(x, margin=2.0), center)


def test_a_ball_keeps_its_own_copy_of_the_center() -> None:
    center = torch.ones(2)
    ball = Ball(1.0, center)
    center.zero_()
    assert ball.residual(torch.ones(2)).item() == -1.0


# --- the halfspace ------------------------------------------------------------


@examples
@given(seed=SEEDS, scale=SCALES, offset=st.floats(-100, 100))
def test_a_halfspaces_residual_is_the_distance_to_its_plane(
    seed: int, scale: float, offset: float
) -> None:
    x, a = normal(4, seed=seed), scale * normal(4, seed=seed + 1)
    expected = (a.numpy() @ x.numpy() - offset) / np.linalg.norm(a.numpy())
    found = Halfspace(a, offset).residual(x)
    assert found.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_halfspace_projects_along_its_normal() -> None:
    half = Halfspace(torch.tensor([3.0, 4.0]), offset=10.0)  # distance 2 of the origin
    outside = torch.tensor([6.0, 8.0])
    torch.testing.assert_close(half.project(outside), torch.tensor([1.2, 1.6]))
    nearer = half.project(outside, margin=1.0)
    torch.testing.assert_close(nearer, torch.tensor([0.6, 0.8]))
    inside = torch.tensor([0.0, 2.0])
    assert torch.equal(half.project(inside), inside)


def test_a_matrix_can_have_a_halfspace() -> None:
    trace = Halfspace(torch.eye(2), offset=0.0)
    p = trace.project(torch.tensor([[1.0, 7.0], [7.0, 1.0]]))
    torch.testing.assert_close(p, torch.tensor([[0.0, 7.0], [7.0, 0.0]]))


# --- what every set promises --------------------------------------------------

SETS: dict[str, AbstractSet] = {
    "ball": Ball(2.0),
    "ball elsewhere": Ball(0.5, torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)),
    "halfspace": Halfspace(torch.tensor([3.0, -1.0, 2.0]), offset=-4.0),
}


@pytest.mark.parametrize("members", SETS.values(), ids=SETS)
@examples
@given(seed=SEEDS, scale=st.floats(3.0, 1e3))
def test_the_residual_is_the_distance_and_has_a_unit_gradient_outside(
    members: AbstractSet, seed: int, scale: float
) -> None:
    x = (scale * normal(3, seed=seed)).requires_grad_()
    residual = members.residual(x)
    (gradient,) = torch.autograd.grad(residual, x)
    assert gradient.norm().item() == pytest.approx(1.0, abs=1e-9)
    if residual > 0:
        moved = x - members.project(x)
        assert moved.norm().item() == pytest.approx(residual.item(), abs=1e-9)
        torch.testing.assert_close(moved.detach(), residual.detach() * gradient)


@pytest.mark.parametrize("members", SETS.values(), ids=SETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_projection_keeps_the_dtype_and_carries_no_gradient(
    members: AbstractSet, dtype: torch.dtype
) -> None:
    x = torch.full((3,), 50.0, dtype=dtype, requires_grad=True)
    p = members.project(-x if members.residual(x) <= 0 else x)
    assert p.dtype == dtype
    assert not p.requires_grad
    assert x.tolist() == [50.0, 50.0, 50.0]


# --- as a constraint ----------------------------------------------------------


def test_a_set_on_a_tensor_is_a_constraint_that_follows_it() -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    ball = Ball(1.0)
    constraint = ball.on(w)
    assert constraint.members is ball
    assert constraint.tensor is w
    assert constraint.value() == 4.0
    with torch.no_grad():
        w.mul_(2.0)
    value, (gradient,) = constraint.value_and_gradient([w])
    assert value == 9.0
    torch.testing.assert_close(gradient, torch.tensor([0.6, 0.8]))


def test_the_residual_is_decided_in_float64() -> None:
    # The float32 neighbours of 1: in float32 the square of the first rounds to 1.
    one_up = torch.tensor([1.0 + 2**-23], requires_grad=True)
    assert Ball(1.0).on(one_up).value() == 2**-23
    w = torch.tensor([1.0, 2**-13], requires_grad=True)
    assert w.norm().item() == 1.0
    assert Ball(1.0).on(w).value() > 0


def test_a_renamed_set_is_still_a_set() -> None:
    w = torch.ones(1, requires_grad=True)
    constraint = Ball(1.0).on(w).named("cap")
    assert (constraint.name, constraint.tensor is w) == ("cap", True)


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf])
def test_a_ball_needs_a_positive_finite_radius(radius: float) -> None:
    with pytest.raises(
        InvalidProblemError, match=f"one finite number > 0, got {radius}"
    ):
        Ball(radius)


def test_a_ball_needs_a_finite_center() -> None:
    with pytest.raises(InvalidProblemError, match="center of a ball must be finite"):
        Ball(1.0, torch.tensor([0.0, math.nan]))


@pytest.mark.parametrize(
    ("normal_entry", "offset"),
    [(0.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, math.inf), (1.0, math.nan)],
)
def test_a_halfspace_needs_a_direction(normal_entry: float, offset: float) -> None:
    with pytest.raises(InvalidProblemError, match="finite, nonzero normal"):
        Halfspace(torch.tensor([normal_entry, 0.0]), offset)


def test_a_set_of_another_shape_is_refused() -> None:
    w = torch.ones(3, requires_grad=True)
    with pytest.raises(InvalidProblemError, match=r"center has shape \(2,\).* \(3,\)"):
        Ball(1.0, torch.ones(2)).on(w)
    with pytest.raises(InvalidProblemError, match=r"normal has shape \(2,\).* \(3,\)"):
        Halfspace(torch.ones(2), 1.0).on(w)


def test_a_set_on_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="got list"):
        Ball(1.0).on([1.0, 2.0])  # type: ignore[arg-type]


def test_a_set_on_the_result_of_a_computation_is_refused() -> None:
    w = torch.ones(3, 2, requires_grad=True)
    for tensor in (2 * w, w[0]):
        with pytest.raises(InvalidProblemError, match=r"result of a comp.*Box"):
            Ball(1.0).on(tensor)


def test_a_set_on_whole_numbers_is_refused() -> None:
    for each in (Ball(1.0), Simplex(1.0)):
        with pytest.raises(InvalidProblemError, match=r"dtype torch\.int64"):
            each.on(torch.tensor([1, 2]))
