"""The frame: orthonormal coordinates of a growing span."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from oneproj.parameters import combine, difference, distance, dot, norm
from oneproj.projection.frame import INDEPENDENT, Frame


def vectors(
    count: int, seed: int, dtype: torch.dtype = torch.float64
) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        [
            torch.randn(3, 2, generator=generator, dtype=dtype),
            torch.randn(5, generator=generator, dtype=dtype),
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_coordinates_keep_inner_products(seed: int) -> None:
    frame, V = Frame(room=10), vectors(8, seed)
    y = [frame.coordinates(v) for v in V]
    assert frame.size == 8
    for a, ya in zip(V, y, strict=True):
        for b, yb in zip(V, y, strict=True):
            assert float(ya @ yb) == pytest.approx(dot(a, b), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_there_and_back(seed: int) -> None:
    frame, V = Frame(room=10), vectors(6, seed)
    for v in V:
        y = frame.coordinates(v)
        assert distance(frame.vector(y), v) < 1e-11
    for v in V:  # and later, when the frame has grown
        assert distance(frame.vector(frame.coordinates(v)), v) < 1e-11
    assert frame.size == 6, "what is in the span adds nothing"


def test_any_coordinates_are_a_vector_of_their_length() -> None:
    frame = Frame(room=10)
    for v in vectors(6, 0):
        frame.coordinates(v)
    rng = np.random.default_rng(0)
    for size in (1, 3, 6):
        y = np.zeros(10)
        y[:size] = rng.normal(size=size)
        assert norm(frame.vector(y)) == pytest.approx(float(np.linalg.norm(y)))


@pytest.mark.parametrize(("outside", "grows"), [(100.0, True), (0.01, False)])
def test_it_grows_by_what_is_independent_beyond_rounding(
    outside: float,
    grows: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    frame = Frame(room=10)
    frame.coordinates([torch.tensor([1.0, 0.0], dtype=torch.float64)])
    nearly = torch.tensor([1.0, outside * INDEPENDENT], dtype=torch.float64)
    y = frame.coordinates([nearly])
    assert frame.size == np.count_nonzero(y) == 1 + grows
    assert y[0] == pytest.approx(1.0)


def test_zero_adds_nothing() -> None:
    frame = Frame(room=2)
    assert frame.coordinates([torch.zeros(3)]).tolist() == [0.0, 0.0]
    assert frame.size == 0
    frame.coordinates([torch.ones(3)])
    assert frame.coordinates([torch.zeros(3)]).tolist() == [0.0, 0.0]
    assert frame.size == 1


def test_float32_vectors_have_float64_coordinates() -> None:
    frame, V = Frame(room=10), vectors(4, 1, torch.float32)
    y = [frame.coordinates(v) for v in V]
    assert {row.dtype for row in y} == {np.dtype(np.float64)}
    assert {t.dtype for t in frame.vector(y[-1])} == {torch.float32}
    assert distance(frame.vector(y[-1]), V[-1]) < 1e-5


def test_a_full_frame_gives_the_nearest_vector() -> None:
    frame, V = Frame(room=3), vectors(5, 2)
    for v in V:
        y = frame.coordinates(v)
    assert frame.size == 3
    rest = difference(V[-1], frame.vector(y))
    for v in V[:3]:
        assert dot(rest, v) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("share", [1e-4, 1e-6, 1e-8])
def test_nearly_dependent_vectors_keep_their_small_parts(share: float) -> None:
    # As gradients at neighbouring points: the squares alone would lose the difference.
    frame, (base, *others) = Frame(room=6), vectors(5, 3)
    V = [base, *(combine([1.0, share], [base, v]) for v in others)]
    for v in V:
        frame.coordinates(v)
    assert frame.size == 5
    y, z = (frame.coordinates(v) for v in V[-2:])
    apart = distance(V[-2], V[-1])
    assert float(np.linalg.norm(y - z)) == pytest.approx(apart, rel=1e-6)
