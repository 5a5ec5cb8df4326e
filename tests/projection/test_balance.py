"""Multipliers at answers that lie in sets."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.projection.report import relative_residual

SETS = oneproj.sets


def test_the_corner_of_a_set_has_the_normal_that_balances() -> None:
    """At (1, 0, 0) of the simplex, where its distance shows another one."""
    start = torch.tensor([2.0, 0.3, -0.4], dtype=torch.float64)
    w = start.clone().requires_grad_()
    # Not declared, curved, and active: w_0 <= 1 holds on the simplex anyway.
    curved = oneproj.function(lambda: w[0] - 0.1 * w[1].sin())
    constraints = {"mix": SETS.Simplex().on(w), "curved": curved <= 0.9}
    done = oneproj.project(w, constraints)
    assert max(done.residuals.values()) <= 0
    assert done.kkt_residual <= 1e-3
    mu = done.multipliers
    slope = torch.tensor([1.0, -0.1 * w[1].cos().item(), 0.0], dtype=torch.float64)
    normal = start - w.detach() - mu["curved"] * slope
    # What is left is a normal of the simplex there: its nearest point is the answer.
    back = SETS.Simplex().project(w.detach() + normal)
    assert torch.allclose(back, w.detach(), atol=1e-3)
    assert mu["mix"] == pytest.approx(normal.norm().item(), rel=1e-2)


def test_nothing_left_is_nothing_whatever_the_move() -> None:
    assert relative_residual(0.0, 0.0) == 0.0
    assert relative_residual(1.0, 0.0) == 1.0
