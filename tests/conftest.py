"""What all tests share: Ctrl-C, and a schedule that ends soon."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from oneproj.theory import ConvexConstants, Schedule, convex_schedule

# A shell ignores it for what a script runs in the background, and so would Python.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow or busy machine fails no test.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def short_schedule() -> Schedule:
    """A schedule for the unit ball that ends soon; its constants claim very little."""
    constants = ConvexConstants(
        weak_convexity=1e-3,
        gradient_bound=1e-2,
        constraint_gradient_bound=1.0,
        boundary_slope=1.0,
        initial_gap=1e-3,
    )
    return convex_schedule(constants, epsilon=1.0)
