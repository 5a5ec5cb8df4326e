"""What weights of cuts prove, computed from the normals and not from their products.

Where normals nearly cancel, as those of a wedge whose apex is far away, the matrix of
their products has the square of what is left of them: from the root of the rounding on
nothing. The normals themselves have it still.
"""

from __future__ import annotations

from typing import Any

from oneproj.projection.convex.cut_table import CutTable
from oneproj.vectors.arithmetic import Array
from oneproj.vectors.space import AbstractPacked
from oneproj.vectors.storage import AbstractPile


def summed(normals: AbstractPile[Any], cuts: CutTable, z: Array) -> AbstractPacked:
    """``sum_i z_i g_i`` with unit normals g."""
    found: AbstractPacked = normals.combination(z / cuts.length)
    return found


def proven_distance(
    normals: AbstractPile[Any], cuts: CutTable, h: Array, z: Array
) -> float:
    """A distance below which no d has ``<g_i, d> <= h_i``, by the weights z >= 0.

    These add up to ``<r, d> <= h'z`` with ``r = sum_i z_i g_i``, and so
    ``|d| >= -h'z / |r|``. Every unit normal may be off by its rounding, which counts
    where they cancel.

    Example:
        >>> import numpy as np
        >>> from oneproj.vectors.space import Short
        >>> from oneproj.vectors.storage import pile_of
        >>> t, eps, cuts = 1e-9, 2**-52, CutTable()
        >>> sides = [Short(np.array([-t, side]), eps) for side in (1.0, -1.0)]
        >>> normals = pile_of(sides[0])
        >>> for side in sides:  # t x >= 1 + |y|: a wedge whose apex is at 1 / t
        ...     gram = normals.append(side)[:-1]
        ...     cuts.append((-1.0, 0.0, 1.0, 0.0, 0.0, 0.0), {"side": 1.0}, gram)
        >>> round(t * proven_distance(normals, cuts, cuts.offset, np.ones(2)), 6)
        1.0
    """
    gain = -float(h @ z)
    if gain <= 0:
        return 0.0
    total = summed(normals, cuts, z)
    return gain / (total.norm() + total.eps * float(z.sum()))
