"""The shortest combination of a few gradients: the test of every first-order condition.

``min (1/2)|sum_k z_k v_k|^2 + sum_k p_k z_k  subject to  z >= 0,  sum of z over the
simplex = 1``, with a price p_k >= 0 on each vector of the cone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from oneproj.arrays import Array
from oneproj.parameters import Vector, dot, norm
from oneproj.simplex_qp import EPSILON, refine_on_support, solve_simplex_qp

REFINEMENTS = 3
SHORT = 1e-2
"""Below this share of the hull's first vector the weights are worth refining."""

Column: TypeAlias = Mapping[int, Tensor]
"""The tensors of a vector that are not zero, by their place in it."""


@dataclass(frozen=True)
class ShortestVector:
    """The weights, the vector that they give, and its norm."""

    weights: list[float]
    vector: list[Tensor]
    norm: float


def shortest_combination(
    hull: Sequence[Vector], cone: Sequence[Vector] = ()
) -> ShortestVector:
    """Find the shortest vector of ``conv(hull) + cone(cone)``.

    With the gradient of f as the hull and those of the active constraints as the cone
    it is nonnegative least squares: the weights of the cone are the multipliers. The
    program is solved on the Gram matrix; the vector and its norm are computed from the
    gradients themselves, and so are a few corrections of the weights.

    Example:
        >>> down, up = [torch.tensor([0.0, -2.0])], [torch.tensor([0.0, 0.5])]
        >>> found = shortest_combination([down], [up])
        >>> found.weights, found.norm
        ([1.0, 4.0], 0.0)
    """
    program = Combiner(hull)
    for vector in cone:
        program.add(dict(enumerate(vector)))
    return program.solve()


class Combiner:
    """The program above for a cone that grows, one vector at a time.

    Example:
        >>> program = Combiner([[torch.tensor([-2.0, -1.0])]])
        >>> program.add({0: torch.tensor([1.0, 0.0])})
        >>> program.add({0: torch.tensor([0.0, 1.0])}, price=0.25)
        >>> [round(weight, 9) for weight in program.solve().weights]
        [1.0, 2.0, 0.75]
    """

    def __init__(self, hull: Sequence[Vector]) -> None:
        """Start with the hull alone."""
        self._size = len(hull[0])
        self._columns: list[Column] = []
        self._prices, self._gram = np.zeros(0), np.zeros((0, 0))
        self._z: Array | None = None
        for vector in hull:
            self.add(dict(enumerate(vector)))
        self._simplex = len(hull)

    def add(self, column: Column, price: float = 0.0) -> None:
        """Add a vector to the cone."""
        self._columns.append(column)
        row = [_product(column, other) for other in self._columns]
        self._prices = np.append(self._prices, price)
        self._gram = np.pad(self._gram, (0, 1))
        self._gram[-1, :] = self._gram[:, -1] = row

    def solve(self) -> ShortestVector:
        """The best weights for the vectors so far."""
        gram, price, unit = self._scaled()
        simplex = np.arange(len(unit)) < self._simplex
        start = (
            None if self._z is None else np.pad(self._z, (0, len(unit) - len(self._z)))
        )
        z = solve_simplex_qp(gram, price, simplex, start).z
        found, value = self._combine(z * unit)
        # The squares in the Gram matrix hide only what is short beside the hull.
        for _ in range(REFINEMENTS if found.norm < SHORT * gram[0, 0] ** 0.5 else 0):
            slope, v = price.copy(), dict(enumerate(found.vector))
            for k in np.flatnonzero(z):
                slope[k] += unit[k] * _product(self._columns[k], v)
            refined = refine_on_support(gram, simplex, z, slope)
            better, lower = self._combine(refined * unit)
            if lower >= value:
                break
            z, found, value = refined, better, lower
        self._z = z
        return found

    def _scaled(self) -> tuple[Array, Array, Array]:
        """The program with one common length for the cone's vectors, and that unit."""
        lengths = np.sqrt(np.diag(self._gram))
        unit = np.ones(len(lengths))
        ray = (np.arange(len(lengths)) >= self._simplex) & (lengths > 0)
        unit[ray] = max(lengths[0], EPSILON) / lengths[ray]
        return self._gram * np.outer(unit, unit), self._prices * unit, unit

    def _combine(self, z: Array) -> tuple[ShortestVector, float]:
        """The combination of these weights, and the value of the program."""
        first, *others = np.flatnonzero(z).tolist()
        column = self._columns[first]
        vector = [float(z[first]) * column[i].detach() for i in range(self._size)]
        for k in others:
            places, tensors = zip(*self._columns[k].items(), strict=True)
            total = [vector[i] for i in places]
            given = [tensor.detach() for tensor in tensors]
            torch._foreach_add_(total, given, alpha=float(z[k]))
        length = norm(vector)
        value = 0.5 * length**2 + float(z @ self._prices)
        return ShortestVector(z.tolist(), vector, length), value


def _product(a: Column, b: Column) -> float:
    common = [i for i in a if i in b]
    return dot([a[i] for i in common], [b[i] for i in common])
