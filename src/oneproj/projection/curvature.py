"""The curvature of the constraints, estimated from the gradients already seen.

BFGS for ``I + sum_j mu_j hess c_j``, the Hessian of the projection problem's
Lagrangian. A pair keeps the change of every constraint's gradient along a move, so
that old moves count for the present multipliers, not for those of their time.
"""

from __future__ import annotations

import numpy as np

from oneproj.projection.frame import Array, pad

DAMPING = 0.2
"""Powell's damping: the estimate keeps at least this share of its curvature."""


class Curvature:
    """The most recent moves and what they did to the gradients.

    Example:
        >>> curvature = Curvature(memory=5)
        >>> curvature.add(np.array([1.0, 0.0]), np.array([[3.0, 0.0]]))
        >>> curvature.inverse(np.array([1.0]), 2).tolist()   # 1 + 3 along the move
        [[0.25, 0.0], [0.0, 1.0]]
    """

    def __init__(self, memory: int) -> None:
        """Keep at most ``memory`` moves."""
        self._memory = memory
        self._pairs: list[tuple[Array, Array]] = []

    def add(self, move: Array, change: Array) -> None:
        """Remember a move and the change of each gradient, one row a constraint."""
        self._pairs.append((move, change))
        del self._pairs[: -self._memory or None]

    def inverse(self, mu: Array, size: int) -> Array:
        """The inverse of the estimate for multipliers mu, in ``size`` coordinates."""
        M: Array = np.eye(size)
        for move, change in self._pairs:
            s = pad(move, size)
            y = s + pad(mu @ change, size)
            Ms = M @ s
            curvature, known = float(s @ y), float(s @ Ms)
            if curvature < DAMPING * known:
                keep = (1.0 - DAMPING) * known / (known - curvature)
                y = keep * y + (1.0 - keep) * Ms
            M = M - np.outer(Ms, Ms) / known + np.outer(y, y) / float(s @ y)
        return np.asarray(np.linalg.inv(M), dtype=np.float64)
