"""What was seen of the quantities that the constants of a theorem bound."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from oneproj.theory.constants import ConvexConstants, NonconvexConstants

ROUNDINGS = 1e3
"""A constant is contradicted by more than this many roundings of what was seen."""


@dataclass
class Observations:
    """The extremes that were seen in the safeguard ball; plain numbers, to be saved.

    Attributes:
        objective_gradient: The largest norm of a stochastic gradient of f.
        constraint_gradient: The largest norm of grad g.
        constraint_smoothness: The largest ``|grad g(x) - grad g(y)| / |x - y|``.
        boundary_slope: The smallest norm of grad g where g = 0.
        infeasible_gradient: The smallest norm of grad g where g > 0.
        infeasible_slope: The smallest ``dist(0, grad g + N_B)`` where g > 0.
        feasible_distance: The largest distance of a feasible point from the centre.

    Example:
        >>> seen = Observations()
        >>> seen.add(objective_gradient=4.5)
        >>> seen.add(objective_gradient=2.0, boundary_slope=0.5)
        >>> seen.objective_gradient, seen.boundary_slope
        (4.5, 0.5)
    """

    objective_gradient: float = 0.0
    constraint_gradient: float = 0.0
    constraint_smoothness: float = 0.0
    boundary_slope: float = math.inf
    infeasible_gradient: float = math.inf
    infeasible_slope: float = math.inf
    feasible_distance: float = 0.0

    def add(self, **seen: float) -> None:
        """Keep what is more extreme than all before."""
        kept = vars(self)
        for name, value in seen.items():
            extreme = min if vars(Observations)[name] == math.inf else max
            kept[name] = extreme(kept[name], value)

    def state_dict(self) -> dict[str, float]:
        """All numbers by their names."""
        return dataclasses.asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, float]) -> Self:
        """The observations of such a state."""
        return cls(**state)

    def contradictions(
        self, constants: ConvexConstants | NonconvexConstants, rounding: float
    ) -> list[str]:
        """What is claimed and what was seen, of every constant that is refuted.

        For a convex g a slope of sigma where g = 0 makes ``|grad g| >= sigma`` where
        g > 0, too: by lem:convex-eb such an x has a feasible point within g(x)/sigma,
        and g falls by at most |grad g(x)| per unit on the way there.

        Args:
            constants: What is claimed.
            rounding: The relative rounding of what was seen.

        Example:
            >>> claims = ConvexConstants(
            ...     weak_convexity=1.0, gradient_bound=0.02,
            ...     constraint_gradient_bound=1.0, boundary_slope=1.0)
            >>> Observations(objective_gradient=4.5).contradictions(claims, 2**-52)
            ['|grad f| <= 0.02 (gradient_bound); 4.5 was seen']
        """
        room, edge = ROUNDINGS * rounding, "|grad g| where g = 0"
        upper = [
            ("|grad f|", "gradient_bound", self.objective_gradient),
            ("|grad g|", "constraint_gradient_bound", self.constraint_gradient),
            ("|x - center| of every feasible x", "radius", self.feasible_distance),
        ]
        lower = [(edge, "boundary_slope", self.boundary_slope)]
        if isinstance(constants, ConvexConstants):
            beyond = f"{edge}, hence where g > 0,"
            lower.append((beyond, "boundary_slope", self.infeasible_gradient))
        else:
            bend = "|grad g(x) - grad g(y)| / |x - y|"
            upper.append((bend, "constraint_smoothness", self.constraint_smoothness))
            descent = "dist(0, grad g + N_B) where g > 0"
            lower.append((descent, "infeasible_slope", self.infeasible_slope))
        claims = dataclasses.asdict(constants)
        found = [
            f"{what} <= {claims[name]:.6g} ({name}); {seen:.6g} was seen"
            for what, name, seen in upper
            if seen > (1.0 + room) * claims[name]
        ]
        return found + [
            f"{what} >= {claims[name]:.6g} ({name}); {seen:.6g} was seen"
            for what, name, seen in lower
            if seen < (1.0 - room) * claims[name]
        ]
