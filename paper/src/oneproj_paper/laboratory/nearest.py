"""The exact nearest point on the boundary of a planar set that rays leave once."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from scipy.optimize import brentq

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
