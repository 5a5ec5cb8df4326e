"""An optimiser around another: what it refuses, takes back, shows, saves and copies."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.optim import SGD

from oneproj import InvalidProblemError, NonFiniteError, OneProjection, OneprojWarning


def start() -> Tensor:
    return torch.linspace(-0.4, 0.6, 3, dtype=torch.float64).requires_grad_()


def walk(optimizer: OneProjection, w: Tensor, steps: int = 1) -> None:
    """Steps on the double well ``sum_i (w_i^2 - 1)^2 / 4``."""
    for _ in range(steps):
        w.grad = w.detach() ** 3 - w.detach()
        optimizer.step()


@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_train_and_eval_switch_back_and_forth() -> None:
    w, twin = start(), start()
    plain = OneProjection([twin], 0.1, prox_weight=0.5, inner_steps=3)
    switching = OneProjection([w], 0.1, prox_weight=0.5, inner_steps=3)
    for _ in range(11):
        held = w.detach().clone()
        switching.eval()
        switching.eval()
        assert switching.shows_outer
        switching.train()
        switching.train()
        assert not switching.shows_outer
        assert torch.equal(w.detach(), held)
        walk(switching, w)
        walk(plain, twin)
    assert torch.equal(w, twin)
    switching.eval()
    with pytest.raises(InvalidProblemError, match=r"Call optimizer.train\(\) first"):
        switching.step()


def test_closure_is_evaluated_at_the_inner_iterate() -> None:
    w = torch.tensor([2.0], requires_grad=True)
    optimizer = OneProjection([w], 0.25, prox_weight=0.0, inner_steps=10, base=SGD)

    def closure() -> float:
        optimizer.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 4.0
    assert w.item() == 1.0


def test_state_dict_copies_and_never_aliases() -> None:
    w = start()
    optimizer = OneProjection([w], 0.1, prox_weight=0.5, inner_steps=4)
    walk(optimizer, w, 6)
    saved = optimizer.state_dict()
    before = [value.clone() for value in saved["state"][0].values()]
    walk(optimizer, w, 6)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, saved["state"][0].values(), strict=True)
    )
    optimizer.load_state_dict(saved)
    walk(optimizer, w, 6)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, saved["state"][0].values(), strict=True)
    )


def test_nan_is_named_with_its_step() -> None:
    w = torch.tensor([0.5], requires_grad=True)
    optimizer = OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2, radius=1.0)
    w.grad = torch.tensor([0.1])
    for _ in range(3):
        optimizer.step()
    w.grad = torch.tensor([math.nan])
    with pytest.raises(NonFiniteError, match=r"the gradient is NaN .* at update 4"):
        optimizer.step()


def test_groups_cannot_be_added_after_the_start() -> None:
    w, late = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = OneProjection([w], 0.1, prox_weight=0.1, inner_steps=5)
    with pytest.raises(InvalidProblemError, match="cannot be added after the start"):
        optimizer.add_param_group({"params": [late]})


def test_an_infinite_gradient_is_named() -> None:
    w = torch.tensor([0.5, 0.0], requires_grad=True)
    optimizer = OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2, radius=1.0)
    w.grad = torch.tensor([math.inf, 0.0])
    with pytest.raises(NonFiniteError, match="at update 1"):
        optimizer.step()


def test_a_deep_copy_goes_on_like_the_original() -> None:
    w = start()
    optimizer = OneProjection([w], 0.1, prox_weight=0.5, inner_steps=4, radius=5.0)
    walk(optimizer, w, 6)
    twin = copy.deepcopy(optimizer)
    (v,) = twin.param_groups[0]["params"]
    assert v is not w
    walk(optimizer, w, 7)
    walk(twin, v, 7)
    assert torch.equal(w, v)


@pytest.mark.parametrize(
    ("K", "steps", "match"),
    [
        (1, 9, "nothing of 9 update.*inner_steps=1"),
        (25, 9, "nothing of 9 update.*none is"),
    ],
)
def test_updates_that_do_not_count_are_said(K: int, steps: int, match: str) -> None:
    w = start()
    optimizer = OneProjection([w], 0.1, prox_weight=1.0, inner_steps=K)
    walk(optimizer, w, steps)
    with pytest.warns(OneprojWarning, match=match) as caught:
        optimizer.eval()
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("T", "steps"), [(None, 0), (None, 6), (1, 2)])
def test_a_start_that_is_meant_is_not_warned_of(T: int | None, steps: int) -> None:
    w = start()
    settings = {} if T is None else {"select": "random", "outer_steps": T}
    optimizer = OneProjection(
        [w],
        0.1,
        prox_weight=1.0,
        inner_steps=5,
        first_index=0,
        generator=torch.Generator().manual_seed(0),
        **settings,
    )
    walk(optimizer, w, steps)
    optimizer.eval()  # a warning would be an error
