"""Descent on what is violated: where it leads, when it gives up."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.projection import local
from oneproj.projection.descent import PATIENCE, descend
from oneproj.projection.view import View
from oneproj.terms import AbstractTerm


def banana(w: torch.Tensor) -> dict[str, AbstractTerm]:
    """A curved valley: |w_1 - w_0^2| small and w_0 <= -1, seen from the other end."""
    bent = oneproj.function(lambda: 10 * (w[1] - w[0].square()).square())
    left = oneproj.function(lambda: w[0])
    return {"valley": bent <= 0.01, "left": left <= -1.0}


def start() -> torch.Tensor:
    return torch.tensor([2.0, 4.0], dtype=torch.float64, requires_grad=True)


def test_it_reaches_a_feasible_point_and_the_view_knows_it() -> None:
    w = start()
    view = View([w], banana(w), differentiate_all=True)
    assert descend(view, looks=2000)
    assert view.best.worst <= 0
    assert max(c.value() for c in banana(view.best_point[0]).values()) <= 0


def test_an_empty_set_is_given_up_in_time() -> None:
    w = start()
    square = oneproj.function(lambda: w.square().sum())
    view = View([w], {"none": square <= -1.0}, differentiate_all=True)
    assert not descend(view, looks=5000)
    assert view.evaluations < 1000
    assert view.best.worst == pytest.approx(1.0, abs=1e-2)


def test_the_looks_are_limited() -> None:
    w = start()
    view = View([w], banana(w), differentiate_all=True)
    assert not descend(view, looks=3)
    assert view.evaluations == 1 + 3
    assert PATIENCE > 3


def test_projection_falls_back_on_it_and_improves_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Models whose steps lead nowhere stand for a landscape that defeats them.
    monkeypatch.setattr(local.LocalModels, "restore", lambda *_: None)
    monkeypatch.setattr(local.LocalModels, "escape", lambda _: False)
    plain = local.LocalModels.advance

    def advance(models: local.LocalModels) -> float:
        return plain(models) if models.feasible else 0.0

    monkeypatch.setattr(local.LocalModels, "advance", advance)
    w = torch.tensor([3.0, 0.0], dtype=torch.float64, requires_grad=True)
    ring = oneproj.function(lambda: -w.square().sum().log())
    far = {"ring": ring <= -4.0}
    done = oneproj.project(w, far, projector="cuts")
    assert done.residuals["ring"] <= 0
    assert done.distance == pytest.approx(torch.e**2 - 3.0, rel=0.02)
