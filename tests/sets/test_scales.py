"""Sets whose numbers are near the ends of a dtype's range, and points with NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import InvalidProblemError

WIDE, NARROW = torch.float64, torch.float32
SIZES = {
    WIDE: (1e-300, 1e-150, 1e-15, 1.0, 1e15, 1e17, 1e150, 2e200),
    NARROW: (1e-30, 1e-8, 1.0, 1e8, 1e17, 1e36),
}
Build = Callable[[float], oneproj.sets.AbstractSet]

# By name: the set for a scale of its own, and members of it, shaped like the point.
SETS: dict[str, tuple[Build, Callable[[float], list[Tensor]]]] = {
    "ball": (
        oneproj.sets.Ball,
        lambda s: [torch.zeros(3, 4), torch.full((3, 4), s / 4, dtype=WIDE)],
    ),
    "centered ball": (
        lambda s: oneproj.sets.Ball(s, center=torch.full((3, 4), s, dtype=WIDE)),
        lambda s: [torch.full((3, 4), s, dtype=WIDE)],
    ),
    "box": (
        lambda s: oneproj.sets.Box(-s, s),
        lambda s: [torch.zeros(3, 4), torch.full((3, 4), s, dtype=WIDE) / 2],
    ),
    "halfspace": (
        lambda s: oneproj.sets.Halfspace(torch.full((3, 4), s, dtype=WIDE), 0.0),
        lambda s: [torch.zeros(3, 4), torch.full((3, 4), -s, dtype=WIDE)],
    ),
    "affine": (
        lambda _: oneproj.sets.Affine(torch.ones(1, 12), torch.zeros(1)),
        lambda _: [torch.zeros(3, 4)],
    ),
    "cone": (
        lambda _: oneproj.sets.SecondOrderCone(),
        lambda s: [torch.zeros(3, 4), _first(2 * s)],
    ),
    "simplex": (
        oneproj.sets.Simplex,
        lambda s: [_first(s), torch.full((3, 4), s / 12, dtype=WIDE)],
    ),
    "L1 ball": (
        oneproj.sets.L1Ball,
        lambda s: [torch.zeros(3, 4), _first(s), -_first(s)],
    ),
    "nuclear ball": (
        oneproj.sets.NuclearBall,
        lambda s: [torch.zeros(3, 4), _first(s)],
    ),
    "spectral ball": (
        oneproj.sets.SpectralBall,
        lambda s: [torch.zeros(3, 4), s * torch.eye(3, 4, dtype=WIDE)],
    ),
    "rank": (
        lambda _: oneproj.sets.Rank(1),
        lambda s: [torch.zeros(3, 4), torch.full((3, 4), s, dtype=WIDE)],
    ),
}


def _first(value: float) -> Tensor:
    point = torch.zeros(3, 4, dtype=WIDE)
    point[0, 0] = value
    return point


def length(x: Tensor) -> float:
    """The norm of a point whose squares may overflow."""
    return math.hypot(*x.detach().double().flatten().tolist())


def scaled_point(size: float, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 4, generator=generator, dtype=WIDE)
    return (x.sign() * x.abs() ** (1 + 2 * seed) * size).to(dtype)


@pytest.mark.parametrize("dtype", [WIDE, NARROW], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", SETS)
def test_the_answer_is_finite_feasible_and_nearest_at_every_scale(
    kind: str, dtype: torch.dtype
) -> None:
    build, members = SETS[kind]
    for scale in (1.0, *SIZES[dtype]):
        for size in SIZES[dtype] if scale == 1.0 else (scale,):
            for seed in range(2):
                x = scaled_point(size, dtype, seed)
                w = x.clone().requires_grad_()
                constraint = build(scale).on(w)
                done = oneproj.project(w, {"set": constraint}, on_failure="return")
                told = f"scale {scale}, point of size {size}, seed {seed}: {done}"
                assert done.status.ok, told
                assert constraint.value() <= 0, told
                assert bool(torch.isfinite(w).all()), told
                assert math.isfinite(done.distance), told
                moved = length(w.detach().double() - x.double())
                assert done.distance == pytest.approx(moved, rel=1e-5), told
                for member in members(scale):
                    other = length(x.double() - member.double())
                    # Aiming inside takes a few rounding units of the set's size.
                    room = 1e-4 * (scale if dtype is NARROW else 1e-6 * scale)
                    assert moved <= other * (1 + 1e-5) + room, told


@pytest.mark.parametrize("size", [1e15, 1e16, 1e17, 1e150])
def test_a_simplex_is_met_from_entries_that_dwarf_its_total(size: float) -> None:
    x = torch.tensor([size, size, 0.0, -size], dtype=WIDE)
    found = oneproj.sets.Simplex().project(x)
    assert found.tolist() == [0.5, 0.5, 0.0, 0.0]
    found = oneproj.sets.L1Ball(1.0).project(x)
    assert found.tolist() == pytest.approx([1 / 3, 1 / 3, 0.0, -1 / 3])
    matrix = torch.diag(torch.tensor([size, size, 0.0], dtype=WIDE))
    found = oneproj.sets.NuclearBall(1.0).project(matrix)
    assert found.diagonal().tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-9)


@pytest.mark.parametrize("size", [2e200, 1e-200])
def test_a_ball_is_met_where_squares_overflow_or_underflow(size: float) -> None:
    x = torch.tensor([3 * size, -4 * size], dtype=WIDE)
    found = oneproj.sets.Ball(size).project(x)
    assert (found / size).tolist() == pytest.approx([0.6, -0.8])
    assert float(oneproj.sets.Ball(size).residual(x)) == pytest.approx(4 * size)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", SETS)
def test_a_point_with_nan_or_inf_is_refused(kind: str, wrong: float) -> None:
    members = SETS[kind][0](1.0)
    x = torch.ones(3, 4, dtype=WIDE)
    x[0, 1] = x[2, 2] = wrong
    with pytest.raises(InvalidProblemError, match=r"2 of the 12") as caught:
        members.project(x)
    assert type(members).__name__ in str(caught.value)
