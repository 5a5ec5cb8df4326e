"""``"exact"``: every constraint on all of its data, at every update."""

from __future__ import annotations

from torch import Tensor

from oneproj.oracles.base import AbstractOracle
from oneproj.terms.base import AbstractTerm
from oneproj.terms.modes import evaluating


class Exact(AbstractOracle):
    """Every constraint on all of its data, at every update."""

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        if constraint.size is None:
            with evaluating(constraint.model):
                return self._sample(constraint)
        self._counts.constraint_passes += 1
        return constraint.value(), None
