"""The paper's obstruction (app:obstruction): why the slope condition is there.

On [-1, 1] take f = 0 and ``g(x) = (x^2 - 1/4)^2 - 1/64``. The feasible set is
1/8 <= x^2 <= 3/8, and g' is not 0 on its boundary. But 0 is infeasible and g'(0) = 0:
Algorithm 1 started there never moves, its penalty residual is 0, and the witness of
that small residual is 0 itself, which is infeasible. So a small residual proves nothing
without eq. infeasible-slope.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oneproj.methods.one_projection import OneProjection
from oneproj.oracles.penalties import Hinge
from oneproj.problem.functions import function
from oneproj.problem.problem import Problem

WEAK_CONVEXITY = 1.0
"""Any ell > 0 will do for f = 0."""
SMOOTHNESS = 11.0
"""L_g: g'' = 12 x^2 - 1 lies in [-1, 11] on the ball."""
BOUNDARY_SLOPE = 2.0**-0.5 * 0.25
"""|g'| = |4 x (x^2 - 1/4)| = |x|/2 on the boundary, smallest at x^2 = 1/8."""


def constraint_value(w: Tensor) -> Tensor:
    """g(w) for a tensor of one element.

    Example:
        >>> constraint_value(torch.tensor([0.0])).item() * 64
        3.0
    """
    return ((w.square() - 0.25).square() - 1.0 / 64.0).sum()


def obstruction_problem(w: Tensor) -> Problem:
    """Return the problem over the tensor w of one element.

    Example:
        >>> w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        >>> obstruction_problem(w).residuals()["two bands"]
        0.046875
    """
    return Problem(
        w,
        objective=function(lambda: 0.0 * w.sum()),
        constraints={"two bands": function(lambda: constraint_value(w)) <= 0.0},
        radius=1.0,
    )


@dataclass(frozen=True)
class ObstructionRun:
    """Every iterate of Algorithm 1 on the obstruction.

    Attributes:
        inner: z_s, in order, over all outer iterations.
        outer: x_0..x_T.
    """

    inner: list[float]
    outer: list[float]


def run_obstruction(
    start: float, *, strength: float, outer_steps: int, inner_steps: int
) -> ObstructionRun:
    """Run the public optimiser with beta = 2 (ell + lambda L_g), as Theorem 3 asks.

    Example:
        >>> run = run_obstruction(0.0, strength=1.0, outer_steps=2, inner_steps=3)
        >>> set(run.inner), run.outer
        ({0.0}, [0.0, 0.0, 0.0])
    """
    w = torch.full((1,), start, dtype=torch.float64, requires_grad=True)
    rho = WEAK_CONVEXITY + strength * SMOOTHNESS
    optimizer = OneProjection(
        [w],
        strong_convexity=rho,
        prox_weight=2.0 * rho,
        inner_steps=inner_steps,
        radius=1.0,
    )
    penalty = Hinge(strength)
    inner, outer = [], [start]
    for _ in range(outer_steps):
        for _ in range(inner_steps):
            inner.append(w.item())
            optimizer.zero_grad()
            penalty(constraint_value(w)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        optimizer.eval()
        outer.append(w.item())
        optimizer.train()
    return ObstructionRun(inner=inner, outer=outer)
