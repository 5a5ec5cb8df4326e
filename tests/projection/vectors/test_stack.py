"""The stack: products and combinations, the same for short vectors and long ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from oneproj.projection.vectors import stack as stacks
from oneproj.projection.vectors.stack import Stack


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
@pytest.mark.parametrize("short", [0, stacks.SHORT])
def test_it_does_what_a_matrix_does(
    short: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "SHORT", short)
    vectors, stack = draw(20, dtype), Stack()
    kept: list[list[Tensor]] = []
    rng = np.random.default_rng(0)
    for k, vector in enumerate(vectors):
        kept.append(vector)
        M = rows(kept)
        np.testing.assert_allclose(stack.append(vector), M @ M[-1], atol=1e-12)
        if k % 3 == 2:
            i = int(rng.integers(len(kept)))
            stack.remove(i)
            del kept[i]
        M, weights = rows(kept), rng.normal(size=len(kept))
        weights[rng.integers(len(kept))] = 0.0
        assert len(stack) == len(kept)
        other = draw(1, dtype, seed=k + 1)[0]
        np.testing.assert_allclose(
            stack.products(other), M @ rows([other])[0], atol=1e-12
        )
        found = stack.combination(weights)
        assert [t.dtype for t in found] == [dtype] * 3
        assert [t.shape for t in found] == [t.shape for t in other]
        near = 1e-12 if dtype == torch.float64 else 1e-5
        np.testing.assert_allclose(rows([found])[0], weights @ M, atol=near)


@pytest.mark.parametrize("short", [0, stacks.SHORT])
def test_no_weight_at_all_is_the_zero_vector(
    short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "SHORT", short)
    stack = Stack()
    for vector in draw(2, torch.float64):
        stack.append(vector)
    assert all((t == 0).all() for t in stack.combination([0.0, 0.0]))


def test_an_empty_stack_has_no_products() -> None:
    assert len(Stack().products(draw(1, torch.float64)[0])) == 0


def test_short_vectors_are_copied() -> None:
    """Whoever reuses a gradient's memory does not change the past."""
    vector, stack = draw(1, torch.float64)[0], Stack()
    square = stack.append(vector)[0]
    for t in vector:
        t.zero_()
    again = stack.combination([1.0])
    assert sum(float((t * t).sum()) for t in again) == pytest.approx(square)
