"""certify: what applies, which bound, which point - and it leaves no trace."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import (
    Certificate,
    InvalidProblemError,
    Measure,
    NonFiniteError,
    Projection,
    Status,
    certify,
)
from oneproj.certificates.proximal import moreau_residual, penalty_residual
from oneproj.problem import AbstractTerm
from oneproj.projection import AbstractProjector
from oneproj.projection.closed_form import ClosedForm
from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    convex_schedule,
    nonconvex_schedule,
)
from oneproj.vectors import snapshot
from oneproj.vectors.arithmetic import Vector

CONVEX = ConvexConstants(
    weak_convexity=2.0,
    gradient_bound=12.0,
    constraint_gradient_bound=1.0,
    boundary_slope=1.0,
)
NONCONVEX = NonconvexConstants(
    weak_convexity=2.0,
    gradient_bound=12.0,
    constraint_gradient_bound=4.0,
    constraint_smoothness=4.0,
    boundary_slope=1.0,
    infeasible_slope=1.0,
)


class Stuck(AbstractProjector):
    """Never arrives."""

    name = "stuck"

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        del constraints
        return None

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        del parameters
        return Projection(
            Status.INFEASIBLE, 0.0, dict.fromkeys(constraints, 1.0), {}, 0
        )


def nearest(
    point: tuple[float, float] = (0.3, 0.4),
    dtype: torch.dtype = torch.float64,
    radius: float = 1.0,
) -> oneproj.Problem:
    """min |w - (3, 4)|^2 over the disc of radius 1/2, whose solution is (0.3, 0.4)."""
    w = torch.tensor(point, dtype=dtype, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=dtype)
    return oneproj.Problem(
        w,
        oneproj.function(lambda: (w - target).square().sum()),
        {"disc": oneproj.sets.Ball(0.5).on(w)},
        radius=radius,
    )


def names(certificate: Certificate) -> list[str]:
    return [measure.name for measure in certificate.measures]


ALWAYS = ["feasibility", "KKT residual", "complementarity"]


def test_what_applies_is_chosen() -> None:
    problem, generator = nearest(), torch.Generator().manual_seed(0)
    assert names(certify(problem)) == ALWAYS
    assert names(certify(problem, constants=CONVEX)) == [*ALWAYS, "Moreau residual"]
    assert names(certify(problem, constants=CONVEX, projector=ClosedForm())) == [
        *ALWAYS,
        "gradient mapping",
        "Moreau residual",
    ]
    nonsmooth = certify(problem, constants=CONVEX, projector=ClosedForm(), smooth=False)
    assert names(nonsmooth) == [*ALWAYS, "Moreau residual"]
    assert names(certify(problem, constants=NONCONVEX)) == [*ALWAYS, "penalty residual"]
    assert names(certify(problem, constants=NONCONVEX, generator=generator)) == [
        *ALWAYS,
        "penalty residual",
        "infeasible slope",
    ]


def test_what_the_constants_do_not_ask_for_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="it is NonconvexConstants"):
        certify(nearest(), constants=NONCONVEX, projector=ClosedForm())
    with pytest.raises(InvalidProblemError, match="it is ConvexConstants"):
        certify(nearest(), constants=CONVEX, generator=torch.Generator())


def test_at_the_solution_everything_vanishes() -> None:
    certificate = certify(nearest(), constants=CONVEX, projector=ClosedForm())
    assert certificate["feasibility"].value <= 0.0
    for name in ("KKT residual", "gradient mapping", "Moreau residual"):
        measure = certificate[name]
        assert measure.value <= measure.error + 1e-7
    # grad f = -2 (2.7, 3.6), of length 9, against a gradient of length 1.
    assert certificate.multipliers == pytest.approx({"disc": 9.0})


def test_without_constants_there_is_one_bound() -> None:
    certificate = certify(nearest((0.6, 0.8)))
    bounds = {measure.name: measure.bound for measure in certificate.measures}
    assert bounds == {"feasibility": 0.0, "KKT residual": None, "complementarity": None}
    assert certificate.holds is False


def test_theorems_1_and_2_speak_of_the_output() -> None:
    schedule = convex_schedule(CONVEX, 0.5)
    problem = nearest((0.1, 0.2))
    certificate = certify(problem, schedule=schedule, projector=ClosedForm())
    for name, theorem in (("gradient mapping", 1), ("Moreau residual", 2)):
        measure = certificate[name]
        assert measure.bound == 0.5
        expected = f"Theorem {theorem} at x_hat, probability >= 2/3"
        assert measure.source == expected
        assert measure.value > 0.5
        assert measure.holds is False
    before = certify(problem, schedule=schedule, projected=False)
    assert before["Moreau residual"].bound is None


def test_theorem_3_speaks_of_the_iterate_before_the_projection() -> None:
    schedule = nonconvex_schedule(NONCONVEX, 0.5)
    lam, beta = schedule.strength, schedule.prox_weight
    w = torch.tensor([0.3, 0.4], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=torch.float64)
    # Of |w|, the residual of a ball, the gradient has no Lipschitz constant around 0.
    smooth = oneproj.function(lambda: w.square().sum()) <= 0.25
    objective = oneproj.function(lambda: (w - target).square().sum())
    problem = oneproj.Problem(w, objective, {"disc": smooth}, radius=1.0)
    at_x_J = certify(problem, schedule=schedule, projected=False)["penalty residual"]
    assert at_x_J.bound == 0.5
    assert at_x_J.source == "Theorem 3 at x_J, probability >= 2/3"
    at_x_hat = certify(problem, schedule=schedule)["penalty residual"]
    m = beta - 2.0 - 4.0 * lam
    assert at_x_hat.bound == pytest.approx((2.0 + beta / m) * 0.5)
    direct = penalty_residual(problem, NONCONVEX, strength=lam, prox_weight=beta)
    assert at_x_hat.value == direct.value


def test_a_shortened_schedule_is_labelled() -> None:
    schedule = dataclasses.replace(convex_schedule(CONVEX, 0.5), outer_steps=2)
    measure = certify(nearest(), schedule=schedule)["Moreau residual"]
    assert measure.bound == 0.5
    assert measure.source == "Theorem 2 at x_hat; this schedule is outside it"


def test_the_defaults_without_a_schedule_are_those_of_the_theorem() -> None:
    # Twice the least: lam = 2 * 12 / 1 and beta = 2 (2 + 24 * 4).
    problem = nearest((0.6, 0.6))
    measure = certify(problem, constants=NONCONVEX)["penalty residual"]
    direct = penalty_residual(problem, NONCONVEX, strength=24.0, prox_weight=196.0)
    assert measure.value == direct.value
    assert measure.bound is None


def test_a_failed_projection_is_infinite_not_silent() -> None:
    certificate = certify(
        nearest(), schedule=convex_schedule(CONVEX, 0.5), projector=Stuck()
    )
    measure = certificate["gradient mapping"]
    assert (measure.value, measure.holds) == (math.inf, False)
    assert "projection that failed" in measure.details["failure"]
    assert math.isfinite(certificate["Moreau residual"].value)


def test_an_empty_feasible_set_is_infinite_not_silent() -> None:
    w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    impossible = {"c": oneproj.function(w.sum) <= -2.0}
    problem = oneproj.Problem(w, oneproj.function(w.sum), impossible, radius=1.0)
    measure = certify(problem, constants=CONVEX)["Moreau residual"]
    assert measure.value == math.inf
    assert "No point with every constraint < 0" in measure.details["failure"]


def test_constants_of_another_ball_or_schedule_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"radius 1\.0, but .* radius 2\.0"):
        certify(nearest(radius=2.0), constants=CONVEX)
    with pytest.raises(InvalidProblemError, match="computed from other constants"):
        certify(nearest(), constants=NONCONVEX, schedule=convex_schedule(CONVEX, 0.5))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_point_is_named(bad: float) -> None:
    problem = nearest()
    with torch.no_grad():
        problem.parameters[0][1] = bad
    with pytest.raises(NonFiniteError, match="a parameter of the point"):
        certify(problem)


def test_a_bad_gradient_is_named() -> None:
    w = torch.tensor([0.0], dtype=torch.float64, requires_grad=True)
    root = oneproj.function(lambda: (w + 1.0).sqrt().sum())
    problem = oneproj.Problem(w, root, {"c": oneproj.function(w.sum) <= 1.0})
    with torch.no_grad():
        w.fill_(-1.0)
    with pytest.raises(NonFiniteError, match="the gradient of 'objective'"):
        certify(problem)


def test_the_table_can_be_read() -> None:
    certificate = certify(
        nearest((0.1, 0.2)),
        schedule=convex_schedule(CONVEX, 0.5),
        projector=ClosedForm(),
    )
    text = str(certificate)
    assert text.splitlines()[0].split() == [
        "measure",
        "value",
        "bound",
        "holds",
        "source",
    ]
    for name in names(certificate):
        assert name in text
    assert "Theorem 2 at x_hat" in text
    assert "multipliers: disc=0" in text


def same_bits(a: Tensor, b: Tensor) -> bool:
    kind = torch.int32 if a.dtype == torch.float32 else torch.int64
    return torch.equal(a.detach().view(kind), b.view(kind))


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_trace_is_left(dtype: torch.dtype, *, convex: bool) -> None:
    problem = nearest((-0.0, 0.4999999), dtype)
    w = problem.parameters[0]
    w.grad = torch.full_like(w, 7.0)
    bits, state = snapshot([w])[0], torch.get_rng_state()
    if convex:
        certify(problem, constants=CONVEX, projector=ClosedForm())
    else:
        generator = torch.Generator().manual_seed(1)
        certify(problem, constants=NONCONVEX, generator=generator)
    assert same_bits(w, bits)
    assert w.grad.tolist() == [7.0, 7.0]
    assert w.requires_grad
    assert torch.equal(torch.get_rng_state(), state)


def test_one_flat_tensor_or_many(build: Callable[..., Any]) -> None:
    flat, many = (build(9, 6, constraints=3, split=s) for s in (False, True))
    a, b = (moreau_residual(case.problem, weak_convexity=1.0) for case in (flat, many))
    assert a.value == pytest.approx(b.value, abs=a.error + b.error)
    kkt = [certify(case.problem)["KKT residual"].value for case in (flat, many)]
    assert kkt[0] == pytest.approx(kkt[1], rel=1e-12)


def test_a_bound_holds_only_at_the_far_end_of_the_error() -> None:
    measure = Measure("m", 1.0, bound=1.5, error=0.4)
    assert measure.holds is True
    assert dataclasses.replace(measure, error=0.6).holds is False
    lower = Measure("m", 1.0, bound=0.5, error=0.4, at_least=True)
    assert lower.holds is True
    assert dataclasses.replace(lower, error=0.6).holds is False
    assert ">= 5.000e-01" in str(Certificate((lower,), {}))
