"""What a projection says of itself where a review found it wrong."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import softplus

import oneproj
from oneproj import Status
from oneproj.projection import Cuts

SETS = oneproj.sets


@pytest.mark.filterwarnings("ignore:Rounding decides")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_within_a_set_proves_no_emptiness(dtype: torch.dtype) -> None:
    """An equality through a known point of the box, by two convex bounds."""
    for seed in range(25):
        generator = torch.Generator().manual_seed(seed)
        w, a, known, off = (
            torch.randn(size, generator=generator).to(dtype) for size in (3, 3, 3, ())
        )
        w, off = (10 * w).requires_grad_(), 100 * off
        level = float((a * known).sum() + off)

        def above(
            w: torch.Tensor = w, a: torch.Tensor = a, off: torch.Tensor = off
        ) -> torch.Tensor:
            return (a * w).sum() + off

        stated = {
            "hi": oneproj.function(above, curvature="convex") <= level,
            "lo": oneproj.function(lambda f=above: -f(), curvature="convex") <= -level,
            "box": SETS.Box(lower=-5.0, upper=5.0).on(w),
        }
        done = oneproj.project(w, stated, on_failure="return")
        assert done.status is not Status.PROVEN_INFEASIBLE, seed


def test_a_function_that_seems_linear_beside_a_set_is_judged_at_the_answer() -> None:
    w = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)

    def dented() -> torch.Tensor:
        return w[0] - 0.19 * torch.relu(1 - ((w[0] - 0.05) / 0.3) ** 2)

    box = SETS.Box(lower=-10.0, upper=10.0).on(w)
    done = oneproj.project(w, {"box": box, "c": oneproj.function(dented) <= 0.0})
    assert done.distance == pytest.approx(1.83697, rel=1e-4)
    assert done.multipliers["c"] == 0 or done.residuals["c"] > -1e-6


def test_a_proven_minimum_is_not_taken_for_a_step_function() -> None:
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    disc = oneproj.function(lambda: w.square().sum(), curvature="convex") <= -1.0
    done = oneproj.project(w, {"disc": disc}, on_failure="return")
    assert done.status is Status.PROVEN_INFEASIBLE
    assert "step function" not in done.remark
    assert not done.is_nearest


def test_warm_starts_with_little_memory_go_on() -> None:
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(30, generator=generator).requires_grad_()
        A, B = torch.randn(2, 8, 30, generator=generator)
        stated = {
            "a": oneproj.function(lambda A=A, w=w: (A @ w).square().mean()) <= 0.3,
            "b": oneproj.function(lambda B=B, w=w: softplus(B @ w).mean()) <= 0.75,
            "size": SETS.Ball(4.0).on(w),
        }
        projector = Cuts(memory=3).warm()
        for _ in range(4):
            oneproj.project(w, stated, projector=projector, on_failure="return")
            with torch.no_grad():
                w += torch.randn(30, generator=generator)


def test_a_search_that_gave_up_its_sets_leaves_no_warm_start() -> None:
    w = torch.tensor([3.0, 0.0], dtype=torch.float64, requires_grad=True)

    def holed() -> torch.Tensor:
        x, y = w.tolist()
        value = w[0].square() + 0.1 * w[1].square()
        return value * torch.nan if 0.99 <= x <= 1.0 or y > 0.5 else value

    box = SETS.Box(lower=-1.0, upper=1.0).on(w)
    stated = {"box": box, "c": oneproj.function(holed) <= 0.25}
    projector = Cuts().warm()
    for start in (3.0, -3.0, 2.5):
        with torch.no_grad():
            w.copy_(torch.tensor([start, 0.0]))
        done = oneproj.project(w, stated, projector=projector)
        assert max(done.residuals.values()) <= 0
