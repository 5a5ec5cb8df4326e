"""``"switching-subgradient"``: step on the objective, or on what is violated.

With ``h(x) = max_j c_j(x)``, as the oracle sees it, and a ``tolerance``::

    if h(x_k) <= tolerance:  v = stochastic gradient of f at x_k;  put k into I
    else:                    v = gradient of a worst constraint at x_k
    x_{k+1} = P_B(x_k - eta_k v)
    answer: the last x_k, k in I; or their average, or a random one; projected

There is no multiplier and no strength to choose, and a step on a constraint costs no
gradient of the objective. The history then repeats the objective that was seen last,
NaN before the first.

Guarantee: Polyak (A general method for solving extremum problems, 1967). For convex
terms and noise Lan and Zhou (Algorithms for stochastic optimization with function or
expectation constraints, 2020): with eta_k and the tolerance of order 1 / sqrt(N) the
average over k in I, k > N/2, with weights eta_k, is optimal and feasible to that order
(``select="average"``, ``decay="constant"``). For weakly convex terms Huang and Lin
(Oracle complexity of single-loop switching subgradient methods for non-smooth weakly
convex functional constrained optimization, 2023): an x_k drawn from those with those
weights is nearly stationary (``select="random"``).

Deviations: by default the step decays to zero and the last x_k of I is the answer. No
theorem is about it, but an average keeps the oscillation of all its steps. The
tolerance is 0 unless it is set, so that what is kept was seen to be feasible; the
projection makes up for either choice. Where I is empty the last iterate is projected;
``solve`` warns of a run without one step on the objective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oneproj.arguments import check_number
from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.base_steps import BaseLike, DecayLike
from oneproj.methods.baseline import Answer, BallStep, Rule
from oneproj.oracles import Estimate
from oneproj.oracles.penalties import AbstractPenalty
from oneproj.results import Projection
from oneproj.schema import Resumable


@dataclass(frozen=True)
class SwitchingSubgradient(AbstractMethod):
    """Steps on the objective where the constraints allow it, else on the worst.

    Args:
        lr: The first step size, of both kinds of step (as in Lan and Zhou).
        tolerance: The residual up to which a step is taken on the objective.
        base: The base step: "sgd", "momentum", "adam", or a maker of an optimiser.
        decay: How the step size falls: "constant", "linear", "cosine", or a scheduler.
        select: The iterate that is projected: "last", "average" or "random".

    Example:
        >>> import oneproj
        >>> oneproj.methods.SwitchingSubgradient(tolerance=0.01).select
        'last'
    """

    name = "switching-subgradient"

    lr: float = 0.05
    tolerance: float = 0.0
    base: BaseLike = "sgd"
    decay: DecayLike = "linear"
    select: Rule = "last"

    def begin(self, context: Context) -> SwitchingSubgradientUpdater:
        """Start a run."""
        return SwitchingSubgradientUpdater(context, self)


class Excess(AbstractPenalty):
    """``[max_j c_j - tolerance]_+``: its subgradient is that of a worst constraint.

    Example:
        >>> Excess(0.1).weigh([0.05, 0.3, 0.2])
        [0.0, 1.0, 0.0]
    """

    def __init__(self, tolerance: float) -> None:
        """Keep the tolerance."""
        self._tolerance = tolerance

    def weigh(self, values: Sequence[float]) -> list[float]:
        """Return 1 for the first of the largest values, if it exceeds the tolerance."""
        weights = [0.0] * len(values)
        worst = max(range(len(values)), key=values.__getitem__, default=None)
        if worst is not None and values[worst] > self._tolerance:
            weights[worst] = 1.0
        return weights


class SwitchingSubgradientUpdater(Resumable, AbstractUpdater):
    """Descends on the objective where the constraints allow it, else on the worst."""

    STATE = ("_step", "_answer", "_oracle", "_k", "_objective")

    def __init__(self, context: Context, options: SwitchingSubgradient) -> None:
        """Build the step, and the oracle that pushes on the worst constraint."""
        why = "Below 0 no step on the objective need ever come."
        check_number("tolerance", options.tolerance, why, zero=True)
        self._context, self._tolerance = context, options.tolerance
        parameters = context.problem.parameters
        self._answer = Answer(parameters, options.select, context.selection)
        self._step = BallStep(context, options.lr, options.base, options.decay)
        self._oracle = context.oracle(Excess(options.tolerance))
        self._k, self._objective = 0, math.nan

    def update(self) -> Estimate:
        """Estimate the constraints; step on the worst, or else on the objective."""
        self._k += 1
        for p in self._context.problem.parameters:
            p.grad = None
        residuals = self._oracle.add_penalty()
        if max(residuals.values(), default=-math.inf) <= self._tolerance:
            self._objective = self._oracle.backward_objective()
            if 2 * self._k > self._context.steps:
                self._answer.offer(self._step.size)
        self._step.take()
        return Estimate(self._objective, residuals)

    def finish(self) -> Projection:
        """Project what was selected."""
        self._answer.show()
        return self._context.project()
