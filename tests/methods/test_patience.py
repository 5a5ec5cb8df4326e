"""Strengths of constraints that stay violated."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.methods.strength import ANCHORS, MOST, Patience


def floors(residuals: list[float], present: float = 0.1) -> list[float]:
    patience = Patience()
    return [patience.floor("c", c, alone=3.0, present=present) for c in residuals]


@pytest.mark.parametrize(
    "residuals",
    [
        [0.8**k for k in range(30)],  # falls
        [1.0, 1.0, 1.0, 1.0, 1.0, -0.1] * 5,  # met now and then
        [-1.0] * 30,
        [1.0] * (ANCHORS - 1),  # not long enough
    ],
)
def test_what_falls_or_is_met_is_left_to_the_estimates(residuals: list[float]) -> None:
    assert set(floors(residuals)) == {0.0}


def test_what_stays_is_doubled_up_to_a_bound_and_forgotten_by_halves() -> None:
    found = floors([1.0] * (ANCHORS + 9) + [-1.0] * 3)
    assert found[ANCHORS - 1 : ANCHORS + 2] == [3.0, 6.0, 12.0]
    assert found[-4:] == [3.0 * MOST, 1.5 * MOST, 0.75 * MOST, 0.375 * MOST]


def test_a_strength_that_was_more_is_doubled_itself() -> None:
    assert floors([1.0] * ANCHORS, present=5.0)[-1] == 10.0


def far(residuals: list[float], alone: float) -> list[float]:
    patience = Patience()
    return [
        patience.floor("c", c, alone=alone, present=0.0, felt=2.0) for c in residuals
    ]


def test_far_outside_patience_is_short_and_needs_no_gradient_of_the_objective() -> None:
    assert far([9.0, 9.0, 9.0, 9.0], alone=0.0) == [0.0, 0.0, 2.0, 2.0]
    assert far([9.0, 9.0, 9.0, 9.0], alone=3.0) == [0.0, 0.0, 30.0, 30.0]


def test_far_outside_what_falls_is_left_to_the_estimates_too() -> None:
    assert set(far([0.8**k for k in range(30)], alone=3.0)) == {0.0}


def test_what_was_needed_far_outside_is_not_taken_back_near() -> None:
    patience = Patience()
    for _ in range(ANCHORS - 1):
        patience.floor("c", 1.0, alone=1e-16, present=0.0, felt=2.0)
    assert patience.floor("c", 1.0, alone=1e-16, present=2.0) == 2.0


def test_it_resumes() -> None:
    first, second = Patience(), Patience()
    for patience in (first, second):
        for k in range(ANCHORS):
            patience.floor("c", 1.0 + k, alone=3.0, present=0.1)
    third = Patience()
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
