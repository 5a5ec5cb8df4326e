"""The projected-gradient mapping: closed forms, clarabel, and a sloppy projector."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oneproj
from oneproj import (
    InvalidProblemError,
    Measure,
    NonFiniteError,
    Projection,
    ProjectionFailed,
    Status,
)
from oneproj.certificates.kkt import gradient_mapping
from oneproj.problem import AbstractTerm
from oneproj.projection import AbstractProjector
from oneproj.projection.closed_form import ClosedForm
from oneproj.vectors import snapshot
from oneproj.vectors.arithmetic import Vector

FEW = settings(max_examples=10, derandomize=True, deadline=None, database=None)


class UnitDisc(AbstractProjector):
    """Onto {|w|^2 <= 1}, off by a known relative error, or failing on demand."""

    name = "unit disc"

    def __init__(
        self,
        slip: float = 0.0,
        *,
        balanced: bool = False,
        fail: bool = False,
        crash: bool = False,
    ) -> None:
        self.slip, self.balanced, self.fail, self.crash = slip, balanced, fail, crash

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        return None if len(constraints) == 1 else "one disc, please"

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        (w,) = parameters
        x = w.detach().clone()
        with torch.no_grad():
            w /= max(1.0, float(w.norm())) * (1.0 + self.slip)
        if self.crash:
            message = "power cut"
            raise RuntimeError(message)
        moved = float((w.detach() - x).norm())
        mu = max(0.0, (float(x.norm()) - 1.0) / 2.0)  # x - y = mu * 2 y
        if self.balanced:  # the multiplier of a smaller disc: no imbalance to see
            mu = (float(x.norm()) / float(w.detach().norm()) - 1.0) / 2.0
        pull = w.detach() - x + mu * 2.0 * w.detach()
        return Projection(
            Status.INFEASIBLE if self.fail else Status.FEASIBLE,
            moved,
            {name: c.value() for name, c in constraints.items()},
            dict.fromkeys(constraints, mu),
            1,
            kkt_residual=float(pull.norm()) / moved if moved else 0.0,
        )


def linear(point: list[float], slope: list[float], **options: Any) -> oneproj.Problem:  # noqa: ANN401
    """<slope, w> over the unit disc."""
    w = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    v = torch.tensor(slope, dtype=torch.float64)
    return oneproj.Problem(
        w,
        oneproj.function(lambda: v @ w),
        {"disc": oneproj.function(lambda: w.square().sum()) <= 1.0},
        **{"radius": 1.0} | options,
    )


def mapped(problem: oneproj.Problem, ell: float) -> Measure:
    return gradient_mapping(problem, UnitDisc(), weak_convexity=ell)


def test_inside_it_is_the_gradient() -> None:
    measure = gradient_mapping(
        linear([0.1, 0.2], [0.3, 0.4]), UnitDisc(), weak_convexity=2.0
    )
    assert measure.value == pytest.approx(0.5)
    assert measure.details["projections"] == 1
    assert measure.details["constraint gradients"] == 1


def test_it_vanishes_at_a_constrained_stationary_point() -> None:
    measure = gradient_mapping(
        linear([0.6, 0.8], [-3, -4]), UnitDisc(), weak_convexity=1.0
    )
    assert measure.value == pytest.approx(0.0, abs=1e-15)


def test_on_the_boundary_by_hand() -> None:
    # From (1, 0) by -(0, 1): (1, -1), projected to (1, -1)/sqrt(2).
    measure = gradient_mapping(
        linear([1.0, 0.0], [0.0, 1.0]), UnitDisc(), weak_convexity=1.0
    )
    assert measure.value == pytest.approx(math.sqrt(2.0 - math.sqrt(2.0)))


def test_ell_scales_step_and_value() -> None:
    # From (0.5, 0) by (1, 0) / 4 to (0.75, 0): moved 1/4, times 4.
    measure = gradient_mapping(
        linear([0.5, 0.0], [-1.0, 0.0]), UnitDisc(), weak_convexity=4.0
    )
    assert measure.value == pytest.approx(1.0)
    # With ell = 1 the step ends at (1.5, 0) and is cut off at (1, 0).
    measure = gradient_mapping(
        linear([0.5, 0.0], [-1.0, 0.0]), UnitDisc(), weak_convexity=1.0
    )
    assert measure.value == pytest.approx(0.5)


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), split=st.booleans())
def test_agrees_with_clarabel_on_closed_form_sets(
    seed: int, n: int, *, split: bool
) -> None:
    rng = np.random.default_rng(seed)
    x, b, a = (rng.normal(size=n) for _ in range(3))
    x *= 0.1
    w = torch.tensor(x, requires_grad=True)
    other = torch.tensor(rng.normal(size=2), requires_grad=True)
    slope, normal = torch.tensor(b), torch.tensor(a)
    parts = [w, other] if split else [w]
    sets = {"half": oneproj.sets.Halfspace(normal, 0.05).on(w)}
    if split:
        sets["disc"] = oneproj.sets.Ball(0.5).on(other)
    problem = oneproj.Problem(
        parts,
        oneproj.function(
            lambda: (slope @ w) + (other.square().sum() if split else 0.0)
        ),
        sets,
    )
    v = cp.Variable(n)
    measure = gradient_mapping(problem, ClosedForm(), weak_convexity=2.0)
    cp.Problem(cp.Minimize(cp.sum_squares(v - (x - b / 2))), [a @ v <= 0.05]).solve(
        solver=cp.CLARABEL
    )
    moved = np.sum((x - v.value) ** 2)
    if split:  # the other part goes to u - 2u/2 = 0, which is inside its disc
        moved += float(other.detach().square().sum())
    assert measure.value == pytest.approx(2.0 * math.sqrt(moved), abs=1e-4)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("slip", [0.0, 1e-9, 1e-4, 1e-2])
def test_the_error_covers_a_sloppy_projection(slip: float, *, balanced: bool) -> None:
    problem = linear([1.0, 0.0], [0.5, 1.0])
    exact = gradient_mapping(problem, UnitDisc(), weak_convexity=1.0)
    sloppy = gradient_mapping(
        problem, UnitDisc(slip, balanced=balanced), weak_convexity=1.0
    )
    assert abs(sloppy.value - exact.value) <= sloppy.error + exact.error
    assert exact.error <= 1e-7
    assert sloppy.error <= 3.0 * math.sqrt(slip) + 1e-7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_bits(dtype: torch.dtype) -> None:
    w = torch.tensor([-0.0, 0.7], dtype=dtype, requires_grad=True)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: (w - 3.0).square().sum()),
        {"disc": oneproj.sets.Ball(1.0).on(w)},
    )
    bits = snapshot([w])[0]
    measure = gradient_mapping(problem, ClosedForm(), weak_convexity=2.0)
    # The step goes to (3, 3), projected to (1, 1)/sqrt(2).
    s = math.sqrt(0.5)
    exact = 2.0 * math.hypot(s, s - 0.7)
    assert measure.value == pytest.approx(exact, rel=1e-6)
    assert abs(measure.value - exact) <= measure.error + 1e-7
    assert same_bits(w, bits)


def same_bits(a: Tensor, b: Tensor) -> bool:
    kind = torch.int32 if a.dtype == torch.float32 else torch.int64
    return torch.equal(a.detach().view(kind), b.view(kind))


@pytest.mark.parametrize(
    ("projector", "error"),
    [(UnitDisc(fail=True), ProjectionFailed), (UnitDisc(crash=True), RuntimeError)],
)
def test_the_point_is_restored_when_the_projector_fails(
    projector: UnitDisc, error: type[Exception]
) -> None:
    problem = linear([1.0, 0.0], [0.5, 1.0])
    bits = snapshot(problem.parameters)[0]
    with pytest.raises(error):
        gradient_mapping(problem, projector, weak_convexity=1.0)
    assert same_bits(problem.parameters[0], bits)


def test_an_answer_outside_the_ball_is_reported() -> None:
    # The feasible set is not inside the ball of radius 0.5, against the assumption.
    problem = linear([0.4, 0.0], [-9.0, 0.0], radius=0.5)
    measure = gradient_mapping(problem, UnitDisc(), weak_convexity=1.0)
    assert measure.details["distance outside the safeguard ball"] == pytest.approx(0.5)


def test_bad_input(build: Callable[..., Any]) -> None:
    problem = linear([1.0, 0.0], [0.5, 1.0])
    with pytest.raises(InvalidProblemError, match="must be one finite number > 0"):
        gradient_mapping(problem, UnitDisc(), weak_convexity=0.0)
    two = build(0, 3, constraints=2).problem
    with pytest.raises(InvalidProblemError, match="one disc, please"):
        gradient_mapping(two, UnitDisc(), weak_convexity=1.0)
    with torch.no_grad():
        problem.parameters[0][0] = math.inf
    with pytest.raises(NonFiniteError, match="a parameter of the point"):
        gradient_mapping(problem, UnitDisc(), weak_convexity=1.0)
