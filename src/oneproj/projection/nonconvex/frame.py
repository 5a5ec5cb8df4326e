"""Coordinates in the span of the gradients seen so far.

Every point that a projector visits is ``x_0`` plus a combination of constraint
gradients. In an orthonormal frame of their span the projection problem has a few dozen
coordinates, whatever the size of the model: parameter-size work is one inner product
per stored vector and one combination per step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from oneproj.arrays import Array
from oneproj.errors import NonFiniteError
from oneproj.parameters import Vector
from oneproj.projection.vectors.moves import AbstractMove
from oneproj.projection.vectors.packed import AbstractPacked
from oneproj.projection.vectors.piles import AbstractPile, pile_of
from oneproj.projection.vectors.space import AbstractSpace

INDEPENDENT, CLEAR = 1e-9, 1e-2
"""A vector whose part outside the span is a smaller share than the first adds nothing.

The share is the root of a difference of squares, which hides what is below 1e-8. So if
it is below the second, that part itself is formed, and stored in the vector's place.
With 1e-4 for the second, errors grow from vector to vector: after twenty gradients of
an ill-conditioned constraint the frame was no longer orthonormal at all.
"""

LONG = "the squared length of a constraint's gradient"


class Frame:
    """An orthonormal frame of a growing list of vectors, kept as a Cholesky factor.

    With what is stored as columns of V and ``V'V = L L'``, those of ``V L^{-T}`` are
    orthonormal. They are never formed. Coordinates have one entry per vector that there
    is room for, so they stay valid while the frame grows.

    Example:
        >>> from oneproj.projection.vectors.packed import Short
        >>> frame, eps = Frame(room=3), 2**-52
        >>> frame.coordinates(Short(np.array([3.0, 0.0]), eps)).tolist()
        [3.0, 0.0, 0.0]
        >>> frame.coordinates(Short(np.array([1.0, 2.0]), eps)).tolist()
        [1.0, 2.0, 0.0]
        >>> frame.vector(np.array([0.0, 4.0, 0.0])).numbers
        array([0., 4.])
    """

    def __init__(self, room: int) -> None:
        """Start with the empty frame, for at most ``room`` vectors."""
        self.room = room
        self._pile: AbstractPile[Any] | None = None
        self._inverse: Array = np.zeros((room, room))  # of L

    @property
    def size(self) -> int:
        """The dimension of the span, and how many vectors are stored."""
        return 0 if self._pile is None else len(self._pile)

    def all_coordinates(self, vectors: Sequence[AbstractPacked]) -> Array:
        """The coordinates of one vector after the other, as rows.

        The same as one by one; of long vectors the products are made at once.
        """
        if self._pile is None:
            self._pile = pile_of(vectors[0])
        pile, rows = self._pile, np.empty((len(vectors), self.room))
        pile.expect(vectors)
        try:
            for j, vector in enumerate(vectors):
                rows[j] = self.coordinates(vector)
        finally:
            pile.expect([])
        return rows

    def coordinates(self, vector: AbstractPacked) -> Array:
        """The coordinates of a vector; the frame grows by it if it is independent.

        In a full frame they are those of the nearest vector in the span.

        Raises:
            NonFiniteError: The vector is so long that its square overflows.
        """
        pile = self._pile = pile_of(vector) if self._pile is None else self._pile
        n = len(pile)
        if n == self.room:
            inside: Array = self._inverse.dot(pile.products(vector))
            if not np.isfinite(inside).all():
                raise NonFiniteError(LONG)
            return inside
        y, square = self._append(pile, vector)
        if y[n] ** 2 > CLEAR**2 * square:
            return y
        pile.remove(n)
        y[n:] = 0.0
        if n:
            # What is left of it without its part in the span.
            outside = self.vector(-y)
            outside.add(vector, 1.0)
            vector = outside
        rest, _ = self._append(pile, vector)
        if rest[n] ** 2 <= INDEPENDENT**2 * square:
            pile.remove(n)
            rest[n:] = 0.0
        refined: Array = y + rest
        return refined

    def _append(
        self, pile: AbstractPile[Any], vector: AbstractPacked
    ) -> tuple[Array, float]:
        """Store a vector; its coordinates, the last being new, and its square."""
        n, inverse = len(pile), self._inverse
        y = np.zeros(self.room)
        products = pile.append(vector)
        y[:n] = inverse[:n, :n].dot(products[:n])
        square = float(products[n])
        if not math.isfinite(square):
            pile.remove(n)  # all that comes after it would be NaN
            raise NonFiniteError(LONG)
        y[n] = new = math.sqrt(max(square - float(y.dot(y)), 0.0))
        if new > 0:
            inverse[n, :n] = y[:n].dot(inverse[:n, :n]) / -new
            inverse[n, n] = 1.0 / new
        return y, square

    def vector(self, coordinates: Array) -> AbstractPacked:
        """The vector with these coordinates, in a frame that is not empty."""
        pile, weights = self._weighed(coordinates)
        found: AbstractPacked = pile.combination(weights)
        return found

    def move(self, coordinates: Array, length: float) -> AbstractMove:
        """The displacement with these coordinates, not formed; its length is known."""
        return _Move(*self._weighed(coordinates), length)

    def _weighed(self, coordinates: Array) -> tuple[AbstractPile[Any], Array]:
        if self._pile is None:
            message = "an empty frame has no vectors"
            raise ValueError(message)
        n = len(self._pile)
        return self._pile, coordinates[:n].dot(self._inverse[:n, :n])


class _Move(AbstractMove):
    """A sum of piled vectors; those that came later have no part in it."""

    def __init__(self, pile: AbstractPile[Any], weights: Array, length: float) -> None:
        self._pile, self._weights, self.length = pile, weights, length

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        self._pile.write(self._weights, space, point)
