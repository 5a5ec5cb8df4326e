"""The pipeline: iterate, select, project once, certify.

What every method owes is in ``tests/contracts/test_methods.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import Projection, Status
from oneproj.projection import AbstractProjector
from oneproj.theory import Schedule

Build = Callable[..., tuple[oneproj.Problem, Tensor]]


def nearest_in_ball(
    radius: float = 10.0, dtype: torch.dtype = torch.float32
) -> tuple[oneproj.Problem, Tensor]:
    """min |w - (3, 4)|^2 in the unit ball: the answer is (0.6, 0.8), mu = 8."""
    w = torch.tensor([0.3, -0.2], dtype=dtype, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=dtype)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={"size": oneproj.sets.Ball(1.0).on(w)},
        radius=radius,
    )
    return problem, w


def regression(rows: int = 200) -> tuple[oneproj.Problem, Tensor]:
    """Least squares over data with a halfspace that cuts the solution off."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    y = x @ torch.tensor([1.0, 1.0, 0.0]) + 0.1 * torch.randn(rows, generator=generator)
    w = torch.zeros(3, requires_grad=True)
    half = oneproj.sets.Halfspace(torch.tensor([1.0, 1.0, 1.0]), offset=1.0)
    problem = oneproj.Problem(
        w,
        objective=oneproj.mean(lambda b: (b[0] @ w - b[1]).square(), data=(x, y)),
        constraints={"budget": half.on(w)},
        radius=5.0,
    )
    return problem, w


def test_the_certificate_of_the_known_solution_has_its_multiplier() -> None:
    # Projected SGD ends on the boundary, where the gradient 2 (w - target) is 8 long.
    problem, _ = nearest_in_ball()
    solution = oneproj.solve(problem, method="projected-sgd", steps=500)
    assert solution.certificate.multipliers["size"] == pytest.approx(8.0, rel=1e-3)
    assert solution.certificate["KKT residual"].value < 1e-3


def test_history_and_settings_tell_what_happened() -> None:
    problem, _ = regression()
    solution = oneproj.solve(problem, steps=75, seed=3)
    assert solution.history["update"] == list(range(1, 76))
    assert set(solution.history) == {"update", "objective", "seconds", "budget"}
    assert solution.settings["oracle"] == "exact"
    assert solution.settings["options"]["strength"] == "auto"
    assert solution.settings["inner_steps"] == 10
    assert solution.settings["defaults"] == {}
    assert solution.settings["seed"] == 3
    assert set(solution.seconds) == {"start", "train", "project", "certify"}
    plain = json.loads(json.dumps(solution.to_dict(), allow_nan=False))
    assert plain["feasible"] is True
    assert plain["counts"]["projections"] == 1
    text = str(solution)
    assert "residual: budget" in text
    assert "KKT residual" in text


def test_long_runs_keep_a_short_history() -> None:
    problem, _ = nearest_in_ball()
    solution = oneproj.solve(problem, steps=2500)
    updates = solution.history["update"]
    assert len(updates) <= 1000
    assert updates[-1] == 2500


def test_ctrl_c_inside_a_projected_update_still_ends_feasible() -> None:
    class Interrupted(AbstractProjector):
        name = "interrupted"
        calls = 0

        def accepts(self, constraints: object) -> None:
            del constraints

        def project(self, parameters: list[Tensor], constraints: object) -> Projection:
            self.calls += 1
            if self.calls == 3:
                with torch.no_grad():
                    parameters[0].fill_(1e6)  # on its way
                raise KeyboardInterrupt
            return oneproj.project(parameters, constraints)

    problem, _ = nearest_in_ball()
    with pytest.warns(oneproj.OneprojWarning, match="Ctrl-C ended this run after upd"):
        solution = oneproj.solve(
            problem, method="projected-sgd", projector=Interrupted(), steps=50
        )
    assert solution.status is Status.INTERRUPTED
    assert solution.feasible
    assert solution.projection.distance < 1.0, "from the iterate, not from 1e6"


def test_a_schedule_is_executed_to_the_letter(short_schedule: Schedule) -> None:
    problem, w = nearest_in_ball(radius=1.0)
    x0 = w.detach().clone()
    solution = oneproj.solve(problem, schedule=short_schedule, seed=5)
    assert solution.counts.objective_gradients == short_schedule.gradient_calls
    assert solution.counts.projections == 1
    assert not torch.equal(w.detach(), x0)


