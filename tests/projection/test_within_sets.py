"""Convex functions within closed-form sets, against an interior-point solver."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import sets
from oneproj.errors import InfeasibleError, InvalidProblemError
from oneproj.projection.cuts import Cuts
from oneproj.results import Status

Spell = Callable[[cp.Variable], list[cp.Constraint]]
KINDS: dict[str, tuple[sets.AbstractSet, tuple[int, ...], Spell]] = {
    "L1 ball": (sets.L1Ball(2.0), (12,), lambda v: [cp.norm1(v) <= 2]),
    "simplex": (sets.Simplex(2.0), (12,), lambda v: [cp.sum(v) == 2, v >= 0]),
    "box": (sets.Box(-0.5, 0.7), (12,), lambda v: [v >= -0.5, v <= 0.7]),
    "ball": (sets.Ball(1.5), (12,), lambda v: [cp.norm(v) <= 1.5]),
    "cone": (sets.SecondOrderCone(), (12,), lambda v: [cp.norm(v[1:]) <= v[0]]),
    "nuclear": (sets.NuclearBall(2.0), (3, 4), lambda v: [cp.normNuc(v) <= 2]),
    "spectral": (sets.SpectralBall(0.8), (3, 4), lambda v: [cp.sigma_max(v) <= 0.8]),
    "plane": (
        sets.Affine([[1.0] * 12, [1.0, -1.0] * 6], [2.0, 1.0]),
        (12,),
        lambda v: [cp.sum(v) == 2, cp.sum(v[::2]) - cp.sum(v[1::2]) == 1],
    ),
}


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def solved(
    v: cp.Variable, start: Tensor, constraints: list[cp.Constraint]
) -> tuple[float, list[float]]:
    """The distance, and the multipliers of half its square."""
    away = cp.vec(v - start.numpy(), order="C")
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(away)), constraints)
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        problem.solve(solver="CLARABEL", **tight)
    duals = [float(np.sum(c.dual_value)) for c in constraints]
    return math.sqrt(2 * problem.value), duals


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_answer_of_an_interior_point_solver(kind: str, loss: str) -> None:
    members, shape, spell = KINDS[kind]
    start, Z = 2 * normal(0, *shape), normal(1, 40, 12)
    inside = members.project(normal(2, *shape)).flatten()
    w, v = start.clone().requires_grad_(), cp.Variable(shape)
    scores = Z.numpy() @ cp.vec(v, order="C")
    if loss == "logistic":
        risk = lambda x: torch.nn.functional.softplus(-Z @ x.flatten()).mean()  # noqa: E731
        stated = cp.sum(cp.logistic(-scores)) / 40
    else:
        risk = lambda x: (1 - Z @ x.flatten()).clamp(min=0).mean()  # noqa: E731
        stated = cp.sum(cp.pos(1 - scores)) / 40
    cap = float(risk(inside)) + 0.02
    done = oneproj.project(
        w,
        {
            "set": members.on(w),
            "risk": oneproj.function(lambda: risk(w), curvature="convex") <= cap,
        },
        projector=Cuts(tolerance=0.0),
    )
    true, (mu, *_) = solved(v, start, [stated <= cap, *spell(v)])
    assert max(done.residuals.values()) <= 0
    assert done.distance == pytest.approx(true, rel=1e-8)
    assert done.lower_bound is not None
    assert done.lower_bound <= done.distance * (1 + 1e-15)
    assert done.lower_bound == pytest.approx(true, rel=1e-8)
    assert done.multipliers["risk"] == pytest.approx(mu, rel=1e-5, abs=1e-6)
    assert done.kkt_residual <= 1e-5
    assert done.gradients <= 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [100, 1200])
def test_a_linear_cap_in_an_l1_ball_takes_two_gradients(
    size: int, dtype: torch.dtype
) -> None:
    w = normal(0, size).to(dtype).requires_grad_()
    start, v = w.detach().clone().double(), cp.Variable(size)
    total = oneproj.function(w.sum, curvature="linear")
    ball = sets.L1Ball(1.0).on(w)
    done = oneproj.project(w, {"ball": ball, "total": total <= -0.5})
    true, _ = solved(v, start, [cp.norm1(v) <= 1, cp.sum(v) <= -0.5])
    assert done.gradients <= 3
    assert done.distance == pytest.approx(
        true, rel=1e-8 if w.dtype.itemsize > 4 else 1e-5
    )
    assert done.lower_bound is not None
    assert done.lower_bound <= true * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_a_cap_on_the_simplex_is_met(seed: int) -> None:
    start, h = normal(seed, 40), normal(100 + seed, 40)
    w, v = start.clone().requires_grad_(), cp.Variable(40)
    cap = oneproj.function(lambda: h @ w, curvature="linear") <= -0.3
    done = oneproj.project(w, {"simplex": sets.Simplex().on(w), "cap": cap})
    spelled = [cp.sum(v) == 1, v >= 0, h.numpy() @ v <= -0.3]
    assert done.status is Status.FEASIBLE
    # A cap that held at the start is evaluated once more for its first gradient.
    held_first = done.residuals_before["cap"] <= 0
    assert done.gradients <= 4 + held_first
    assert done.distance == pytest.approx(solved(v, start, spelled)[0], rel=1e-8)


def test_sets_on_several_tensors_and_two_on_one() -> None:
    a, b = normal(0, 6), normal(1, 5)
    w, u = (3 * x for x in (a, b))
    w.requires_grad_()
    u.requires_grad_()
    total = oneproj.function(lambda: w.sum() + u.sum(), curvature="linear")
    size = oneproj.function(lambda: w.square().sum() + u[0], curvature="convex")
    done = oneproj.project(
        [w, u],
        {
            "box": sets.Box(-0.5, 1.0).on(w),
            "ball": sets.Ball(1.2).on(w),
            "simplex": sets.Simplex().on(u),
            "total": total >= 1.5,
            "size": size <= 1.2,
        },
        projector=Cuts(tolerance=0.0),
    )
    v = cp.Variable(11)
    true, _ = solved(
        v,
        3 * torch.cat([a, b]),
        [
            v[:6] >= -0.5,
            v[:6] <= 1,
            cp.norm(v[:6]) <= 1.2,
            cp.sum(v[6:]) == 1,
            v[6:] >= 0,
            cp.sum(v) >= 1.5,
            cp.sum_squares(v[:6]) + v[6] <= 1.2,
        ],
    )
    assert max(done.residuals.values()) <= 0
    assert done.distance == pytest.approx(true, rel=1e-8)


def test_few_cuts_are_mixed_and_the_bound_stays_one() -> None:
    start, Z = 2 * normal(0, 12), normal(1, 40, 12)
    answers = []
    for capacity in (None, 4):
        w = start.clone().requires_grad_()
        risk = oneproj.function(
            lambda w=w: (1 - Z @ w).clamp(min=0).mean(), curvature="convex"
        )
        constraints = {"box": sets.Box(-0.5, 0.7).on(w), "risk": risk <= 0.9}
        answers.append(oneproj.project(w, constraints, projector=Cuts(memory=capacity)))
    exact, mixed = answers
    assert mixed.status is Status.FEASIBLE
    assert mixed.lower_bound is not None
    assert mixed.lower_bound <= exact.distance <= mixed.distance * (1 + 1e-9)
    assert mixed.distance <= 1.01 * exact.distance


@pytest.mark.parametrize(
    "members", [sets.Ball(1.0), sets.Simplex(), sets.Box(-1.0, 1.0), sets.L1Ball(1.0)]
)
def test_a_cap_that_a_set_excludes_is_proven_to_be_impossible(
    members: sets.AbstractSet,
) -> None:
    w = torch.tensor([3.0, 4.0, -1.0], dtype=torch.float64, requires_grad=True)
    total = oneproj.function(w.sum, curvature="linear")
    with pytest.raises(InfeasibleError, match="no point satisfies all"):
        oneproj.project(w, {"set": members.on(w), "total": total >= 4.0})
    assert w.tolist() == [3.0, 4.0, -1.0]


def test_where_nothing_is_seen_it_looks_nearer() -> None:
    w = torch.tensor([0.5, 6.0], dtype=torch.float64, requires_grad=True)
    barrier = oneproj.function(lambda: -w.log().sum(), curvature="convex")
    constraints = {"ball": sets.Ball(2.0).on(w), "log": barrier <= 0.5}
    done = oneproj.project(w, constraints, projector=Cuts(tolerance=0.0))
    assert done.status is Status.FEASIBLE
    assert done.lower_bound == pytest.approx(done.distance, rel=1e-9)


def test_a_wrong_declaration_is_refused_within_sets() -> None:
    w = torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True)
    outside = oneproj.function(lambda: 1 - w.square().sum(), curvature="convex")
    constraints = {"box": sets.Box(-5.0, 5.0).on(w), "outside": outside <= 0.0}
    with pytest.raises(InvalidProblemError, match="'outside' is declared convex, but"):
        oneproj.project(w, constraints)
    assert w.tolist() == [0.1, 0.2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_sets_and_functions_touch_the_search_ends(dtype: torch.dtype) -> None:
    w = normal(1, 5).to(dtype).requires_grad_()
    least = oneproj.function(w.max, curvature="convex")
    touching = {"simplex": sets.Simplex().on(w), "largest": least <= 0.2}
    assert oneproj.project(w, touching).gradients < 60
    torch.testing.assert_close(w.detach(), torch.full_like(w, 0.2))
    total = oneproj.function(w.sum, curvature="linear")
    apart = {"box": sets.Box(0.0, 1.0).on(w), "total": total >= 5.0001}
    with pytest.raises(InfeasibleError):
        oneproj.project(w, apart)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_allows_for_the_rounding_of_a_value(seed: int) -> None:
    w = normal(seed, 20).float().requires_grad_()
    away = (1.0 - w.detach()).norm().item()
    total = oneproj.function(w.sum, curvature="linear")
    corner = {"box": sets.Box(0.0, 1.0).on(w), "total": total >= 20.0}
    done = oneproj.project(w, corner)
    assert done.distance == pytest.approx(away, rel=1e-6)
    assert done.lower_bound is not None
    assert done.lower_bound <= away * (1 + 1e-6)
