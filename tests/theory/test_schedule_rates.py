"""How the schedules grow: epsilon^-4 up to logarithms, in both settings."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from oneproj.theory import (
    Schedule,
)


def logarithms(schedule: Schedule) -> float:
    """log(K + 1) + 2 log(6 T), the logarithms in U_K."""
    return math.log(schedule.inner_steps + 1) - 2 * math.log(schedule.inner_failure)


def test_gradient_calls_grow_like_epsilon_to_the_minus_four_up_to_logarithms(
    make: Callable[..., Schedule],
) -> None:
    # T = a/eps^2 and K = (b + c L)/(e eps^2), L the logarithms, so T K / L is
    # eps^-4 (1 + b/(c L)) up to a constant. Here b/c < 0.04 and L runs from 100 to 52:
    # the bracket varies by less than 4e-4 over the grid, which can move the slope by
    # 4e-4 / log(1000) < 1e-4. (Without dividing by L the slope is -4.08.)
    grid = np.geomspace(1e-4, 1e-1, 25)
    schedules = [make(float(eps)) for eps in grid]
    calls = [s.gradient_calls / logarithms(s) for s in schedules]
    slope, _ = np.polyfit(np.log(grid), np.log(calls), 1)
    assert slope == pytest.approx(-4.0, abs=1e-4)


def test_the_local_slope_of_the_gradient_calls_approaches_minus_four(
    make: Callable[..., Schedule],
) -> None:
    # From K = (b + c L)/(e eps^2) and dL = dlog K + 2 dlog T with dlog T = 2:
    # 2 <= dlog K <= 2 + (dlog K + 4)/L, that is dlog K <= 2 + 6/(L - 1).
    # Ceilings move the slope by less than 1/(T log ratio) < 1e-4.
    grid = np.geomspace(1e-30, 1e-1, 30)
    schedules = [make(float(eps)) for eps in grid]
    calls = np.log([float(s.gradient_calls) for s in schedules])
    slopes = -np.diff(calls) / np.diff(np.log(grid))
    excess = [6 / (logarithms(s) - 1) for s in schedules[1:]]  # at the larger eps
    assert np.all(slopes > 4.0)
    assert np.all(slopes < 4.0 + np.array(excess) + 1e-4)
    assert np.all(np.diff(slopes) > 0)  # from 4.1 at eps = 0.1 down towards 4
    assert slopes[0] < 4.02


def test_doubling_costs_at_most_twice_the_smallest(
    make: Callable[..., Schedule],
) -> None:
    for eps in (0.5, 0.1, 1e-3):
        smallest, doubling = make(eps).inner_steps, make(eps, "doubling").inner_steps
        assert smallest <= doubling < 2 * smallest
