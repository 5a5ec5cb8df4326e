"""Coordinates in the span of the gradients seen so far.

Every point that a projector visits is ``x_0`` plus a combination of constraint
gradients. In an orthonormal frame of their span the projection problem has a few dozen
coordinates, whatever the size of the model: parameter-size work is one inner product
per stored vector and one combination per step.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oneproj.parameters import Vector
from oneproj.projection.stack import Stack
from oneproj.projection.view import AbstractMove

Array: TypeAlias = npt.NDArray[np.float64]

INDEPENDENT, CLEAR = 1e-9, 1e-4
"""A vector whose part outside the span is a smaller share than the first adds nothing.

The share is the root of a difference of squares, which hides what is below 1e-8. So if
it is below the second, that part itself is formed, and stored in the vector's place.
"""


class Frame:
    """An orthonormal frame of a growing list of vectors, kept as a Cholesky factor.

    With what is stored as columns of V and ``V'V = L L'``, those of ``V L^{-T}`` are
    orthonormal. They are never formed. Coordinates have one entry per vector that there
    is room for, so they stay valid while the frame grows.

    Example:
        >>> import torch
        >>> frame = Frame(room=3)
        >>> frame.coordinates([torch.tensor([3.0, 0.0])]).tolist()
        [3.0, 0.0, 0.0]
        >>> frame.coordinates([torch.tensor([1.0, 2.0])]).tolist()
        [1.0, 2.0, 0.0]
        >>> frame.vector(np.array([0.0, 4.0, 0.0]))
        [tensor([0., 4.])]
    """

    def __init__(self, room: int) -> None:
        """Start with the empty frame, for at most ``room`` vectors."""
        self.room = room
        self._vectors = Stack()
        self._inverse: Array = np.zeros((room, room))  # of L

    @property
    def size(self) -> int:
        """The dimension of the span, and how many vectors are stored."""
        return len(self._vectors)

    def coordinates(self, vector: Vector) -> Array:
        """The coordinates of a vector; the frame grows by it if it is independent.

        In a full frame they are those of the nearest vector in the span.
        """
        n = self.size
        if n == self.room:
            inside: Array = self._inverse.dot(self._vectors.products(vector))
            return inside
        y, square = self._append(vector)
        if y[n] ** 2 > CLEAR**2 * square:
            return y
        self._vectors.remove(n)
        y[n:] = 0.0
        rest, _ = self._append(self._outside(vector, y) if n else vector)
        if rest[n] ** 2 <= INDEPENDENT**2 * square:
            self._vectors.remove(n)
            rest[n:] = 0.0
        refined: Array = y + rest
        return refined

    def _append(self, vector: Vector) -> tuple[Array, float]:
        """Store a vector; its coordinates, the last being new, and its square."""
        n, inverse = self.size, self._inverse
        y = np.zeros(self.room)
        products = self._vectors.append(vector)
        y[:n] = inverse[:n, :n].dot(products[:n])
        square = float(products[n])
        y[n] = new = math.sqrt(max(square - float(y.dot(y)), 0.0))
        if new > 0:
            inverse[n, :n] = y[:n].dot(inverse[:n, :n]) / -new
            inverse[n, n] = 1.0 / new
        return y, square

    def vector(self, coordinates: Array) -> list[Tensor]:
        """The vector with these coordinates, in a frame that is not empty."""
        return self._vectors.combination(self._weights(coordinates))

    def move(self, coordinates: Array, length: float) -> AbstractMove:
        """The displacement with these coordinates, not formed; its length is known."""
        return _Move(self._vectors, self._weights(coordinates), length)

    def _weights(self, coordinates: Array) -> Array:
        n = len(self._vectors)
        weights: Array = coordinates[:n].dot(self._inverse[:n, :n])
        return weights

    def _outside(self, vector: Vector, y: Array) -> list[Tensor]:
        """What is left of a vector without its part in the span."""
        left = [torch.empty_like(tensor) for tensor in vector]
        self._vectors.move(left, vector, -self._weights(y))
        return left


class _Move(AbstractMove):
    """A sum of stacked vectors; those stacked later have no part in it."""

    def __init__(self, vectors: Stack, weights: Array, length: float) -> None:
        self._vectors, self._weights, self.length = vectors, weights, length

    def apply(self, origin: Vector, point: Vector) -> None:
        self._vectors.move(point, origin, self._weights)
