"""The source-reference fit."""

from __future__ import annotations

import pytest
import torch

from oneproj_paper.data import gaussian_transfer
from oneproj_paper.tasks import source_reference
from oneproj_paper.tasks.models import Score
from oneproj_paper.tasks.source_reference import SourceFit, fit_source
from oneproj_paper.tasks.transfer import logistic_risk, source_cap

SOURCE = gaussian_transfer(seed=0, dtype=torch.float64).source


def fitted(updates: int, seed: int = 0, cap: float = 1.0) -> tuple[Score, int]:
    generator = torch.Generator().manual_seed(seed)
    score = Score(10, generator=generator, dtype=torch.float64)
    fit = SourceFit(updates=updates, lr=0.05)
    made = fit_source(score, SOURCE, fit, cap=cap, batch_size=32, generator=generator)
    return score, made


def test_the_papers_gaussian_fit_meets_the_cap_in_one_round() -> None:
    cap = source_cap(SOURCE)
    score, made = fitted(1_000, cap=cap)
    assert made == 1_000
    assert logistic_risk(score, SOURCE).value() < cap


def test_one_update_is_one_step_of_adam_on_one_minibatch() -> None:
    generator = torch.Generator().manual_seed(0)
    score = Score(10, generator=generator, dtype=torch.float64)
    before = [p.detach().clone() for p in score.parameters()]
    risk = logistic_risk(score, SOURCE)
    drawn = risk.batch_value(risk.draw(32, generator))
    gradient = torch.autograd.grad(drawn, list(score.parameters()))
    # The first step of Adam is lr * g / (|g| + 1e-8).
    for p, x, g in zip(fitted(1)[0].parameters(), before, gradient, strict=True):
        torch.testing.assert_close(p.detach(), x - 0.05 * g / (g.abs() + 1e-8))


def test_rounds_are_made_until_the_cap_is_met() -> None:
    cap = 0.01
    score, made = fitted(10, cap=cap)
    assert made % 10 == 0
    assert logistic_risk(score, SOURCE).value() <= cap
    earlier, _ = fitted(made - 10)
    assert logistic_risk(earlier, SOURCE).value() > cap


def test_an_unreachable_cap_ends_the_fit_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_reference, "MOST_ROUNDS", 3)
    assert fitted(5, cap=0.0)[1] == 15


def test_the_generator_decides_the_fit() -> None:
    first, again, other = (list(fitted(20, s)[0].parameters()) for s in (1, 1, 2))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])
