"""The highest point of a smooth concave function of a few numbers that are >= 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from oneproj.vectors.arithmetic import Array, Mask
from oneproj.vectors.qp import EPSILON, solve_nonnegative_qp

ROUNDS = 40
"""Steps, tried ones included. Most ascents take ten, the cap is for luck."""
FIRST, LESS, MORE = 1e-2, 1e-2, 30.0
"""The share of the bound on the curvature in a model; by what it falls and grows."""
LEAST = 1e-10
ENOUGH = 1e-4
"""The part of the gain that was predicted which a step has to make."""
APART = 1e-6
"""The distance of two slopes whose difference is a curvature, relatively."""


class Height(NamedTuple):
    """A value, its derivatives, and how high the highest point is proven to be."""

    value: float
    slope: Array
    proof: float = 0.0
    length: float = 0.0
    """Of the displacement that it is of."""


def ascend(
    height: Callable[[Array], Height],
    bound: Array,
    start: Array,
    *,
    enough: Array,
    far: float,
    unit: float,
) -> Array:
    """Maximise over ``z >= 0``: Newton steps, damped by a bound on the curvature.

    Each step maximises a quadratic model over z >= 0, whose curvature is that of the
    last two slopes in every coordinate, mixed with the bound: with the bound alone a
    step always gains, so that more of it is mixed in until the step does, and less
    afterwards. If the function is piecewise quadratic, the last step is exact.

    Args:
        height: The function.
        bound: A matrix H with ``-f'' <= H``.
        start: Where to begin.
        enough: The slopes to stop at: no larger, and where z > 0 no smaller than minus.
        far: The proof to stop at.
        unit: The size of a step that is not small, to difference slopes by.

    Example:
        >>> f = lambda z: Height(float(z[0] - 0.5 * z[0] ** 2), 1.0 - z)
        >>> zero, one = np.zeros(1), np.ones((1, 1))
        >>> ascend(f, one, zero, enough=zero + 1e-12, far=9.0, unit=1.0).round(9)
        array([1.])
    """
    z, share = start, FIRST
    here, curvature = height(z), None
    for _ in range(ROUNDS):
        beyond = np.where(z > 0, np.abs(here.slope), here.slope)
        free = (z > 0) | (here.slope > 0)
        if here.proof > far or not (beyond > enough).any():
            break
        if curvature is None:
            apart = APART * (unit + float(np.abs(z).sum()))
            curvature = _curvature(height, z, here, free, apart)
        H = (1.0 - share) * curvature + share * bound[np.ix_(free, free)]
        step = np.zeros_like(z)
        step[free] = _model_step(H, here.slope[free], z[free])
        there = height(z + step)
        if _gains(here, there, step, H, free):
            z, here, curvature = z + step, there, None
            share = max(LEAST, LESS * share)
        elif share == 1.0:
            break  # only rounding keeps the bound's own step from a gain
        else:
            share = min(1.0, MORE * share)
    return z


def _gains(here: Height, there: Height, step: Array, H: Array, free: Mask) -> bool:
    """Whether a step made a part of the gain that was predicted.

    Near the top gains are below the rounding of values; slopes tell them still.
    """
    rise, fall = float(here.slope @ step), -float(there.slope @ step)
    predicted = rise - 0.5 * float(step[free] @ H @ step[free])
    noise = 64.0 * EPSILON * (abs(here.value) + abs(there.value))
    if predicted > noise:
        return there.value - here.value >= ENOUGH * predicted
    return rise > 0 and fall <= 0.9 * rise


def _curvature(
    height: Callable[[Array], Height], z: Array, here: Height, free: Mask, apart: float
) -> Array:
    """Minus the second derivatives by the free entries, as far as they are negative."""
    columns = []
    for j in np.flatnonzero(free):
        aside = z.copy()
        aside[j] += apart
        columns.append((here.slope - height(aside).slope)[free] / (aside[j] - z[j]))
    H = np.array(columns)
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    curvature: Array = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return curvature


def _model_step(H: Array, slope: Array, z: Array) -> Array:
    """The step to the maximiser of the model over ``z + step >= 0``."""
    found = solve_nonnegative_qp(H, -slope - H @ z, z)
    way = found.z - z
    if found.ray is not None:
        way = way + (1.0 + np.abs(z).sum()) * found.ray
    step: Array = way
    return step
