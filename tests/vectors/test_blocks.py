"""Sums in blocks: the same as at once, also where a block ends."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oneproj.vectors import arithmetic, combine, dot, norm
from oneproj.vectors.arithmetic import (
    combine_into,
    combined_norm,
    gradients,
    products,
    remainder,
)

WEIGHTS = [2.0, -1.0, 0.5]


@pytest.fixture(autouse=True, params=[3, 2**17])
def _block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "BLOCK", request.param)
    monkeypatch.setattr(arithmetic, "SLICE", request.param)


def draw(dtype: torch.dtype, count: int = 3) -> list[list[Tensor]]:
    """Of shapes that end with a block, within one, and before one."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 2), (4,), (), (0,), (7, 3))
    return [
        [torch.randn(s, generator=generator, dtype=dtype) for s in shapes]
        for _ in range(count)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_in_blocks_is_the_sum(dtype: torch.dtype) -> None:
    vectors = draw(dtype)
    a, b, c = WEIGHTS
    expected = [a * x + b * y + c * z for x, y, z in zip(*vectors, strict=True)]
    found, (origin, *_) = combine(WEIGHTS, vectors), draw(dtype, 1)
    point = [torch.full_like(t, torch.nan) for t in origin]
    combine_into(point, origin, WEIGHTS, vectors)
    for total, there, x, part in zip(found, point, origin, expected, strict=True):
        assert total.dtype == dtype
        torch.testing.assert_close(total, part)
        assert torch.equal(there, x + total)
    near = 1e-12 if dtype == torch.float64 else 1e-6
    assert combined_norm(WEIGHTS, vectors) == pytest.approx(norm(expected), rel=near)
    others = [dot(vectors[0], v) for v in vectors]
    assert products(vectors[0], vectors) == pytest.approx(others, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_remainder_in_place_is_the_remainder(dtype: torch.dtype) -> None:
    vector, *others = draw(dtype)
    expected, products_of_it = remainder(vector, WEIGHTS[:2], others)
    found, same = remainder(vector, WEIGHTS[:2], others, in_place=True)
    assert same == products_of_it
    for own, left, part in zip(vector, found, expected, strict=True):
        assert own is left
        assert torch.equal(left, part)


def test_what_is_not_contiguous_is_written_in_its_own_order() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    point = torch.zeros(4, 3).T
    combine_into([point], [whole], [1.0], [[whole.T.contiguous().T]])
    assert torch.equal(point, 2.0 * whole)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_lengths_whose_squares_do_not_fit_are_right(scale: float) -> None:
    vector = [torch.full((9,), scale, dtype=torch.float32)]
    length = combined_norm([1.0, 2.0], [vector, vector])
    assert length == pytest.approx(9.0 * scale, rel=1e-6)


def test_no_length_is_zero() -> None:
    zero = [torch.zeros(9), torch.zeros(0)]
    assert combined_norm([1.0], [zero]) == 0.0
    assert math.isnan(combined_norm([1.0], [[torch.full((9,), torch.nan)]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_distance_of_half_precision_points_is_not_rounded(
    dtype: torch.dtype,
) -> None:
    here, there, _ = draw(dtype)
    exact = combine([1.0, -1.0], [[t.double() for t in v] for v in (here, there)])
    found = combined_norm([1.0, -1.0], [here, there])
    assert found == pytest.approx(norm(exact), rel=1e-6)


def test_gradients_are_those_there_are_and_zeros_elsewhere() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(1, 3, requires_grad=True)
    (3 * a).sum().backward()
    found = gradients([a, b])
    assert found[0] is a.grad, "no copy"
    assert found[0].tolist() == [3.0, 3.0]
    assert torch.equal(found[1], torch.zeros(1, 3))
    assert b.grad is None, "looking leaves nothing behind"


def test_zeros_for_gradients_keep_dtype_and_need_none_themselves() -> None:
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (zeros,) = gradients([w])
    assert zeros.dtype == torch.float64
    assert not zeros.requires_grad
