"""The proximal point of one convex constraint, found in the dual of its examples.

``x(mu) = argmin_x (1/2)|x - y|^2 + mu c(x)`` for a convex c, such as an empirical risk
``c(x) = mean_i loss_i(x) - cap`` of a linear score. In the dual every example has a
weight; for hinge losses it lies in [0, 1], and ``x = y - mu w`` with w the weighted
mean of the examples' gradients. The best answer of the weights to a point is the
gradient of c there. So the dual needs no access to the examples: it is a search over
mixtures of gradients of c, and a *dual step* adds one of them and weighs them all anew
(the fully corrective conditional gradient method). It converges for kinks as well.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from oneproj.vectors.arithmetic import Array, Vector, combine, dot, products
from oneproj.vectors.qp import solve_simplex_qp

ROOM = 100
"""Gradients to keep; the one that no mixture has used for longest goes first."""


class ExampleDual:
    """Mixtures of linearisations ``b_k + <a_k, d>`` of c; every one lies below c.

    Points are displacements d from the start of the projection.

    Example:
        >>> import torch
        >>> at = [torch.zeros(1)]
        >>> dual = ExampleDual(at)
        >>> dual.add(2.0, [torch.tensor([1.0])])        # c(d) = |d + 2|, seen at 0
        >>> at = dual.solve(mu=3.0); at, dual.model
        ([tensor([-3.])], -1.0)
        >>> dual.add(1.0, [torch.tensor([-1.0])])       # and at -3
        >>> [round(t.item(), 6) for t in dual.solve(mu=3.0)], abs(dual.model) < 1e-15
        ([-2.0], True)
    """

    def __init__(self, y: Vector) -> None:
        """Start without a gradient."""
        self._y, self._mu = y, 0.0
        self._a: list[Vector] = []
        self._b: Array = np.zeros(0)
        self._at_y: Array = np.zeros(0)
        self._idle: Array = np.zeros(0)
        self._v: Array = np.zeros(0)
        self._gram: Array = np.zeros((ROOM + 1, ROOM + 1))
        self.model = -np.inf
        """The value of the mixture at the point last found."""
        self.height = 0.0
        """Its value at the start of the projection, ``d = 0``."""
        self.mixture = combine([0.0], [y])
        """``w``: a subgradient of c at that point, up to the gap between the two."""
        self.length = 0.0
        """Of the mixture."""

    @property
    def slope(self) -> float:
        """The length of the gradient last added."""
        last = len(self._a) - 1
        return math.sqrt(self._gram[last, last])

    def recenter(self, y: Vector) -> None:
        """Set the point whose proximal point is sought."""
        self._y, self._mu = y, 0.0
        if len(self._a):
            self._at_y = self._b + np.array(products(y, self._a))

    def add(self, value: float, gradient: list[Tensor]) -> None:
        """Add what was seen at the point last found, or at y before there is one."""
        n = len(self._a)
        self._a.append(gradient)
        row = np.array(products(gradient, self._a))
        self._gram[n, : n + 1] = self._gram[: n + 1, n] = row
        # The point is y - mu w, so the product with y - d is mu times that with w.
        at_y = value + self._mu * float(row[:n] @ self._v)
        self._at_y = np.append(self._at_y, at_y)
        self._b = np.append(self._b, at_y - dot(gradient, self._y))
        self._idle, self._v = np.append(self._idle, 0.0), np.append(self._v, 0.0)
        if n == ROOM:
            self._forget(int(np.argmax(self._idle)))

    def solve(self, mu: float) -> list[Tensor]:
        """The best mixture for a multiplier, and its point ``y - mu w``.

        ``max_v  b'v + <w, y> - (mu/2)|w|^2`` over the simplex, ``w = sum_k v_k a_k``.
        The search for v begins with the last one.
        """
        n = len(self._a)
        gram, simplex = self._gram[:n, :n], np.ones(n, dtype=bool)
        start = self._v if self._v.any() else None
        self._mu = mu
        v = self._v = solve_simplex_qp(mu * gram, -self._at_y, simplex, start).z
        self._idle = np.where(v > 0, 0.0, self._idle + 1.0)
        square = float(v @ gram @ v)
        self.length = math.sqrt(max(0.0, square))
        self.model = float(v @ self._at_y) - mu * square
        self.height = float(v @ self._b)
        self.mixture = combine(v.tolist(), self._a)
        return combine([1.0, -mu], [self._y, self.mixture])

    def _forget(self, k: int) -> None:
        n = len(self._a)
        del self._a[k]
        rest = np.delete(np.arange(n), k)
        self._gram[: n - 1, : n - 1] = self._gram[rest[:, None], rest]
        self._b, self._idle = self._b[rest], self._idle[rest]
        self._at_y = self._at_y[rest]
        self._v = self._v[rest] if self._v[k] == 0 else np.zeros(n - 1)
