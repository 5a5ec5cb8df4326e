"""The pile: products and combinations, the same for short vectors and long ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from oneproj.vectors.space import _LongSpace, _ShortSpace
from oneproj.vectors.storage import pile_of

Space = _ShortSpace | _LongSpace
both = pytest.mark.parametrize("make", [_ShortSpace, _LongSpace])


def draw(count: int, dtype: torch.dtype, seed: int = 0) -> list[list[Tensor]]:
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
    vectors = draw(20, dtype)
    space = make([torch.zeros_like(t) for t in vectors[0]])
    pile = pile_of(space.pack(vectors[0]))
    kept: list[list[Tensor]] = []
    rng = np.random.default_rng(0)
    for k, vector in enumerate(vectors):
        kept.append(vector)
        M, packed = rows(kept), space.pack(vector)
        np.testing.assert_allclose(pile.append(packed), M @ M[-1], atol=1e-12)
        if k % 3 == 2:
            i = int(rng.integers(len(kept)))
            pile.remove(i)
            del kept[i]
        M, weights = rows(kept), rng.normal(size=len(kept))
        weights[rng.integers(len(kept))] = 0.0
        assert len(pile) == len(kept)
        other = draw(1, dtype, seed=k + 1)[0]
        found = pile.products(space.pack(other))
        np.testing.assert_allclose(found, M @ rows([other])[0], atol=1e-12)
        pile.write(weights, space, other)
        near = 1e-12 if dtype == torch.float64 else 1e-5
        np.testing.assert_allclose(rows([other])[0], weights @ M, atol=near)


@both
def test_no_weight_at_all_is_the_zero_vector(make: type[Space]) -> None:
    first, second = draw(2, torch.float64)
    space = make(first)
    pile = pile_of(space.pack(first))
    for vector in (first, second):
        pile.append(space.pack(vector))
    assert pile.combination(np.zeros(2)).norm() == 0.0


def test_short_vectors_are_copied() -> None:
    """Whoever reuses a gradient's memory does not change the past."""
    vector = draw(1, torch.float64)[0]
    space = _ShortSpace([torch.zeros_like(t) for t in vector])
    packed = space.pack(vector)
    pile = pile_of(packed)
    square = pile.append(packed)[0]
    for t in vector:
        t.zero_()
    packed.numbers[:] = 0.0
    assert pile.combination(np.ones(1)).norm() ** 2 == pytest.approx(square)
