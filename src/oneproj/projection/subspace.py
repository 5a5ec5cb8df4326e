"""Coordinates in the span of the vectors seen so far.

Every point that the local search visits is the start plus a combination of constraint
gradients. In an orthonormal basis of their span the projection problem has a few dozen
coordinates, whatever the size of the model. A model with fewer parameters than the
basis has room for is its own span: coordinates are then the parameters themselves.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.schema import check_range
from oneproj.vectors.arithmetic import Array, Vector, dimension
from oneproj.vectors.space import (
    AbstractMove,
    AbstractPacked,
    AbstractSpace,
    Short,
    is_short,
)
from oneproj.vectors.storage import AbstractPile, pile_of, pile_of_state

ORTHOGONAL = 1e-8
"""Share of a new basis vector above which it is orthogonalised a second time."""
INDEPENDENT = 1e-9
"""Share of a vector below which what is outside a span is rounding."""


class Subspace:
    """An orthonormal basis that grows with the vectors it is shown.

    Args:
        space: The points around the start.
        room: Vectors of the basis, at most.

    Example:
        >>> import torch
        >>> from oneproj.vectors.space import space_around
        >>> basis = Subspace(space_around([torch.zeros(3)]), room=2)
        >>> basis.coordinates([torch.tensor([3.0, 0.0, 0.0])]).tolist()
        [3.0, 0.0]
        >>> basis.coordinates([torch.tensor([1.0, 2.0, 0.0])]).tolist()
        [1.0, 2.0]
    """

    def __init__(self, space: AbstractSpace, room: int) -> None:
        """Start with an empty basis, or with all of a small space."""
        self._space = space
        size = dimension(space.origin)
        self.whole = is_short(space.origin) and size <= room
        """Whether coordinates are the parameters themselves."""
        self.room = size if self.whole else room
        self._pile: AbstractPile[Any] | None = None

    @property
    def free(self) -> int:
        """How many more independent vectors there is room for."""
        if self.whole:
            return sys.maxsize
        return self.room - (0 if self._pile is None else len(self._pile))

    def coordinates(self, vector: Vector | AbstractPacked) -> Array:
        """The coordinates of a vector; the basis grows by what is new of it.

        In a full basis they are those of the nearest vector in the span.

        Raises:
            NonFiniteError: The square of the vector's length overflows.
        """
        packed = (
            vector if isinstance(vector, AbstractPacked) else self._space.pack(vector)
        )
        if isinstance(packed, Short) and self.whole:
            _check_square(float(packed.numbers.dot(packed.numbers)))
            return packed.numbers
        pile = self._pile = pile_of(packed) if self._pile is None else self._pile
        n, found = len(pile), np.zeros(self.room)
        square = packed.dot(packed)
        _check_square(square)
        if n == 0:
            left, rest = packed.times(1.0), square
        else:
            found[:n] = pile.products(packed)
            if n == self.room:
                return found
            left, again, rest = pile.remainder(packed, found[:n])
            found[:n] += again
            if again.dot(again) > ORTHOGONAL**2 * rest:
                left, again, rest = pile.remainder(left, again, in_place=True)
        length = math.sqrt(max(rest, 0.0))
        if length > INDEPENDENT * math.sqrt(square):
            left.scale(1.0 / length)
            pile.store(left)
            found[n] = length
        return found

    def state(self) -> Tensor | list[Vector] | None:
        """The basis as plain data; None if coordinates are the parameters."""
        return None if self._pile is None else self._pile.state()

    def load_state(self, state: Any) -> None:  # noqa: ANN401 - checked here
        """Go on with such a basis."""
        if state is not None and not self.whole:
            check_range(len(state), "basis", 0, self.room)
            self._pile = pile_of_state(state, self._space.origin, len(state))

    def move(self, coordinates: Array) -> AbstractMove:
        """The displacement with these coordinates, which is not formed."""
        length = math.sqrt(coordinates.dot(coordinates))
        return _Combination(self._pile, coordinates, length)

    def compress(self, rows: Array, most: int) -> Array:
        """Keep the span of some vectors only; returns the matrix to their coordinates.

        Args:
            rows: Their coordinates, the most important first.
            most: Dimensions of the span, at most; vectors beyond that are left out.
        """
        if self._pile is None:
            return np.zeros((self.room, self.room))
        n = len(self._pile)
        kept: list[Array] = []
        for row in rows[:, :n]:
            left = row.copy()
            for _ in range(2):
                for axis in kept:
                    left -= axis.dot(left) * axis
            length = math.sqrt(left.dot(left))
            if length > INDEPENDENT * math.sqrt(row.dot(row)):
                kept.append(left / length)
            if len(kept) == most:
                break
        turn = np.zeros((self.room, self.room))
        turn[: len(kept), :n] = np.array(kept).reshape(-1, n)
        self._pile.rotate(turn[: len(kept), :n])
        return turn


def _check_square(square: float) -> None:
    if not math.isfinite(square):
        quantity = "the squared length of a constraint's gradient"
        raise NonFiniteError(quantity)  # all that comes after it would be NaN


class _Combination(AbstractMove):
    """A sum of basis vectors; those that come later have no part in it."""

    def __init__(
        self, pile: AbstractPile[Any] | None, weights: Array, length: float
    ) -> None:
        self._pile, self._weights, self.length = pile, weights, length
        self._count = 0 if pile is None else len(pile)

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        if self._pile is None:
            space.write(Short(self._weights, 0.0), point)
        else:
            self._pile.write(self._weights[: self._count], space, point)
