"""Constraints in a loop with Accelerate, as the page shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")


class Loop:
    """What a user's script makes: all parts, prepared, the penalty before or after."""

    def __init__(self, task: Any, *, before: bool = False) -> None:  # noqa: ANN401
        self.task, model = task, task.model()
        optimizer = oneproj.OneProjection(model.parameters(), lr=0.1)
        caps = task.caps(model)
        self.accelerator = accelerate.Accelerator(
            cpu=True, gradient_accumulation_steps=2
        )
        if before:
            penalty = oneproj.AutoPenalty(optimizer, caps)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            model, optimizer, task.loader()
        )
        if not before:
            penalty = oneproj.AutoPenalty(self.optimizer, caps)
        self.penalty = penalty
        self.accelerator.register_for_checkpointing(penalty)

    def train(self, epochs: int) -> Loop:
        for _ in range(epochs):
            for batch in self.loader:
                with self.accelerator.accumulate(self.model):
                    loss = self.task.losses(self.model, batch).mean()
                    self.accelerator.backward(loss + self.penalty())
                    if self.accelerator.sync_gradients:
                        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
        return self

    @property
    def weight(self) -> Tensor:
        weight: Tensor = self.model.weight.detach().clone()
        return weight


@pytest.mark.parametrize("before", [False, True])
def test_it_trains_saves_resumes_and_ends_feasible(
    task: Any,  # noqa: ANN401
    tmp_path: Path,
    *,
    before: bool,
) -> None:
    loop = Loop(task, before=before).train(2)
    inner = loop.weight
    loop.optimizer.eval()  # so that the weights on disk are the outer iterate
    outer = loop.weight
    loop.accelerator.save_state(tmp_path)
    loop.optimizer.train()
    assert torch.equal(loop.weight, inner)
    loop.train(3)
    solution = loop.penalty.finish(progress=False)
    assert solution.feasible
    assert solution.settings["optimizer"] == "OneProjection"
    assert solution.settings["updates"] == 5 * 16
    assert task.excess(loop.model.state_dict()) <= 0

    saved = accelerate.utils.load_state_dict(str(tmp_path / "model.safetensors"))
    assert torch.equal(saved["weight"], outer)
    again = Loop(task, before=before)
    again.accelerator.load_state(tmp_path)
    again.optimizer.train()
    assert torch.equal(again.weight, inner)
    again.train(3).penalty.finish(progress=False)
    assert torch.equal(again.weight, loop.weight)


def test_before_and_after_prepare_are_the_same_run(task: Any) -> None:  # noqa: ANN401
    loops = [Loop(task, before=before).train(3) for before in (False, True)]
    assert torch.equal(loops[0].weight, loops[1].weight)
    assert loops[0].penalty.strengths() == loops[1].penalty.strengths()
    assert loops[0].penalty.strengths()["old risk"] > 0
