"""A task with an old risk to cap, for the training loops of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj

CAP = 0.3


class Task:
    """A new task, and an old one whose risk is capped; linear, so convex."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        new, old = torch.randn(2, 512, 4, generator=draw)
        self.new = new, torch.sign(new[:, 0] + new[:, 1])
        self.old = old, torch.sign(old[:, 0] - 0.5 * old[:, 1])

    def loader(self) -> torch.utils.data.DataLoader[tuple[Tensor, ...]]:
        rows = torch.utils.data.TensorDataset(*self.new)
        return torch.utils.data.DataLoader(rows, batch_size=16)

    def model(self) -> torch.nn.Linear:
        model = torch.nn.Linear(4, 1)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[0.1, 0.2, -0.1, 0.3]]))
            model.bias.zero_()
        return model

    def losses(self, model: Callable[[Tensor], Any], batch: tuple[Tensor, ...]) -> Any:  # noqa: ANN401
        x, y = batch
        return softplus(-y * model(x).squeeze(-1))

    def caps(self, model: Callable[[Tensor], Any]) -> dict[str, Any]:
        risk = oneproj.mean(lambda batch: self.losses(model, batch), data=self.old)
        return {"old risk": risk <= CAP}

    def best(self) -> float:
        model = self.model()
        objective = oneproj.mean(lambda b: self.losses(model, b), data=self.new)
        problem = oneproj.Problem(model.parameters(), objective, self.caps(model))
        return oneproj.solve(problem, method="slsqp", progress=False).objective

    def excess(self, state: dict[str, Tensor]) -> float:
        """The old risk minus its cap, on all rows, in float64."""
        x, y = self.old
        model = torch.nn.Linear(4, 1).double()
        model.load_state_dict(state)
        risk = self.losses(model, (x.double(), y.double())).mean()
        return float(risk.detach()) - CAP


@pytest.fixture
def task() -> Task:
    return Task()
