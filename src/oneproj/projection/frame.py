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
from scipy.linalg import solve_triangular
from torch import Tensor

from oneproj.parameters import Vector, combine, dot

Array: TypeAlias = npt.NDArray[np.float64]

INDEPENDENT = 1e-7
"""A vector whose part outside the span is a smaller share than this adds nothing.

The share is the root of a difference of squares, so below 1e-8 it is rounding; what is
dropped bounds the KKT residual that can be reached from below.
"""


class Frame:
    """An orthonormal frame of a growing list of vectors, kept as a Cholesky factor.

    With the vectors as columns of V and ``V'V = L L'``, the columns of ``V L^{-T}`` are
    orthonormal. They are never formed.

    Example:
        >>> import torch
        >>> frame = Frame()
        >>> frame.coordinates([torch.tensor([3.0, 0.0])]).tolist()
        [3.0]
        >>> frame.coordinates([torch.tensor([1.0, 2.0])]).tolist()
        [1.0, 2.0]
        >>> frame.vector(np.array([0.0, 4.0]))
        [tensor([0., 4.])]
    """

    def __init__(self) -> None:
        """Start with the empty frame."""
        self._vectors: list[Vector] = []
        self._factor: Array = np.zeros((0, 0))

    @property
    def size(self) -> int:
        """The dimension of the span, and how many vectors are stored."""
        return len(self._vectors)

    def coordinates(self, vector: Vector) -> Array:
        """The coordinates of a vector; the frame grows by it if it is independent."""
        products = np.array([dot(vector, kept) for kept in self._vectors])
        y: Array = np.zeros(0)
        if self.size:
            y = solve_triangular(self._factor, products, lower=True)
        square = dot(vector, vector)
        rest = square - float(y @ y)
        if rest > INDEPENDENT**2 * square:
            y = np.append(y, math.sqrt(rest))
            n = self.size
            grown = np.zeros((n + 1, n + 1))
            grown[:n, :n], grown[n] = self._factor, y
            self._factor = grown
            self._vectors.append(vector)
        return y

    def vector(self, coordinates: Array) -> list[Tensor]:
        """The vector with these coordinates; those left out are zero."""
        y = pad(coordinates, self.size)
        weights = solve_triangular(self._factor.T, y, lower=False)
        return combine(weights.tolist(), self._vectors)


def pad(coordinates: Array, size: int) -> Array:
    """Append zeros: coordinates from before the frame grew stay valid.

    Example:
        >>> pad(np.array([1.0]), 3).tolist()
        [1.0, 0.0, 0.0]
    """
    return np.append(coordinates, np.zeros(size - len(coordinates)))
