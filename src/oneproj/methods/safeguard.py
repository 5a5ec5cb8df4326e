"""The safeguard ball as a constraint, for the projection of a point at its edge.

The theorems assume that the feasible set lies inside the ball, and so does line 6 of
Algorithm 1. Where it does not, the nearest feasible point may lie outside; then the
projection is onto what is feasible *and* in the ball.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneproj.parameters import Vector, norm, offset
from oneproj.problem import Problem
from oneproj.terms.base import AbstractTerm
from oneproj.terms.functions import function

NAME = "safeguard ball"
EDGE = 0.9
"""The share of the radius beyond which a point is at the edge of the ball."""


def safeguard(problem: Problem) -> dict[str, AbstractTerm]:
    """The ball under its name if the point is at its edge, else nothing.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0)
        >>> {name: ball.value() for name, ball in safeguard(problem).items()}
        {'safeguard ball': 1.0}
    """
    z, center, radius = problem.parameters, problem.center, problem.radius
    if math.isinf(radius) or NAME in problem.constraints:
        return {}
    if norm(offset(z, center)) < EDGE * radius:
        return {}
    ball = function(lambda: _length(z, center), curvature="convex") <= radius
    return {NAME: ball.named(NAME)}


def _length(point: Vector, center: Vector | None) -> Tensor:
    """``|z - c|``, differentiable, added up in float64."""
    offsets = (
        list(point)
        if center is None
        else [z - c for z, c in zip(point, center, strict=True)]
    )
    squares = [offset.double().square().sum() for offset in offsets]
    return torch.stack(squares).sum().sqrt()
