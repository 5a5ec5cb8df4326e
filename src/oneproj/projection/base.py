"""What a projector is: the one expensive call of the method, behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from oneproj.problem.terms import AbstractTerm
from oneproj.results import Projection
from oneproj.vectors.arithmetic import Vector


class AbstractProjector(ABC):
    """Moves parameters to the nearest point where every constraint is <= 0.

    ``x_hat in argmin { |y - x| : c_j(y) <= 0 for all j }``, the last line of
    Algorithm 1. The contract, which ``tests/contracts`` checks for every projector:

    - the parameters are changed in place and hold ``x_hat`` afterwards; dtype and
      device stay, and nothing else is touched;
    - success means that every residual, on all data, is <= 0: not <= a tolerance;
    - failure is a status, never silence. The parameters then hold the point with the
      smallest worst residual that was found, at most that of the start;
    - what was used is counted in ``Projection.gradients``.
    """

    name: str

    def warm(self) -> AbstractProjector:
        """A projector for one projection after another, each from near the last start.

        It may carry over what the last one learned, as long as parameters and
        constraints are the same objects; this one learns nothing.
        """
        return self

    def state_dict(self) -> dict[str, Any] | None:
        """What a warm projector has learned, as plain data; None for nothing.

        A run that is saved between two projections (``method="projected-sgd"``) saves
        it too. Numbers, strings, tensors and containers of them only. A projector that
        learns something and does not implement this and ``load_state_dict`` is not
        saved: a resumed run then begins with a projector that has learned nothing, and
        may differ in its last bits, and in its count of gradients, from a run without
        the stop.

        Example:
            >>> from oneproj.projection.cuts import Cuts
            >>> Cuts().warm().state_dict() is None
            True
        """
        return None

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
    ) -> None:
        """Go on from such a state; by default there is none.

        Args:
            state: What ``state_dict`` of a projector with the same settings returned.
            parameters: Of the problem that it was learned from, at present.
            constraints: Likewise.
        """
        del state, parameters, constraints

    @abstractmethod
    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        """None if this projector can handle the constraints, else why it cannot."""

    @abstractmethod
    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        """Project in place and report."""