def test_a_schedule_refuses_what_would_change_it(short_schedule: Schedule) -> None:
    cases = (
        ({"steps": 10}, 1.0, "steps=10 or a schedule, not both"),
        ({"lr": 0.1}, 1.0, "no option may be given"),
        ({"oracle": "minibatch"}, 1.0, "seen exactly"),
        ({"lr": 0.05}, 1.0, "no option may be given"),
        ({"method": "projected-sgd"}, 1.0, "cannot follow a schedule"),
        ({}, 2.0, "ball of radius 1.0, the problem has radius 2.0"),
    )
    for arguments, radius, message in cases:
        problem, _ = nearest_in_ball(radius=radius)
        with pytest.raises(oneproj.InvalidProblemError, match=message):
            oneproj.solve(problem, schedule=short_schedule, **arguments)


def test_steps_that_do_not_fill_outer_iterations_are_said() -> None:
    problem, _ = nearest_in_ball()
    with pytest.warns(oneproj.OneprojWarning, match="last 10 updates end inside"):
        oneproj.solve(problem, steps=60, inner_steps=25)
    with pytest.raises(oneproj.InvalidProblemError, match="no outer iteration would"):
        oneproj.solve(problem, steps=20, inner_steps=25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "sgd"}, "no method 'sgd'. Known: one-projection, projected-sgd"),
        ({"oracle": "psychic"}, "no oracle 'psychic'"),
        ({"projector": "magic"}, "no projector 'magic'"),
        ({"steps": 100.0}, "steps must be a whole number"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"inner_steps": 2.5}, "inner_steps must be a whole number"),
        ({"inner_steps": 0}, "inner_steps must be a whole number"),
        ({"seed": None}, "seed must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"method": "projected-sgd", "lr": math.nan}, "lr must be one finite number"),
        ({"on_failure": "ignore"}, "on_failure must be .* got 'ignore'"),
        ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1"),
        ({"learning_rate": 1}, "no option 'learning_rate'. It has: lr, decay"),
        ({"strength": -1.0}, "strength must be one finite number > 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    problem, _ = nearest_in_ball()
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(problem, **arguments)


@pytest.mark.parametrize(("rows", "expected"), [(100, "exact"), (9000, "anchored")])
def test_the_settings_say_which_oracle_was_chosen(rows: int, expected: str) -> None:
    x = torch.linspace(-1, 1, rows)
    w = torch.tensor([1.0], requires_grad=True)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: w.square().sum()),
        constraints={"cap": oneproj.mean(lambda b: b * w, data=x) <= 1.0},
    )
    solution = oneproj.solve(problem, steps=20)
    assert solution.settings["oracle"] == expected


def test_a_schedule_needs_the_theorems_assumptions(short_schedule: Schedule) -> None:
    w = torch.tensor([0.9, 0.0], requires_grad=True)
    ball = oneproj.sets.Ball(0.5).on(w)
    problem = oneproj.Problem(w, oneproj.function(w.sum), {"size": ball}, radius=1.0)
    with pytest.raises(oneproj.InvalidProblemError, match="start from a feasible"):
        oneproj.solve(problem, schedule=short_schedule)
    two = {"a": oneproj.function(w.sum) <= 1.0, "b": oneproj.function(w.norm) <= 1.0}
    problem = oneproj.Problem(w, oneproj.function(w.sum), two, radius=1.0)
    with pytest.raises(oneproj.InvalidProblemError, match="one differentiable"):
        oneproj.solve(problem, schedule=short_schedule)


@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_a_stopped_run_carries_no_guarantee(short_schedule: Schedule) -> None:
    w = torch.tensor([0.3, -0.2], requires_grad=True)
    objective = oneproj.function(lambda: 1e-4 * w.sum())  # as flat as claimed
    size = {"size": oneproj.sets.Ball(1.0).on(w)}
    problem = oneproj.Problem(w, objective, size, radius=1.0)
    whole = oneproj.solve(problem, schedule=short_schedule)
    assert whole.certificate["Moreau residual"].bound == 1.0
    problem, _ = nearest_in_ball(radius=1.0)
    stop = {"callbacks": lambda update: update.update == 2}
    solution = oneproj.solve(problem, schedule=short_schedule, **stop)
    assert solution.status is Status.INTERRUPTED
    assert "Moreau residual" not in solution.certificate
    assert solution.history["update"][-1] == 2, "the last update is on record"


def test_a_projector_is_not_taken_at_its_word() -> None:
    class Boasts(AbstractProjector):
        name = "boasts"

        def accepts(self, constraints: object) -> None:
            del constraints

        def project(self, parameters: object, constraints: object) -> Projection:
            del parameters, constraints
            return Projection(Status.FEASIBLE, 0.0, {"size": -1.0}, {}, 1)

    problem, w = nearest_in_ball()
    w.data.fill_(2.0)  # a feasible start would be returned
    with pytest.raises(oneproj.InfeasibleError, match="'size'"):
        oneproj.solve(problem, projector=Boasts(), steps=50, strength=0.1)
    assert w.norm().item() > 1.0, "trained, and not projected"
    solution = oneproj.solve(
        problem, projector=Boasts(), steps=50, strength=0.1, on_failure="return"
    )
    assert solution.status is Status.INFEASIBLE
    assert not solution.feasible


