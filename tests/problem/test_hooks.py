"""Hooks may watch gradients and mask them; what clips or scales them is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import InvalidProblemError


def constraint(w: Tensor) -> dict[str, oneproj.problem.Constraint]:
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    return {"size": size <= 1.0}


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "clipped": lambda slope: slope.clamp(-100.0, 100.0),  # longer than it is here
    "shortened": lambda slope: slope / max(1.0, float(slope.norm()) / 100.0),
    "scaled": lambda slope: 0.1 * slope,
    "reversed": lambda slope: -slope,
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_hook_that_changes_gradients_is_refused(kind: str) -> None:
    w = torch.full((3,), 2.0, requires_grad=True)
    w.register_hook(CHANGES[kind])
    with pytest.raises(InvalidProblemError, match=r"shape \(3,\) changes its gradient"):
        oneproj.project(w, constraint(w))
    objective = oneproj.function(lambda: (w - 3.0).square().sum())
    with pytest.raises(InvalidProblemError, match=r"handle\.remove\(\)"):
        oneproj.Problem(w, objective, {})


def test_a_mask_holds_and_a_hook_that_watches_goes_on_watching() -> None:
    w = torch.full((3,), 2.0, requires_grad=True)
    seen: list[Tensor] = []
    w.register_hook(lambda slope: slope * torch.tensor([1.0, 1.0, 0.0]))
    w.register_hook(seen.append)
    size = oneproj.function(lambda: w.square().sum(), curvature="convex") <= 5.0
    done = oneproj.project(w, {"size": size})
    assert w[2].item() == 2.0
    assert done.distance == pytest.approx(8**0.5 - 1, abs=1e-4)
    seen.clear()
    w.sum().backward()
    assert [slope.tolist() for slope in seen] == [[1.0, 1.0, 0.0]]


def test_a_hook_that_watches_a_loss_with_noise_is_not_said_to_change_it() -> None:
    w, seen = torch.full((3,), 2.0, requires_grad=True), list[Tensor]()
    w.register_hook(lambda slope: seen.append(slope.clone()))
    generator = torch.Generator().manual_seed(0)
    noisy = oneproj.function(lambda: w @ torch.randn(3, generator=generator))
    oneproj.Problem(w, noisy, constraint(w))
    assert seen


def test_a_hook_that_writes_into_the_gradient_is_seen() -> None:
    w = torch.full((3,), 2.0, requires_grad=True)
    handle = w.register_hook(lambda slope: slope.mul_(0.1))
    with pytest.raises(InvalidProblemError, match="changes its gradient"):
        oneproj.project(w, constraint(w))
    handle.remove()
    assert oneproj.project(w, constraint(w)).status.ok
