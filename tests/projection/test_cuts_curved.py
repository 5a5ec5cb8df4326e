"""Cuts on small curved problems with known answers: rings, bends, interruptions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.errors import NonFiniteError
from oneproj.problem.problem import named_constraints
from oneproj.projection.cuts import Cuts
from oneproj.results import Status


def point(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_linearisations_that_contradict_each_other_are_survived() -> None:
    # |y| >= 1 and y >= 0.5, so y >= 1. At y = -0.3 the first wants y to fall and the
    # second wants it to rise: both linearised, nothing satisfies them.
    w = point(0.2, -0.3)
    stated = {
        "outside": oneproj.function(lambda: 1.0 - w[1].square()) <= 0.0,
        "above": oneproj.function(lambda: 0.5 - w[1]) <= 0.0,
    }
    done = oneproj.project(w, stated)
    assert max(done.residuals.values()) <= 0
    assert w.tolist() == pytest.approx([0.2, 1.0], abs=1e-6)


def test_a_ring_is_reached_from_inside_and_outside() -> None:
    for start, expected in (((0.1, 0.0), 1.0), ((9.0, 0.0), 2.0)):
        w = point(*start)
        ring = {
            "hole": oneproj.function(w.norm) >= 1.0,
            "rim": oneproj.function(w.norm) <= 2.0,
        }
        done = oneproj.project(w, ring)
        assert done.status is Status.FEASIBLE
        assert w.tolist() == pytest.approx([expected, 0.0], abs=1e-8)


def test_curvature_that_rejects_full_steps_is_corrected() -> None:
    # Around a bend the full step leaves the set (the Maratos effect).
    for angle in (0.3, 1.0, 2.0, 3.0):
        w = point(3 * math.cos(angle), 3 * math.sin(angle))
        stated = {
            "circle": oneproj.function(lambda w=w: w.square().sum()) <= 1.0,
            "not inside": oneproj.function(lambda w=w: w.square().sum()) >= 0.99,
            "right": oneproj.function(lambda w=w: w[0] + 0.3 * w[1].sin()) >= 0.5,
        }
        done = oneproj.project(w, stated)
        assert done.status is Status.FEASIBLE
        assert done.gradients < 100


def test_trial_points_without_a_value_are_stepped_back_from() -> None:
    # log(x) <= -1 from x = 3: the first linearisation points to x < 0, where log is
    # NaN. The answer is 1/e.
    w = point(3.0)
    done = oneproj.project(w, {"log": oneproj.function(lambda: w.log().sum()) <= -1.0})
    assert done.residuals["log"] <= 0
    assert w.item() == pytest.approx(math.exp(-1), rel=1e-6)


def test_a_start_without_a_value_is_an_error_and_stays() -> None:
    w = point(-1.0)
    with pytest.raises(NonFiniteError, match="log"):
        oneproj.project(w, {"log": oneproj.function(lambda: w.log().sum()) <= -1.0})
    assert w.item() == -1.0


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("curvature", ["convex", None])
def test_an_interruption_leaves_the_best_point_so_far(
    interruption: type[BaseException], curvature: oneproj.problem.terms.Curvature | None
) -> None:
    for after in range(1, 6):
        w = point(3.0, 4.0, 1.0)
        seen: list[tuple[float, list[float]]] = []

        def bowl(
            w: Tensor = w,
            after: int = after,
            seen: list[tuple[float, list[float]]] = seen,
        ) -> Tensor:
            if len(seen) > after:
                raise interruption
            value = (w.square() * torch.tensor([1.0, 2.0, 5.0])).sum()
            seen.append((value.item(), w.tolist()))
            return value

        bowl_cap = named_constraints(
            {"bowl": oneproj.function(bowl, curvature=curvature) <= 1.0}
        )
        with pytest.raises(interruption):
            Cuts().project([w], bowl_cap)
        assert w.tolist() == min(seen)[1]


def test_an_interruption_of_a_second_search_leaves_the_best_point_of_both() -> None:
    # Cuts run out of gradients here, and the local search begins at the start again.
    a = torch.logspace(0, 6, 30, dtype=torch.float64)
    visited: list[int] = []
    for after in range(1, 25):
        w = torch.ones(30, dtype=torch.float64, requires_grad=True)
        seen: list[tuple[float, list[float]]] = []

        def bowl(
            w: Tensor = w,
            after: int = after,
            seen: list[tuple[float, list[float]]] = seen,
        ) -> Tensor:
            if len(seen) >= after:
                raise KeyboardInterrupt
            value = (a * w.square()).sum()
            seen.append((value.item(), w.tolist()))
            return value

        cap = named_constraints(
            {"bowl": oneproj.function(bowl, curvature="convex") <= 1.0}
        )
        with pytest.raises(KeyboardInterrupt):
            Cuts(max_evaluations=3).project([w], cap)
        assert w.tolist() == min(seen)[1]
        visited.append([point for _, point in seen].count([1.0] * 30))
    assert visited[-1] > visited[0]  # the second search began before the last of them
