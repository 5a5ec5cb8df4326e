"""Normals of closed-form sets, seen from a point that is in them, or nearly.

The normals of a set C at p are the ``n = y - p`` with ``p = P_C(y)``: at a corner there
is a cone of them, and the projection of a point y outside picks the one that y asks
for. If C is convex, ``<n, z - p> <= 0`` for all z in C.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from oneproj.parameters import Vector, dot, norm
from oneproj.projection.sets import SetConstraint


@dataclass(frozen=True)
class Normal:
    """A unit normal of a set, and how far x is from the plane it belongs to."""

    direction: Tensor
    slack: float
    """``<n, p - x>``: x could move this far along n; < 0 for an x beyond."""


class Neighbour:
    """A set beside the point x that its tensor holds.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> box = Neighbour(oneproj.sets.Box(0.0, 1.0).on(w), [w])
        >>> found = box.normal(torch.tensor([0.3, 0.4], dtype=torch.float64))
        >>> [round(n, 6) for n in found.direction.tolist()], found.slack
        ([0.6, 0.8], 0.0)
    """

    def __init__(self, constraint: SetConstraint, parameters: Vector) -> None:
        """Look at the residual, and find the tensor among the parameters."""
        self._members = constraint.members
        self._x = constraint.tensor.detach().double()
        self.residual = constraint.value()
        self.place = next(i for i, p in enumerate(parameters) if p is constraint.tensor)
        self.projections = 0

    def normal(self, step: Tensor) -> Normal | None:
        """The normal that holds ``x + step`` back; None if nothing does."""
        if norm([step]) <= -self.residual:
            return None  # it stays inside, whatever its direction
        y = self._x + step
        p = self._members.project(y)
        self.projections += 1
        n = y - p
        distance = norm([n])
        if distance == 0:
            return None
        n /= distance
        return Normal(n, dot([n], [p - self._x]))
