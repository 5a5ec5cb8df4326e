"""Vectors that are kept for their inner products: a matrix, if they are small."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from oneproj.parameters import Vector
from oneproj.projection.blocks import combination, combine_into, products
from oneproj.simplex_qp import Array

SHORT = 2**14
"""Numbers in a vector up to which copying it costs less than looping over vectors."""


class Stack:
    """A list of vectors of the same shapes, with products and combinations of them.

    Short vectors on the CPU become the rows of a matrix in float64, and one product
    with it does the work; long ones are kept as they are, without a copy.

    Example:
        >>> stack = Stack()
        >>> stack.append([torch.tensor([3.0, 0.0])]).tolist()
        [9.0]
        >>> stack.append([torch.tensor([1.0, 2.0])]).tolist()
        [3.0, 5.0]
        >>> stack.combination([2.0, -1.0])
        [tensor([ 5., -2.])]
    """

    def __init__(self) -> None:
        """Start empty."""
        self._vectors: list[Vector] = []
        self._rows: Array = np.zeros((0, 0))
        self._row: _Row | None = None
        self._origin: tuple[Vector | None, Array] = None, np.zeros(0)

    def __len__(self) -> int:
        """How many vectors there are."""
        return len(self._vectors)

    def append(self, vector: Vector) -> Array:
        """Keep a vector; returns its product with each, itself last."""
        kept = self._vectors
        if not kept:
            self._row = _Row(vector) if is_short(vector) else None
        kept.append(vector)
        if self._row is None:
            return np.array(products(vector, kept))
        n, row = len(kept), self._row.of(vector)
        if n > len(self._rows):
            grown = np.zeros((max(2 * n, 8), len(row)))
            grown[: n - 1] = self._rows[: n - 1] if n > 1 else 0.0
            self._rows = grown
        self._rows[n - 1] = row
        found: Array = self._rows[:n].dot(row)
        return found

    def products(self, vector: Vector) -> Array:
        """The product of a vector with each of those that are kept."""
        if self._row is None or not self._vectors:
            return np.array(products(vector, self._vectors))
        found: Array = self._rows[: len(self._vectors)].dot(self._row.of(vector))
        return found

    def combination(
        self, weights: Sequence[float] | Array, *, wide: bool = False
    ) -> list[Tensor]:
        """``sum_i weights[i] * vector_i``; wide is in float64, if they are short."""
        if self._row is None:
            return combination(*self._used(weights))
        kept = self._vectors
        parts = self._row.holding(weights, self._rows[: len(kept)])
        if wide:
            return [part.clone() for part in parts]
        return [p.to(t, copy=True) for p, t in zip(parts, kept[0], strict=True)]

    def move(
        self, point: Vector, origin: Vector, weights: Sequence[float] | Array
    ) -> None:
        """Write ``origin + sum_i weights[i] * vector_i`` into ``point``.

        None of them requires a gradient. There may be more vectors than weights; the
        last ones then do not count.
        """
        if self._row is None:
            combine_into(point, origin, *self._used(weights))
            return
        if self._origin[0] is not origin:  # as a rule it is that of the last move
            self._origin = origin, self._row.of(origin).copy()
        parts = self._row.holding(weights, self._rows[: len(weights)], self._origin[1])
        torch._foreach_copy_(list(point), parts)

    def remove(self, i: int) -> None:
        """Drop a vector; those after it move up."""
        del self._vectors[i]
        if len(self._rows):
            self._rows[i:-1] = self._rows[i + 1 :]

    def _used(
        self, weights: Sequence[float] | Array
    ) -> tuple[list[float], list[Vector]]:
        # The first one is there for the shapes, should all weights be zero.
        used = [i for i, weight in enumerate(weights) if weight != 0 or i == 0]
        return [float(weights[i]) for i in used], [self._vectors[i] for i in used]


class _Row:
    """One row of numbers, and the tensors of a vector that share its memory.

    Tensors both: a checkpoint keeps what tensors share, but not what arrays do.
    """

    def __init__(self, like: Vector) -> None:
        sizes = [prod(t.shape) for t in like]
        self._flat = torch.zeros(sum(sizes), dtype=torch.float64, device="cpu")
        self._parts = [
            part.view(t.shape)
            for part, t in zip(self._flat.split_with_sizes(sizes), like, strict=True)
        ]

    def of(self, vector: Vector) -> Array:
        """The numbers of a vector, until the next one's."""
        torch._foreach_copy_(self._parts, list(vector))
        numbers: Array = self._flat.numpy()
        return numbers

    def holding(
        self, weights: Sequence[float] | Array, rows: Array, origin: Array | None = None
    ) -> list[Tensor]:
        """The vector with the numbers ``origin + weights @ rows``, until the next."""
        numbers: Array = self._flat.numpy()
        np.dot(weights, rows, out=numbers)
        if origin is not None:
            numbers += origin
        return self._parts


def is_short(vector: Vector) -> bool:
    """Whether vectors like this one become the rows of a matrix.

    Example:
        >>> is_short([torch.zeros(3)])
        True
    """
    on_cpu = all(t.device.type == "cpu" for t in vector)
    return on_cpu and sum(t.numel() for t in vector) <= SHORT
