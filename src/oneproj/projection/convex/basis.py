"""Orthonormal vectors that span what was seen; all else is coordinates in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from oneproj.vectors.arithmetic import Array
from oneproj.vectors.space import AbstractPacked
from oneproj.vectors.storage import AbstractPile, pile_of

INDEPENDENT = 64.0
"""In rounding units: what is left of a vector below this share is rounding."""


class Basis:
    """An orthonormal basis that grows by what it does not span yet.

    Every iterate of the search is the start plus a combination of gradients, so a
    dense matrix in these coordinates is one on all parameters: the identity elsewhere.

    Example:
        >>> from oneproj.vectors.space import Short
        >>> basis = Basis()
        >>> basis.coordinates(Short(np.array([3.0, 4.0]), 2**-52)).tolist()
        [5.0]
        >>> basis.coordinates(Short(np.array([3.0, 9.0]), 2**-52)).tolist()
        [9.0, 3.0]
        >>> len(basis)
        2
    """

    def __init__(self) -> None:
        """Span nothing."""
        self._pile: AbstractPile[Any] | None = None

    def __len__(self) -> int:
        return 0 if self._pile is None else len(self._pile)

    def coordinates(self, vector: AbstractPacked) -> Array:
        """The coordinates of a vector, which the basis spans afterwards."""
        size = vector.norm()
        if size == 0.0:
            return np.zeros(len(self))
        if self._pile is None:
            self._pile = pile_of(vector)
            self._pile.store(vector.times(1.0 / size))
            return np.array([size])
        found: Array = self._pile.products(vector)
        left, more, _ = self._pile.remainder(vector, found)
        found = found + more
        left, more, square = self._pile.remainder(left, more)
        found, length = found + more, float(np.sqrt(square))
        if length <= INDEPENDENT * vector.eps * size:
            return found
        self._pile.store(left.times(1.0 / length))
        return np.append(found, length)

    def vector(self, coordinates: Array) -> AbstractPacked:
        """The vector of coordinates, of which there may be fewer than there are now."""
        if self._pile is None:
            message = "an empty basis has no vectors"
            raise ValueError(message)
        found: AbstractPacked = self._pile.combination(coordinates)
        return found


def padded(numbers: Array, size: int) -> Array:
    """An array with zeros for the coordinates that came later, along its last axis.

    Example:
        >>> padded(np.ones(2), 3).tolist()
        [1.0, 1.0, 0.0]
    """
    more = size - numbers.shape[-1]
    if more == 0:
        return numbers
    width = [(0, 0)] * (numbers.ndim - 1) + [(0, more)]
    return np.pad(numbers, width)
