"""The engine: its error is a bound, its point feasible, its lower bound lower."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oneproj
from oneproj.certificates.strongly_convex import (
    BALL,
    Cut,
    Linearization,
    Minimum,
    Minorants,
    minimise,
)

FEW = settings(max_examples=15, derandomize=True, deadline=None, database=None)


class Quadratic:
    """H(y) = (1/2)(y - q)'A(y - q), eigenvalues in [m, M]; constraints by choice."""

    def __init__(self, seed: int, n: int, m: float, M: float) -> None:
        rng = np.random.default_rng(seed)
        Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
        eigenvalues = rng.uniform(m, M, size=n)
        eigenvalues[0] = m
        self.A = torch.tensor((Q * eigenvalues) @ Q.T)
        self.q = torch.tensor(rng.normal(size=n))
        self.m = m
        self.points: list[Tensor] = []
        self.cap = math.inf

    def __call__(self, y: list[Tensor]) -> Linearization:
        z = y[0]
        self.points.append(z)
        d = z - self.q
        h = self.A @ d
        value = 0.5 * float(d @ h)
        constraints = []
        if math.isfinite(self.cap):
            e = torch.zeros_like(z)
            e[0] = 1.0
            constraints.append(Cut(float(z[0]) - self.cap, [e], "cap", 1.0))
        return Linearization(y, [Cut(value, [h], "H", abs(value))], constraints)

    def minimise(
        self,
        anchor: Tensor | None = None,
        radius: float = math.inf,
        **options: Any,  # noqa: ANN401
    ) -> Minimum:
        w = torch.zeros_like(self.q, requires_grad=True)
        problem = oneproj.Problem(w, oneproj.function(w.sum), {}, radius=radius)
        origin = torch.zeros_like(self.q)
        start = [origin if anchor is None else anchor]
        return minimise(problem, self, self.m, start, origin=[origin], **options)


def never(upper: float, lower: float) -> bool:
    """End no search early; where it is given, cuts alone have to do."""
    del upper, lower
    return False


def distance_to(found: Minimum, q: Tensor) -> float:
    return float((found.best.point[0] - q).norm())


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 20),
    ratio=st.floats(1.0, 20.0),
    iterations=st.sampled_from([0, 3, 30, 300]),
    seed_point=st.booleans(),
)
def test_the_error_is_a_bound_at_every_budget(
    seed: int, n: int, ratio: float, iterations: int, *, seed_point: bool
) -> None:
    problem = Quadratic(seed, n, 0.5, 0.5 * ratio)
    enough = None if seed_point else never
    found = problem.minimise(max_iterations=iterations, enough=enough)
    assert distance_to(found, problem.q) <= found.error + 1e-14
    assert found.lower <= 1e-13
    assert found.evaluations == len(problem.points)
    if seed_point or (iterations == 300 and ratio <= 10):
        assert found.error <= 1e-6 * float(problem.q.norm())


def test_cuts_alone_close_the_gap() -> None:
    problem = Quadratic(1, 6, 1.0, 5.0)
    found = problem.minimise(enough=never)
    assert found.error <= 1e-6
    assert distance_to(found, problem.q) <= found.error


def test_the_ball_and_its_multiplier() -> None:
    # H = |y - q|^2 / 2: the solution is q/|q|, the multiplier |q| - 1.
    problem = Quadratic(2, 4, 1.0, 1.0)
    length = float(problem.q.norm())
    found = problem.minimise(radius=1.0)
    assert distance_to(found, problem.q / length) <= found.error <= 1e-6
    assert found.weights[BALL] == pytest.approx(length - 1.0, abs=1e-5)
    assert all(float(y.norm()) <= 1.0 + 1e-14 for y in problem.points)


def test_a_constraint_and_its_multiplier() -> None:
    # H = |y - q|^2 / 2 with y_0 <= q_0 - 1/2: the multiplier is 1/2, y = q - e/2.
    problem = Quadratic(3, 5, 1.0, 1.0)
    problem.cap = float(problem.q[0]) - 0.5
    anchor = torch.zeros(5, dtype=torch.float64)
    anchor[0] = problem.cap - 1.0
    found = problem.minimise(anchor)
    solution = problem.q.clone()
    solution[0] = problem.cap
    assert found.best.worst <= 0
    assert distance_to(found, solution) <= found.error <= 1e-6
    assert found.weights["cap"] == pytest.approx(0.5, abs=1e-5)


def test_enough_ends_the_search() -> None:
    problem = Quadratic(4, 10, 0.1, 10.0)
    found = problem.minimise(enough=lambda upper, lower: upper - lower < 1.0)
    full = problem.minimise(enough=never)
    assert found.evaluations < full.evaluations
    assert found.error > full.error


def test_a_function_that_is_less_convex_than_claimed_is_found_out() -> None:
    problem = Quadratic(5, 4, 0.1, 2.0)
    problem.m = 1.0  # claimed; true is 0.1
    assert problem.minimise().refuted == "H"
    assert Quadratic(5, 4, 0.1, 2.0).minimise().refuted is None


def test_forgetting_old_cuts_keeps_the_bound() -> None:
    problem = Quadratic(6, 3, 1.0, 4.0)
    origin = [torch.zeros(3, dtype=torch.float64)]
    minorants = Minorants(origin, 1.0, 1e-16)
    rng = np.random.default_rng(0)
    best, bounds = None, []
    for _ in range(200):
        seen = problem([torch.tensor(rng.normal(size=3))])
        minorants.add(seen.pieces[0], seen.point, curvature=1.0)
        best = seen if best is None or seen.value < best.value else best
        model = minorants.solve(best)
        bounds.append(model.lower)
    assert 128 <= len(minorants) <= 128 + 4
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(bounds))
    assert bounds[-1] <= 0.0
