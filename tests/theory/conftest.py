"""A schedule of each setting, for what holds in both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    Schedule,
    convex_schedule,
    nonconvex_schedule,
)

CONVEX = ConvexConstants(
    weak_convexity=1.0,
    gradient_bound=2.0,
    constraint_gradient_bound=4.0,
    boundary_slope=3.0,
)
NONCONVEX = NonconvexConstants(
    weak_convexity=1.0,
    gradient_bound=2.0,
    constraint_gradient_bound=4.0,
    constraint_smoothness=4.0,
    boundary_slope=2.0,
    infeasible_slope=1.0,
)
MAKERS = {
    "convex": partial(convex_schedule, CONVEX),
    "nonconvex": partial(nonconvex_schedule, NONCONVEX),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Schedule]:
    """The schedule for an epsilon, with the smallest K unless asked otherwise."""

    def schedule(epsilon: float, how: str = "smallest") -> Schedule:
        return MAKERS[request.param](epsilon, inner_steps=how)

    return schedule
