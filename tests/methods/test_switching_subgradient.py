"""The switching subgradient method."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.results import Update


def instance(start: tuple[float, float]) -> tuple[oneproj.Problem, Tensor]:
    """min |w - (3, 4)|^2, w_1 <= 1, 2 w_2 <= 2: the answer is (1, 1)."""
    w = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=torch.float64)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={
            "first": oneproj.function(lambda: w[0], curvature="linear") <= 1.0,
            "second": oneproj.function(lambda: 2 * w[1], curvature="linear") <= 2.0,
        },
    )
    return problem, w


def run(start: tuple[float, float], **options: object) -> tuple[Tensor, ...]:
    """The iterates x_1, ..., x_{N+1}, what was seen of the first N, and the answer."""
    problem, w = instance(start)
    path, seen = [w.detach().clone()], []

    def watch(update: Update) -> None:
        path.append(w.detach().clone())
        seen.append(update)

    options = {"steps": 60, "lr": 0.02} | options
    solution = oneproj.solve(
        problem, method="switching-subgradient", callbacks=watch, **options
    )
    return path, seen, solution, w.detach()


def test_each_step_is_on_the_objective_or_on_the_worst_constraint() -> None:
    path, seen, solution, _ = run((1.3, 1.2), decay="constant", tolerance=0.01)
    target = torch.tensor([3.0, 4.0], dtype=torch.float64)
    gradients = {
        "first": torch.tensor([1.0, 0.0], dtype=torch.float64),
        "second": torch.tensor([0.0, 2.0], dtype=torch.float64),
    }
    kinds = []
    for x, after, update in zip(path, path[1:], seen, strict=False):
        worst = max(update.residuals, key=update.residuals.get)
        violated = update.residuals[worst] > 0.01
        kinds.append(worst if violated else "objective")
        v = gradients[worst] if violated else 2 * (x - target)
        torch.testing.assert_close(after, x - 0.02 * v)
    assert set(kinds) == {"first", "second", "objective"}
    assert solution.counts.objective_gradients == kinds.count("objective")
    assert solution.counts.constraint_gradients == 60 - kinds.count("objective") + (
        solution.projection.gradients * 2
    )


def test_a_run_that_never_looked_at_the_objective_says_so() -> None:
    with pytest.warns(oneproj.OneprojWarning, match="none of the 4 updates was a step"):
        _, seen, solution, _ = run((1.3, 1.2), steps=4)
    assert all(math.isnan(update.objective) for update in seen)
    assert solution.counts.objective_gradients == 0
    assert solution.feasible


def test_where_nothing_is_violated_it_is_sgd() -> None:
    path, seen, solution, _ = run((-1.0, -1.0), steps=8, lr=0.01, decay="constant")
    x = torch.tensor([-1.0, -1.0], dtype=torch.float64)
    target = torch.tensor([3.0, 4.0], dtype=torch.float64)
    for after in path[1:]:
        x = x - 0.01 * 2 * (x - target)
        torch.testing.assert_close(after, x)
    assert solution.counts.objective_gradients == len(seen) == 8


def late_and_feasible(seen: list[Update]) -> list[int]:
    """The k > N/2 at which the method stepped on the objective."""
    steps = len(seen)
    return [
        k
        for k in range(1, steps + 1)
        if 2 * k > steps and max(seen[k - 1].residuals.values()) <= 0
    ]


@pytest.mark.parametrize("select", ["last", "average", "random"])
def test_the_answer_is_selected_among_feasible_iterates_of_the_second_half(
    select: str,
) -> None:
    # The set is convex and the tolerance 0: the projection has nothing left to do.
    path, seen, solution, answer = run((0.0, 0.0), select=select, decay="linear")
    kept = late_and_feasible(seen)
    assert len(kept) > 2
    assert solution.projection.distance == 0.0
    candidates = [path[k - 1] for k in kept]
    if select == "last":
        assert torch.equal(answer, candidates[-1])
    elif select == "random":
        assert any(torch.equal(answer, x) for x in candidates)
    else:
        sizes = torch.tensor([1 - (k - 1) / 60 for k in kept], dtype=torch.float64)
        expected = (sizes[:, None] * torch.stack(candidates)).sum(0) / sizes.sum()
        torch.testing.assert_close(answer, expected)


def test_the_average_of_the_theory_approaches_the_optimum_at_its_rate() -> None:
    # f(1, 1) = 13. Steps and tolerance of order 1 / sqrt(N), as Lan and Zhou have them.
    gaps = []
    for steps in (50, 800):
        lr = 0.5 / math.sqrt(steps)
        options = {"select": "average", "decay": "constant", "tolerance": lr}
        *_, solution, _ = run((0.0, 0.0), steps=steps, lr=lr, **options)
        gaps.append(solution.objective - 13.0)
    assert 0 <= gaps[1] <= gaps[0] / 2  # the rate alone would give a quarter
    assert gaps[1] < 0.1


@pytest.mark.parametrize("tolerance", [-1e-3, math.nan, math.inf])
def test_a_tolerance_without_meaning_is_refused(tolerance: float) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="tolerance must be one fin"):
        run((0.0, 0.0), tolerance=tolerance)
