"""Packed vectors that are kept for their inner products: a matrix, if they are short.

The short ones are the rows of a matrix in float64, and one product with it does the
work; the long ones are kept as they are, without a copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from oneproj.arrays import Array
from oneproj.parameters import Vector
from oneproj.projection.vectors.blocks import (
    combination,
    combine_into,
    product_table,
    products,
)
from oneproj.projection.vectors.packed import AbstractPacked, Long, Short
from oneproj.projection.vectors.space import AbstractSpace

P = TypeVar("P", bound=AbstractPacked)


class AbstractPile(ABC, Generic[P]):
    """Vectors that are kept for their inner products."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def expect(self, vectors: Sequence[P]) -> None:
        """Prepare for the products of these, if that is better done at once.

        They are not kept for it; they are until others are expected, or none.
        """

    @abstractmethod
    def append(self, vector: P) -> Array:
        """Keep a vector; returns its product with each, itself last."""

    @abstractmethod
    def products(self, vector: P) -> Array:
        """The product of a vector with each of those that are kept."""

    @abstractmethod
    def combination(self, weights: Array) -> P:
        """``sum_i weights[i] * vector_i``, of one vector at least.

        There may be more vectors than weights; the last ones then do not count.
        """

    @abstractmethod
    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        """Write the space's origin plus that sum into the tensors of a point."""

    @abstractmethod
    def remove(self, i: int) -> None:
        """Drop a vector; those after it move up."""


class _ShortPile(AbstractPile[Short]):
    """The rows of a matrix, with room for more."""

    def __init__(self, eps: float) -> None:
        self._matrix: Array = np.zeros((0, 0))
        self._count, self._eps = 0, eps

    def __len__(self) -> int:
        return self._count

    def expect(self, vectors: Sequence[Short]) -> None:
        del vectors  # they are in the matrix's form already

    def append(self, vector: Short) -> Array:
        n, row = self._count, vector.numbers
        if n == len(self._matrix):
            grown = np.zeros((max(2 * n, 8), len(row)))
            if n:
                grown[:n] = self._matrix
            self._matrix = grown
        self._matrix[n] = row
        self._count += 1
        return self.products(vector)

    def products(self, vector: Short) -> Array:
        found: Array = self._matrix[: self._count].dot(vector.numbers)
        return found

    def combination(self, weights: Array) -> Short:
        return Short(weights.dot(self._matrix[: len(weights)]), self._eps)

    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        space.write(self.combination(weights), point)

    def remove(self, i: int) -> None:
        self._count -= 1
        self._matrix[i : self._count] = self._matrix[i + 1 : self._count + 1]


class _LongPile(AbstractPile[Long]):
    """The vectors, and one read of each per product or combination."""

    def __init__(self) -> None:
        self._vectors: list[Vector] = []
        self._expected: list[Vector] = []
        self._found: dict[tuple[int, int], float] = {}

    def __len__(self) -> int:
        return len(self._vectors)

    def expect(self, vectors: Sequence[Long]) -> None:
        self._expected, self._found = [v.tensors for v in vectors], {}
        if len(vectors) > 1:
            others = [*self._vectors, *self._expected]
            table = product_table(self._expected, others)
            for x, row in zip(self._expected, table.tolist(), strict=True):
                for y, found in zip(others, row, strict=True):
                    self._found[id(x), id(y)] = found

    def append(self, vector: Long) -> Array:
        self._vectors.append(vector.tensors)
        return self.products(vector)

    def products(self, vector: Long) -> Array:
        x, found = vector.tensors, self._found
        new = [y for y in self._vectors if (id(x), id(y)) not in found]
        rest = iter(products(x, new) if new else ())
        known = (found.get((id(x), id(y))) for y in self._vectors)
        return np.array([next(rest) if k is None else k for k in known])

    def combination(self, weights: Array) -> Long:
        return Long(combination(*self._used(weights)))

    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        combine_into(point, space.origin, *self._used(weights))

    def remove(self, i: int) -> None:
        del self._vectors[i]

    def _used(self, weights: Array) -> tuple[list[float], list[Vector]]:
        # The first one is there for the shapes, should all weights be zero.
        used = [i for i, weight in enumerate(weights) if weight != 0 or i == 0]
        return [float(weights[i]) for i in used], [self._vectors[i] for i in used]


def pile_of(like: AbstractPacked) -> AbstractPile[Any]:
    """An empty pile for vectors like this one.

    Example:
        >>> one = Short(np.ones(3), eps=2**-52)
        >>> pile = pile_of(one)
        >>> pile.append(one).tolist(), pile.products(one).tolist()
        ([3.0], [3.0])
    """
    return _ShortPile(like.eps) if isinstance(like, Short) else _LongPile()
