"""Constants, bounds and schedules of the three theorems: pure arithmetic, no torch.

State what is known about a problem (`ConvexConstants`, `NonconvexConstants`), name a
target, and get the schedule for which the paper proves its guarantee.

Example:
    >>> from oneproj import theory
    >>> constants = theory.ConvexConstants(
    ...     weak_convexity=1.0,
    ...     gradient_bound=2.0,
    ...     constraint_gradient_bound=4.0,
    ...     boundary_slope=3.0,
    ... )
    >>> schedule = theory.convex_schedule(constants, epsilon=0.5)
    >>> schedule.outer_steps, schedule.prox_weight, schedule.within_theorem
    (16000, 2.0, True)
"""

from __future__ import annotations

from oneproj.theory.bounds import (
    convex_inner_error,
    gradient_mapping_bound,
    inner_bound,
    moreau_bound,
    penalty_residual_bound,
)
from oneproj.theory.constants import ConvexConstants, NonconvexConstants
from oneproj.theory.schedules import Schedule, convex_schedule, nonconvex_schedule

__all__ = [
    "ConvexConstants",
    "NonconvexConstants",
    "Schedule",
    "convex_inner_error",
    "convex_schedule",
    "gradient_mapping_bound",
    "inner_bound",
    "moreau_bound",
    "nonconvex_schedule",
    "penalty_residual_bound",
]
