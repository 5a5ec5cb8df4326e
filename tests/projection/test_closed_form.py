"""The projector for closed-form sets: a product of nearest points, exactly inside."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.problem.functions import function
from oneproj.projection.closed_form import ClosedForm
from oneproj.results import Projection, Status
from oneproj.sets import AbstractSet, Ball, Halfspace, SetConstraint


def project(parameters: list[Tensor], **constraints: SetConstraint) -> Projection:
    return ClosedForm().project(parameters, constraints)


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


# --- the answer ---------------------------------------------------------------


def test_the_projection_of_a_product_is_the_product_of_projections() -> None:
    a = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([[2.0], [5.0]], dtype=torch.float64, requires_grad=True)
    free = torch.tensor([9.0], dtype=torch.float64, requires_grad=True)
    half = Halfspace(torch.tensor([[1.0], [0.0]]), offset=-1.0)
    done = project([free, a, b], size=Ball(1.0).on(a), side=half.on(b))
    assert done.status is Status.FEASIBLE
    assert a.tolist() == pytest.approx([0.6, 0.8], abs=1e-14)
    assert b.flatten().tolist() == pytest.approx([-1.0, 5.0], abs=1e-14)
    assert free.tolist() == [9.0]
    assert done.distance == pytest.approx(5.0)  # 4 and 3, at right angles
    assert done.multipliers == pytest.approx({"size": 4.0, "side": 3.0})
    assert done.residuals_before == pytest.approx({"size": 4.0, "side": 3.0})
    assert done.kkt_residual < 1e-14
    assert done.gradients == 1, "one point, at which both were seen"


def test_a_feasible_point_keeps_its_bits() -> None:
    w = torch.tensor([0.6, 0.8 - 1e-6], requires_grad=True)
    before = w.detach().clone()
    done = project([w], size=Ball(1.0).on(w))
    assert torch.equal(w, before)
    assert done.status is Status.FEASIBLE
    assert (done.distance, done.gradients, done.kkt_residual) == (0.0, 1, 0.0)
    assert done.multipliers == {"size": 0.0}
    assert done.residuals == done.residuals_before


def test_only_what_is_violated_moves() -> None:
    inside = torch.tensor([0.5], requires_grad=True)
    outside = torch.tensor([2.0], requires_grad=True)
    done = project(
        [inside, outside], inner=Ball(1.0).on(inside), outer=Ball(1.0).on(outside)
    )
    assert inside.item() == 0.5
    assert done.multipliers["inner"] == 0.0
    assert done.multipliers["outer"] == pytest.approx(1.0, abs=1e-6)
    assert done.gradients == 1


def test_no_constraints_no_move() -> None:
    w = torch.ones(2, requires_grad=True)
    done = project([w])
    assert (done.status, done.distance, done.residuals) == (Status.FEASIBLE, 0.0, {})


def test_gradients_and_the_graph_are_left_alone() -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    w.grad = torch.tensor([7.0, 8.0])
    project([w], size=Ball(1.0).on(w))
    assert w.grad.tolist() == [7.0, 8.0]
    assert w.is_leaf
    assert w.requires_grad


# --- inside, not nearly -------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [5, 1000, 30_000])
def test_the_answer_stays_feasible_in_another_order_of_summation(
    size: int, dtype: torch.dtype
) -> None:
    for seed in range(20):
        w = (10 * normal(size, seed=seed, dtype=dtype)).requires_grad_()
        done = project([w], size=Ball(1.0).on(w))
        assert done.residuals["size"] <= 0
        x = w.detach().double()
        assert x.flip(0).norm() <= 1.0
        assert math.sqrt(math.fsum((x * x).tolist())) <= 1.0
        # ... and no further inside than rounding explains.
        hair = 8 * torch.finfo(dtype).eps + 1e-15 * math.sqrt(size)
        assert done.residuals["size"] >= -hair


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("radius", [1e-7, 1e-3, 1.0, 1e3])
def test_a_ball_far_smaller_than_the_point_is_reached(
    dtype: torch.dtype, radius: float
) -> None:
    for seed in range(20):
        w = (10 * normal(5, seed=seed).clamp(-3, 3)).to(dtype).requires_grad_()
        done = project([w], size=Ball(radius).on(w))
        assert done.status is Status.FEASIBLE
        assert w.dtype == dtype
        if dtype == torch.float32 and done.distance > 0:
            norm = w.detach().double().norm().item()
            assert norm == pytest.approx(radius, rel=1e-6), "the margin is relative"


def test_a_center_that_the_dtype_cannot_hold_is_not_rounded() -> None:
    center = torch.tensor([0.1, -0.7], dtype=torch.float64)
    for seed in range(20):
        w = (10 * normal(2, seed=seed)).requires_grad_()
        done = project([w], near=Ball(1e-6, center).on(w))
        assert done.status is Status.FEASIBLE
        assert (w.detach().double() - center).norm() <= 1e-6


def test_a_far_start_costs_no_digits() -> None:
    # In float32, x - excess * normal would be wrong by an eps of 10^6.
    normal_vector = torch.tensor([1.0, 2.0, 2.0])
    w = (1e6 * normal_vector / 3).requires_grad_()
    x = w.detach().double()
    project([w], side=Halfspace(normal_vector, offset=3.0).on(w))
    n = normal_vector.double() / 3
    expected = x - ((n * x).sum() - 1.0) * n
    torch.testing.assert_close(w.detach().double(), expected, rtol=0, atol=1e-6)


# --- failure ------------------------------------------------------------------


class Unreachable(AbstractSet):
    """Empty: each attempt gives the next of some points, all with residual |x| + 1."""

    convex = True

    def __init__(self, attempts: list[float]) -> None:
        self.attempts = iter([attempts[0], *attempts])  # the first finds the margin

    def check_shape(self, tensor: Tensor) -> None:
        del tensor

    def residual(self, x: Tensor) -> Tensor:
        return x.abs().sum() + 1.0

    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        del margin
        return torch.full_like(x, next(self.attempts, 50.0))


@pytest.mark.parametrize(
    ("attempts", "best"), [([9.0, 3.0, 7.0], 3.0), ([9.0, 8.0, 7.0], 5.0)]
)
def test_failure_leaves_the_best_of_the_start_and_every_attempt(
    attempts: list[float], best: float
) -> None:
    w = torch.tensor([5.0], requires_grad=True)
    done = project([w], nowhere=Unreachable(attempts).on(w))
    assert done.status is Status.INFEASIBLE
    assert w.item() == best
    assert done.residuals == {"nowhere": best + 1.0}
    assert done.distance == 5.0 - best


def test_failure_is_a_status_and_leaves_the_best_point_found() -> None:
    # No float32 number is this near to 0.1.
    center = torch.tensor([0.1], dtype=torch.float64)
    w = torch.tensor([5.0], requires_grad=True)
    done = project([w], near=Ball(1e-12, center).on(w))
    assert done.status is Status.INFEASIBLE
    assert done.residuals["near"] > 0
    assert w.item() == torch.tensor(0.1).item(), "the nearest float32 number"


def test_failure_never_leaves_a_point_worse_than_the_start() -> None:
    center = torch.tensor([0.1], dtype=torch.float64)
    w = torch.tensor([0.1], requires_grad=True)
    start = w.item()
    done = project([w], near=Ball(1e-12, center).on(w))
    assert done.status is Status.INFEASIBLE
    assert w.item() == start
    assert done.residuals == done.residuals_before
    assert (done.distance, done.kkt_residual) == (0.0, 0.0)


# --- what it accepts ----------------------------------------------------------


def test_it_accepts_sets_on_tensors_of_their_own() -> None:
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    projector = ClosedForm()
    assert projector.accepts({}) is None
    assert projector.accepts({"a": Ball(1.0).on(a), "b": Ball(1.0).on(b)}) is None


def test_it_says_why_it_does_not_accept() -> None:
    w = torch.ones(2, requires_grad=True)
    projector = ClosedForm()
    reason = projector.accepts({"size": function(w.norm) <= 1.0})
    assert reason == "'size' is not a closed-form set (oneproj.sets)"
    half = Halfspace(torch.ones(2), 1.0)
    reason = projector.accepts({"size": Ball(1.0).on(w), "side": half.on(w)})
    assert reason == "'size' and 'side' constrain the same tensor"


def test_the_band_around_a_thin_set_has_no_bound() -> None:
    """Its points are nearer than those of the set, onto which it is projected."""
    w = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)
    thick = oneproj.sets.Simplex(1.0, tolerance=0.1).on(w)
    done = oneproj.project(w, {"simplex": thick})
    assert done.status is oneproj.Status.FEASIBLE
    assert done.lower_bound is None
