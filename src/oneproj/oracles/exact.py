"""``"exact"``: every constraint on all of its data, at every update."""

from __future__ import annotations

from torch import Tensor

from oneproj.oracles.base import AbstractOracle
from oneproj.terms.base import AbstractTerm


class Exact(AbstractOracle):
    """Every constraint on all of its data, at every update."""

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        if self._is_seen_at_once(constraint):
            return self._see_at_once(constraint)
        self._counts.constraint_passes += 1
        return constraint.value(), None
