"""Bounds on rates of decisions, for any projector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.rates.correction import has_rates, project_counts
from oneproj.results import Projection
from oneproj.vectors.arithmetic import Vector


class Counted(AbstractProjector):
    """A projector that meets bounds on counts by way of another one.

    The other projects onto smooth bounds; ``oneproj.rates.correction`` searches them.

    Args:
        smooth: The projector for surrogate bounds and constraints without rates.
    """

    def __init__(self, smooth: AbstractProjector) -> None:
        """Keep the projector, and use its name."""
        self._smooth, self.name = smooth, smooth.name

    def warm(self) -> AbstractProjector:
        return Counted(self._smooth.warm())

    def state_dict(self) -> dict[str, Any] | None:
        return self._smooth.state_dict()

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
    ) -> None:
        self._smooth.load_state_dict(state, parameters, constraints)

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        return self._smooth.accepts(constraints)

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        return project_counts(parameters, constraints, self._smooth.project)


def counting(
    projector: AbstractProjector, constraints: Mapping[str, AbstractTerm]
) -> AbstractProjector:
    """Return the projector, made to meet counts where a constraint has rates.

    Example:
        >>> from oneproj.projection.cuts import Cuts
        >>> counting(Cuts(), {}).name
        'cuts'
    """
    return (
        Counted(projector) if any(map(has_rates, constraints.values())) else projector
    )
