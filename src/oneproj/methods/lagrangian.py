"""``"lagrangian"``: stochastic gradient descent-ascent, one projection at the end.

On ``L(x, mu) = f(x) + sum_j mu_j c_j(x)``, both players move at once, by one
estimate at ``x_k``::

    x_{k+1}  = P_B(x_k - eta_k (v_k + sum_j mu_j grad c_j(x_k)))
    mu_{k+1} = [mu_k + sigma_k c(x_k)]_+

with v_k a stochastic gradient of f and B the safeguard ball; ``lr`` and ``dual_lr`` are
the first eta and sigma, and both decay alike. The weights do not depend on the values
seen, so minibatch estimates are unbiased here, unlike inside a hinge.

Guarantee: for convex terms and bounded multipliers the averages of the iterates come
within O(1 / sqrt(N)) of a saddle point with constant steps of that order
(``select="average"``, ``decay="constant"``; Nedic and Ozdaglar, Subgradient methods for
saddle-point problems, 2009; with noise Nemirovski, Juditsky, Lan and Shapiro, Robust
stochastic approximation approach to stochastic programming, 2009, section 3). The
method is that of Arrow, Hurwicz and Uzawa (1958). The last iterate with a decaying
step, the default, is what deep learning uses: it has no such theorem, but on a network
an average of weights may be no model at all. Nothing here makes an iterate feasible;
the projection does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oneproj.arguments import check_number
from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.base_steps import BaseLike, DecayLike
from oneproj.methods.baseline import Answer, BallStep
from oneproj.methods.checks import STEP
from oneproj.oracles import Estimate
from oneproj.oracles.penalties import AbstractPenalty
from oneproj.results import Projection
from oneproj.schema import Resumable


@dataclass(frozen=True)
class Lagrangian(AbstractMethod):
    """Descent in the parameters, ascent in the multipliers, and one projection.

    Args:
        lr: The first step size of the parameters.
        dual_lr: The first step size of the multipliers. With ten times ``lr`` both
            players circled the saddle points of small problems.
        base: The base step of the parameters; multipliers take plain steps.
        decay: How both step sizes fall.
        select: The iterate that is projected: "last" or "average".

    Example:
        >>> import oneproj
        >>> oneproj.methods.Lagrangian(select="average").dual_lr
        0.1
    """

    name = "lagrangian"

    lr: float = 0.05
    dual_lr: float = 0.1
    base: BaseLike = "sgd"
    decay: DecayLike = "linear"
    select: Literal["last", "average"] = "last"

    def begin(self, context: Context) -> LagrangianUpdater:
        """Start a run."""
        return LagrangianUpdater(context, self)


class Multipliers(Resumable, AbstractPenalty):
    """The linear penalty ``mu . c``: its weights are the multipliers themselves.

    Example:
        >>> penalty = Multipliers(2)
        >>> penalty.ascend(torch.tensor([0.5, -1.0], dtype=torch.float64))
        >>> penalty.weigh([0.0, 0.0])
        [0.5, 0.0]
    """

    STATE = ("mu",)

    def __init__(self, size: int) -> None:
        """Start from mu = 0."""
        self.mu = torch.zeros(size, dtype=torch.float64, device="cpu")

    def ascend(self, step: Tensor) -> None:
        """``mu <- [mu + step]_+``."""
        self.mu = (self.mu + step).clamp(min=0.0)

    def weigh(self, values: Sequence[float]) -> list[float]:
        """Return the multipliers, whatever the values are."""
        del values
        weights: list[float] = self.mu.tolist()
        return weights


class LagrangianUpdater(Resumable, AbstractUpdater):
    """Descent in x, ascent in mu, and one projection."""

    STATE = ("_step", "_multipliers", "_answer", "_oracle")

    def __init__(self, context: Context, options: Lagrangian) -> None:
        """Build the step, and the oracle that weighs by the multipliers."""
        check_number("dual_lr", options.dual_lr, STEP, zero=True)
        self._context, self._dual_lr = context, options.dual_lr
        parameters = context.problem.parameters
        self._answer = Answer(
            parameters, options.select, context.selection, rules=("last", "average")
        )
        self._averages = options.select == "average"
        self._step = BallStep(context, options.lr, options.base, options.decay)
        self._multipliers = Multipliers(len(context.problem.constraints))
        self._oracle = context.oracle(self._multipliers)

    def update(self) -> Estimate:
        """Estimate the gradient once, and make one step of each player."""
        estimate = self._oracle.backward()
        sigma = self._dual_lr * self._step.factor
        if self._averages:  # the last iterate needs no copy
            self._answer.offer(self._step.size)
        self._step.take()
        c = torch.tensor(
            list(estimate.residuals.values()), dtype=torch.float64, device="cpu"
        )
        self._multipliers.ascend(sigma * c)
        return estimate

    def finish(self) -> Projection:
        """Project the last iterate, or the average."""
        self._answer.show()
        return self._context.project()
