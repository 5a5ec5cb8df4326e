"""Sets together with a functional constraint, through the projector "cuts"."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
import torch

import oneproj
from oneproj import sets

CENTER = np.array([0.3, 0.1, 0.2, 0.1, 0.2, 0.1])
A = np.random.default_rng(5).normal(size=(2, 6))
Limits = Callable[[cp.Variable], list[cp.Constraint]]

SETS: dict[str, tuple[sets.AbstractSet, Limits]] = {
    "ball": (sets.Ball(0.5), lambda v: [cp.norm(v) <= 0.5]),
    "box": (sets.Box(-0.2, 0.25), lambda v: [v >= -0.2, v <= 0.25]),
    "affine": (
        sets.Affine(torch.tensor(A), torch.tensor(A @ CENTER)),
        lambda v: [A @ v == A @ CENTER],
    ),
    "simplex": (sets.Simplex(), lambda v: [v >= 0, cp.sum(v) == 1]),
    "L1 ball": (sets.L1Ball(0.9), lambda v: [cp.norm1(v) <= 0.9]),
    "cone": (sets.SecondOrderCone(), lambda v: [cp.norm(v[1:]) <= v[0]]),
    "nuclear": (
        sets.NuclearBall(0.4),
        lambda v: [cp.norm(cp.reshape(v, (2, 3), order="C"), "nuc") <= 0.4],
    ),
    "spectral": (
        sets.SpectralBall(0.3),
        lambda v: [cp.norm(cp.reshape(v, (2, 3), order="C"), 2) <= 0.3],
    ),
}
MATRICES = (sets.NuclearBall, sets.SpectralBall)
THIN = (sets.Affine, sets.Simplex)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_common_point_is_found(name: str, seed: int) -> None:
    members, limits = SETS[name]
    x = CENTER + np.random.default_rng(seed).normal(size=6)
    v = cp.Variable(6)
    apart, near = cp.Minimize(cp.sum_squares(v - x)), cp.sum_squares(v - CENTER) <= 0.04
    cp.Problem(apart, [near, *limits(v)]).solve(solver=cp.CLARABEL)
    shape = (2, 3) if isinstance(members, MATRICES) else (6,)
    w = torch.tensor(x).reshape(shape).requires_grad_()
    center = torch.tensor(CENTER).reshape(shape)
    disc = oneproj.function(lambda: (w - center).square().sum(), curvature="convex")
    done = oneproj.project(
        w, {"set": members.on(w), "disc": disc <= 0.04}, projector="cuts"
    )
    assert max(done.residuals.values()) <= 0
    distance = float(np.linalg.norm(v.value - x))
    # A set without interior leaves no room for margins: the cuts creep up to it.
    assert done.distance == pytest.approx(distance, rel=1e-6)
    assert done.lower_bound is not None
    assert done.lower_bound <= distance * (1 + 1e-7)


def test_rank_and_a_function_meet_locally() -> None:
    g = torch.Generator().manual_seed(0)
    w = torch.randn(5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    x = w.detach().clone()
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    constraints = {"rank": sets.Rank(2).on(w), "size": size <= 1.0}
    done = oneproj.project(w, constraints, projector="cuts")
    assert max(done.residuals.values()) <= 0
    # Shrinking keeps the rank, so the nearest point is known: the truncation, shrunk.
    low = sets.Rank(2).project(x)
    best = (x - low / low.norm()).norm().item()
    assert done.distance == pytest.approx(best, rel=1e-3)
