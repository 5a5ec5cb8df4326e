"""A cut within closed-form sets, and the table of products that it extends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oneproj.vectors.arithmetic import Array, Vector


@dataclass
class Cut:
    """A halfspace ``<normal, d> <= offset`` with a normal of length 1."""

    normal: Vector
    offset: float
    weights: dict[str, float]
    """What a unit of z is worth in multipliers, by the constraint's name."""
    blur: float
    """By how much rounding may have moved the offset."""


def bordered(P: Array, row: Array) -> Array:
    """A symmetric matrix with one more row and column, its corner the last of them."""
    n = len(P)
    grown = np.empty((n + 1, n + 1))
    grown[:n, :n] = P
    grown[n] = grown[:, n] = row
    return grown
