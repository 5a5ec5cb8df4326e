"""The laboratory problems satisfy the assumptions and start where it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from oneproj.errors import InvalidProblemError
from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.bridge import as_problem
from oneproj_paper.laboratory.convex import AbstractConvexProblem
from oneproj_paper.laboratory.nonconvex import NonconvexProblem
from oneproj_paper.laboratory.objectives import Saddle, length
from oneproj_paper.laboratory.problems import all_problems, nonconvex_problem
from oneproj_paper.laboratory.proximal import Witness

PROBLEMS = all_problems()
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.key)


def ball_points(count: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).uniform(-1, 1, (2 * count, 2))
    return x[length(x) <= 1][:count]


@each_problem
def test_the_start_violates_the_claim(problem: AbstractLaboratoryProblem) -> None:
    assert problem.start_measure > problem.epsilon
    start = problem.start_point[None]
    assert not problem.meets(start, problem.set.project(start))[0]


@each_problem
def test_the_schedule_is_the_theorems_and_small(
    problem: AbstractLaboratoryProblem,
) -> None:
    schedule = problem.schedule
    assert schedule.within_theorem
    shorter = replace(schedule, inner_steps=schedule.inner_steps - 1)
    if shorter.smoothing is not None:
        shorter = replace(shorter, smoothing=1 / shorter.inner_steps)
    assert not shorter.within_theorem  # K is the smallest that the theorem allows
    assert schedule.gradient_calls < 2e10


@each_problem
def test_objective_constants_hold(problem: AbstractLaboratoryProblem) -> None:
    f = problem.objective
    x = np.concatenate([ball_points(20000, 0), [[-1.0, 0.0], [0.0, 1.0]]])
    v = f.gradient(x)
    assert length(v).max() <= f.lipschitz <= length(v).max() * 1.001
    for signs in np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]):
        assert length(v + problem.noise * signs).max() <= problem.gradient_bound
    circle = np.linspace(0, 2 * np.pi, 200_001)
    rim = np.stack([np.cos(circle), np.sin(circle)], axis=-1)
    lowest = min(f.value(x).min(), f.value(rim).min())
    assert f.minimum <= lowest + 1e-12
    assert lowest <= f.minimum + 1e-4


@each_problem
def test_weak_convexity_is_tight(problem: AbstractLaboratoryProblem) -> None:
    f, ell = problem.objective, problem.objective.weak_convexity

    def bowl(x: np.ndarray, weight: float) -> np.ndarray:
        return f.value(x) + 0.5 * weight * (x * x).sum(-1)

    x, y = ball_points(5000, 1), ball_points(5000, 2)
    gap = 0.5 * (bowl(x, ell) + bowl(y, ell)) - bowl((x + y) / 2, ell)
    assert gap.min() >= -1e-14
    less = 0.5 * (bowl(x, 0.9 * ell) + bowl(y, 0.9 * ell)) - bowl(
        (x + y) / 2, 0.9 * ell
    )
    assert less.min() < -1e-3


@each_problem
def test_solutions_are_feasible_stationary_and_accepted(
    problem: AbstractLaboratoryProblem,
) -> None:
    x = problem.solutions
    np.testing.assert_allclose(problem.set.value(x), 0, atol=1e-15)
    np.testing.assert_allclose(problem.measure(x), 0, atol=1e-12)
    assert problem.meets(x, problem.set.project(x)).all()


@pytest.mark.parametrize("problem", PROBLEMS[:2], ids=lambda p: p.key)
def test_convex_solutions_are_the_minimisers(problem: AbstractConvexProblem) -> None:
    x = problem.disc.project(ball_points(50_000, 3))
    best = problem.objective.value(problem.solutions)
    assert problem.objective.value(x).min() >= best.max() - 1e-12


@each_problem
def test_an_infeasible_output_is_a_failure(problem: AbstractLaboratoryProblem) -> None:
    x = problem.solutions
    assert not problem.meets(x, x * 1.0001).any()


def test_an_output_far_from_the_witness_is_a_failure() -> None:
    problem = nonconvex_problem()
    x = problem.solutions[:1]
    far = 2.01 * problem.epsilon / problem.schedule.prox_weight
    assert problem.meets(x, x * 0.999).all()
    assert not problem.meets(x, x - [[0.0, far]]).any()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w: replace(w, error=w.error + 1e-8),
        lambda w: replace(w, mu=w.mu + 100.0),
        lambda w: replace(w, mu=w.mu - 0.1),
        lambda w: replace(w, y=w.y + np.array([0.0, 1e-8])),
        lambda w: replace(
            w, y=w.y - np.array([0.0, 1e-3])
        ),  # mu g(y) is not 0 any more
        lambda w: replace(w, residual=w.residual + 0.951),
        lambda w: replace(w, v=w.v + 0.7),
    ],
)
def test_each_claim_about_the_witness_counts(
    spoil: Callable[[Witness], Witness], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = nonconvex_problem()
    x = problem.solutions[:1]
    output, witness = problem.set.project(x), problem.witness(x)
    assert problem.meets(x, output).all()
    spoiled = spoil(witness)
    monkeypatch.setattr(NonconvexProblem, "witness", lambda *_: spoiled)
    assert not problem.meets(x, output).any()


def test_the_third_start_is_infeasible_and_inside_the_dent() -> None:
    problem = nonconvex_problem()
    assert problem.set.value(problem.start_point) > 0.2


@each_problem
def test_the_library_sees_the_same_problem(problem: AbstractLaboratoryProblem) -> None:
    for x in ball_points(20, 4):
        w = torch.tensor(x, requires_grad=True)
        library = as_problem(problem, w)
        assert library.objective.value() == pytest.approx(problem.objective.value(x))
        g = library.residuals()["shape"]
        assert g == pytest.approx(float(problem.set.value(x)), abs=1e-15)
        (library.objective.batch_value(None)).backward()
        np.testing.assert_allclose(w.grad, problem.objective.gradient(x), atol=1e-14)


def test_a_saddle_outside_its_closed_forms_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="at least the descent"):
        Saddle(curvature=0.1, kink=0.0, center=0.5, descent=0.5)
