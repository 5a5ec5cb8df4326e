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

from oneproj.theory.bounds import convex_inner_error as convex_inner_error
from oneproj.theory.bounds import gradient_mapping_bound as gradient_mapping_bound
from oneproj.theory.bounds import inner_bound as inner_bound
from oneproj.theory.bounds import moreau_bound as moreau_bound
from oneproj.theory.bounds import penalty_residual_bound as penalty_residual_bound
from oneproj.theory.constants import ConvexConstants as ConvexConstants
from oneproj.theory.constants import NonconvexConstants as NonconvexConstants
from oneproj.theory.schedules import Schedule as Schedule
from oneproj.theory.schedules import convex_schedule as convex_schedule
from oneproj.theory.schedules import nonconvex_schedule as nonconvex_schedule
