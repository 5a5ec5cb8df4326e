"""``"minibatch"``: every constraint on a fresh minibatch of its own."""

from __future__ import annotations

from torch import Tensor

from oneproj.oracles.base import AbstractOracle
from oneproj.terms.base import AbstractTerm


class Minibatch(AbstractOracle):
    """Every constraint on a fresh minibatch of its own."""

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        return self._sample(constraint)
