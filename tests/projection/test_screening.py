"""Large data: the search for a projection sees samples, its answer all rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import oneproj
from oneproj.projection import Cuts
from oneproj.vectors import assign, snapshot

ROWS = 50_000
Batch = tuple[Tensor, Tensor]
FULL_SEARCH = Cuts().warm()
"""A projector that goes on from its last projection does not sample."""


class Risk:
    """The loss of a network on a table, and how many rows each of its calls saw."""

    def __init__(self, rows: int = ROWS) -> None:
        generator = torch.Generator().manual_seed(0)
        self.model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 1))
        for p in self.model.parameters():
            p.data.normal_(std=0.3, generator=generator)
        x = torch.randn(rows, 12, generator=generator)
        score = x @ torch.randn(12, generator=generator)
        noise = torch.randn(rows, generator=generator)
        self.data = x, torch.where(score + noise > 0, 1.0, -1.0)
        self.seen: list[int] = []

    def losses(self, batch: Batch) -> Tensor:
        self.seen.append(len(batch[0]))
        return softplus(-batch[1] * self.model(batch[0])[:, 0])


def shares(risk: Risk) -> float:
    return sum(risk.seen) / ROWS


@pytest.mark.parametrize("share", [0.95, 0.8, 0.6])
def test_few_points_on_all_rows_lead_as_near_as_the_full_search(share: float) -> None:
    risk = Risk()
    mean, parameters = oneproj.mean(risk.losses, data=risk.data), risk.model.parameters
    start, cap = snapshot(parameters()), share * mean.value()
    full = oneproj.project(parameters(), {"risk": mean <= cap}, projector=FULL_SEARCH)
    assign(list(parameters()), start)
    risk.seen.clear()
    found = oneproj.project(parameters(), {"risk": mean <= cap})
    # Beside its gradients, the call probes the term, and checks it in float64.
    assert shares(risk) <= found.gradients + 1 + 40 * 2048 / ROWS
    assert mean.value() <= cap
    assert found.residuals["risk"] == mean.value() - cap
    assert found.gradients <= min(3, full.gradients)
    assert found.distance <= 1.005 * full.distance
    assert found.lower_bound is None
    assert found.kkt_residual <= 0.05


def test_what_a_sample_cannot_show_is_found_on_all_rows() -> None:
    # One row in ten thousand has all the loss: no sample of two thousand is sure of it.
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    weights = torch.zeros(ROWS, dtype=torch.float64)
    weights[::10_000] = 1e4

    def losses(rows: Tensor) -> Tensor:
        return rows * ((w - torch.tensor([3.0, 4.0])).square().sum() - 1.0)

    caps = {"rare": oneproj.mean(losses, data=weights) <= 0.0}
    found = oneproj.project(w, caps)
    assert caps["rare"].value() <= 0
    assert found.distance == pytest.approx(4.0, rel=1e-3)


def test_both_sides_of_a_band_hold_on_all_rows() -> None:
    risk = Risk()
    mean = oneproj.mean(risk.losses, data=risk.data)
    value = mean.value()
    band = {"upper": mean <= 0.8 * value, "lower": mean >= 0.799 * value}
    found = oneproj.project(risk.model.parameters(), band)
    assert max(c.value() for c in band.values()) <= 0
    assert found.gradients <= 6


def test_of_data_that_is_not_large_no_sample_is_drawn() -> None:
    risk = Risk(rows=3000)
    mean = oneproj.mean(risk.losses, data=risk.data)
    cap = 0.8 * mean.value()
    risk.seen.clear()
    oneproj.project(risk.model.parameters(), {"risk": mean <= cap})
    assert 2048 not in risk.seen


def test_a_distance_that_is_proven_is_that_of_all_rows() -> None:
    risk = Risk()
    w = torch.zeros(12, requires_grad=True)
    x, y = risk.data
    seen: list[int] = []

    def losses(batch: Batch) -> Tensor:
        seen.append(len(batch[0]))
        return softplus(-batch[1] * (batch[0] @ w))

    mean = oneproj.mean(losses, data=(x, y), curvature="convex")
    found = oneproj.project(w, {"risk": mean <= 0.5})
    assert 2048 not in seen
    assert found.lower_bound == pytest.approx(found.distance, rel=1e-2)


def test_no_pass_over_a_sample_takes_more_rows_at_once_than_one_over_all() -> None:
    risk = Risk()
    mean = oneproj.mean(risk.losses, data=risk.data, chunk_size=500)
    cap = 0.9 * mean.value()
    risk.seen.clear()
    oneproj.project(risk.model.parameters(), {"risk": mean <= cap})
    assert max(risk.seen) == 500
    assert 2048 % 500 in risk.seen  # the rest of a sample
