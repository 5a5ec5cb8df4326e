"""``"penalty-sgd"``: plain SGD on the penalized objective, one projection at the end.

``x_{k+1} = P_B(x_k - eta_k (v_k + sum_j w_j grad c_j(x_k)))``

with v_k a stochastic gradient of f, w the weights of the hinge ``p(c)``, B the
safeguard ball. It is what Algorithm 1 becomes without proximal centres and averages.

Guarantee: the hinge is exact. Where ``strength`` exceeds the multipliers (each of them
if the hinges are added, their sum if the worst is taken), the minimisers of
``f + p(c)`` and of the constrained problem agree (Zangwill, Non-linear programming via
penalty functions, 1967; Bertsekas, Necessary and sufficient conditions for a penalty
method to be exact, 1975). For convex terms the last iterate reaches that minimum at
rate 1 / sqrt(N) with the step decaying linearly (see ``baseline``), if the constraints
are seen exactly: a minibatch inside a hinge is biased. Nonconvex problems have no
guarantee here but the feasibility that the projection gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.base_steps import BaseLike, DecayLike
from oneproj.methods.baseline import BallStep
from oneproj.oracles import Estimate
from oneproj.oracles.penalties import Combine, Hinge
from oneproj.results import Projection
from oneproj.schema import Resumable


@dataclass(frozen=True)
class PenaltySGD(AbstractMethod):
    """SGD on ``f + p(c)`` with a fixed hinge, and one projection at the end.

    Args:
        lr: The first step size.
        strength: Of the hinge; it must exceed the multipliers.
        combine: "sum": each constraint outweighs its own multiplier; or "max".
        base: The base step: "sgd", "momentum", "adam", or a maker of an optimiser.
        decay: How the step size falls: "constant", "linear", "cosine", or a scheduler.

    Example:
        >>> import oneproj
        >>> oneproj.methods.PenaltySGD(strength=10.0).combine
        'sum'
    """

    name = "penalty-sgd"

    lr: float = 0.05
    strength: float = 5.0
    combine: Combine = "sum"
    base: BaseLike = "sgd"
    decay: DecayLike = "linear"

    def begin(self, context: Context) -> PenaltySGDUpdater:
        """Start a run."""
        return PenaltySGDUpdater(context, self)


class PenaltySGDUpdater(Resumable, AbstractUpdater):
    """SGD on ``f + p(c)``, and nothing else, until the projection."""

    STATE = ("_step", "_oracle")

    def __init__(self, context: Context, options: PenaltySGD) -> None:
        """Build the step, and the oracle with the hinge."""
        self._context = context
        self._step = BallStep(context, options.lr, options.base, options.decay)
        self._oracle = context.oracle(Hinge(options.strength, options.combine))

    def update(self) -> Estimate:
        """Estimate the gradient once, and make one step."""
        estimate = self._oracle.backward()
        self._step.take()
        return estimate

    def finish(self) -> Projection:
        """Project the last iterate."""
        return self._context.project()
