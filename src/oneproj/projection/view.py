"""The constraints as a projector sees them: one point at a time, counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from oneproj.parameters import Vector, assign, combine, distance, snapshot
from oneproj.projection.sets import SetConstraint
from oneproj.terms import AbstractTerm, Constraint

MARGIN_POWER = 0.75
"""The margin is eps^0.75 of a constraint's scale: far above the rounding of its value,
which another batch size or thread count may change, and far below what matters."""

DEEPEST = 0.25
"""The share of a set's depth that a margin may take."""


@dataclass(frozen=True)
class Look:
    """All constraints at one point, with the gradients of those that may bind."""

    values: dict[str, float]
    gradients: dict[str, list[Tensor]]

    @property
    def worst(self) -> float:
        """The largest residual; feasible means <= 0."""
        return max(self.values.values(), default=-torch.inf)


class View:
    """Evaluates constraints at the point that the parameters hold.

    A constraint that was never violated is looked at without its gradient: of a
    hundred constraints of which three matter, three are differentiated.
    """

    def __init__(
        self,
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        *,
        differentiate_all: bool,
    ) -> None:
        """Take the first look; the parameters hold the start."""
        self.parameters = parameters
        self.constraints = constraints
        self.origin = snapshot(parameters)
        self.evaluations = 0
        self._suspects = set(constraints if differentiate_all else ())
        self.first = self.look()
        eps = max(torch.finfo(p.dtype).eps for p in parameters)
        self._share: float = eps**MARGIN_POWER
        self.margins = {
            name: _reachable(constraints[name], self._share, value)
            for name, value in self.first.values.items()
        }
        self.best, self.best_point = self.first, self.origin
        """What was seen at the nearest feasible point, or the least infeasible one."""

    def look(self) -> Look:
        """Evaluate where the parameters are; one evaluation, however many there are."""
        self.evaluations += 1
        values, gradients = {}, {}
        for name, constraint in self.constraints.items():
            if name not in self._suspects:
                values[name] = constraint.value()
                if values[name] <= 0:
                    continue
                self._suspects.add(name)
            found = constraint.value_and_gradient(self.parameters)
            values[name], gradients[name] = found
        return Look(values, gradients)

    def move(self, displacement: Vector) -> Look:
        """Go to ``x_0 + displacement`` and look; remember the best point."""
        target = combine([1.0, 1.0], [self.origin, displacement])
        assign(self.parameters, target)
        seen = self.look()
        if self._is_better(seen, target):
            self.best, self.best_point = seen, target
        return seen

    def _is_better(self, seen: Look, point: Vector) -> bool:
        """Feasible points are ranked by distance, others by their worst residual.

        Of feasible points that a margin cannot tell apart, the later one saw more.
        """
        if seen.worst > 0 or self.best.worst > 0:
            return seen.worst < self.best.worst
        nearest = distance(self.best_point, self.origin)
        return distance(point, self.origin) <= nearest * (1.0 + self._share)


def _reachable(constraint: AbstractTerm, share: float, value: float) -> float:
    """The margin: a share of the constraint's scale, and no more than it has room."""
    bound = abs(constraint.bound) if isinstance(constraint, Constraint) else 0.0
    margin = share * (bound + abs(value))
    if isinstance(constraint, SetConstraint):
        margin = min(margin, DEEPEST * constraint.members.depth(constraint.tensor))
    return margin
