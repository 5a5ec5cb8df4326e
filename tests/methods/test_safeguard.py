"""The safeguard ball as a constraint of the projection."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

import oneproj
from oneproj import OneprojWarning, Projection
from oneproj.problem import AbstractTerm
from oneproj.projection import AbstractProjector
from oneproj.vectors import Vector

NAME = "safeguard ball"


class Recorder(AbstractProjector):
    """Projects as the library does, and keeps the constraints that it was given."""

    name = "recorder"

    def __init__(self) -> None:
        self.given: Mapping[str, AbstractTerm] = {}

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> None:
        del constraints

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        self.given = constraints
        return oneproj.project(parameters, constraints)


def given(problem: oneproj.Problem) -> Mapping[str, AbstractTerm]:
    """The constraints of the projection at the end of a run."""
    projector = Recorder()
    oneproj.solve(problem, steps=50, projector=projector)
    return projector.given


def pulled_out(radius: float, *, bound: float, center: list[float]) -> oneproj.Problem:
    """Minimise the distance to (3, 0) where x_1 >= bound: the ball is in the way."""
    w = torch.tensor([0.1, 0.0], dtype=torch.float64, requires_grad=True)
    goal = torch.tensor([3.0, 0.0], dtype=torch.float64)
    return oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - goal).square().sum()),
        constraints={"up": oneproj.function(lambda: w[1], curvature="linear") >= bound},
        radius=radius,
        center=torch.tensor(center),
    )


@pytest.mark.parametrize("center", [[0.0, 0.0], [0.5, -0.5]])
@pytest.mark.parametrize("method", ["one-projection", "projected-sgd"])
def test_the_answer_is_the_solution_inside_the_ball(
    method: str, center: list[float]
) -> None:
    problem = pulled_out(1.0, bound=0.3, center=center)
    solution = oneproj.solve(problem, method=method, steps=300, progress=False)
    # On the sphere, as high as the constraint asks for and no higher.
    rise = 0.3 - center[1]
    exact = torch.tensor([center[0] + (1.0 - rise**2) ** 0.5, 0.3])
    (w,) = problem.parameters
    assert solution.feasible
    assert NAME not in solution.certificate
    torch.testing.assert_close(w.detach().float(), exact, atol=0.02, rtol=0)


def test_the_constraints_come_first_where_the_ball_has_no_feasible_point() -> None:
    problem = pulled_out(1.0, bound=2.0, center=[0.0, 0.0])
    with pytest.warns(OneprojWarning, match="outside the safeguard ball"):
        solution = oneproj.solve(problem, steps=50, progress=False)
    assert solution.feasible
    # Two calls of the projector, both counted, and the reader is told why.
    assert solution.counts.projections == 2
    reason = "Two projections: the first was onto what is feasible and in the safeg"
    assert reason in str(solution)
    assert reason in str(solution.projection)


def test_what_is_feasible_and_in_the_ball_takes_one_projection() -> None:
    problem = pulled_out(1.0, bound=0.3, center=[0.0, 0.0])
    solution = oneproj.solve(problem, steps=50, progress=False)
    assert solution.counts.projections == 1
    assert solution.projection.remark == ""
    assert "Two projections" not in str(solution)


def test_the_ball_is_a_constraint_at_its_edge_and_not_far_from_it() -> None:
    at_the_edge = given(pulled_out(1.0, bound=0.3, center=[0.0, 0.0]))
    assert list(at_the_edge) == ["up", NAME]
    assert list(given(pulled_out(9.0, bound=0.3, center=[0.0, 0.0]))) == ["up"]


def test_the_ball_has_the_gradient_of_the_distance() -> None:
    problem = pulled_out(5.2, bound=0.0, center=[-3.0, -4.0])
    ball = given(problem)[NAME]
    with torch.no_grad():
        problem.parameters[0].zero_()
    value, (gradient,) = ball.value_and_gradient(problem.parameters)
    assert value == pytest.approx(-0.2)
    assert gradient.tolist() == pytest.approx([0.6, 0.8])
