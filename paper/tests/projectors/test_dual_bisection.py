"""The paper's projector for linear scores: exact to its tolerance, with a proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.cuts import Cuts
from oneproj.results import Status
from oneproj.vectors.arithmetic import distance, snapshot
from oneproj_paper.projectors.dual_bisection import DualBisection
from oneproj_paper.projectors.example_dual import ROOM, ExampleDual

CAP = 0.5
LOSSES = {
    "logistic": (
        lambda score: torch.nn.functional.softplus(-score),
        lambda score: cp.logistic(-score),
    ),
    "hinge": (lambda score: (1 - score).clamp(min=0), lambda score: cp.pos(1 - score)),
}


class Scores:
    """Risk caps on linear scores; all on one weight vector, or each on its own."""

    def __init__(self, loss: str, seed: int, caps: int = 2, *, shared: bool) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(*size: int) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float64)

        self.loss, self.shared = loss, shared
        self.parameters = [draw(9).requires_grad_() for _ in range(caps)]
        self.data = [draw(60, 9) + 0.5 for _ in range(caps)]
        if shared:
            self.parameters = self.parameters[:1] * caps

    @property
    def moving(self) -> list[Tensor]:
        return self.parameters[:1] if self.shared else self.parameters

    def constraints(self) -> Mapping[str, AbstractTerm]:
        of_torch = LOSSES[self.loss][0]
        return {
            f"cap {j}": oneproj.mean(
                lambda x, w=w: of_torch(x @ w), data=data, curvature="convex"
            )
            <= CAP
            for j, (w, data) in enumerate(zip(self.parameters, self.data, strict=True))
        }

    def reference(self) -> tuple[float, list[float], list[Tensor]]:
        """Distance, multipliers and nearest point by clarabel."""
        of_cvxpy = LOSSES[self.loss][1]
        variables = [cp.Variable(9) for _ in self.moving]
        every = variables * (len(self.data) if self.shared else 1)
        starts = [w.detach().numpy() for w in self.moving]
        caps = [
            cp.sum(of_cvxpy(data.numpy() @ v)) / len(data) <= CAP
            for v, data in zip(every, self.data, strict=True)
        ]
        half = sum(
            cp.sum_squares(v - x) / 2 for v, x in zip(variables, starts, strict=True)
        )
        problem = cp.Problem(cp.Minimize(half), caps)
        problem.solve(solver=cp.CLARABEL)
        nearest = [torch.from_numpy(v.value) for v in variables]
        multipliers = [float(cap.dual_value) for cap in caps]
        return float(np.sqrt(2 * problem.value)), multipliers, nearest


def disc(bound: float = 1.0) -> tuple[list[Tensor], dict[str, AbstractTerm]]:
    w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    square = oneproj.function(lambda: w.square().sum(), curvature="convex")
    return [w], {"disc": square <= bound}


# --- the answer ---------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_separate_scores_agree_with_clarabel(loss: str, seed: int) -> None:
    scores = Scores(loss, seed, shared=False)
    far, multipliers, nearest = scores.reference()
    done = DualBisection().project(scores.moving, scores.constraints())
    assert done.status is Status.FEASIBLE
    assert max(done.residuals.values()) <= 0
    assert done.distance == pytest.approx(far, rel=1e-4)
    assert distance(scores.moving, nearest) <= 1e-3 * far
    assert list(done.multipliers.values()) == pytest.approx(
        multipliers, rel=1e-3, abs=1e-6
    )
    assert done.lower_bound == pytest.approx(far, rel=1e-6)
    assert done.lower_bound <= done.distance
    assert done.kkt_residual < 1e-3


@pytest.mark.parametrize("loss", LOSSES)
def test_one_score_under_two_caps_agrees_with_clarabel(loss: str) -> None:
    scores = Scores(loss, 1, shared=True)
    far, _, _ = scores.reference()
    done = DualBisection().project(scores.moving, scores.constraints())
    assert done.status is Status.FEASIBLE
    assert done.distance == pytest.approx(far, rel=1e-3)
    assert done.lower_bound is not None
    assert far * (1 - 1e-3) <= done.lower_bound <= far * (1 + 1e-6)


@pytest.mark.parametrize(("loss", "most"), [("logistic", 35), ("hinge", 28)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_from_nearby_it_takes_few_looks(loss: str, most: int, seed: int) -> None:
    scores = Scores(loss, seed, shared=False)
    constraints = scores.constraints()
    DualBisection().project(scores.moving, constraints)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # as a step of Projected SGD would
        for w in scores.moving:
            w.add_(0.05 * torch.randn(9, generator=generator, dtype=w.dtype))
    far, _, _ = scores.reference()
    done = DualBisection().project(scores.moving, constraints)
    assert done.distance == pytest.approx(far, rel=1e-3)
    # 32 to 85 with bisection from 0 and every multiplier solved to the end.
    assert done.gradients <= most


def test_one_cap_agrees_with_cuts() -> None:
    scores = Scores("hinge", 5, caps=1, shared=False)
    constraints, start = scores.constraints(), snapshot(scores.moving)
    exact = Cuts().project(scores.moving, constraints)
    nearest = snapshot(scores.moving)
    with torch.no_grad():
        scores.moving[0].copy_(start[0])
    done = DualBisection().project(scores.moving, constraints)
    assert done.distance == pytest.approx(exact.distance, rel=1e-4)
    assert distance(scores.moving, nearest) <= 1e-3 * exact.distance
    assert done.multipliers == pytest.approx(dict(exact.multipliers), rel=1e-3)
    assert exact.gradients < done.gradients


def test_a_kink_at_the_solution() -> None:
    # |w_1| + |w_2| <= 1 from (3, 0.1): the corner (1, 0), which no gradient points to.
    w = torch.tensor([3.0, 0.1], dtype=torch.float64, requires_grad=True)
    size = oneproj.function(lambda: w.abs().sum(), curvature="convex")
    done = DualBisection().project([w], {"size": size <= 1.0})
    expected = torch.tensor([1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(w.detach(), expected, rtol=0, atol=3e-5)
    assert done.multipliers["size"] == pytest.approx(2.0, abs=1e-4)


# --- the settings -------------------------------------------------------------


def test_the_bisection_is_limited_and_then_still_feasible() -> None:
    parameters, constraints = disc()
    none = DualBisection(bisection_steps=0).project(parameters, constraints)
    parameters, constraints = disc()
    all_of_them = DualBisection().project(parameters, constraints)
    assert none.status is all_of_them.status is Status.FEASIBLE
    assert none.gradients < all_of_them.gradients
    assert none.distance > all_of_them.distance + 1e-3


def test_dual_steps_are_limited() -> None:
    # One step per multiplier: one look at the start, one per doubling and bisection.
    parameters, constraints = disc()
    done = DualBisection(bisection_steps=3, dual_steps=1).project(
        parameters, constraints
    )
    assert done.gradients <= 1 + 1 + 40 + 3


def test_a_looser_tolerance_costs_less() -> None:
    parameters, constraints = disc()
    loose = DualBisection(tolerance=1e-2).project(parameters, constraints)
    parameters, constraints = disc()
    tight = DualBisection(tolerance=1e-8).project(parameters, constraints)
    assert loose.gradients < tight.gradients
    assert loose.residuals["disc"] <= tight.residuals["disc"] <= 0
    assert tight.distance == pytest.approx(1.0, abs=1e-6)


def test_strict_aims_inside_and_the_papers_aim_is_reported_as_it_is() -> None:
    for strict in (True, False):
        parameters, constraints = disc()
        done = DualBisection(strict=strict, tolerance=1e-3).project(
            parameters, constraints
        )
        assert done.residuals["disc"] == constraints["disc"].value()
        assert done.status.ok == (done.residuals["disc"] <= 0)
        low, high = (-2e-3, 0.0) if strict else (-1e-3, 1e-3)
        assert low <= done.residuals["disc"] <= high


def test_constraints_that_interact_take_turns_and_cycles_limit_them() -> None:
    # Onto w_1 <= 0 and w_1 + w_2 <= 0 in turn, without end; the corner is (0, 0).
    done = []
    for cycles in (1, 100):
        w = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
        constraints = {
            "first": oneproj.function(lambda w=w: w[0], curvature="linear") <= 0.0,
            "sum": oneproj.function(w.sum, curvature="linear") <= 0.0,
        }
        done.append(DualBisection(cycles=cycles).project([w], constraints))
    few, many = done
    assert few.gradients < many.gradients
    assert few.lower_bound is not None
    assert many.lower_bound is not None
    exact = 1.25**0.5
    assert few.lower_bound < 0.99 * exact
    assert exact * (1 - 1e-4) <= many.lower_bound <= exact
    assert many.distance == pytest.approx(exact, rel=1e-4)
    assert list(many.multipliers.values()) == pytest.approx([0.5, 0.5], abs=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"bisection_steps": -1},
        {"bisection_steps": 2.5},
        {"dual_steps": 0},
        {"cycles": 0},
        {"cycles": float("inf")},
        {"tolerance": -1.0},
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidProblemError, match=f"{next(iter(settings))} must be "):
        DualBisection(**settings)


def test_only_declared_convexity_is_accepted() -> None:
    w = torch.ones(2, requires_grad=True)
    term = oneproj.function(w.sum, curvature="linear")
    assert DualBisection().accepts({"a": term <= 1.0, "b": term >= 0.0}) is None
    convex = oneproj.function(w.norm, curvature="convex")
    for bad in (convex >= 1.0, oneproj.function(w.norm) <= 1.0):
        reason = DualBisection().accepts({"fine": convex <= 1.0, "bad": bad})
        assert reason is not None
        assert reason.startswith("'bad' is not declared convex")


# --- failure ------------------------------------------------------------------


def test_a_feasible_start_costs_one_look() -> None:
    parameters, constraints = disc(4.0)
    done = DualBisection().project(parameters, constraints)
    assert (done.gradients, done.distance, done.multipliers["disc"]) == (1, 0.0, 0.0)


def test_an_empty_set_leaves_the_least_infeasible_point() -> None:
    parameters, constraints = disc(-1.0)
    done = DualBisection().project(parameters, constraints)
    assert done.status is Status.INFEASIBLE
    assert done.residuals["disc"] == constraints["disc"].value()
    assert done.residuals["disc"] == pytest.approx(1.0, abs=1e-6)
    assert done.gradients < 1000


def test_a_start_at_an_infeasible_minimum_stays() -> None:
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    square = oneproj.function(lambda: w.square().sum(), curvature="convex")
    done = DualBisection().project([w], {"disc": square <= -1.0})
    assert done.status is Status.INFEASIBLE
    assert (done.distance, done.residuals["disc"]) == (0.0, 1.0)


def test_caps_that_exclude_each_other_are_not_met() -> None:
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    value = oneproj.function(w.sum, curvature="linear")
    done = DualBisection(cycles=3).project(
        [w], {"low": value <= 0.0, "high": value >= 1.0}
    )
    assert done.status is Status.INFEASIBLE
    assert max(done.residuals.values()) <= 3.0


def test_nan_on_the_way_leaves_the_best_point() -> None:
    w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    # Convex where it has a value, and it has none below 0.
    entropy = oneproj.function(lambda: torch.dot(w, w.log()), curvature="convex")
    with pytest.raises(NonFiniteError):
        DualBisection().project([w], {"entropy": entropy <= -1.0})
    assert w.item() == 0.5


# --- the inner problem --------------------------------------------------------


def test_old_gradients_are_forgotten_and_the_best_stay() -> None:
    zero = [torch.zeros(1, dtype=torch.float64)]
    dual = ExampleDual(zero)
    dual.add(1.0, [torch.ones(1, dtype=torch.float64)])
    expected = dual.solve(mu=1.0)
    for _ in range(2 * ROOM):
        dual.add(-5.0, [torch.zeros(1, dtype=torch.float64)])
        assert dual.solve(mu=1.0) == expected
    assert dual.model == 0.0
    assert len(dual._a) == ROOM
