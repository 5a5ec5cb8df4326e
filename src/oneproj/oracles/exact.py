"""``"exact"``: every constraint on all of its data, at every update."""

from __future__ import annotations

from torch import Tensor

from oneproj.oracles.anchor import Anchor, sees_all
from oneproj.oracles.base import AbstractOracle
from oneproj.parameters import Vector
from oneproj.terms.base import AbstractTerm


class Exact(AbstractOracle):
    """Every constraint on all of its data, at every update.

    What an anchor has just seen on all of it is not looked at again.
    """

    _fresh: Anchor | None = None
    """The anchor where the parameters are, until the next penalty is added."""

    def anchor(self) -> Anchor:
        """All constraints and their gradients where the parameters are."""
        self._fresh = super().anchor()
        return self._fresh

    def add_penalty(self) -> dict[str, float]:
        """Add the gradient of p(c)."""
        try:
            return super().add_penalty()
        finally:
            self._fresh = None  # the parameters move now

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        known = self._known(constraint)
        if known is not None:
            return known.values[constraint.name], None
        if self._is_seen_at_once(constraint):
            return self._see_at_once(constraint)
        self._counts.constraint_passes += 1
        return constraint.value(), None

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        known = self._known(constraint)
        if known is not None:
            return known.jacobian[constraint.name]
        return super()._full_gradient(constraint)

    def _known(self, constraint: AbstractTerm) -> Anchor | None:
        return self._fresh if sees_all(constraint, self._plan) else None
