"""Vectors that are kept for their inner products: a matrix, if they are small."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from oneproj.arrays import Array
from oneproj.parameters import Vector
from oneproj.projection.vectors.blocks import combination, products

SHORT = 2**14
"""Numbers in a vector up to which copying it costs less than looping over vectors."""


class Rows:
    """The rows of a matrix in float64, with room for more.

    Example:
        >>> rows = Rows()
        >>> rows.append(np.array([3.0, 0.0])).tolist()
        [9.0]
        >>> rows.append(np.array([1.0, 2.0])).tolist()
        [3.0, 5.0]
    """

    def __init__(self) -> None:
        """Start empty."""
        self._room: Array = np.zeros((0, 0))
        self._count = 0

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    @property
    def matrix(self) -> Array:
        """The rows."""
        rows: Array = self._room[: self._count]
        return rows

    def append(self, row: Array) -> Array:
        """Copy a row; returns its product with each, itself last."""
        n = self._count
        if n == len(self._room):
            grown = np.zeros((max(2 * n, 8), len(row)))
            if n:
                grown[:n] = self._room
            self._room = grown
        self._room[n] = row
        self._count += 1
        return self.products(row)

    def products(self, row: Array) -> Array:
        """The product of a row with each."""
        found: Array = self._room[: self._count].dot(row)
        return found

    def remove(self, i: int) -> None:
        """Drop a row; those after it move up."""
        self._count -= 1
        self._room[i : self._count] = self._room[i + 1 : self._count + 1]


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
        self._rows = Rows()
        self._row: _Row | None = None

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
        return self._rows.append(self._row.of(vector))

    def products(self, vector: Vector) -> Array:
        """The product of a vector with each of those that are kept."""
        if self._row is None or not self._vectors:
            return np.array(products(vector, self._vectors))
        return self._rows.products(self._row.of(vector))

    def combination(self, weights: Sequence[float] | Array) -> list[Tensor]:
        """``sum_i weights[i] * vector_i``."""
        if self._row is None:
            return combination(*self._used(weights))
        kept = self._vectors
        parts = self._row.holding(weights, self._rows.matrix)
        return [p.to(t, copy=True) for p, t in zip(parts, kept[0], strict=True)]

    def remove(self, i: int) -> None:
        """Drop a vector; those after it move up."""
        del self._vectors[i]
        if self._row is not None:
            self._rows.remove(i)

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

    def holding(self, weights: Sequence[float] | Array, rows: Array) -> list[Tensor]:
        """The vector with the numbers ``weights @ rows``, until the next."""
        np.dot(weights, rows, out=self._flat.numpy())
        return self._parts


def is_short(vector: Vector) -> bool:
    """Whether vectors like this one become the rows of a matrix.

    Example:
        >>> is_short([torch.zeros(3)])
        True
    """
    on_cpu = all(t.device.type == "cpu" for t in vector)
    return on_cpu and sum(t.numel() for t in vector) <= SHORT
