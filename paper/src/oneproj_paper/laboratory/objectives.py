"""The objective of every laboratory problem: a saddle, smooth or with a kink.

    f(x) = c/2 (x_1 - a)^2 + k |x_1 - a| - l/2 x_2^2

It falls without end along the second coordinate, so only the constraint holds it, and
everything the theorems ask for is known in closed form.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import numpy as np

from oneproj.errors import InvalidProblemError
from oneproj.vectors.arithmetic import Array

"""Points of the plane, shape (..., 2), or one number per point, shape (...)."""


def length(x: Array) -> Array:
    """Return the Euclidean norm of each point.

    Example:
        >>> length(np.array([[3.0, 4.0]]))
        array([5.])
    """
    return np.sqrt(x[..., 0] ** 2 + x[..., 1] ** 2)


@dataclass(frozen=True, kw_only=True)
class Saddle:
    """f(x) = c/2 (x_1 - a)^2 + k |x_1 - a| - l/2 x_2^2 on the unit disc.

    Attributes:
        curvature: c; either 0 or at least l.
        kink: k >= 0; above 0, f is not differentiable on the line x_1 = a.
        center: a in [0, 1].
        descent: l > 0, the weak convexity constant.

    Example:
        >>> f = Saddle(curvature=0.0, kink=1.0, center=0.5, descent=0.2)
        >>> float(f.value(np.array([1.0, 1.0]))), f.gradient(np.array([1.0, 1.0]))
        (0.4, array([ 1. , -0.2]))
    """

    curvature: float
    kink: float
    center: float
    descent: float

    def __post_init__(self) -> None:
        """Check the range in which the closed forms below hold."""
        c, k, a, ell = astuple(self)
        if not (ell > 0 and k >= 0 and 0 <= a <= 1 and (c == 0 or c >= ell)):
            message = (
                "A Saddle needs descent > 0, kink >= 0, 0 <= center <= 1 and a "
                f"curvature that is 0 or at least the descent, got {self}. Its "
                "constants are closed forms that hold in this range only."
            )
            raise InvalidProblemError(message)

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """c, k, a, l, as the compiled twin takes them."""
        return self.curvature, self.kink, self.center, self.descent

    def value(self, x: Array) -> Array:
        """Evaluate f at each point."""
        d = x[..., 0] - self.center
        curved: Array = self.curvature * d * d - self.descent * x[..., 1] ** 2
        return 0.5 * curved + self.kink * np.abs(d)

    def gradient(self, x: Array) -> Array:
        """A subgradient of f at each point: the gradient, with sign(0) = 0."""
        d = x[..., 0] - self.center
        first = self.curvature * d + self.kink * np.sign(d)
        return np.stack([first, -self.descent * x[..., 1]], axis=-1)

    @property
    def weak_convexity(self) -> float:
        """l: f + l/2 |x|^2 is convex, and for no smaller number."""
        return self.descent

    @property
    def lipschitz(self) -> float:
        """The largest subgradient norm on the unit disc.

        |v|^2 = (c |x_1 - a| + k)^2 + l^2 x_2^2 on the circle: for c >= l it is convex
        in x_1 on each side of a and largest at x_1 = -1; for c = 0 at x_1 = 0.
        """
        if self.curvature == 0:
            return math.hypot(self.kink, self.descent)
        return self.curvature * (1 + self.center) + self.kink

    @property
    def minimum(self) -> float:
        """The smallest value on the unit disc, which lies on the circle.

        There x_2^2 = 1 - x_1^2, and what remains is convex in x_1 with its stationary
        point left of a, unless the kink stops it at a.
        """
        c, k, a, ell = self.parameters
        x_1 = min(a, (c * a + k) / (c + ell))
        return float(self.value(np.array([x_1, math.sqrt(1 - x_1 * x_1)])))
