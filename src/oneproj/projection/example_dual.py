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

import numpy as np
from torch import Tensor

from oneproj.parameters import Vector, combine, difference, dot
from oneproj.simplex_qp import Array, solve_simplex_qp

ROOM = 100
"""Gradients to keep; the one that no mixture has used for longest goes first."""


class ExampleDual:
    """Mixtures of linearisations ``b_k + <a_k, d>`` of c; every one lies below c.

    Points are displacements d from the start of the projection.

    Example:
        >>> import torch
        >>> at = [torch.zeros(1)]
        >>> dual = ExampleDual(at)
        >>> dual.add(2.0, [torch.tensor([1.0])], at)    # c(d) = |d + 2|, seen at 0
        >>> at = dual.solve(mu=3.0); at, dual.model
        ([tensor([-3.])], -1.0)
        >>> dual.add(1.0, [torch.tensor([-1.0])], at)   # and at -3
        >>> [round(t.item(), 6) for t in dual.solve(mu=3.0)], abs(dual.model) < 1e-15
        ([-2.0], True)
    """

    def __init__(self, y: Vector) -> None:
        """Start without a gradient."""
        self._y = y
        self._a: list[list[Tensor]] = []
        self._b: Array = np.zeros(0)
        self._at_y: Array = np.zeros(0)
        self._idle: Array = np.zeros(0)
        self._gram: Array = np.zeros((0, 0))
        self.model = -np.inf
        """The value of the mixture at the point last found."""
        self.height = 0.0
        """Its value at the start of the projection, ``d = 0``."""
        self.mixture = combine([0.0], [y])
        """``w``: a subgradient of c at that point, up to the gap between the two."""

    def recenter(self, y: Vector) -> None:
        """Set the point whose proximal point is sought."""
        self._y = y
        self._at_y = self._b + np.array([dot(a, y) for a in self._a])

    def add(self, value: float, gradient: list[Tensor], at: Vector) -> None:
        """Add ``value + <gradient, d - at>``."""
        if len(self._a) >= ROOM:
            self._forget(int(np.argmax(self._idle)))
        row = np.array([dot(gradient, a) for a in self._a])
        own = np.array([[dot(gradient, gradient)]])
        self._gram = np.block([[self._gram, row[:, None]], [row[None, :], own]])
        self._a.append(gradient)
        self._b = np.append(self._b, value - dot(gradient, at))
        at_y = value + dot(gradient, difference(self._y, at))
        self._at_y = np.append(self._at_y, at_y)
        self._idle = np.append(self._idle, 0.0)

    def solve(self, mu: float) -> list[Tensor]:
        """The best mixture for a multiplier, and its point ``y - mu w``.

        ``max_v  b'v + <w, y> - (mu/2)|w|^2`` over the simplex, ``w = sum_k v_k a_k``.
        """
        simplex = np.ones(len(self._a), dtype=bool)
        v = solve_simplex_qp(mu * self._gram, -self._at_y, simplex).z
        self._idle = np.where(v > 0, 0.0, self._idle + 1.0)
        self.model = float(v @ self._at_y - mu * (v @ self._gram @ v))
        self.height = float(v @ self._b)
        used = np.flatnonzero(v)
        self.mixture = combine([float(v[k]) for k in used], [self._a[k] for k in used])
        return combine([1.0, -mu], [self._y, self.mixture])

    def _forget(self, k: int) -> None:
        self._a.pop(k)
        self._gram = np.delete(np.delete(self._gram, k, 0), k, 1)
        self._b, self._idle = np.delete(self._b, k), np.delete(self._idle, k)
        self._at_y = np.delete(self._at_y, k)
