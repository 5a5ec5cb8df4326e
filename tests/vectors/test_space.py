"""Short vectors in arrays and long ones in tensors: the same arithmetic and storage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from oneproj.vectors.space import (
    SHORT,
    Short,
    _LongSpace,
    _ShortSpace,
    space_around,
    storage_like,
)

SPACES = [_ShortSpace, _LongSpace]


def draw(seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for shape in ((2, 3), (), (4,))
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", SPACES)
def test_a_displacement_leads_to_its_point(
    make: type[_ShortSpace | _LongSpace], dtype: torch.dtype
) -> None:
    origin, wanted = draw(0, dtype), draw(1, dtype)
    space, point = make(origin), draw(2, dtype)
    space.write(space.displacement(wanted), point)
    for found, want in zip(point, wanted, strict=True):
        torch.testing.assert_close(found, want)
    assert space.displacement(origin).norm() == 0.0


def test_a_displacement_of_few_numbers_has_no_rounding_of_its_own() -> None:
    space = space_around([torch.full((2,), 1e4)])
    point = [torch.tensor([1.0, 1e-3])]
    moved = space.displacement(point)
    assert isinstance(moved, Short)
    exact = np.array([1.0, np.float32(1e-3)], dtype=np.float64) - 1e4
    assert moved.numbers.tolist() == exact.tolist()


@pytest.mark.parametrize("make", SPACES)
def test_arithmetic(make: type[_ShortSpace | _LongSpace]) -> None:
    space = make(draw(0))
    a, b = space.pack(draw(1)), space.pack(draw(2))
    x, y = (np.concatenate([t.reshape(-1) for t in draw(k)]) for k in (1, 2))
    assert a.dot(b) == pytest.approx(x @ y)
    assert a.norm() == pytest.approx(np.linalg.norm(x))
    assert a.minus(b).norm() == pytest.approx(np.linalg.norm(x - y))
    c = a.times(3.0)
    c.add(b, -2.0)
    assert c.norm() == pytest.approx(np.linalg.norm(3 * x - 2 * y))
    storage = storage_like(a)
    for vector in (a, b):
        storage.append(vector)
    assert storage.products(b) == pytest.approx([x @ y, y @ y])
    assert storage.combination(np.array([3.0, -2.0])).minus(c).norm() < 1e-14
    assert storage.combination(np.array([0.0, 0.0])).norm() == 0.0
    point = draw(3)
    storage.write(np.array([3.0]), space, point)
    assert space.displacement(point).minus(a.times(3.0)).norm() < 1e-14
    assert space.length(point) == pytest.approx(3.0 * a.norm())


@pytest.mark.parametrize("make", SPACES)
def test_a_sum_means_the_same_when_more_vectors_have_come(
    make: type[_ShortSpace | _LongSpace],
) -> None:
    space, weights = make(draw(0)), np.array([2.0])
    first, second = space.pack(draw(1)), space.pack(draw(2))
    storage = storage_like(first)
    storage.append(first)
    points = []
    for _ in range(2):
        points.append(draw(3))
        storage.write(weights, space, points[-1])
        storage.append(second)
    assert all(torch.equal(a, b) for a, b in zip(*points, strict=True))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_length_of_numbers_without_squares(size: float) -> None:
    with np.errstate(over="ignore"):
        assert Short(np.full(4, size), 0.0).norm() == pytest.approx(2.0 * size)
        assert Short(np.array([math.inf, 1.0]), 0.0).norm() == math.inf
        assert math.isnan(Short(np.array([math.nan, 1.0]), 0.0).norm())


def test_what_was_packed_stays() -> None:
    space = space_around([torch.zeros(2)])
    first = space.pack([torch.ones(2)])
    space.pack([torch.zeros(2)])
    assert first.norm() ** 2 == pytest.approx(2.0)


def test_only_short_vectors_are_arrays() -> None:
    for size, short in ((SHORT, True), (SHORT + 1, False)):
        space = space_around([torch.zeros(size)])
        assert isinstance(space, _ShortSpace) is short


Space = _ShortSpace | _LongSpace
both = pytest.mark.parametrize("make", [_ShortSpace, _LongSpace])


def draw_many(count: int, dtype: torch.dtype, seed: int = 0) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        [torch.randn(s, generator=generator).to(dtype) for s in ((3, 2), (), (4,))]
        for _ in range(count)
    ]


def rows(vectors: list[list[Tensor]]) -> np.ndarray:
    return np.array(
        [torch.cat([t.flatten().double() for t in v]).numpy() for v in vectors]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@both
def test_it_does_what_a_matrix_does(make: type[Space], dtype: torch.dtype) -> None:
    vectors = draw_many(20, dtype)
    space = make([torch.zeros_like(t) for t in vectors[0]])
    storage = storage_like(space.pack(vectors[0]))
    kept: list[list[Tensor]] = []
    rng = np.random.default_rng(0)
    for k, vector in enumerate(vectors):
        kept.append(vector)
        M, packed = rows(kept), space.pack(vector)
        storage.append(packed)
        np.testing.assert_allclose(storage.products(packed), M @ M[-1], atol=1e-12)
        weights = rng.normal(size=len(kept))
        weights[rng.integers(len(kept))] = 0.0
        assert len(storage) == len(kept)
        other = draw_many(1, dtype, seed=k + 1)[0]
        found = storage.products(space.pack(other))
        np.testing.assert_allclose(found, M @ rows([other])[0], atol=1e-12)
        storage.write(weights, space, other)
        near = 1e-12 if dtype == torch.float64 else 1e-5
        np.testing.assert_allclose(rows([other])[0], weights @ M, atol=near)


@both
def test_no_weight_at_all_is_the_zero_vector(make: type[Space]) -> None:
    first, second = draw_many(2, torch.float64)
    space = make(first)
    storage = storage_like(space.pack(first))
    for vector in (first, second):
        storage.append(space.pack(vector))
    assert storage.combination(np.zeros(2)).norm() == 0.0


def test_short_vectors_are_copied() -> None:
    """Whoever reuses a gradient's memory does not change the past."""
    vector = draw_many(1, torch.float64)[0]
    space = _ShortSpace([torch.zeros_like(t) for t in vector])
    packed = space.pack(vector)
    storage = storage_like(packed)
    storage.append(packed)
    square = packed.dot(packed)
    for t in vector:
        t.zero_()
    packed.numbers[:] = 0.0
    assert storage.combination(np.ones(1)).norm() ** 2 == pytest.approx(square)
