"""Saved states of ``OneProjection``: what is not one is refused, and nothing loaded."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import SGD, Adam, AdamW

from oneproj import InvalidProblemError, OneProjection

State = dict[str, Any]


def make(width: int = 2, **changed: Any) -> OneProjection:  # noqa: ANN401 - settings
    w, b = (torch.ones(n, requires_grad=True) for n in (width, 1))
    settings = {"lr": 0.1, "prox_weight": 0.1, "inner_steps": 20, "radius": 9.0}
    optimizer = OneProjection([w, b], **(settings | {"base": SGD} | changed))
    for p in (w, b):
        p.grad = torch.ones_like(p)
    for _ in range(3):
        optimizer.step()
    return optimizer


def center(*entries: float) -> list[torch.Tensor]:
    return [torch.tensor(entries), torch.zeros(1)]


@pytest.mark.parametrize(
    ("saved", "match"),
    [
        (partial(make, inner_steps=10), "with inner_steps=10, .* has inner_steps=20"),
        (partial(make, prox_weight=0.3), "with prox_weight=0.3, .* prox_weight=0.1"),
        (
            partial(make, select="random", outer_steps=3, generator=torch.Generator()),
            "with select='random', .* has select='last'",
        ),
        (lambda: SGD([torch.ones(2, requires_grad=True)]), "lacks 'run', 'settings'"),
        (partial(make, base=Adam), "with base='Adam', .* has base='SGD'"),
        (partial(make, base=AdamW), "with base='AdamW'"),
        (partial(make, center=center(0.1, 0.0)), "with center=another .* center=None"),
        (partial(make, width=3), r"does not fit .*shapes.*\(3,\).*needed .*\(2,\)"),
    ],
)
def test_a_state_of_another_optimiser(
    saved: Callable[[], torch.optim.Optimizer], match: str
) -> None:
    own = make()
    before = str(own.state_dict())
    with pytest.raises(InvalidProblemError, match=match):
        own.load_state_dict(saved().state_dict())
    assert str(own.state_dict()) == before


def test_the_center_of_the_ball_is_compared() -> None:
    own = make(center=center(0.1, 0.0))
    own.load_state_dict(make(center=center(0.1, 0.0)).state_dict())
    with pytest.raises(InvalidProblemError, match="center=another one"):
        own.load_state_dict(make(center=center(0.0, 0.1)).state_dict())


def without(*path: Any) -> Callable[[State], State]:  # noqa: ANN401 - keys
    def change(state: State) -> State:
        part = state
        for key in path[:-1]:
            part = part[key]
        del part[path[-1]]
        return state

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda _: None, "but got a NoneType"),
        (lambda _: [], "but got a list"),
        (lambda _: {}, "lacks 'state', 'param_groups', 'run', 'settings', 'base'"),
        (without("run"), "lacks 'run': "),
        (without("run", "t"), r"does not fit .*needed .*'t'"),
        (without("settings", "radius"), "radius=None, this optimiser has radius=9"),
        (without("state", 1), r"damaged: .*KeyError\(1\)"),
        (without("state", 0, "average"), r"damaged: .*KeyError\('average'\)"),
        (without("base", "param_groups"), r"damaged: .*'param_groups'"),
        (without("base", "state"), r"does not fit .*needed .*'state'"),
        (lambda s: s | {"settings": None}, "saved with prox_weight=None"),
        (lambda s: s | {"run": 7}, "damaged: .*TypeError"),
        (lambda s: s | {"param_groups": []}, r"does not fit .*'shapes': \[\]"),
    ],
)
def test_a_state_that_is_not_whole(
    change: Callable[[State], object], match: str
) -> None:
    own = make(lr=0.7)
    before = str(own.state_dict())
    with pytest.raises(InvalidProblemError, match=match):
        own.load_state_dict(change(make().state_dict()))  # type: ignore[arg-type]
    assert str(own.state_dict()) == before


def test_what_distributed_checkpoints_leave_out_is_named() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = OneProjection(
        model.parameters(), 0.1, prox_weight=0.1, inner_steps=2, radius=9.0
    )
    kept = get_optimizer_state_dict(model, optimizer)
    with pytest.raises(InvalidProblemError, match=r"as torch\.distributed\.checkpoint"):
        optimizer.load_state_dict(dict(kept))


def test_a_state_of_the_same_shapes_is_loaded() -> None:
    saved, own = make(base=partial(SGD, momentum=0.9)), make()
    own.load_state_dict(copy.deepcopy(saved.state_dict()))
    assert str(own.state_dict()) == str(saved.state_dict())


@pytest.mark.parametrize(
    "changed",
    [
        {"lr": np.float32(0.1)},
        {"lr": torch.tensor(0.1)},
        {"lr": None, "strong_convexity": np.float64(9.0)},
        {"prox_weight": np.float64(0.1)},
        {"inner_steps": np.int64(20)},
        {"late_weight": np.float32(1.0)},
        {"radius": np.float64(9.0)},
    ],
)
def test_numbers_of_numpy_are_saved_as_plain_ones(changed: State) -> None:
    file = io.BytesIO()
    torch.save(make(**changed).state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    plain = {k: v if v is None else v.item() for k, v in changed.items()}
    own = make(**plain)
    own.load_state_dict(state)
    assert str(own.state_dict()) == str(state)
