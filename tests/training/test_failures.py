"""A run that fails says why, also where the constraints are not the reason."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
METHODS = ("one-projection", "projected-sgd", "penalty-sgd", "switching-subgradient")
QUICK = AugmentedLagrangian()  # to give up


def start() -> Tensor:
    return torch.full((3,), 0.3, requires_grad=True)


def solve(w: Tensor, cap: Any, **arguments: Any) -> oneproj.Solution:  # noqa: ANN401 - of solve
    objective = oneproj.mean(lambda batch: softplus(batch @ w), X)
    problem = oneproj.Problem(w, objective, {"cap": cap})
    return oneproj.solve(problem, steps=20, **arguments)


@pytest.mark.filterwarnings("ignore:The constraint 'cap' is random")
@pytest.mark.parametrize("method", METHODS)
def test_a_random_constraint_is_named_where_it_fails(method: str) -> None:
    w, noise = start(), torch.Generator().manual_seed(0)

    def losses(batch: Tensor) -> Tensor:
        return softplus(batch @ w) + torch.rand(len(batch), generator=noise)

    cap = oneproj.mean(losses, X) <= 0.1
    with pytest.raises(oneproj.InfeasibleError, match=r"^The constraint 'cap' is rand"):
        solve(w, cap, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_a_constraint_that_turns_nan_is_no_infeasible_one(method: str) -> None:
    w, calls = start(), []

    def losses(batch: Tensor) -> Tensor:
        calls.append(len(batch))
        return softplus(-(batch @ w)) * (math.nan if len(calls) > 15 else 1.0)

    with pytest.raises(oneproj.NonFiniteError, match=r"'cap'.* is NaN or infinite"):
        solve(w, oneproj.mean(losses, X) <= 0.7, method=method)


@pytest.mark.parametrize("method", ["penalty-sgd", "switching-subgradient"])
def test_a_run_that_diverged_says_how_far_it_went(method: str) -> None:
    w = start()
    cap = oneproj.mean(lambda batch: softplus(-(batch @ w)), X) <= 0.1
    with pytest.raises(
        oneproj.InfeasibleError, match=r"^The updates took.* from a length of 0\.52 to"
    ):
        solve(w, cap, method=method, lr=1e20, base="adam", projector=QUICK)


def test_a_constraint_that_cannot_be_met_is_all_that_is_said() -> None:
    w = start()
    cap = oneproj.mean(lambda batch: softplus(batch @ w), X) <= -0.1
    with pytest.raises(
        oneproj.InfeasibleError, match=r"^The constraint 'cap' could not be met"
    ):
        solve(w, cap)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("base", [torch.optim.SparseAdam, torch.optim.LBFGS])
def test_an_optimiser_that_cannot_step_is_refused(method: str, base: Any) -> None:  # noqa: ANN401 - a class
    w = start()
    with pytest.raises(
        oneproj.InvalidProblemError, match=rf"dense.*made a {base.__name__}"
    ):
        solve(w, oneproj.sets.Ball(1.0).on(w), method=method, base=base)


# --- what a callback leaves behind ----------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("last", [False, True])
def test_a_parameter_frozen_by_a_callback_is_named(method: str, *, last: bool) -> None:
    w = start()
    cap = oneproj.mean(lambda batch: softplus(-(batch @ w)), X) <= 0.65
    at = 20 if last else 7

    def freeze(update: oneproj.Update) -> None:
        w.requires_grad_(update.update < at)

    with pytest.raises(oneproj.InvalidProblemError, match=r"shape \(3,\) was frozen"):
        solve(w, cap, method=method, callbacks=freeze)


@pytest.mark.filterwarnings("ignore:The objective was not minimised")
@pytest.mark.parametrize("method", METHODS)
def test_a_callback_may_switch_gradients_off(method: str) -> None:
    def off(update: oneproj.Update) -> None:
        assert torch.is_grad_enabled()
        torch.set_grad_enabled(update.update % 2 == 0)

    found = []
    for callbacks in ((), off):
        w = start()
        cap = oneproj.mean(lambda batch, w=w: softplus(-(batch @ w)), X) <= 0.65
        solve(w, cap, method=method, callbacks=callbacks)
        found.append(w.tolist())
        assert torch.is_grad_enabled()
    assert found[0] == found[1]
