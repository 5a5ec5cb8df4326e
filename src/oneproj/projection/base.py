"""What a projector is: the one expensive call of the method, behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from oneproj.parameters import Vector
from oneproj.results import Projection
from oneproj.terms.base import AbstractTerm


class AbstractProjector(ABC):
    """Moves parameters to the nearest point where every constraint is <= 0.

    ``x_hat in argmin { |y - x| : c_j(y) <= 0 for all j }``, the last line of
    Algorithm 1. The contract, which ``tests/contracts`` checks for every projector:

    - the parameters are changed in place and hold ``x_hat`` afterwards; dtype and
      device stay, and nothing else is touched;
    - success means that every residual, on all data, is <= 0: not <= a tolerance;
    - failure is a status, never silence. The parameters then hold the point with the
      smallest worst residual that was found, at most that of the start;
    - what was used is counted in ``Projection.evaluations``.
    """

    name: str

    def warm(self) -> AbstractProjector:
        """A projector for one projection after another, each from near the last start.

        It may carry over what the last one learned, as long as parameters and
        constraints are the same objects; this one learns nothing.
        """
        return self

    @abstractmethod
    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        """None if this projector can handle the constraints, else why it cannot."""

    @abstractmethod
    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        """Project in place and report."""
