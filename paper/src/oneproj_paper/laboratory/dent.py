"""The nonconvex feasible set of Theorem 3: a disc with a dent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np
from scipy.optimize import brentq

from oneproj.errors import InvalidProblemError
from oneproj.vectors.arithmetic import Array

ANGLES = 4096
"""Directions in the first scan: far finer than any feature of the boundary."""
XTOL = 4e-16


class RaySet(Protocol):
    """A set {g <= 0} that contains 0 inside and that every ray leaves once."""

    def value(self, x: Array) -> Array:
        """Evaluate g at each point."""

    def gradient(self, x: Array) -> Array:
        """Evaluate grad g at each point."""


def nearest_on_boundary(constraint: RaySet, x: Array) -> Array:
    """Return the nearest boundary point to x, from inside: g <= 0 as evaluated.

    The boundary is a closed curve over the angle. A scan finds every local minimum of
    the distance, a bracketed root search sharpens each where x - b is parallel to
    grad g(b), and the best one wins: a global minimiser to about 1e-15, for any x.

    Example:
        >>> from oneproj_paper.laboratory.shapes import Disc
        >>> nearest_on_boundary(Disc(radius=0.5), np.array([0.0, 0.75])).round(12)
        array([0. , 0.5])
    """
    step = 2.0 * math.pi / ANGLES
    angles: Array = step * np.arange(ANGLES, dtype=np.float64)
    curve = boundary_points(constraint, angles)
    distance = ((curve - x) ** 2).sum(-1)
    before, after = np.roll(distance, 1), np.roll(distance, -1)
    lowest = np.flatnonzero((distance <= before) & (distance <= after))

    def tangential(angle: float) -> float:
        b = boundary_points(constraint, np.array([angle]))[0]
        d = constraint.gradient(b)
        return float((x[0] - b[0]) * d[1] - (x[1] - b[1]) * d[0])

    found = [curve[k] for k in lowest]
    for angle in angles[lowest]:
        left, right = angle - step, angle + step
        if tangential(left) * tangential(right) < 0:
            root = float(brentq(tangential, left, right, xtol=XTOL, rtol=XTOL * 4))
            found.append(boundary_points(constraint, np.array([root]))[0])
    best: Array = min(found, key=lambda b: float(((b - x) ** 2).sum()))
    return best


def boundary_points(constraint: RaySet, angles: Array) -> Array:
    """Return the boundary point in each direction, by bisection along the ray.

    It is the inner end of the last bracket, where g was evaluated and is <= 0.

    Example:
        >>> from oneproj_paper.laboratory.shapes import Disc
        >>> boundary_points(Disc(radius=0.5), np.array([0.0])).round(12)
        array([[0.5, 0. ]])
    """
    u = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    low, high = np.zeros_like(angles), np.ones_like(angles)
    for _ in range(60):
        middle = 0.5 * (low + high)
        inside = constraint.value(middle[..., None] * u) <= 0
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    points: Array = low[..., None] * u
    return points


GRID_STEP = 1.0 / 600.0
"""Spacing of the grid on which the slopes are certified."""
NEIGHBOURHOOD = 1.0 + 2.0 * GRID_STEP
"""The assumption asks for a smooth g around the unit ball: this much around it."""


@dataclass(frozen=True, kw_only=True)
class DentedDisc:
    """``g(x) = |x|^2/2 - c^2/2 + A / (1 + |x - (0, p)|^2 / w^2) <= 0``.

    A disc of radius c from which a bump of height A and width w around (0, p) takes a
    bite. With p at the rim, both terms of g grow towards the outside, so the slope
    condition of the theorem (eq. infeasible-slope) holds although g and the set are
    not convex; `certificate` proves it.

    Example:
        >>> set_ = DentedDisc(radius=0.98, height=0.3, width=0.3, peak=1.0)
        >>> ears, between = np.array([[-0.4, 0.78], [0.4, 0.78]]), np.array([0.0, 0.78])
        >>> (set_.value(ears) < 0).all(), bool(set_.value(between) > 0)
        (np.True_, True)
    """

    radius: float
    height: float
    width: float
    peak: float
    shape: ClassVar[Literal["dent"]] = "dent"

    def __post_init__(self) -> None:
        """Check the range in which the bounds below hold."""
        inside = 0 < self.radius < 1 <= self.peak
        if not (inside and self.height > 0 and self.width > 0):
            message = (
                "A DentedDisc needs 0 < radius < 1 <= peak, height > 0 and width > 0, "
                f"got {self}. Otherwise the set may leave the unit ball."
            )
            raise InvalidProblemError(message)

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """c^2/2, A, p, 1/w^2, as the compiled twin takes them."""
        return 0.5 * self.radius**2, self.height, self.peak, self.width**-2

    def _bump(self, x: Array) -> tuple[Array, Array, Array]:
        """Return x - (0, p), the bump, and minus its derivative by |x - (0, p)|^2/2."""
        e = x - np.array([0.0, self.peak])
        q = 1.0 + (e * e).sum(-1) * self.width**-2
        return e, self.height / q, 2.0 * self.width**-2 * self.height / (q * q)

    def value(self, x: Array) -> Array:
        """Evaluate g at each point."""
        half: Array = 0.5 * (x * x).sum(-1) - 0.5 * self.radius**2
        return half + self._bump(x)[1]

    def gradient(self, x: Array) -> Array:
        """Evaluate grad g at each point."""
        e, _, c = self._bump(x)
        return x - c[..., None] * e

    def hessian(self, x: Array) -> Array:
        """Evaluate the second derivative of g at each point, shape (..., 2, 2)."""
        e, bump, c = self._bump(x)
        outer = e[..., :, None] * e[..., None, :]
        twist = (4.0 * self.width**-2 * c * bump / self.height)[..., None, None]
        return (1.0 - c)[..., None, None] * np.eye(2) + twist * outer

    def project(self, x: Array) -> Array:
        """Return a nearest feasible point to each point; see `nearest_on_boundary`."""
        points = np.array(x, dtype=np.float64).reshape(-1, 2)
        for k in np.flatnonzero(self.value(points) > 0):
            points[k] = nearest_on_boundary(self, points[k])
        return points.reshape(x.shape)

    @cached_property
    def smoothness(self) -> float:
        """L_g around the unit ball, in closed form.

        With u = |x - (0, p)|^2 / w^2 and a = 2A/w^2 the eigenvalues of the Hessian are
        1 - a / (1 + u)^2, increasing in u, and 1 - a (1 - 3u) / (1 + u)^3, which
        rises up to 1 + a/4 at u = 1. So the extremes are at u = 1 and at the smallest
        u around the ball.
        """
        a = 2.0 * self.height * self.width**-2
        u = (max(self.peak - NEIGHBOURHOOD, 0.0) / self.width) ** 2
        lowest = min(1.0 - a / (1.0 + u) ** 2, 1.0 - a * (1.0 - 3.0 * u) / (1 + u) ** 3)
        return max(1.0 + 0.25 * a, -lowest)

    @cached_property
    def certificate(self) -> Slopes:
        """The slopes of the theorem, each a proven bound and not an estimate."""
        return certify_slopes(self)

    @property
    def gradient_bound(self) -> float:
        """G_g."""
        return self.certificate.largest

    @property
    def boundary_slope(self) -> float:
        """sigma_bd."""
        return self.certificate.on_boundary

    @property
    def infeasible_slope(self) -> float:
        """sigma_out."""
        return self.certificate.outside


@dataclass(frozen=True)
class Slopes:
    """What is proven about grad g on the unit ball.

    Attributes:
        largest: no gradient is longer.
        on_boundary: no gradient on g = 0 is shorter.
        outside: no gradient on g > 0 is shorter.
        outward: <x, grad g(x)> is at least this wherever g >= 0. Above 0, no normal of
            the ball can shorten the gradient, and every ray from the origin leaves the
            feasible set once.
    """

    largest: float
    on_boundary: float
    outside: float
    outward: float


def certify_slopes(constraint: DentedDisc) -> Slopes:
    """Bound the slopes on the unit ball by a grid plus a Lipschitz constant.

    Every point of the ball lies within h = step/sqrt(2) of a grid point, over which g
    changes by at most G h, its gradient by L h and <x, grad g> by (L + G) h (here for
    points of norm at most 1 + h). G is at most 1 + h plus the largest slope of the
    bump, (3/8) sqrt(3) A/w.

    Example:
        >>> slopes = certify_slopes(
        ...     DentedDisc(radius=0.98, height=0.3, width=0.3, peak=1.0)
        ... )
        >>> slopes.outside > 0.8, slopes.outward > 0
        (True, True)
    """
    h, L = GRID_STEP / np.sqrt(2.0), constraint.smoothness
    ticks = np.arange(-NEIGHBOURHOOD, NEIGHBOURHOOD + GRID_STEP, GRID_STEP)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    grid = grid[(grid * grid).sum(-1) <= (1.0 + h) ** 2]
    g, d = constraint.value(grid), constraint.gradient(grid)
    slope = np.sqrt((d * d).sum(-1))
    steepest = 0.375 * np.sqrt(3.0) * constraint.height / constraint.width
    G = 1.0 + h + steepest
    outside, boundary = g >= -G * h, np.abs(g) <= G * h
    outward = (grid * d).sum(-1)[outside].min() - (L * (1 + h) + G) * h
    return Slopes(
        largest=float(slope.max() + L * h),
        on_boundary=float(slope[boundary].min() - L * h),
        outside=float(slope[outside].min() - L * h),
        outward=float(outward),
    )
