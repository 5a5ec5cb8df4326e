"""Oracles: how a method sees the objective, the constraints and their gradients.

Each ``backward()`` leaves a stochastic gradient of ``f + p(c)`` in ``.grad``. The
penalty's gradient is ``sum_j w_j grad c_j`` with weights from the values seen.

- ``exact``: c on all of its data at every update. What the theorems assume.
- ``minibatch``: c on a fresh minibatch. What the paper's experiments do; inside a
  hinge the estimate is biased upwards, ``E [c_batch]_+ >= [c]_+``.
- ``anchored``: c on a minibatch, corrected by what the same minibatch and all data say
  at the proximal centre. When it is fresh it is as unbiased as any, with a variance
  that vanishes towards the centre. Of few examples, all.

The objective is seen on a minibatch by all of them. Without a schedule of the theorems,
``exact`` and ``anchored`` shuffle its examples, epoch by epoch.
"""

from oneproj.oracles.anchor import Anchor
from oneproj.oracles.anchored import Anchored
from oneproj.oracles.base import AbstractOracle, Estimate, Exact, Minibatch

__all__ = [
    "ORACLES",
    "AbstractOracle",
    "Anchor",
    "Anchored",
    "Estimate",
    "Exact",
    "Minibatch",
]

ORACLES: dict[str, type[AbstractOracle]] = {
    "exact": Exact,
    "minibatch": Minibatch,
    "anchored": Anchored,
}
"""Every oracle by name."""
