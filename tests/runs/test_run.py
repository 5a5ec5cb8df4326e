"""A run resumes with the optimiser and the scheduler that it began with, or not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
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


def problem() -> oneproj.Problem:
    w = torch.tensor([0.3, -0.2], requires_grad=True)
    target = torch.tensor([3.0, 4.0])
    return oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={"size": oneproj.sets.Ball(1.0).on(w)},
        radius=10.0,
    )


def end(**arguments: Any) -> list[float]:  # noqa: ANN401 - of solve
    built = problem()
    oneproj.solve(built, steps=STEPS, inner_steps=4, **arguments)
    return built.parameters[0].tolist()


def interrupted(path: Path, then: dict[str, Any], now: dict[str, Any]) -> list[float]:
    end(checkpoint=path, callbacks=lambda update: update.update == STOP, **then)
    return end(checkpoint=path, resume=True, **now)


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
    tmp_path: Path, make: Callable[[], dict[str, Any]]
) -> None:
    assert interrupted(tmp_path / "run.pt", make(), make()) == end(**make())


def weighted(decay: float) -> Callable[[Any], Optimizer]:
    return functools.partial(AdamW, weight_decay=decay)


def configured(values: dict[str, float]) -> Callable[[Any], Optimizer]:
    """Reads what it makes from where no fingerprint looks."""
    return lambda groups: AdamW(groups, weight_decay=values["decay"])


OTHER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "gamma": (
        {"decay": exponential(0.9)},
        {"decay": exponential(0.5)},
        r"'gamma' in the scheduler: 0\.9 then, 0\.5 now",
    ),
    "lambda": ({"decay": falling(0.1)}, {"decay": falling(3.0)}, "code of decay in P"),
    "weight decay": ({"base": weighted(0.0)}, {"base": weighted(50.0)}, "code of base"),
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
    tmp_path: Path, then: dict[str, Any], now: dict[str, Any], words: str, method: str
) -> None:
    file = tmp_path / "run.pt"
    stop = {"callbacks": lambda update: update.update == STOP, "checkpoint": file}
    call = {"steps": STEPS, "method": method}
    oneproj.solve(problem(), **call, **stop, **then)
    built = problem()
    with pytest.raises(oneproj.CheckpointError, match=words):
        oneproj.solve(built, **call, checkpoint=file, resume=True, **now)
    assert torch.equal(built.parameters[0], problem().parameters[0])


def test_another_version_of_python_compares_names_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, file = {"decay": falling(0.1)}, tmp_path / "run.pt"
    end(checkpoint=file, callbacks=lambda update: update.update == STOP, **first)
    monkeypatch.setattr("oneproj.runs.run.PYTHON", "Python 9.9")
    end(checkpoint=file, resume=True, decay=falling(0.1))
