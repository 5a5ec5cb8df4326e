"""The KKT residual where closed-form sets have corners, edges and no interior."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.sets import (
    AbstractSet,
    Affine,
    Ball,
    Box,
    Halfspace,
    L1Ball,
    NuclearBall,
    Rank,
    SecondOrderCone,
    Simplex,
    SpectralBall,
)

DTYPES = [torch.float32, torch.float64]
ACCURACY = {torch.float32: 2e-5, torch.float64: 1e-11}


def kkt_residual(problem: oneproj.Problem) -> oneproj.Measure:
    return oneproj.certify(problem)["KKT residual"]


@dataclass(frozen=True)
class Place:
    """A point of a set, a normal of the set there, and a way along the set.

    At a vertex the normal is at the edge of the cone of normals: a step along, at a
    right angle to it, leads along the set, and against it back into the cone.
    """

    members: AbstractSet
    point: list[float]
    normal: list[float]
    along: list[float]
    shape: tuple[int, ...] | None = None

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        lists = (self.point, self.normal, self.along)
        x, n, d = (torch.tensor(v, dtype=dtype) for v in lists)
        if self.shape is not None:
            x, n, d = (v.reshape(self.shape) for v in (x, n, d))
        return x.requires_grad_(), n, d


SQUARE = (3, 3)
PLANE = Affine(
    torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), torch.tensor([1.0, 2.0])
)


def diagonal(a: float, b: float, c: float) -> list[float]:
    return torch.diag(torch.tensor([a, b, c])).flatten().tolist()


PLACES = {
    "simplex, vertex": Place(Simplex(), [1, 0, 0], [3, 3, -1], [-1, 1, 0]),
    "simplex, edge": Place(Simplex(), [0.5, 0.5, 0], [3, 3, -1], [1, -1, 0]),
    "simplex, inside": Place(Simplex(), [0.25, 0.25, 0.5], [2, 2, 2], [1, -1, 0]),
    "box, corner": Place(Box(0.0, 1.0), [1, 1, 0], [2, 0, -5], [0, -1, 0]),
    "box, edge": Place(Box(0.0, 1.0), [1, 1, 0.5], [2, 1, 0], [0, 0, 1]),
    "box, face": Place(Box(0.0, 1.0), [1, 0.5, 0.5], [2, 0, 0], [0, 1, 0]),
    "L1, vertex": Place(L1Ball(1.0), [-1, 0, 0], [-3, 3, -1], [1, 1, 0]),
    "L1, edge": Place(L1Ball(1.0), [-0.75, 0.25, 0], [-2, 2, 1], [1, 1, 0]),
    "L1, face": Place(L1Ball(1.0), [0.5, 0.25, -0.25], [2, 2, -2], [1, -1, 0]),
    "ball": Place(Ball(5.0), [3, 4, 0], [6, 8, 0], [0, 0, 1]),
    "halfspace": Place(
        Halfspace(torch.tensor([3.0, 4.0, 0.0]), 5.0),
        [1, 0.5, 7],
        [6, 8, 0],
        [4, -3, 0],
    ),
    "affine": Place(PLANE, [0, 1, 1], [1, -1, -2], [1, -1, 1]),
    "cone, apex": Place(SecondOrderCone(), [0, 0, 0], [-5, 3, 4], [5, 3, 4]),
    "cone, side": Place(SecondOrderCone(), [5, 3, 4], [-5, 3, 4], [5, 3, 4]),
    "spectral, edge": Place(
        SpectralBall(1.0),
        diagonal(1, 1, 0.5),
        diagonal(4, 2, 0),
        diagonal(0, 0, 1),
        SQUARE,
    ),
    "spectral, face": Place(
        SpectralBall(1.0),
        diagonal(1, 0, 0.5),
        diagonal(4, 0, 0),
        diagonal(0, 1, 1),
        SQUARE,
    ),
    "nuclear, vertex": Place(
        NuclearBall(1.0),
        diagonal(1, 0, 0),
        diagonal(5, 5, -2),
        diagonal(-1, 1, 0),
        SQUARE,
    ),
    "nuclear, edge": Place(
        NuclearBall(1.0),
        diagonal(0.5, 0.5, 0),
        diagonal(5, 5, 1),
        diagonal(1, -1, 0),
        SQUARE,
    ),
    "rank": Place(
        Rank(1), diagonal(3, 0, 0), diagonal(0, 4, 1), diagonal(1, 0, 0), SQUARE
    ),
}


def at(place: Place, dtype: torch.dtype, tilt: float = 0.0) -> oneproj.Problem:
    """A linear objective that the normal balances, all but the tilt along the set."""
    w, n, d = place.tensors(dtype)
    slope = n + tilt * n.norm() * d / d.norm()
    objective = oneproj.function(lambda: -(slope * w).sum())
    return oneproj.Problem(w, objective, {"set": place.members.on(w)})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLACES)
def test_zero_at_an_optimum_with_the_length_of_the_normal(
    name: str, dtype: torch.dtype
) -> None:
    place = PLACES[name]
    measure = kkt_residual(at(place, dtype))
    length = float(place.tensors(torch.float64)[1].norm())
    assert measure.details["relative"] <= 1e-12
    assert measure.details["multipliers"]["set"] == pytest.approx(length, rel=1e-9)
    assert measure.details["complementarity"] <= 1e-9 * length
    assert measure.details["constraint gradients"] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLACES)
def test_a_tenth_of_the_gradient_along_the_set_is_seen(
    name: str, dtype: torch.dtype
) -> None:
    # What points along the set, no normal of it can balance.
    relative = kkt_residual(at(PLACES[name], dtype, tilt=0.1)).details["relative"]
    assert relative == pytest.approx(0.1 / 1.01**0.5, rel=0.01)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("simplex, vertex", [1 / 3, 1 / 3, 1 / 3]),
        ("box, corner", [0.5, 0.5, 0.5]),
        ("box, face", [0.5, 0.5, 0.5]),
        ("L1, vertex", [0.0, 0.0, 0.0]),
        ("L1, face", [0.0, 0.0, 0.0]),
        ("ball", [0.0, 0.0, 0.0]),
        ("halfspace", [-9.0, -9.0, 0.0]),
        ("cone, side", [20.0, 0.0, 0.0]),
        ("spectral, edge", [0.0] * 9),
        ("nuclear, vertex", [0.0] * 9),
    ],
)
def test_a_tenth_of_the_way_inside_is_seen(
    name: str, inside: list[float], dtype: torch.dtype
) -> None:
    problem = at(PLACES[name], dtype)
    (w,) = problem.parameters
    with torch.no_grad():
        w.lerp_(torch.tensor(inside, dtype=dtype).reshape(w.shape), 0.1)
    measure = kkt_residual(problem)
    assert measure.details["relative"] >= 0.3
    # A thousandth of the tenth is a small matter, and no more than small.
    near = at(PLACES[name], dtype)
    (w,) = near.parameters
    with torch.no_grad():
        w.lerp_(torch.tensor(inside, dtype=dtype).reshape(w.shape), 1e-4)
    assert 1e-4 <= kkt_residual(near).details["relative"] <= 0.1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLACES)
def test_a_projection_is_certified_with_its_distance(
    name: str, dtype: torch.dtype
) -> None:
    # min |w - y|^2 / 2: the answer is P(y) and the multiplier |y - P(y)|. The projector
    # aims a hair inside and rounds to the dtype.
    place = PLACES[name]
    w, n, d = place.tensors(dtype)
    noise = torch.randn(w.shape, generator=torch.Generator().manual_seed(5)).to(w)
    with torch.no_grad():
        w += n + 0.1 * d + 0.05 * noise
    y = w.detach().clone()
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: 0.5 * (w - y).square().sum()),
        {"set": place.members.on(w)},
    )
    moved = oneproj.project(w, problem.constraints)
    measure = kkt_residual(problem)
    assert measure.details["relative"] <= ACCURACY[dtype]
    found = measure.details["multipliers"]["set"]
    assert found == pytest.approx(moved.distance, rel=1e-5)
    assert moved.multipliers["set"] == pytest.approx(moved.distance, rel=1e-5)
    assert moved.kkt_residual <= ACCURACY[dtype]
