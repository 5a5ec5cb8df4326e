"""The proximal point of one convex constraint, found in the dual of its examples.

``x(mu) = argmin_x (1/2)|x - y|^2 + mu c(x)`` for a convex c, such as an empirical risk
``c(x) = mean_i loss_i(x) - cap`` of a linear score. In the dual every example has a
weight; for hinge losses it lies in [0, 1], and ``x = y - mu w`` with w the weighted mean
of the examples' gradients. Given the others, the best weights at a point are those of
the gradient of c there. So the dual needs no access to the examples: it is a search over
mixtures of gradients of c, and a *dual step* adds one of them and re-weights them all
(the fully corrective conditional gradient method). It converges for kinks as well.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from oneproj.parameters import Vector, combine, dot
from oneproj.simplex_qp import Array, solve_simplex_qp

ROOM = 100
"""Gradients to keep; those that no mixture has used for longest go first."""


class ExampleDual:
    """Mixtures of linearisations ``b_k + <a_k, d>`` of c, d counted from the start.

    Every mixture lies below c, so it also bounds from below what c costs.

    Example:
        >>> import torch
        >>> dual = ExampleDual()
        >>> zero = [torch.zeros(1)]
        >>> dual.add(2.0, [torch.tensor([1.0])], at=zero)    # c(d) = |d + 2|, near 0
        >>> dual.solve(zero, mu=3.0), dual.model
        ([tensor([-3.])], -1.0)
        >>> dual.add(1.0, [torch.tensor([-1.0])], at=[torch.tensor([-3.0])])
        >>> [round(t.item(), 6) for t in dual.solve(zero, mu=3.0)]
        [-2.0]
    """

    def __init__(self) -> None:
        """Start without a gradient."""
        self._a: list[list[Tensor]] = []
        self._b: Array = np.zeros(0)
        self._gram: Array = np.zeros((0, 0))
        self._idle: Array = np.zeros(0)
        self._weights: Array = np.zeros(0)
        self.model = -np.inf
        """The value of the mixture at the point last found."""

    def add(self, value: float, gradient: list[Tensor], at: Vector) -> None:
        """Add ``value + <gradient, d - at>``."""
        if len(self._a) >= ROOM:
            self._forget(int(np.argmax(self._idle)))
        row = np.array([dot(gradient, a) for a in self._a])
        own = np.array([[dot(gradient, gradient)]])
        self._gram = np.block([[self._gram, row[:, None]], [row[None, :], own]])
        self._a.append(gradient)
        self._b = np.append(self._b, value - dot(gradient, at))
        self._idle = np.append(self._idle, 0.0)

    def solve(self, y: Vector, mu: float) -> list[Tensor]:
        """The best mixture for a multiplier, and its point ``y - mu w``.

        ``max_v  b'v + <w, y> - (mu/2)|w|^2`` over the simplex, ``w = sum_k v_k a_k``.
        """
        at_y = self._b + np.array([dot(a, y) for a in self._a])
        everything = np.ones(len(at_y), dtype=bool)
        v = solve_simplex_qp(mu * self._gram, -at_y, everything).z
        self._weights = v
        self._idle = np.where(v > 0, 0.0, self._idle + 1.0)
        self.model = float(v @ at_y - mu * (v @ self._gram @ v))
        return combine([1.0, -mu], [y, self.mixture()])

    def mixture(self) -> list[Tensor]:
        """``w``, a subgradient of c at the point, up to the gap that is left."""
        used = np.flatnonzero(self._weights)
        weights = [float(self._weights[k]) for k in used]
        return combine(weights, [self._a[k] for k in used])

    def offset(self) -> float:
        """The mixture's ``b``: its value at the start."""
        return float(self._weights @ self._b[: len(self._weights)])

    def _forget(self, k: int) -> None:
        self._gram = np.delete(np.delete(self._gram, k, 0), k, 1)
        self._b, self._idle = np.delete(self._b, k), np.delete(self._idle, k)
        self._weights = np.delete(self._weights, k)
        self._a.pop(k)
