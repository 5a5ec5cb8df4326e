"""The last steps into closed-form sets, within them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

import oneproj
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.closed_form import move_into_sets
from oneproj.projection.evaluator import Evaluator
from oneproj.sets.region import region_of

SETS = oneproj.sets


def mixed(
    seed: int, *, ball: bool, head: bool
) -> tuple[list[torch.Tensor], dict[str, AbstractTerm]]:
    """A network whose inputs are weighted by a point of the simplex."""
    torch.manual_seed(seed)  # of the initial weights
    x = torch.randn(80, 3, dtype=torch.float64)
    y = (x[:, 0] * x[:, 1]).sign()
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    mix = torch.tensor([0.5, 0.9, -0.2], dtype=torch.float64, requires_grad=True)
    risk = oneproj.mean(
        lambda b: softplus(-b[1] * model(b[0] * mix).squeeze(-1)), data=(x, y)
    )
    constraints: dict[str, AbstractTerm] = {"risk": risk <= 0.6}
    if ball:
        constraints["first"] = SETS.SpectralBall(1.5).on(model[0].weight)
    constraints["mix"] = SETS.Simplex().on(mix)
    if head:
        constraints["head"] = SETS.L1Ball(3.0).on(model[2].weight)
    return [*model.parameters(), mix], constraints


@pytest.mark.parametrize(
    ("seed", "ball", "witness", "residual"),
    [(5, False, 2.4397, 0.05), (0, True, 2.3546, 0.05), (2, True, 2.8202, 0.31)],
)
def test_corners_of_sets_do_not_keep_a_network_from_them(
    seed: int, *, ball: bool, witness: float, residual: float
) -> None:
    """Of each a feasible point is known, at the distance of the witness."""
    parameters, constraints = mixed(seed, ball=ball, head=True)
    done = oneproj.project(parameters, constraints)
    assert max(done.residuals.values()) <= 0
    assert done.distance <= 1.05 * witness
    assert done.kkt_residual <= residual
    assert done.multipliers["mix"] > 0


def test_it_gives_up_where_no_point_of_the_sets_will_do() -> None:
    w = torch.tensor([0.9, 0.3], dtype=torch.float64, requires_grad=True)
    size = oneproj.function(lambda: w.square().sum())
    both = {"sum": SETS.Simplex().on(w), "size": size <= 0.4}  # 0.5 is the least
    evaluator = Evaluator([w], both, differentiate_all=True)
    move_into_sets(evaluator, region_of([w], both))
    assert evaluator.best.worst > 0
    assert evaluator.evaluations <= 22


def test_a_function_without_a_slope_is_left_alone() -> None:
    w = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    flat = oneproj.function(lambda: 0.0 * w.sum() + 1.0)
    both = {"box": SETS.Box(0.0, 1.0).on(w), "flat": flat <= 0.0}
    evaluator = Evaluator([w], both, differentiate_all=True)
    move_into_sets(evaluator, region_of([w], both))
    assert evaluator.best.worst == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_a_box_and_a_plane_on_one_tensor_beside_a_risk_are_met(seed: int) -> None:
    # One of the two is met as a function is: its rounding must not decide.
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    d = 60
    share = (torch.rand(d, generator=generator, dtype=torch.float64) > 0.5).double()
    share[:3] = 0.5
    share /= share.sum()
    M = draw(2 * d, d) / d**0.5
    w = draw(d).requires_grad_()
    risk = oneproj.function(lambda: (M @ w).square().sum(), curvature="convex")
    stated = {
        "box": oneproj.sets.Box(0.0, 1.0).on(w),
        "sum": oneproj.sets.Affine(torch.ones(1, d), torch.ones(1)).on(w),
        "risk": risk <= 1.01 * float((M @ share).square().sum()),
    }
    done = oneproj.project(w, stated)
    assert done.status is oneproj.Status.FEASIBLE
    assert max(done.residuals.values()) <= 0
    assert done.lower_bound is not None
    assert done.lower_bound <= done.distance <= 1.01 * done.lower_bound
