"""Sums of long vectors, a block at a time.

A sum of k vectors that do not fit the cache, made vector by vector, reads and writes
the sum k times; made block by block it is read never and written once. New memory costs
more than either, since the system hands it out page by page: what can be written in
place is, and what is wanted only for its length is never kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from oneproj.vectors.arithmetic import TINY, Array, Vector, norm

BLOCK = 2**17
"""Numbers in a block: it and the sum so far fit the caches of a core."""
SLICE = 2**14
"""Numbers in a block of many vectors in float64, all of which are to fit."""


@torch.no_grad()
def combine_into(
    point: Vector, origin: Vector, weights: Sequence[float], vectors: Sequence[Vector]
) -> None:
    """Write ``origin + sum_k weights[k] * vectors[k]`` into the tensors of ``point``.

    Example:
        >>> w, v = torch.zeros(2), torch.tensor([1.0, 2.0])
        >>> combine_into([w], [torch.ones(2)], [2.0, -1.0], [[v], [torch.ones(2)]])
        >>> w.tolist()
        [2.0, 4.0]
    """
    for y, x, *parts in _aligned([point, origin, *vectors]):
        torch.add(x, _sum(weights, parts), out=y)


@torch.no_grad()
def combination(weights: Sequence[float], vectors: Sequence[Vector]) -> list[Tensor]:
    """The vector ``sum_k weights[k] * vectors[k]``.

    Example:
        >>> combination([2.0, -1.0], [[torch.ones(1)], [torch.ones(1)]])
        [tensor([1.])]
    """
    total = [torch.empty_like(t) for t in vectors[0]]
    for y, first, *rest in _aligned([total, *vectors]):
        torch.mul(first, weights[0], out=y)
        for weight, part in zip(weights[1:], rest, strict=True):
            y.add_(part, alpha=weight)
    return total


@torch.no_grad()
def combined_norm(weights: Sequence[float], vectors: Sequence[Vector]) -> float:
    """The length of ``sum_k weights[k] * vectors[k]``, which is not formed.

    Half precision, in which a difference of near vectors is mostly rounding, is left
    for single.

    Example:
        >>> combined_norm([1.0, -1.0], [[torch.tensor([3.0])], [torch.tensor([1.0])]])
        2.0
    """
    lengths = [
        torch.linalg.vector_norm(_sum(weights, _single(parts)), dtype=torch.float64)
        for parts in _aligned(vectors)
    ]
    length = math.hypot(*(float(part) for part in lengths))
    if TINY < length < math.inf:
        return length
    return norm(combination(weights, vectors))


@torch.no_grad()
def products(vector: Vector, others: Sequence[Vector]) -> list[float]:
    """The inner product with each of the others, formed and added in float64.

    Example:
        >>> products([torch.tensor([3.0])], [[torch.tensor([2.0])]])
        [6.0]
    """
    parts: list[list[float]] = [[] for _ in others]
    for first, *rest in _aligned([vector, *others]):
        x = first.reshape(-1).double()
        for found, part in zip(parts, rest, strict=True):
            found.append(float(torch.dot(x, part.reshape(-1).double())))
    return [math.fsum(found) for found in parts]


@torch.no_grad()
def products_of_change(
    vector: Vector, less: Vector, others: Sequence[Vector]
) -> list[float]:
    """Those of ``vector - less``, which is not kept; its square comes last.

    Example:
        >>> x, y = [torch.tensor([3.0])], [torch.tensor([5.0])]
        >>> products_of_change(x, y, [x, y])
        [-6.0, -10.0, 4.0]
    """
    parts: list[list[float]] = [[] for _ in range(len(others) + 1)]
    for first, second, *rest in _aligned([vector, less, *others]):
        x = first.reshape(-1).double() - second.reshape(-1).double()
        blocks = (part.reshape(-1).double() for part in rest)
        for found, part in zip(parts, (*blocks, x), strict=True):
            found.append(float(torch.dot(x, part)))
    return [math.fsum(found) for found in parts]


@torch.no_grad()
def remainder(
    vector: Vector,
    weights: Sequence[float],
    others: Sequence[Vector],
    *,
    in_place: bool = False,
) -> tuple[list[Tensor], list[float]]:
    """``vector - sum_k weights[k] * others[k]``; its products, and last its square.

    Each block is multiplied while it is in the cache. In place, the vector's own memory
    has the remainder afterwards.

    Example:
        >>> x, y = [torch.tensor([3.0])], [torch.tensor([1.0])]
        >>> remainder(x, [2.0], [y])
        ([tensor([1.])], [1.0, 1.0])
    """
    left = list(vector) if in_place else [torch.empty_like(t) for t in vector]
    parts: list[list[float]] = [[] for _ in range(len(others) + 1)]
    for y, first, *rest in _aligned([left, vector, *others]):
        wide = (
            y if y.dtype == torch.float64 else torch.empty_like(y, dtype=torch.double)
        )
        wide.copy_(first)
        for weight, part in zip(weights, rest, strict=True):
            wide.add_(part, alpha=-weight)
        y.copy_(wide)  # in few bits it is rounded once
        x = y.reshape(-1).double()
        for found, part in zip(parts, (*rest, y), strict=True):
            found.append(float(torch.dot(x, part.reshape(-1).double())))
    return left, [math.fsum(found) for found in parts]


@torch.no_grad()
def rotate(vectors: Sequence[Vector], turn: Array) -> None:
    """Write combinations of vectors into the first of them, block by block.

    Args:
        vectors: As many as a row of ``turn`` has weights.
        turn: A row of weights for each combination, at most as many as vectors.

    Example:
        >>> a, b = torch.tensor([1.0]), torch.tensor([2.0])
        >>> rotate([[a], [b]], torch.tensor([[1.0, 3.0]]).double().numpy())
        >>> a
        tensor([7.])
    """
    for parts in _aligned(vectors, SLICE):
        weights = torch.as_tensor(turn).to(parts[0].device, torch.float64)
        rows = torch.stack([part.reshape(-1) for part in parts]).double()
        turned = weights @ rows
        for part, row in zip(parts, turned, strict=False):
            part.copy_(row.view(part.shape))


@torch.no_grad()
def product_table(
    vectors: Sequence[Vector],
    others: Sequence[Vector],
    less: Sequence[Vector | None],
) -> Tensor:
    """The inner products in float64: a row for each vector, a column for each other.

    Of ``vectors[j] - less[j]`` where that is given; their products with each other come
    last. A block is converted once per list that it is in, however many products it
    takes part in, and no copy is longer than a block.

    Example:
        >>> a, b = [torch.tensor([3.0, 1.0])], [torch.tensor([0.0, 2.0])]
        >>> product_table([a, b], [b], [None, None]).tolist()
        [[2.0, 10.0, 2.0], [4.0, 2.0, 4.0]]
        >>> product_table([a], [b], less=[b]).tolist()
        [[-2.0, 10.0]]
    """
    n, m = len(others), len(vectors)
    lessened = [j for j, v in enumerate(less) if v is not None]
    rows = [*others, *vectors, *(v for v in less if v is not None)]
    table = torch.zeros(m, n + m, dtype=torch.float64, device="cpu")
    longest = min(SLICE, max(t.numel() for t in vectors[0]))
    wide = torch.empty(len(rows), longest, dtype=torch.float64, device="cpu")
    for tensors in zip(*rows, strict=True):
        blocks = (t.detach().reshape(-1).split(SLICE) for t in tensors)
        for parts in zip(*blocks, strict=True):
            block = wide[:, : len(parts[0])]
            torch._foreach_copy_(list(block), list(parts))
            for k, j in enumerate(lessened):
                block[n + j] -= block[n + m + k]
            table.addmm_(block[n : n + m], block[: n + m].T)
    return table


def _aligned(
    vectors: Sequence[Vector], block: int | None = None
) -> Iterator[tuple[Tensor, ...]]:
    """The same block of every vector, for one block after the other.

    What is not contiguous, or on a device that has its own idea of speed, is one block.
    """
    block = BLOCK if block is None else block
    for tensors in zip(*vectors, strict=True):
        whole = tuple(t.detach() for t in tensors)
        long = whole[0].numel() > block and whole[0].device.type == "cpu"
        if long and all(t.is_contiguous() for t in whole):
            yield from zip(*(t.view(-1).split(block) for t in whole), strict=True)
        else:
            yield whole


def _single(parts: Sequence[Tensor]) -> list[Tensor]:
    """The parts, in single precision at least."""
    return [p.to(torch.promote_types(p.dtype, torch.float32)) for p in parts]


def _sum(weights: Sequence[float], parts: Sequence[Tensor]) -> Tensor:
    total = weights[0] * parts[0]
    for weight, part in zip(weights[1:], parts[1:], strict=True):
        total.add_(part, alpha=weight)
    return total
