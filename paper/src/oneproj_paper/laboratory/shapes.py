"""The convex feasible set of Theorems 1 and 2: a disc, as a Huber function sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from oneproj.errors import InvalidProblemError
from oneproj.vectors.arithmetic import Array
from oneproj_paper.laboratory.objectives import length

HAIR = 4.0 * float(np.finfo(np.float64).eps)
"""How far inside the boundary a projection aims, so that g <= 0 survives rounding."""


@dataclass(frozen=True, kw_only=True)
class Disc:
    """The disc of radius r as ``g(x) = h(|x|) - h(r) <= 0``.

    h is the Huber function with corner r: ``h(u) = u^2 / (2 r)`` up to r, ``u - r/2``
    after. So g is convex and continuously differentiable, and |grad g| <= 1 with
    equality from the boundary on: G_g = sigma = 1, the smallest ratio there is, which
    makes the penalty, and with it the inner budget K, as small as the theory allows.

    Example:
        >>> disc = Disc(radius=0.5)
        >>> float(disc.value(np.array([0.0, 1.0]))), disc.project(np.array([0.0, 0.25]))
        (0.5, array([0.  , 0.25]))
    """

    radius: float
    gradient_bound: ClassVar[float] = 1.0
    boundary_slope: ClassVar[float] = 1.0
    shape: ClassVar[Literal["disc"]] = "disc"

    def __post_init__(self) -> None:
        """Check that the disc lies inside the unit ball."""
        if not 0 < self.radius < 1:
            message = (
                f"The disc must lie inside the unit ball: 0 < radius < 1, got "
                f"{self.radius}."
            )
            raise InvalidProblemError(message)

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """r, as the compiled twin takes it."""
        return self.radius, 0.0, 0.0, 0.0

    def value(self, x: Array) -> Array:
        """Evaluate g at each point."""
        r = self.radius
        n = length(x)
        return np.where(n > r, n - r, (n * n - r * r) * (0.5 / r))

    def gradient(self, x: Array) -> Array:
        """Evaluate grad g at each point: x / max(|x|, r)."""
        n = length(x)
        return x / np.maximum(n, self.radius)[..., None]

    def project(self, x: Array) -> Array:
        """Return the nearest feasible point to each point."""
        n = length(x)
        outside = n > self.radius * (1 - HAIR)
        scale = np.where(outside, self.radius * (1 - HAIR) / np.maximum(n, HAIR), 1.0)
        return x * scale[..., None]

    def height(self, x_1: float) -> float:
        """The second coordinate of the boundary point above x_1."""
        return math.sqrt(self.radius**2 - x_1**2)
