"""The usual case of the least-distance problem: an active set that soon settles."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from oneproj.simplex_qp import SLOPE_NOISE, Array, Mask

GUESSES = 8
"""Active sets that are tried; from a good start two or three do."""
PIVOT = 1e-3
"""Normals whose distance from the span of those before them is less are dependent, for
the purpose of a quick solution."""


def settled_minimiser(gram: Array, b: Array, active: Mask) -> Array | None:
    """Minimise ``(1/2) z'Pz - b'z`` over ``z >= 0`` if guesses at the support settle.

    Minimises over the entries that are believed positive, drops those that come out
    negative, adds those whose increase would lower the value, and begins again. What
    it returns is optimal to rounding; None if it does not settle, or if the normals in
    the support are nearly dependent, which takes a more careful method.

    Args:
        gram: P, of unit normals.
        b: The linear term.
        active: The first guess.

    Example:
        >>> P, nothing = np.eye(2), np.zeros(2, dtype=bool)
        >>> settled_minimiser(P, np.array([3.0, -1.0]), nothing).tolist()
        [3.0, 0.0]
    """
    for _ in range(GUESSES):
        support = active.nonzero()[0]
        z = np.zeros(len(b))
        if len(support):
            factor, found, failed = dposv(gram[support[:, None], support], b[support])
            if failed or factor.diagonal().min() < PIVOT:
                return None
            z[support] = found
        noise = SLOPE_NOISE * (np.abs(b) + np.abs(z).sum())
        believed = np.where(active, z > 0, b - gram.dot(z) > noise)
        if (believed == active).all():
            return z
        active = believed
    return None
