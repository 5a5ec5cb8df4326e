"""Cuts on convex sets that are thin, touching, redundant or empty."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.problem.problem import named_constraints
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.projection.cuts import Cuts
from oneproj.results import Projection, Status
from oneproj.vectors.arithmetic import distance, snapshot


def point(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def convex(fn: Callable[[], Tensor], bound: float) -> Constraint:
    return oneproj.function(fn, curvature="convex") <= bound


def project(w: Tensor, constraints: Mapping[str, AbstractTerm]) -> Projection:
    exact = Cuts(tolerance=0.0)
    return oneproj.project(w, constraints, projector=exact, on_failure="return")


def test_duplicates_share_the_multiplier() -> None:
    w = point(3.0, 4.0)
    same = {f"copy {i}": convex(lambda: w.square().sum(), 1.0) for i in range(3)}
    done = project(w, same)
    assert w.tolist() == pytest.approx([0.6, 0.8], abs=1e-9)
    # (3, 4) - (0.6, 0.8) = mu 2 (0.6, 0.8): mu = 2
    assert sum(done.multipliers.values()) == pytest.approx(2.0, abs=1e-6)


def test_an_active_constraint_without_a_multiplier() -> None:
    # The answer (1, 0) of the first also lies on the second, which has no say.
    w = point(2.0, 0.0)
    ties = {"x": convex(lambda: w[0], 1.0), "y": convex(lambda: w[0] + w[1], 1.0)}
    done = project(w, ties)
    assert w.tolist() == pytest.approx([1.0, 0.0], abs=1e-9)
    assert done.multipliers == pytest.approx({"x": 1.0, "y": 0.0}, abs=1e-9)
    assert done.residuals["y"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("curvature", ["convex", None])
@pytest.mark.parametrize("bound", [2.0, 1.5])
def test_a_feasible_start_costs_one_look(
    curvature: oneproj.problem.terms.Curvature | None, bound: float
) -> None:
    w = point(1.5, 0.0)  # inside, and exactly on the boundary
    size = oneproj.function(lambda: w[0] + w[1], curvature=curvature)
    done = project(w, {"size": size <= bound})
    assert w.tolist() == [1.5, 0.0]
    assert (done.status, done.gradients) == (Status.FEASIBLE, 1)
    assert (done.distance, done.kkt_residual) == (0.0, 0.0)
    assert done.multipliers == {"size": 0.0}


@pytest.mark.parametrize("excess", [1e-15, 1e-12, 1e-9, 1e-3])
def test_a_start_a_hair_outside_moves_a_hair(excess: float) -> None:
    w = point(0.6, 0.8 + excess)
    disc = convex(w.norm, 1.0)
    outside = disc.value() > 0
    done = project(w, {"disc": disc})
    assert done.residuals["disc"] <= 0
    assert done.distance <= excess + 1e-11
    assert (done.distance > 0) == outside


def test_tangent_discs_meet_in_one_point() -> None:
    # Two unit discs that touch in the origin, and nowhere else: nothing is strictly
    # feasible, and no multipliers exist, so only the point itself can be asked for.
    w = point(0.3, 2.0)
    touching = {
        "left": convex(lambda: (w[0] + 1.0).square() + w[1].square(), 1.0),
        "right": convex(lambda: (w[0] - 1.0).square() + w[1].square(), 1.0),
    }
    done = project(w, touching)
    assert done.status is not Status.PROVEN_INFEASIBLE, "the origin is in both"
    assert max(done.residuals.values()) <= 1e-9
    assert w.tolist() == pytest.approx([0.0, 0.0], abs=1e-4)


def test_opposite_halfspaces_leave_a_plane() -> None:
    w = point(1.0, 2.0)
    plane = {"up": convex(lambda: w[0], 0.0), "down": convex(lambda: -w[0], 0.0)}
    done = project(w, plane)
    assert done.status is Status.FEASIBLE
    assert w.tolist() == [0.0, 2.0]


def test_a_tangent_halfspace_is_no_obstacle() -> None:
    # x_1 <= 1 touches the unit disc in (1, 0), which is the answer.
    w = point(3.0, 0.0)
    both = {
        "disc": convex(lambda: w.square().sum(), 1.0),
        "side": convex(lambda: w[0], 1.0),
    }
    done = project(w, both)
    assert w.tolist() == pytest.approx([1.0, 0.0], abs=1e-8)
    mu = done.multipliers
    assert 2 * mu["disc"] + mu["side"] == pytest.approx(2.0, abs=1e-6)


def test_of_a_hundred_constraints_three_are_differentiated() -> None:
    generator = torch.Generator().manual_seed(0)
    directions = torch.eye(100, dtype=torch.float64)
    start = torch.zeros(100, dtype=torch.float64)
    start[:3] = 2.0
    w = start.clone().requires_grad_()
    order = torch.randperm(100, generator=generator).tolist()
    caps = {f"cap {j}": convex(lambda j=j: directions[j] @ w, 1.0) for j in order}
    differentiated: list[str] = []
    for name, cap in caps.items():
        original = cap.value_and_gradient

        def counted(
            parameters: list[Tensor],
            name: str = name,
            original: Callable[..., tuple[float, list[Tensor]]] = original,
        ) -> tuple[float, list[Tensor]]:
            differentiated.append(name)
            return original(parameters)

        cap.value_and_gradient = counted  # type: ignore[method-assign,assignment]
    done = Cuts().project([w], named_constraints(caps))
    assert set(differentiated) == {"cap 0", "cap 1", "cap 2"}
    assert w.detach()[:3].tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-9)
    assert done.distance == pytest.approx(3**0.5, rel=1e-9)
    assert sum(mu > 0 for mu in done.multipliers.values()) == 3


def test_a_thin_set_and_a_ball_from_far_away() -> None:
    # Cuts from far away contradict each other by rounding, and the solution of their
    # quadratic program is noise: one projection takes 4 to 160 gradients.
    used = []
    for seed in range(9):
        generator = torch.Generator().manual_seed(seed)
        A = torch.randn(3, 20, generator=generator, dtype=torch.float64)
        b = torch.randn(3, generator=generator, dtype=torch.float64)
        w = 1000 * torch.randn(20, generator=generator, dtype=torch.float64)
        w.requires_grad_()
        both = {
            "plane": oneproj.sets.Affine(A, b).on(w),
            "ball": oneproj.sets.Ball(3.0).on(w),
        }
        done = project(w, both)
        assert done.status is Status.FEASIBLE
        assert done.lower_bound == pytest.approx(done.distance, rel=1e-9)
        used.append(done.gradients)
    assert median(used) <= 60
    assert max(used) <= 400


@pytest.mark.parametrize(
    ("count", "seed"), [(1, 0), (3, 0), (8, 0), (8, 6), (8, 9), (12, 0), (12, 10)]
)
def test_rounding_from_far_away_does_not_make_a_set_empty(
    count: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(count, 20, generator=generator, dtype=torch.float64)
    b = torch.randn(count, generator=generator, dtype=torch.float64)
    w = (1000 * torch.randn(20, generator=generator)).requires_grad_()
    both = {
        "plane": oneproj.sets.Affine(A, b).on(w),
        "ball": oneproj.sets.Ball(3.0).on(w),
    }
    done = project(w, both)
    assert w.dtype == torch.float32
    assert done.status is Status.FEASIBLE
    assert done.lower_bound == pytest.approx(done.distance, rel=1e-6)


# --- the empty set ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [torch.nn.functional.softplus, torch.relu])
def test_a_risk_that_cannot_be_met_is_proven_empty(
    loss: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    # The risk falls for ever: far away its gradient is exactly zero, and it is not met.
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 4, generator=generator, dtype=dtype)
    w = torch.zeros(4, dtype=dtype, requires_grad=True)
    risk = oneproj.mean(lambda b: loss(1.0 - b @ w), data=x, curvature="convex")
    done = oneproj.project([w], {"risk": risk <= -0.1}, on_failure="return")
    assert done.status is Status.PROVEN_INFEASIBLE
    assert done.gradients <= 40
    assert done.residuals["risk"] == pytest.approx(0.1, abs=0.02)


def test_a_contradiction_is_proven() -> None:
    w = point(0.3, 0.1)
    start = snapshot([w])
    apart = {"up": convex(lambda: w[0], -1.0), "down": convex(lambda: -w[0], -1.0)}
    done = project(w, apart)
    assert done.status is Status.PROVEN_INFEASIBLE
    assert done.lower_bound is None
    assert max(done.residuals.values()) <= max(done.residuals_before.values())
    assert done.distance == distance([w], start)


def test_a_minimum_above_the_cap_is_empty_not_endless() -> None:
    w = point(3.0, 4.0)
    done = project(w, {"bowl": convex(lambda: w.square().sum() + 1.0, 0.5)})
    assert not done.status.ok
    assert done.residuals["bowl"] <= done.residuals_before["bowl"]
    assert done.gradients <= 400


@pytest.mark.parametrize("start", [1e-3, -1e-5])
def test_a_trial_point_where_nothing_is_finite_is_replaced(start: float) -> None:
    # The slope at the start is next to nothing: its cut leads to exp(1e5) and beyond.
    w = torch.tensor([start, 1.0], dtype=torch.float64, requires_grad=True)
    steep = oneproj.function(lambda: w[0].square().exp(), curvature="convex")
    done = oneproj.project(w, {"steep": steep <= 0.5}, on_failure="return")
    assert not done.status.ok, "it is 1 at least"
    assert math.isfinite(done.distance)
    assert done.residuals["steep"] == pytest.approx(0.5, abs=1e-5)
    side = oneproj.function(lambda: w[1] + w[0].square().exp(), curvature="convex")
    met = oneproj.project(w, {"side": side <= 1.5})
    assert met.distance == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(("wide", "narrow"), [(1.0, 1e-8), (1e8, 1.0), (1e5, 1e-5)])
def test_sides_that_nearly_cancel_prove_nothing(wide: float, narrow: float) -> None:
    """An ellipsoid whose sides are parallel to the root of rounding has an end."""
    w = torch.tensor([narrow, 0.0], dtype=torch.float64, requires_grad=True)
    far = oneproj.function(
        lambda: (w[0] / narrow) ** 2 + (w[1] / wide - 1.0) ** 2, curvature="convex"
    )
    done = oneproj.project(w, {"far": far <= 0.25}, on_failure="return")
    assert done.status is not Status.PROVEN_INFEASIBLE
    assert done.lower_bound is None or done.lower_bound <= 0.5 * wide * (1.0 + 1e-9)
    if done.status.ok and not done.remark:
        assert done.distance == pytest.approx(0.5 * wide, rel=1e-3)


def in_other_units(seed: int) -> tuple[Projection, float]:
    """Project onto a risk whose columns have other units; how far is a known point."""
    generator = torch.Generator().manual_seed(seed)
    doubles = {"generator": generator, "dtype": torch.float64}
    units = torch.tensor([5e4, 40.0, 1e-3, 1e-4], dtype=torch.float64)
    Z, noise = torch.randn(300, 4, **doubles), torch.randn(300, **doubles)
    X, y = Z * units, (Z.sum(1) + 0.5 * noise).sign()
    known = 1.0 / units
    w = torch.zeros(4, dtype=torch.float64, requires_grad=True)

    def risk(at: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-y * (X @ at)).mean()

    term = oneproj.function(lambda: risk(w), curvature="convex")
    bound = risk(known).item() + 0.02
    done = oneproj.project(w, {"risk": term <= bound}, on_failure="return")
    return done, known.norm().item()


def test_columns_in_other_units_prove_nothing() -> None:
    # The known point is feasible and not the nearest. By rounding, about one answer in
    # fifty is farther away than that; a lower bound above it would be wrong.
    answers = [in_other_units(seed) for seed in range(5)]
    for done, known in answers:
        assert done.status is Status.FEASIBLE
        assert done.lower_bound is not None
        assert done.lower_bound <= min(done.distance, known)
    assert median(done.distance / known for done, known in answers) <= 1.0
