"""The shortest combination of a few gradients: the test of every first-order condition.

``min |sum_k z_k v_k|  subject to  z >= 0,  sum of z over the simplex = 1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from oneproj.parameters import Vector, combine, dot, norm
from oneproj.simplex_qp import (
    EPSILON,
    Array,
    refine_on_support,
    solve_simplex_qp,
)

REFINEMENTS = 3


@dataclass(frozen=True)
class Combination:
    """The weights, the vector they give, and its norm."""

    weights: list[float]
    vector: list[Tensor]
    norm: float


def shortest_combination(
    hull: Sequence[Vector], cone: Sequence[Vector] = ()
) -> Combination:
    """Find the shortest vector of ``conv(hull) + cone(cone)``.

    With the gradient of f as the hull and those of the active constraints as the cone
    it is nonnegative least squares: the weights of the cone are the multipliers. The
    program is solved on the Gram matrix; the vector and its norm are computed from the
    gradients themselves, and so are a few corrections of the weights.

    Example:
        >>> import torch
        >>> down, up = [torch.tensor([0.0, -2.0])], [torch.tensor([0.0, 0.5])]
        >>> found = shortest_combination([down], [up])
        >>> found.weights, found.norm
        ([1.0, 4.0], 0.0)
    """
    given = [*hull, *cone]
    simplex = np.arange(len(given)) < len(hull)
    lengths = np.array([norm(vector) for vector in given])
    # The cone's vectors count by direction only, so give them one common length.
    unit = np.ones(len(given))
    ray = ~simplex & (lengths > 0)
    unit[ray] = max(lengths[0], EPSILON) / lengths[ray]
    gram = np.array([[dot(a, b) for b in given] for a in given])
    gram *= np.outer(unit, unit)
    z = solve_simplex_qp(gram, np.zeros(len(given)), simplex).z
    found = _combine(z * unit, given)
    for _ in range(REFINEMENTS):
        slope = unit * [dot(vector, found.vector) for vector in given]
        z = refine_on_support(gram, simplex, z, slope)
        better = _combine(z * unit, given)
        if better.norm >= found.norm:
            break
        found = better
    return found


def _combine(z: Array, given: Sequence[Vector]) -> Combination:
    weights = z.tolist()
    vector = combine(weights, given)
    return Combination(weights, vector, norm(vector))