# --- failure ------------------------------------------------------------------


def negative_risk(curvature: str | None) -> tuple[oneproj.Problem, Tensor]:
    """A logistic risk that is to be negative: it is lowest at infinity."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    y = torch.sign(x[:, 0])
    w = torch.full((3,), 0.1, dtype=torch.float64, requires_grad=True)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return torch.nn.functional.softplus(-batch[1] * (batch[0] @ w))

    problem = oneproj.Problem(
        w,
        objective=oneproj.mean(lambda b: (b[0] @ w - b[1]).square(), data=(x, y)),
        constraints={"risk": oneproj.mean(loss, (x, y), curvature=curvature) <= -1.0},
        radius=4.0,
    )
    return problem, w


@pytest.mark.parametrize("method", ["one-projection", "projected-sgd", "slsqp"])
@pytest.mark.parametrize("curvature", ["convex", None])
@pytest.mark.filterwarnings("ignore:SLSQP stopped early")
def test_a_failed_projection_leaves_the_trained_point_and_says_so(
    method: str, curvature: str | None
) -> None:
    problem, w = negative_risk(curvature)
    message = r"'risk'.*at a distance of \d.*where they were before this projection"
    with pytest.raises(oneproj.InfeasibleError, match=message):
        oneproj.solve(problem, method=method, steps=40)
    assert w.detach().norm() <= 4.0, "the safeguard ball holds what was trained"
    problem, w = negative_risk(curvature)
    solution = oneproj.solve(problem, method=method, steps=40, on_failure="return")
    assert not solution.status.ok
    assert w.detach().norm() <= 4.0
    assert solution.residuals == problem.residuals()
    assert solution.projection.distance > 10.0, "the best residual is far away"
    assert solution.projection.residuals["risk"] < solution.residuals["risk"]
    assert solution.certificate["feasibility"].value == solution.residuals["risk"]
    assert f"{solution.projection.distance:.3e} away" in str(solution)


def test_what_failed_carries_no_guarantee(
    gives_up: AbstractProjector, short_schedule: Schedule
) -> None:
    problem, _ = nearest_in_ball(radius=1.0)
    with pytest.warns(oneproj.OneprojWarning, match="start.*smaller epsilon"):
        solution = oneproj.solve(problem, schedule=short_schedule, projector=gives_up)
    assert solution.status is Status.START
    assert "Moreau residual" not in solution.certificate


def test_a_scheduler_may_cycle_the_momentum_of_a_step_that_has_one() -> None:
    momenta: list[float] = []

    def one_cycle(
        optimizer: torch.optim.Optimizer,
    ) -> torch.optim.lr_scheduler.LRScheduler:
        made = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
        optimizer.register_step_pre_hook(
            lambda *_: momenta.append(optimizer.param_groups[0]["momentum"])
        )
        return made

    problem, _ = nearest_in_ball()
    start = problem.objective.value()
    solution = oneproj.solve(
        problem, method="penalty-sgd", steps=40, base="momentum", decay=one_cycle
    )
    assert solution.status is Status.FEASIBLE
    assert solution.objective < start
    assert len(momenta) == 40
    assert momenta[0] == pytest.approx(0.95)
    assert min(momenta) == pytest.approx(0.85, abs=1e-3)


def test_solve_works_under_no_grad() -> None:
    problem, _ = nearest_in_ball()
    with torch.no_grad():
        assert oneproj.solve(problem, steps=50).feasible


@pytest.mark.parametrize(
    ("argument", "match"),
    [
        ({"inner_steps": 1}, "inner_steps=1 would return the start.*2 or more"),
        ({"lr": "0.1"}, "lr must be one finite number >= 0, got '0.1'"),
        ({"prox_weight": None}, "prox_weight must be one .* got None"),
        ({"strength": None}, "strength must be one .* got None"),
        ({"method": "penalty-sgd", "lr": "0.1"}, "lr must be one .* got '0.1'"),
        ({"schedule": 3}, "schedule must be made by oneproj.theory.*got 3"),
        ({"base": torch.optim.LBFGS}, "without a closure, but it made a LBFGS"),
        ({"base": lambda groups: groups}, "without a closure, but it made a list"),
    ],
)
def test_arguments_of_another_kind_are_named(argument: Any, match: str) -> None:  # noqa: ANN401 - anything
    problem, w = nearest_in_ball()
    with pytest.raises(oneproj.InvalidProblemError, match=match):
        oneproj.solve(problem, **({"steps": 4} | argument))
    assert w.tolist() == nearest_in_ball()[1].tolist()
