"""The visited of a reference projector: what it accepts, and which point it keeps."""

from __future__ import annotations

import torch
from torch import Tensor

import oneproj
from oneproj.results import Status
from oneproj.vectors.arithmetic import assign
from oneproj_paper.projectors.visited import VisitedPoints


def on_a_line(*, strict: bool) -> tuple[Tensor, VisitedPoints]:
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    return w, VisitedPoints(
        [w], {"w": oneproj.function(w.sum) <= 1.0}, 0.1, strict=strict
    )


def visit(w: Tensor, visited: VisitedPoints, value: float) -> None:
    assign([w], [torch.tensor([value])])
    visited.visit()


def test_the_nearest_accepted_point_is_kept_wherever_the_search_goes() -> None:
    w, visited = on_a_line(strict=True)
    for value in (2.0, 0.5, 0.75, 0.25, 1.5):
        visit(w, visited, value)
    done = visited.report()
    assert w.item() == 0.75
    assert done.status is Status.FEASIBLE
    assert (done.distance, done.residuals["w"]) == (2.25, -0.25)
    assert done.residuals_before["w"] == 2.0
    assert done.gradients == 6


def test_without_an_accepted_point_the_least_infeasible_is_kept() -> None:
    w, visited = on_a_line(strict=True)
    for value in (2.0, 1.0625, 5.0):
        visit(w, visited, value)
    done = visited.report()
    assert w.item() == 1.0625
    assert done.status is Status.INFEASIBLE
    assert done.residuals["w"] == 0.0625


def test_the_paper_accepts_a_tolerance_and_the_status_does_not() -> None:
    w, visited = on_a_line(strict=False)
    visit(w, visited, 0.5)
    visit(w, visited, 1.0625)  # nearer, and within the tolerance of 0.1
    assert visited.accepted
    assert visited.shift == 0.0
    done = visited.report()
    assert w.item() == 1.0625
    assert done.status is Status.INFEASIBLE
