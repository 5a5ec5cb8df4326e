"""How deep a set is: the residual at its deepest point, with the sign turned."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oneproj import sets

DOUBLE = torch.float64
EPS = torch.finfo(DOUBLE).eps ** 0.75


@pytest.mark.parametrize(
    ("members", "deepest", "expected"),
    [
        (sets.Ball(2.0, torch.ones(3)), torch.ones(3), 2.0),
        (sets.Box(0.0, 1.0), torch.full((3,), 0.5), 0.5),
        (
            sets.Box(torch.tensor([0.0, 0.0]), torch.tensor([4.0, 1.0])),
            torch.tensor([2.0, 0.5]),
            0.5,
        ),
        (sets.L1Ball(2.0), torch.zeros(4), 1.0),
        (sets.NuclearBall(2.0), torch.zeros(4, 5), 1.0),
        (sets.SpectralBall(2.0), torch.zeros(4, 5), 2.0),
        (sets.Simplex(), torch.full((4,), 0.25), EPS / 2),
        (sets.Rank(1), torch.ones(3, 3), 3 * EPS),
        (sets.Affine(torch.ones(1, 4), torch.ones(1)), torch.full((4,), 0.25), EPS / 2),
    ],
)
def test_depth_is_attained(
    members: sets.AbstractSet, deepest: Tensor, expected: float
) -> None:
    x = deepest.double()
    assert members.depth(x) == pytest.approx(expected)
    assert members.residual(x).item() == pytest.approx(-expected, rel=1e-2)


def test_a_thick_simplex_is_as_deep_as_even_entries() -> None:
    assert sets.Simplex(2.0, tolerance=0.9).depth(torch.ones(4)) == pytest.approx(0.5)


def test_a_cone_and_a_halfspace_have_no_bottom() -> None:
    x = torch.ones(3)
    assert sets.SecondOrderCone().depth(x) == math.inf
    assert sets.Halfspace(x, 1.0).depth(x) == math.inf
