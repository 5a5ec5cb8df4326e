"""Packed vectors that are kept for their inner products: a matrix, if they are short.

The short ones are the rows of a matrix in float64, and one product with it does the
work; the long ones are kept as they are, without a copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from oneproj.schema import Data, check_like, check_tensor
from oneproj.vectors.arithmetic import (
    Array,
    Vector,
    combine,
    combine_into,
    dimension,
    on_devices,
    product_table,
    products,
    products_of_change,
    remainder,
    rotate,
    rounding_unit,
)
from oneproj.vectors.space import AbstractPacked, AbstractSpace, Long, Short, is_short

NONE = SQUARE = 0
"""Stands for no vector, and for a square among products: no object's identity."""

P = TypeVar("P", bound=AbstractPacked)


class AbstractPile(ABC, Generic[P]):
    """Vectors that are kept for their inner products."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def expect(self, vectors: Sequence[P], less: Sequence[P | None]) -> None:
        """Prepare for the products of these, if that is better done at once.

        Or of the differences of some to others. They are not kept for it; they are
        until others are expected, or none.
        """

    @abstractmethod
    def store(self, vector: P) -> None:
        """Keep a vector."""

    def append(self, vector: P) -> Array:
        """Keep a vector; returns its product with each, itself last."""
        self.store(vector)
        return self.products(vector)

    @abstractmethod
    def products(self, vector: P) -> Array:
        """The product of a vector with each of those that are kept."""

    @abstractmethod
    def products_of_change(self, vector: P, less: P) -> tuple[Array, float]:
        """The products of ``vector - less`` with each, and its square.

        A small difference has them to its own precision, which those of the two vectors
        lack.
        """

    @abstractmethod
    def remainder(
        self, vector: P, weights: Array, *, in_place: bool = False
    ) -> tuple[P, Array, float]:
        """``vector - sum_i weights[i] * vector_i``, its products, and its square.

        In place, a long vector's own memory has it afterwards.
        """

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

    @abstractmethod
    def rotate(self, turn: Array) -> None:
        """Replace the vectors by combinations of them, one for each row of weights."""

    @abstractmethod
    def state(self) -> Tensor | list[Vector]:
        """The vectors as tensors: the rows of one, or lists shaped like parameters."""


class _ShortPile(AbstractPile[Short]):
    """The rows of a matrix, with room for more."""

    def __init__(self, eps: float) -> None:
        self._matrix: Array = np.zeros((0, 0))
        self._count, self._eps = 0, eps

    def __len__(self) -> int:
        return self._count

    def expect(self, vectors: Sequence[Short], less: Sequence[Short | None]) -> None:
        del vectors, less  # they are in the matrix's form already

    def store(self, vector: Short) -> None:
        n, row = self._count, vector.numbers
        if n == len(self._matrix):
            grown = np.zeros((max(2 * n, 8), len(row)))
            if n:
                grown[:n] = self._matrix
            self._matrix = grown
        self._matrix[n] = row
        self._count += 1

    def products(self, vector: Short) -> Array:
        if self._count == 0:
            return np.zeros(0)
        found: Array = self._matrix[: self._count].dot(vector.numbers)
        return found

    def products_of_change(self, vector: Short, less: Short) -> tuple[Array, float]:
        change = vector.numbers - less.numbers
        found: Array = self._matrix[: self._count].dot(change)
        return found, float(change.dot(change))

    def remainder(
        self, vector: Short, weights: Array, *, in_place: bool = False
    ) -> tuple[Short, Array, float]:
        del in_place  # a short one takes no memory to speak of
        left = vector.minus(self.combination(weights))
        return left, self.products(left), left.dot(left)

    def combination(self, weights: Array) -> Short:
        return Short(weights.dot(self._matrix[: len(weights)]), self._eps)

    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        space.write(self.combination(weights), point)

    def remove(self, i: int) -> None:
        self._count -= 1
        self._matrix[i : self._count] = self._matrix[i + 1 : self._count + 1]

    def rotate(self, turn: Array) -> None:
        self._matrix[: len(turn)] = turn.dot(self._matrix[: self._count])
        self._count = len(turn)

    def state(self) -> Tensor:
        return torch.from_numpy(self._matrix[: self._count].copy())

    @classmethod
    def of_state(cls, rows: Tensor, eps: float) -> _ShortPile:
        pile = cls(eps)
        pile._matrix, pile._count = np.array(rows.numpy()), len(rows)
        return pile


class _LongPile(AbstractPile[Long]):
    """The vectors, and one read of each per product or combination."""

    def __init__(self) -> None:
        self._vectors: list[Vector] = []
        self._expected: list[Long | None] = []
        self._found: dict[tuple[int, int], dict[int, float]] = {}
        """For an expected vector, less another or none: its products, its square."""

    def __len__(self) -> int:
        return len(self._vectors)

    def expect(self, vectors: Sequence[Long], less: Sequence[Long | None]) -> None:
        self._expected, self._found = [*vectors, *less], {}
        if len(vectors) > 1 and all(t.device.type == "cpu" for t in vectors[0].tensors):
            new = [v.tensors for v in vectors]
            old = [None if v is None else v.tensors for v in less]
            others = [*self._vectors, *new]
            table = product_table(new, others, old).tolist()
            for j, row in enumerate(table):
                found = {id(y): row[k] for k, y in enumerate(others)}
                found[SQUARE] = row[len(others) + j]
                self._found[id(new[j]), NONE if old[j] is None else id(old[j])] = found

    def store(self, vector: Long) -> None:
        self._vectors.append(vector.tensors)

    def products(self, vector: Long) -> Array:
        x, others = vector.tensors, self._vectors
        found = self._found.get((id(x), NONE), {})
        new = [y for y in others if id(y) not in found]
        if new:
            made = zip(new, products(x, new), strict=True)
            found = found | {id(y): product for y, product in made}
        return np.array([found[id(y)] for y in others])

    def products_of_change(self, vector: Long, less: Long) -> tuple[Array, float]:
        x, old, others = vector.tensors, less.tensors, self._vectors
        found = self._found.get((id(x), id(old)), {})
        if SQUARE not in found or not all(id(y) in found for y in others):
            *made, square = products_of_change(x, old, others)
            return np.array(made), square
        return np.array([found[id(y)] for y in others]), found[SQUARE]

    def remainder(
        self, vector: Long, weights: Array, *, in_place: bool = False
    ) -> tuple[Long, Array, float]:
        left, (*found, square) = remainder(
            vector.tensors, weights.tolist(), self._vectors, in_place=in_place
        )
        return Long(left), np.array(found), square

    def combination(self, weights: Array) -> Long:
        return Long(combine(*self._used(weights)))

    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        combine_into(point, space.origin, *self._used(weights))

    def remove(self, i: int) -> None:
        del self._vectors[i]

    def rotate(self, turn: Array) -> None:
        rotate(self._vectors, turn)
        del self._vectors[len(turn) :]

    def state(self) -> list[Vector]:
        return [list(vector) for vector in self._vectors]

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


def pile_of_state(state: Data, like: Vector, count: int) -> AbstractPile[Any]:
    """The pile of such a state, on the devices of a vector ``like`` those in it.

    Raises:
        SchemaError: It does not hold ``count`` vectors like that one.

    Example:
        >>> pile = pile_of_state(torch.ones(2, 3).double(), [torch.zeros(3)], count=2)
        >>> pile.products(Short(np.ones(3), eps=2**-52)).tolist()
        [3.0, 3.0]
    """
    if is_short(like):
        check_tensor(state, "vectors", (count, dimension(like)), torch.float64)
        return _ShortPile.of_state(state, rounding_unit(like))
    check_like(state, [like] * count, "vectors")
    pile = _LongPile()
    for vector in state:
        pile.store(Long(on_devices(vector, like)))
    return pile
