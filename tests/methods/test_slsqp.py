"""SLSQP behind the interface of a method."""

from __future__ import annotations

import gc
import math
import signal
import threading

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

import oneproj
from oneproj import Status, Update

CURVED = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])


def instance(
    dtype: torch.dtype = torch.float64,
) -> tuple[oneproj.Problem, Tensor]:
    """A smooth problem in three unknowns, with a curved and a flat constraint."""
    w = torch.tensor([0.5, -0.5, 0.25], dtype=dtype, requires_grad=True)
    A = torch.tensor(CURVED, dtype=dtype)
    objective = oneproj.function(lambda: (w - 2) @ A @ (w - 2) / 2 + w.exp().sum() / 9)
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    flat = oneproj.function(lambda: w[0] - w[2], curvature="linear")
    constraints = {"size": size <= 1.0, "flat": flat <= 0.1}
    return oneproj.Problem(w, objective, constraints), w


def reference() -> tuple[np.ndarray, float]:
    """The same, written down for SciPy by hand."""

    def f(x: np.ndarray) -> tuple[float, np.ndarray]:
        pull = CURVED @ (x - 2)
        return (x - 2) @ pull / 2 + np.exp(x).sum() / 9, pull + np.exp(x) / 9

    flat = np.array([-1.0, 0.0, 1.0])
    room = (
        {"type": "ineq", "fun": lambda x: 1.0 - x @ x, "jac": lambda x: -2.0 * x},
        {"type": "ineq", "fun": lambda x: 0.1 + flat @ x, "jac": lambda _: flat},
    )
    start = np.array([0.5, -0.5, 0.25])
    options = {"ftol": 1e-12}
    found = minimize(
        f, start, jac=True, method="SLSQP", constraints=room, options=options
    )
    assert found.success
    return found.x, found.fun


def test_it_agrees_with_scipy() -> None:
    x, f = reference()
    problem, w = instance()
    solution = oneproj.solve(problem, method="slsqp")
    np.testing.assert_allclose(w.detach().numpy(), x, atol=1e-6)
    assert solution.objective == pytest.approx(f, abs=1e-7)
    assert solution.certificate["KKT residual"].value < 1e-5


def test_low_precision_costs_accuracy_and_nothing_else() -> None:
    problem, _ = instance(torch.float32)
    solution = oneproj.solve(problem, method="slsqp")
    assert solution.feasible
    assert solution.objective == pytest.approx(reference()[1], abs=1e-4)


def test_its_own_answer_is_feasible_thanks_to_the_margin() -> None:
    problem, _ = instance()
    solution = oneproj.solve(problem, method="slsqp")
    assert all(r <= 0 for r in solution.projection.residuals_before.values())
    assert solution.projection.distance == 0.0


def test_an_update_is_an_iteration_and_each_iterate_is_the_next_start() -> None:
    problem, w = instance()
    seen: list[Update] = []
    points = [w.detach().clone()]

    def watch(update: Update) -> None:
        seen.append(update)
        points.append(w.detach().clone())

    solution = oneproj.solve(problem, method="slsqp", steps=6, callbacks=watch)
    assert solution.counts.objective_gradients == 6
    for x, update in zip(points, seen, strict=False):
        with torch.no_grad():
            w.copy_(x)
        assert update.objective == pytest.approx(problem.objective.value(), rel=1e-12)
        assert update.residuals == pytest.approx(problem.residuals(), rel=1e-12)


def test_what_is_evaluated_is_counted() -> None:
    problem, _ = instance()
    calls = dict.fromkeys(("values", "gradients", "objective gradients"), 0)

    def counting(term: object, name: str, key: str) -> None:
        inner = getattr(term, name)

        def counted(*arguments: object) -> object:
            calls[key] += 1
            return inner(*arguments)

        setattr(term, name, counted)

    for constraint in problem.constraints.values():
        counting(constraint, "value", "values")
        counting(constraint, "value_and_gradient", "gradients")
    counting(problem.objective, "value_and_gradient", "objective gradients")
    at_end: list[dict[str, int]] = []
    solution = oneproj.solve(
        problem, method="slsqp", callbacks=lambda _: at_end.append(dict(calls))
    )
    counts, projector = solution.counts, 2 * solution.projection.gradients
    used = at_end[-1]
    assert counts.objective_gradients == used["objective gradients"]
    assert counts.constraint_gradients == used["gradients"] + projector
    assert counts.constraint_passes == used["values"] + used["gradients"] + projector


def test_after_convergence_updates_cost_nothing() -> None:
    counts = []
    for steps in (100, 200):
        problem, _ = instance()
        counts.append(oneproj.solve(problem, method="slsqp", steps=steps).counts)
    assert counts[0] == counts[1]
    assert counts[0].objective_gradients < 50


