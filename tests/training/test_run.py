"""A run resumes with the optimiser and the scheduler that it began with, or not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    ExponentialLR,
    LambdaLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
)

import oneproj

STEPS, STOP = 20, 12


Make = Callable[[], oneproj.Problem]


def end(make: Make, **arguments: Any) -> list[float]:  # noqa: ANN401 - of solve
    built = make()
    oneproj.solve(built, steps=STEPS, inner_steps=4, **arguments)
    return built.parameters[0].tolist()


def stop(update: oneproj.Update) -> bool:
    return update.update == STOP


def exponential(gamma: float) -> Callable[[Optimizer], LRScheduler]:
    return lambda optimizer: ExponentialLR(optimizer, gamma)


def falling(speed: float) -> Callable[[Optimizer], LRScheduler]:
    return lambda optimizer: LambdaLR(optimizer, lambda k: 1 / (1 + speed * k))


def one_cycle(optimizer: Optimizer) -> LRScheduler:
    return OneCycleLR(optimizer, 0.1, total_steps=STEPS, cycle_momentum=False)


def in_turn(optimizer: Optimizer) -> LRScheduler:
    parts = [ExponentialLR(optimizer, 0.9), MultiStepLR(optimizer, [2, 4])]
    return SequentialLR(optimizer, parts, milestones=[9])


SAME: dict[str, Callable[[], dict[str, Any]]] = {
    "exponential": lambda: {"decay": exponential(0.9)},
    "lambda": lambda: {"decay": falling(0.1)},
    "one cycle": lambda: {"decay": one_cycle},
    "in turn": lambda: {"decay": in_turn},
    "class": lambda: {"base": AdamW},
    "partial": lambda: {"base": functools.partial(AdamW, weight_decay=0.1)},
    "lambda base": lambda: {"base": lambda groups: SGD(groups, momentum=0.5)},
}


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning")  # torch's own
@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_the_same_settings_go_on_bit_for_bit(
    nearest_in_ball: Make, tmp_path: Path, make: Callable[[], dict[str, Any]]
) -> None:
    file = tmp_path / "run.pt"
    end(nearest_in_ball, checkpoint=file, callbacks=stop, **make())
    resumed = end(nearest_in_ball, checkpoint=oneproj.Checkpoint(file), **make())
    assert resumed == end(nearest_in_ball, **make())


def test_noise_of_torch_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def noisy() -> oneproj.Problem:  # without a model, from the global generator
        w = torch.tensor([0.3, -0.2], requires_grad=True)
        loss = oneproj.mean(
            lambda x: (w * x * torch.rand_like(x) - 1).square().sum(1), torch.eye(2)
        )
        constraints = {"size": oneproj.sets.Ball(0.5).on(w)}
        return oneproj.Problem(w, loss, constraints, radius=10.0)

    file = tmp_path / "run.pt"
    torch.manual_seed(0)
    unstopped = end(noisy)
    torch.manual_seed(0)
    end(noisy, checkpoint=file, callbacks=stop)
    torch.manual_seed(7)
    assert end(noisy, checkpoint=oneproj.Checkpoint(file)) == unstopped


class Restless(torch.nn.Module):
    """Makes one buffer as long as each batch, and one in the first training step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.3, -0.2]))

    def forward(self, x: Tensor) -> Tensor:
        self.register_buffer("ones", torch.ones(len(x), 1), persistent=False)
        if self.training:
            kept = dict(self.named_buffers()).get("kept", torch.zeros(2))
            self.register_buffer("kept", 0.9 * kept + 0.1 * x.mean(0))
        shift = dict(self.named_buffers()).get("kept", torch.zeros(2))
        return ((x - shift) * self.weight * self.ones).sum(1)


def test_buffers_that_a_model_makes_as_it_goes_go_on(tmp_path: Path) -> None:
    def restless() -> oneproj.Problem:
        model, x = Restless(), torch.eye(2).repeat(4, 1)
        loss = oneproj.mean(lambda x: (model(x) - 1.0).square(), x)
        constraints = {"size": oneproj.sets.Ball(0.5).on(model.weight)}
        return oneproj.Problem(model.weight, loss, constraints, model=model)

    file = tmp_path / "run.pt"
    end(restless, checkpoint=file, callbacks=stop)
    assert end(restless, checkpoint=oneproj.Checkpoint(file)) == end(restless)


def weighted(decay: float) -> Callable[[Any], Optimizer]:
    return functools.partial(AdamW, weight_decay=decay)


def configured(values: dict[str, float]) -> Callable[[Any], Optimizer]:
    return lambda groups: AdamW(groups, weight_decay=values["decay"])


OTHER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "gamma": (
        {"decay": exponential(0.9)},
        {"decay": exponential(0.5)},
        r"'gamma' in the scheduler: 0\.9 then, 0\.5 now",
    ),
    "weight decay": (
        {"base": weighted(0.0)},
        {"base": weighted(50.0)},
        r"'weight_decay' in group 0 of the optimiser: 0\.0 then, 50",
    ),
    "hidden weight decay": (
        {"base": configured({"decay": 0.0})},
        {"base": configured({"decay": 50.0})},
        r"of another run: 'weight_decay' in group 0 of the optimiser: 0\.0 then, 50",
    ),
    "class": ({"base": Adam}, {"base": AdamW}, "base: Adam then, AdamW now"),
    "made": (
        {"base": lambda groups: AdamW(groups)},  # noqa: PLW0108 - as users do
        {"base": lambda groups: Adagrad(groups)},  # noqa: PLW0108 - as users do
        r"'betas' in group 0 of the optimiser: \[0\.9, 0\.999\] then, absent now",
    ),
}


@pytest.mark.parametrize("method", ["one-projection", "penalty-sgd"])
@pytest.mark.parametrize(("then", "now", "words"), OTHER.values(), ids=OTHER)
def test_other_settings_are_refused_and_named(
    nearest_in_ball: Make,
    tmp_path: Path,
    *,
    then: dict[str, Any],
    now: dict[str, Any],
    words: str,
    method: str,
) -> None:
    checkpoint = oneproj.Checkpoint(tmp_path / "run.pt")
    call = {"steps": STEPS, "method": method, "checkpoint": checkpoint}
    oneproj.solve(nearest_in_ball(), **call, callbacks=stop, **then)
    built, start = nearest_in_ball(), nearest_in_ball().parameters[0]
    with pytest.raises(oneproj.CheckpointError, match=words):
        oneproj.solve(built, **call, **now)
    assert torch.equal(built.parameters[0], start)
