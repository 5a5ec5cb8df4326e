"""The infeasible-slope check: it finds what is there, and does not invent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import InvalidProblemError, NonFiniteError
from oneproj.certificates.assumptions import Explorer, infeasible_slope
from oneproj.vectors import snapshot


def problem_of(
    functions: dict[str, tuple[Callable[[Tensor], Tensor], float]],
    point: list[float],
    dtype: torch.dtype = torch.float64,
    **ball: Any,  # noqa: ANN401
) -> oneproj.Problem:
    w = torch.tensor(point, dtype=dtype, requires_grad=True)
    return oneproj.Problem(
        w,
        oneproj.function(w.sum),
        {
            name: oneproj.function(lambda fn=fn: fn(w)) <= bound
            for name, (fn, bound) in functions.items()
        },
        **{"radius": 1.0} | ball,
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


DISC = {"disc": (lambda w: w.square().sum(), 0.25)}
RINGS = {"rings": (lambda w: (w.square().sum() - 0.25).square(), 1 / 64)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 3])
def test_a_disc_satisfies_the_condition(n: int, dtype: torch.dtype) -> None:
    # |grad| = 2|w| > 1 outside the disc of radius 1/2, and = 1 on its boundary.
    problem = problem_of(DISC, [0.0] * n, dtype)
    measure = infeasible_slope(problem, seeded(), claimed=1.0, samples=60)
    assert 1.0 <= measure.value <= 1.05
    assert measure.holds is True
    assert measure.details["violation"] is None
    assert measure.details["worst residual there"] > 0


def test_a_claim_that_is_too_bold_is_named() -> None:
    measure = infeasible_slope(problem_of(DISC, [0.0, 0.0]), seeded(), claimed=1.5)
    assert measure.holds is False
    assert "< 1.5 as claimed" in measure.details["violation"]


def test_a_claim_that_is_met_to_rounding_is_met() -> None:
    # The signed distance to a disc has slope 1 everywhere, in float32 give or take.
    w = torch.tensor([0.1, 0.2], requires_grad=True)
    disc = {"disc": oneproj.sets.Ball(0.5).on(w)}
    problem = oneproj.Problem(w, oneproj.function(w.sum), disc, radius=1.0)
    measure = infeasible_slope(problem, seeded(), claimed=1.0, samples=60)
    assert measure.value < 1.0
    assert measure.holds is True
    assert measure.details["violation"] is None
    assert (
        infeasible_slope(problem, seeded(), claimed=1.0001, samples=60).holds is False
    )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_an_infeasible_stationary_point_is_found(n: int) -> None:
    problem = problem_of(RINGS, [0.5] * n, radius=2.0)
    measure = infeasible_slope(problem, seeded(), samples=100)
    assert measure.details["violation"] == "the slope is zero at an infeasible point"
    where = measure.details["where"][0]
    assert where.norm() <= 1e-3
    assert measure.details["worst residual there"] == pytest.approx(3 / 64, abs=1e-3)


def test_a_point_held_by_the_ball_is_found() -> None:
    # w_0 <= -2 is out of reach: at (-1, 0) the ball blocks, although |grad g| = 1.
    problem = problem_of({"far": (lambda w: w[0], -2.0)}, [0.0, 0.0])
    measure = infeasible_slope(problem, seeded())
    assert measure.details["violation"] == "the slope is zero at an infeasible point"
    assert measure.details["on the safeguard ball"] is True
    assert measure.details["where"][0].tolist() == pytest.approx([-1.0, 0.0], abs=1e-3)


def test_on_the_surface_only_the_blocked_part_is_taken_off() -> None:
    # At (0.6, 0.8) with grad g = (0, 1): pointing out, so -grad g is free: slope 1.
    free = problem_of({"c": (lambda w: w[1], -9.0)}, [0.6, 0.8])
    # With grad g = (0, -1) the way is blocked: the tangential part has length 0.6.
    blocked = problem_of({"c": (lambda w: -w[1], -9.0)}, [0.6, 0.8])

    for problem, slope in ((free, 1.0), (blocked, 0.6)):
        sight = Explorer(problem).probe(snapshot(problem.parameters))
        assert sight.slope == pytest.approx(slope)
        assert sight.on_surface


def test_constraints_that_oppose_each_other_have_slope_zero_at_the_tie() -> None:
    # max(w + 1, 1 - w) = 1 + |w| has its infeasible minimum at the tie w = 0.
    pair = {"left": (lambda w: w.sum(), -1.0), "right": (lambda w: -w.sum(), -1.0)}
    measure = infeasible_slope(problem_of(pair, [0.0]), seeded())
    assert measure.value == 0.0


def test_where_nothing_is_infeasible_nothing_is_claimed() -> None:
    problem = problem_of({"loose": (lambda w: w.sum(), 9.0)}, [0.0])
    measure = infeasible_slope(problem, seeded(), claimed=1.0)
    assert measure.value == math.inf
    assert measure.holds is True
    assert measure.details["infeasible points"] == 0
    assert measure.details["where"] is None


def test_above_twenty_dimensions_it_only_samples() -> None:
    problem = problem_of(RINGS, [0.5] + [0.0] * 20)
    measure = infeasible_slope(problem, seeded(), samples=20)
    # No sample is close to the stationary point 0, and no search leads there.
    assert measure.value > 1e-3
    assert measure.details["points"] == 1 + 20 + 10 + 10


def test_work_is_counted() -> None:
    calls = 0

    def disc(w: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return w.square().sum()

    problem = problem_of({"disc": (disc, 0.25)}, [0.0, 0.0])
    calls = 0
    details = infeasible_slope(problem, seeded(), samples=8).details
    # A gradient is one more evaluation of the same function.
    assert details["constraint passes"] + details["constraint gradients"] == calls


def test_the_generator_decides_and_the_point_stays() -> None:
    problem = problem_of(RINGS, [-0.0, 0.5], radius=2.0)
    bits = snapshot(problem.parameters)[0]
    a, b, c = (
        infeasible_slope(problem, seeded(k), samples=8).details["where"][0]
        for k in (1, 1, 2)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    now = problem.parameters[0].detach()
    assert torch.equal(now.view(torch.int64), bits.view(torch.int64))


def test_a_ball_around_a_center_and_several_tensors() -> None:
    a, b = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (3, 4))
    problem = oneproj.Problem(
        [a, b],
        oneproj.function(a.sum),
        {"disc": oneproj.function(lambda: (a - 3).square() + (b - 4).square()) <= 0.25},
        radius=1.0,
        center=[torch.tensor([3.0]), torch.tensor([4.0])],
    )
    measure = infeasible_slope(problem, seeded(), samples=50)
    assert measure.value == pytest.approx(1.0, abs=0.05)
    where = [t.item() for t in measure.details["where"]]
    assert math.hypot(where[0] - 3, where[1] - 4) <= 1.0 + 1e-12


@pytest.mark.parametrize("bad", [{"radius": math.inf}, {"samples": 0}, {"none": True}])
def test_what_cannot_be_checked_is_refused(bad: dict[str, Any]) -> None:
    functions = {} if bad.get("none") else DISC
    problem = problem_of(functions, [0.0], radius=bad.get("radius", 1.0))
    with pytest.raises(
        InvalidProblemError, match="infeasible-slope condition is about"
    ):
        infeasible_slope(problem, seeded(), samples=bad.get("samples", 4))


def test_nan_is_named() -> None:
    problem = problem_of({"root": (lambda w: w.sqrt().sum(), 0.1)}, [0.5])
    with pytest.raises(NonFiniteError, match="'root'"):
        infeasible_slope(problem, seeded())
