"""The usual case of the least-distance problem: an active set that soon settles."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from oneproj.vectors.arithmetic import Array, Mask
from oneproj.vectors.qp import SLOPE_NOISE

GUESSES = 8
"""Active sets that are tried; from a good start two or three do."""
PIVOT = 1e-3
"""Normals whose distance from the span of those after them is less are dependent, for
the purpose of a quick solution."""


def settled_minimiser(gram: Array, b: Array, active: Mask) -> Array | None:
    """Minimise ``(1/2) z'Pz - b'z`` over ``z >= 0`` if guesses at the support settle.

    Minimises over the entries that are believed positive, drops those that come out
    negative, adds those whose increase would lower the value, and begins again. Of
    normals that are nearly dependent, as those of cuts near the answer, the last ones
    are believed: they are from nearer. What it returns is optimal to rounding; None if
    it does not settle, which takes a more careful method.

    Args:
        gram: P, of unit normals.
        b: The linear term.
        active: The first guess.

    Example:
        >>> P, nothing = np.eye(2), np.zeros(2, dtype=bool)
        >>> settled_minimiser(P, np.array([3.0, -1.0]), nothing).tolist()
        [3.0, 0.0]
    """
    sizes = np.abs(b)
    for _ in range(GUESSES):
        support = active.nonzero()[0][::-1]  # the last one has the first pivot
        z, total = np.zeros(len(b)), 0.0
        if len(support):
            factor, found, failed = dposv(gram[support[:, None], support], b[support])
            if failed or min(factor.diagonal().tolist()) < PIVOT:
                strong = factor.diagonal() >= PIVOT
                if failed:
                    strong[failed - 1 :] = False
                active = np.zeros(len(b), dtype=bool)
                active[support[strong]] = True
                continue
            z[support] = found
            total = sum(map(abs, found.tolist()))
        believed = b - gram.dot(z) > SLOPE_NOISE * (sizes + total)
        if len(support):
            believed[support] = found > 0
        if believed.tobytes() == active.tobytes():
            return z
        active = believed
    return None
