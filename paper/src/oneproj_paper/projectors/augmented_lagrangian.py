"""``"augmented-lagrangian"``: the projector of the paper's neural experiments.

It approximately solves ``min (1/2)|x - x_0|^2 subject to c_j(x) <= 0``. With
multipliers mu, a penalty rho and ``b_j = c_j + shift``, a round takes Adam steps on

    ``(1/2)|x - x_0|^2 + (1 / 2 rho) sum_j ([mu_j + rho b_j(x)]_+^2 - mu_j^2)``

and ends with ``mu_j <- [mu_j + rho b_j]_+`` and ``rho <- min(5 rho, 1e6)``. A feasible
refinement follows. The numbers are those of the paper's appendix on experimental
details (abstention, "Optimization and timing details"). It leaves open, and we chose:

1. *Inner steps*: ``torch.optim.Adam`` with its own default moments, new in each round
   (the old second moments belong to a smaller penalty); x goes on from round to round.
2. *Rounds*: all are run, without a stopping test; mu starts at 0; the penalty grows
   after each. (So 6 rounds end at 3125 and the cap of 1e6 is for those who ask more.)
3. *The answer of the rounds*: the nearest feasible point among all iterates, or else
   the one with the least worst residual.
4. *Feasible refinement*: as long as no point is feasible, an iteration moves the least
   infeasible point onto the linearisation of its worst constraint. Then it bisects the
   segment from x_0 to the nearest feasible point, for its crossing of the boundary.
5. *Boundary-refinement tolerance*: the bisection ends when the worst residual of the
   feasible point is that close to the boundary.
6. *Multipliers*: the last mu says which constraints hold the answer (along with those
   at the boundary), not how strongly: at a penalty of 3125 the last jitter of Adam is
   all over it. The ones reported balance the move best at the answer.
7. *Feasible* is ``c_j <= 0`` where the paper has ``<= 1e-5``: see ``strict``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch.optim import Adam

from oneproj.arguments import check_count, check_number
from oneproj.errors import InvalidProblemError
from oneproj.problem.autograd import borrowing_gradients
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.evaluator import Evaluation
from oneproj.results import Projection
from oneproj.vectors.arithmetic import Vector, assign, combine, difference, dot, norm
from oneproj.vectors.qp import solve_nonnegative_qp
from oneproj_paper.projectors.visited import VisitedPoints

TINY = 1e-300
"""In place of a distance of 0, by which nothing can be divided."""


class AugmentedLagrangian(AbstractProjector):
    """The paper's solver with its published settings: the reference, not the best.

    The answer is feasible or said not to be; nothing certifies that it is nearest. The
    defaults use 901 to 926 full constraint gradients, where ``"cuts"`` takes about ten.
    A coordinate moves by about 0.01 per step, so by 9 at most in all.

    Args:
        lr: Learning rate of Adam.
        inner_steps: Adam steps per round.
        rounds: Multiplier updates.
        penalty: rho of the first round.
        growth: Its factor from round to round.
        max_penalty: Its cap.
        refinements: Iterations of the feasible refinement, at most.
        tolerance: Feasibility, in units of the residual.
        boundary_tolerance: How far inside the refinement may end.
        strict: Aim inside by the tolerance, so that what the paper accepts is <= 0.
            False is the paper's own aim: it accepts residuals up to the tolerance, and
            the status of such an answer is INFEASIBLE.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
        >>> disc = oneproj.function(lambda: w.square().sum()) <= 1.0
        >>> done = oneproj.project(w, {"disc": disc}, projector=AugmentedLagrangian())
        >>> done.residuals["disc"] <= 0, round(done.distance, 3)
        (True, 1.0)
        >>> 900 < done.gradients <= 926
        True
    """

    name = "augmented-lagrangian"

    def __init__(
        self,
        *,
        lr: float = 0.01,
        inner_steps: int = 150,
        rounds: int = 6,
        penalty: float = 1.0,
        growth: float = 5.0,
        max_penalty: float = 1e6,
        refinements: int = 25,
        tolerance: float = 1e-5,
        boundary_tolerance: float = 1e-4,
        strict: bool = True,
    ) -> None:
        """Check and keep the settings."""
        steps, rho, near = "It counts Adam steps.", "It is rho.", "It is a residual."
        self._lr = check_number("lr", lr, "It is that of Adam.")
        self._inner_steps = check_count("inner_steps", inner_steps, steps)
        self._rounds = check_count("rounds", rounds, "It counts multiplier updates.")
        self._penalty = check_number("penalty", penalty, rho)
        self._growth = check_number("growth", growth, "It is a factor of rho.")
        self._max_penalty = check_number("max_penalty", max_penalty, rho, infinite=True)
        if self._growth < 1 or self._max_penalty < self._penalty:
            message = (
                f"The penalty must not fall from round to round, but growth={growth}, "
                f"and max_penalty={max_penalty} where it begins with {penalty}. Choose "
                "growth >= 1 and max_penalty >= penalty."
            )
            raise InvalidProblemError(message)
        more = "It counts iterations; 0 for no refinement."
        self._refinements = check_count("refinements", refinements, more, least=0)
        self._tolerance = check_number("tolerance", tolerance, near, zero=True)
        self._boundary_tolerance = check_number(
            "boundary_tolerance", boundary_tolerance, near, zero=True
        )
        self._strict = strict

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        """Every constraint has a gradient, so any will do."""
        del constraints
        return None

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        """Project in place and report."""
        visited = VisitedPoints(
            parameters, constraints, self._tolerance, strict=self._strict
        )
        if visited.accepted:
            return visited.report()
        try:
            mu = self._run_rounds(visited)
            self._refine(visited)
        except BaseException:
            # NaN at a visited point, or Ctrl-C: leave the best point, not that one.
            assign(parameters, visited.best_point)
            raise
        active = visited.slack - self._tolerance - self._boundary_tolerance
        values = visited.best.values
        mu = _balancing(
            visited, [k for k in values if mu[k] > 0 or values[k] >= active]
        )
        moved = difference(visited.best_point, visited.evaluator.origin)
        forces = _lagrangian_gradient(visited, visited.best, visited.best_point, mu)
        return visited.report(
            multipliers=mu, kkt_residual=norm(forces) / max(norm(moved), TINY)
        )

    def _run_rounds(self, visited: VisitedPoints) -> dict[str, float]:
        """Adam on the augmented Lagrangian; returns the last multipliers."""
        x, rho = list(visited.evaluator.parameters), self._penalty
        mu = dict.fromkeys(visited.evaluator.constraints, 0.0)
        seen = visited.evaluator.first
        for _ in range(self._rounds):
            with borrowing_gradients(x):
                adam = Adam(x, lr=self._lr)
                for _ in range(self._inner_steps):
                    weights = _updated(mu, rho, seen, visited.shift)
                    forces = _lagrangian_gradient(visited, seen, x, weights)
                    for p, force in zip(x, forces, strict=True):
                        p.grad = force
                    adam.step()
                    seen = visited.visit()
            mu = _updated(mu, rho, seen, visited.shift)
            rho = min(self._growth * rho, self._max_penalty)
        return mu

    def _refine(self, visited: VisitedPoints) -> None:
        """Reach feasibility if the rounds did not; then step back to the boundary."""
        left = self._refinements
        while left > 0 and not visited.accepted:
            left -= 1
            least = visited.best
            _restore(visited)
            if visited.best is least:
                return  # the linearisation does not help; neither would the same again
        inside = visited.best_point
        low, high, end = 0.0, 1.0, visited.slack - self._boundary_tolerance
        while left > 0 and visited.accepted and visited.best.worst < end:
            left -= 1
            middle = 0.5 * (low + high)
            target = combine([1.0 - middle, middle], [visited.evaluator.origin, inside])
            assign(visited.evaluator.parameters, target)
            if visited.visit().worst <= visited.slack:
                high = middle
            else:
                low = middle


def _updated(
    mu: Mapping[str, float], rho: float, seen: Evaluation, shift: float
) -> dict[str, float]:
    """``[mu_j + rho (c_j + shift)]_+``: the multipliers that a round ends with."""
    return {
        name: max(0.0, mu_j + rho * (seen.values[name] + shift))
        for name, mu_j in mu.items()
    }


def _lagrangian_gradient(
    visited: VisitedPoints, seen: Evaluation, x: Vector, weights: Mapping[str, float]
) -> Vector:
    """``x - x_0 + sum_j w_j grad c_j(x)``."""
    used = {name: weight for name, weight in weights.items() if weight > 0}
    pulls = [seen.gradients[name] for name in used]
    moved = difference(x, visited.evaluator.origin)
    return combine([1.0, *used.values()], [moved, *pulls])


def _balancing(visited: VisitedPoints, names: list[str]) -> dict[str, float]:
    """``argmin |x - x_0 + sum_j mu_j grad c_j(x)|`` over mu >= 0 of these names."""
    pulls = [visited.best.gradients[name] for name in names]
    moved, n = difference(visited.best_point, visited.evaluator.origin), len(names)
    P = np.array([[dot(a, b) for b in pulls] for a in pulls]).reshape(n, n)
    mu = solve_nonnegative_qp(P, np.array([dot(moved, a) for a in pulls])).z
    return dict(zip(names, mu.tolist(), strict=True))


def _restore(visited: VisitedPoints) -> None:
    """Step from the best point to where the worst constraint's linearisation is met."""
    values = visited.best.values
    worst = max(values, key=lambda name: values[name])
    gradient = visited.best.gradients[worst]
    steepness = dot(gradient, gradient)
    if steepness == 0.0:
        return  # a flat constraint says nothing about where to go
    length = (values[worst] + visited.shift) / steepness
    step = combine([1.0, -length], [visited.best_point, gradient])
    assign(visited.evaluator.parameters, step)
    visited.visit()
