"""Three problems in the plane, one per theorem, on which everything is known.

Each has a closed-form objective and constraint, proven constants, an exact projection,
an exact measure and known stationary points, and starts where the measure exceeds the
target, so that the theorem claims something. All live in the unit ball. The stochastic
gradient is the gradient plus a sign times ``noise`` in each coordinate: bounded almost
surely, as the theorems ask, and never small.
"""

from __future__ import annotations

from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.convex import NonsmoothProblem, SmoothProblem
from oneproj_paper.laboratory.dent import DentedDisc
from oneproj_paper.laboratory.nonconvex import NonconvexProblem
from oneproj_paper.laboratory.objectives import Saddle
from oneproj_paper.laboratory.shapes import Disc


def smooth_problem() -> SmoothProblem:
    """Build the problem of Theorem 1: a saddle on a disc, from its far side.

    On the unit ball G_ell <= 2 ell, so a target of 1 needs ell > 1/2.
    """
    return SmoothProblem(
        key="theorem-1",
        title="smooth nonconvex objective, convex set",
        objective=Saddle(curvature=0.57, kink=0.0, center=0.9, descent=0.57),
        disc=Disc(radius=0.96),
        noise=0.2,
        start=(-0.95, 0.0),
        epsilon=1.0,
    )


def nonsmooth_problem() -> NonsmoothProblem:
    """Build the problem of Theorem 2: a ridge with a kink on a disc."""
    return NonsmoothProblem(
        key="theorem-2",
        title="nonsmooth weakly convex objective, convex set",
        objective=Saddle(curvature=0.0, kink=1.05, center=0.65, descent=0.35),
        disc=Disc(radius=0.95),
        noise=0.2,
        start=(-0.9, 0.0),
        epsilon=1.0,
    )


def nonconvex_problem() -> NonconvexProblem:
    """Build the problem of Theorem 3: a disc with a dent, from inside the dent."""
    return NonconvexProblem(
        key="theorem-3",
        title="nonsmooth objective, nonconvex set, infeasible start",
        objective=Saddle(curvature=0.0, kink=0.15, center=0.1, descent=0.15),
        dented=DentedDisc(radius=0.98, height=0.3, width=0.3, peak=1.0),
        noise=0.1,
        start=(0.05, 0.93),
        epsilon=0.95,
        margin=1.02,
        stiffness=1.6,
    )


def all_problems() -> tuple[AbstractLaboratoryProblem, ...]:
    """Return the three problems in the order of the theorems.

    Example:
        >>> [problem.key for problem in all_problems()]
        ['theorem-1', 'theorem-2', 'theorem-3']
    """
    return smooth_problem(), nonsmooth_problem(), nonconvex_problem()
