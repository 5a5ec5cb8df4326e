"""Oracles: how an update estimates the objective, the constraints and their gradients.

Each ``backward()`` leaves a stochastic gradient of ``f + p(c)`` in ``.grad``. The
penalty's gradient is ``sum_j w_j grad c_j``, with weights at the estimated values.

- ``exact``: c on all of its data at every update. What the theorems assume.
- ``minibatch``: c on a new minibatch. What the paper's experiments do; inside a hinge
  the estimate is biased upwards, ``E [c_batch]_+ >= [c]_+``.
- ``anchored``: c on a minibatch, whose value is corrected by the difference between all
  data and the minibatch at the proximal centre. Unbiased for a new minibatch, with a
  variance that vanishes towards the centre. The gradient is the minibatch's own.
  Constraints with few examples are evaluated exactly.

All of them estimate the objective on a minibatch. Without a schedule of the theorems,
``exact`` and ``anchored`` shuffle its examples, epoch by epoch. One of your own is a
class behind ``AbstractOracle``, passed to ``oneproj.solve(oracle=...)``. It is given an
``AbstractPenalty`` and an ``AnchorPlan``; each update returns an ``Estimate``.
"""

from oneproj.oracles.anchored import Anchored
from oneproj.oracles.base import AbstractOracle as AbstractOracle
from oneproj.oracles.base import Estimate as Estimate
from oneproj.oracles.base import Exact, Minibatch
from oneproj.oracles.penalties import AbstractPenalty as AbstractPenalty
from oneproj.oracles.plan import AnchorPlan as AnchorPlan

OracleLike = str | type[AbstractOracle]
"""A name of ``ORACLES`` or ``"auto"``, or a class."""

ORACLES: dict[str, type[AbstractOracle]] = {
    oracle.name: oracle for oracle in (Exact, Minibatch, Anchored)
}
"""Every oracle that has a name."""
