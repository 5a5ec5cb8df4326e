"""A search ends where gradients change nothing but rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.errors import InfeasibleError
from oneproj.problem.terms import AbstractTerm

WIDE = torch.float64
FEW = 150
"""Full gradients within which a search that cannot succeed has to end."""


def touching(
    n: int, kind: str, w: Tensor, generator: torch.Generator
) -> Mapping[str, AbstractTerm]:
    """Two balls with one point in common, as sets or as functions of the point."""
    a, b = (
        scale * torch.randn(n, generator=generator, dtype=WIDE) for scale in (1.0, 4.0)
    )
    other = float((a - b).norm()) - 1.0
    if kind == "sets":
        balls = oneproj.sets.Ball(1.0, center=a), oneproj.sets.Ball(other, center=b)
        return {"a": balls[0].on(w), "b": balls[1].on(w)}
    to_a = oneproj.function(lambda: torch.dist(w, a), curvature="convex")
    to_b = oneproj.function(lambda: torch.dist(w, b), curvature="convex")
    return {"a": to_a <= 1.0, "b": to_b <= other}


@pytest.mark.parametrize("kind", ["sets", "functions"])
@pytest.mark.parametrize("n", [3, 10])
def test_balls_that_touch_end_soon_at_the_common_point(n: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(n)
    w = (3 * torch.randn(n, generator=generator, dtype=WIDE)).requires_grad_()
    constraints = touching(n, kind, w, generator)
    done = oneproj.project(w, constraints, on_failure="return")
    assert done.gradients <= FEW
    assert max(done.residuals.values()) <= 1e-9
    # Within rounding the point may or may not be feasible: the processor decides.
    assert done.status.ok or "rounding" in done.remark


def test_an_error_says_that_only_rounding_is_in_the_way() -> None:
    messages = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        w = (3 * torch.randn(8, generator=generator, dtype=WIDE)).requires_grad_()
        try:
            oneproj.project(w, touching(8, "functions", w, generator))
        except InfeasibleError as error:
            messages.append(str(error))
    assert messages
    assert all("level of rounding" in message for message in messages)


# What float64 says of bfloat16's arithmetic is another test's concern.
@pytest.mark.filterwarnings("ignore:Rounding decides about the constraint")
@pytest.mark.parametrize("seed", range(12))
def test_a_risk_in_bfloat16_is_met_in_a_few_gradients(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(200, 8, generator=generator)
    noise = 0.3 * torch.randn(200, generator=generator)
    y = (X[:, 0] + noise > 0).float()
    w = (0.3 * torch.randn(8, generator=generator)).bfloat16().requires_grad_()

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        scores = (batch[0] @ w).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(
            scores, batch[1], reduction="none"
        )

    for share in (0.999, 0.99, 0.9):
        risk = oneproj.mean(loss, (X.bfloat16(), y), curvature="convex")
        start = w.detach().clone()
        done = oneproj.project(w, {"risk": risk <= share * risk.value()})
        assert done.residuals["risk"] <= 0
        assert done.gradients <= 60
        with torch.no_grad():
            w.copy_(start)


@pytest.mark.parametrize("seed", range(2))
def test_a_cap_below_what_a_network_can_reach_ends_soon(seed: int) -> None:
    # Every input has both labels: no risk is below log 2.
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(60, 19, generator=generator).repeat(2, 1)
    y = torch.arange(2.0).repeat_interleave(60)
    sizes = (15, 19), (15,), (1, 15), (1,)
    W, b, V, c = (
        (torch.randn(size, generator=generator) / 5).requires_grad_() for size in sizes
    )
    assert sum(p.numel() for p in (W, b, V, c)) == 316

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        scores = ((batch[0] @ W.T + b).tanh() @ V.T + c).squeeze(-1)
        return torch.nn.functional.binary_cross_entropy_with_logits(
            scores, batch[1], reduction="none"
        )

    cap = oneproj.mean(loss, (X, y)) <= 0.8 * math.log(2)
    done = oneproj.project([W, b, V, c], {"risk": cap}, on_failure="return")
    assert not done.status.ok
    assert done.residuals["risk"] <= 1.01 * 0.2 * math.log(2), "the least is reached"
    assert done.gradients <= FEW
