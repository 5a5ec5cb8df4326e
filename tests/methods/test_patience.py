"""Strengths of constraints that stay violated."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.methods.strength import Patience

OWN = oneproj.Defaults()


def floors(
    residuals: list[float], present: float = 0.1, defaults: oneproj.Defaults = OWN
) -> list[float]:
    patience = Patience(defaults)
    return [patience.floor("c", c, alone=3.0, present=present) for c in residuals]


@pytest.mark.parametrize(
    "residuals",
    [
        [0.8**k for k in range(30)],  # falls
        [1.0, 1.0, 1.0, 1.0, 1.0, -0.1] * 5,  # met now and then
        [-1.0] * 30,
        [1.0] * (OWN.patience - 1),  # not long enough
    ],
)
def test_what_falls_or_is_met_is_left_to_the_estimates(residuals: list[float]) -> None:
    assert set(floors(residuals)) == {0.0}


def test_what_stays_is_doubled_up_to_a_bound_and_halved_where_it_is_met() -> None:
    found = floors([1.0] * (OWN.patience + 9) + [-1.0] * 3)
    assert found[OWN.patience - 1 : OWN.patience + 2] == [3.0, 6.0, 12.0]
    most = 3.0 * OWN.push_limit
    assert found[-4:] == [most, most / 2, most / 4, most / 8]


def test_the_defaults_say_how_long_and_what_counts_as_better() -> None:
    short = replace(OWN, patience=2, push_limit=3.0)
    assert floors([1.0] * 5, defaults=short) == [0.0, 3.0, 6.0, 9.0, 9.0]
    falling = [0.8**k for k in range(3)]
    assert set(floors(falling, defaults=short)) == {0.0}
    demanding = replace(short, patience_fall=0.7)
    assert floors(falling, defaults=demanding) == [0.0, 3.0, 6.0]


def test_a_strength_that_was_more_is_doubled_itself() -> None:
    assert floors([1.0] * OWN.patience, present=5.0)[-1] == 10.0


def test_a_limit_lowers_what_patience_asks_for() -> None:
    patience = Patience(replace(OWN, patience=1))
    assert patience.floor("c", 1.0, alone=3.0, present=0.1) == 3.0
    patience.limit("c", 0.5)
    assert patience.floor("c", -1.0, alone=3.0, present=0.1) == 0.25


def test_it_resumes() -> None:
    first, second = Patience(OWN), Patience(OWN)
    for patience in (first, second):
        for k in range(OWN.patience):
            patience.floor("c", 1.0 + k, alone=3.0, present=0.1)
    third = Patience(OWN)
    third.load_state_dict(second.state_dict(), ["c"])
    for c in (9.0, 9.0, -1.0):
        assert first.floor("c", c, alone=3.0, present=0.1) == third.floor(
            "c", c, alone=3.0, present=0.1
        )


def regression() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 10, generator=generator)
    signs = torch.tensor([1.0, -1.0]).repeat(5)
    return x, x @ signs + torch.randn(400, generator=generator)


def test_the_largest_of_many_is_held_as_the_same_set_is() -> None:
    # At an anchor the largest entry shows its own gradient, a tenth of what is needed.
    x, y = regression()
    answers = []
    for as_set in (True, False):
        w = torch.zeros(10, requires_grad=True)
        largest = oneproj.function(lambda w=w: w.abs().max()) <= 0.2
        box = oneproj.sets.Box(-0.2, 0.2).on(w)
        problem = oneproj.Problem(
            w,
            oneproj.mean(lambda b, w=w: (b[0] @ w - b[1]) ** 2, data=(x, y)),
            {"size": box if as_set else largest},
        )
        answers.append(oneproj.solve(problem, steps=500).objective)
    reference, found = answers
    assert found == pytest.approx(reference, rel=0.01)