def test_ctrl_c_during_a_line_search_leaves_the_last_iterate() -> None:
    # The first full step overshoots: exp(40) is worse than the start.
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    visited: list[float] = []

    def steep() -> Tensor:
        visited.append(w.item())
        if w.item() != 0.0 and visited.count(w.item()) == 1:
            signal.raise_signal(signal.SIGINT)
        return (w.exp() - 40.0 * w).sum()

    problem = oneproj.Problem(w, oneproj.function(steep), {})
    with pytest.warns(oneproj.OneprojWarning, match="Ctrl-C ended this run"):
        solution = oneproj.solve(problem, method="slsqp")
    assert solution.status is Status.INTERRUPTED
    assert visited[0] == 0.0
    assert set(visited) != {0.0}
    assert w.item() == 0.0


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_the_ball_is_a_constraint_too(shift: float) -> None:
    w = torch.full((2,), shift, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=torch.float64) + shift
    scale = torch.tensor([1.0, 5.0], dtype=torch.float64)
    center = torch.full((2,), shift, dtype=torch.float64)
    objective = oneproj.function(lambda: (w - target).square() @ scale)
    problem = oneproj.Problem(w, objective, {}, radius=1.0, center=center)
    oneproj.solve(problem, method="slsqp")
    # On the boundary, with minus the gradient along the outward normal.
    x = w.detach() - shift
    normal, slope = x / x.norm(), -2 * scale * (w.detach() - target)
    assert 1.0 - 1e-6 <= float(x.norm()) <= 1.0
    torch.testing.assert_close(slope / slope.norm(), normal, rtol=0, atol=1e-6)


def test_the_solver_is_gone_when_the_run_is_over() -> None:
    threads: set[threading.Thread] = set()

    def look(update: Update) -> bool:
        running = threading.enumerate()
        threads.update(t for t in running if t.name == "oneproj-solver")
        return update.update == 2

    oneproj.solve(instance()[0], method="slsqp", steps=50, callbacks=look)
    (thread,) = threads
    thread.join(timeout=5)
    assert not thread.is_alive()


def test_the_solver_is_gone_when_a_callback_raises() -> None:
    def fail(update: Update) -> None:
        raise RuntimeError(update.update)

    with pytest.raises(RuntimeError, match="1"):
        oneproj.solve(instance()[0], method="slsqp", callbacks=fail)
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "oneproj-solver":
            thread.join(timeout=5)
            assert not thread.is_alive()


def test_what_cannot_be_met_is_said() -> None:
    w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    total, again = (oneproj.function(w.sum, curvature="linear") for _ in range(2))
    objective = oneproj.function(lambda: w.square().sum())
    problem = oneproj.Problem(w, objective, {"low": total <= 0.0, "high": again >= 1.0})
    with pytest.warns(oneproj.OneprojWarning, match="SLSQP stopped early: .+ Kinks"):
        solution = oneproj.solve(problem, method="slsqp", on_failure="return")
    assert not solution.feasible


def test_more_parameters_than_a_dense_model_can_have_are_refused() -> None:
    w = torch.zeros(5001, requires_grad=True)
    problem = oneproj.Problem(w, oneproj.function(w.sum), {}, radius=1.0)
    with pytest.raises(
        oneproj.InvalidProblemError,
        match=r"cannot train 5001 parameters.*dense n x n.*1\.7 GB.*one-projection",
    ):
        oneproj.solve(problem, method="slsqp")


@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan, math.inf])
def test_a_tolerance_without_meaning_is_refused(tolerance: float) -> None:
    with pytest.raises(
        oneproj.InvalidProblemError, match="tolerance must be one finite"
    ):
        oneproj.solve(instance()[0], method="slsqp", tolerance=tolerance)


def test_a_run_ends_when_scipy_has_converged() -> None:
    problem, _ = instance()
    solution = oneproj.solve(problem, method="slsqp", steps=500)
    assert solution.status is Status.FEASIBLE
    assert len(solution.history["update"]) == solution.counts.objective_gradients < 50
    assert solution.settings["ended"] == "Optimization terminated successfully"
    problem, _ = instance()
    settings = oneproj.solve(problem, method="slsqp", steps=2).settings
    assert settings["ended"] == "stopped before it converged"


@pytest.mark.parametrize("bias", [-1.0, -3.0, -5.0, -8.0])
def test_a_saturated_rate_does_not_send_it_away(bias: float) -> None:
    """Linearised where its gradient is nearly zero, it asks for a step of 10^8."""
    generator = torch.Generator().manual_seed(100)
    x = torch.randn(500, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(500, generator=generator, dtype=torch.float64)
    sign = (x[:, 0] + 0.5 * noise).sign()
    w = torch.zeros(6, dtype=torch.float64)
    w[5] = bias
    w.requires_grad_()

    def scores(rows: torch.Tensor) -> torch.Tensor:
        return rows @ w[:5] + w[5]

    risk = oneproj.mean(
        lambda batch: torch.nn.functional.softplus(-batch[1] * scores(batch[0])),
        data=(x, sign),
    )
    recall = oneproj.mean(lambda rows: torch.sigmoid(5 * scores(rows)), x[sign > 0])
    problem = oneproj.Problem(w, risk, {"recall": recall >= 0.95})
    solution = oneproj.solve(problem, steps=500, method="slsqp")
    assert solution.objective == pytest.approx(0.3494528, rel=1e-5)  # from any start


@pytest.mark.parametrize("far", [50.0, 1000.0])
def test_a_linear_bound_that_is_far_away_takes_a_few_steps(far: float) -> None:
    w = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    objective = oneproj.function(lambda: (w - 1.0).square().sum())
    first = oneproj.function(lambda: w[0], curvature="linear")
    problem = oneproj.Problem(w, objective, {"first": first >= far})
    solution = oneproj.solve(problem, method="slsqp", steps=200)
    assert solution.objective == pytest.approx((far - 1.0) ** 2, rel=1e-6)
    assert solution.counts.objective_gradients <= 16  # 12 or 13 by rounding
