"""``"dual-bisection"``: the paper's projector for empirical risks of linear scores.

For one convex constraint c the projection of y is ``x(mu)`` of ``example_dual.py`` for
the multiplier mu at which ``c(x(mu)) = 0``, and ``c(x(mu))`` falls as mu grows: double
mu until it is <= 0, then bisect. The paper's appendix on experimental details
(abstention, "Optimization and timing details") calls this projector exact, and states
its tolerance of 1e-5, at most 30 bisection steps and at most 500 dual steps; nothing
more. We chose:

1. *Dual steps*: those of ``example_dual.py``, at most that many for each multiplier
   tried; gradients are kept from one multiplier to the next. They end when the gap
   between c and the mixture below it is at most the square of the tolerance, so that
   the point is right to about the tolerance. Each is one full constraint gradient.
2. *Bisection*: between the multiplier of a Newton step and that of twice the next one,
   or, if the root lies beyond, after doubling to find an upper end; this does not count
   as a step. It ends when ``|c + shift|`` is at most the tolerance. Away from the root
   only the sign counts, and dual steps end once the sign is certain.
3. *Several constraints*: in turn, by the scheme of Dykstra (coordinate ascent in the
   dual): constraint j projects ``x + p_j`` and keeps what it took off as the next p_j.
   The paper has two constraints on separate parameters: there one turn suffices, and
   each is projected onto individually. ``cycles`` limits the turns if they interact.
4. *Feasible* is ``c_j <= 0`` where the paper has ``<= 1e-5``: see ``strict``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from oneproj.arguments import check_count, check_number
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.results import Projection
from oneproj.vectors.arithmetic import (
    Vector,
    assign,
    combine,
    difference,
    distance,
    dot,
    norm,
)
from oneproj_paper.projectors.example_dual import ExampleDual
from oneproj_paper.projectors.visited import VisitedPoints

DOUBLINGS = 40
"""Of the multiplier, from one Newton step's: beyond 2^40 of it, the set seems empty."""
STALLED = 20
"""Dual steps in which the gap did not halve, after which rounding is in the way."""
WITHIN = 3.0
"""The duality gap that ends the turns, in tolerances times multipliers: 2 for where the
bisection may end, and room for what the dual steps leave."""


class DualBisection(AbstractProjector):
    """Projects onto convex constraints by bisecting each one's multiplier.

    The answer is the nearest feasible point up to the tolerance; ``lower_bound`` proves
    how much nearer another could be. ``"cuts"`` finds the same with fewer gradients.

    Args:
        bisection_steps: Per constraint and turn, at most.
        dual_steps: Per multiplier, at most.
        cycles: Turns over the constraints, at most.
        tolerance: Feasibility, in units of the residual.
        strict: Aim inside by the tolerance, so that what the paper accepts is <= 0.
            False is the paper's own aim: it accepts residuals up to the tolerance, and
            the status of such an answer is INFEASIBLE.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
        >>> square = oneproj.function(lambda: w.square().sum(), curvature="convex")
        >>> disc = {"disc": square <= 1.0}
        >>> done = oneproj.project(w, disc, projector=DualBisection())
        >>> done.residuals["disc"] <= 0, round(done.distance, 4)
        (True, 1.0)
        >>> round(done.multipliers["disc"], 4)
        0.5
    """

    name = "dual-bisection"

    def __init__(
        self,
        *,
        bisection_steps: int = 30,
        dual_steps: int = 500,
        cycles: int = 100,
        tolerance: float = 1e-5,
        strict: bool = True,
    ) -> None:
        """Check and keep the settings."""
        halvings, looks = "It counts halvings.", "It counts constraint gradients."
        self._bisection_steps = check_count(
            "bisection_steps", bisection_steps, halvings, least=0
        )
        self._dual_steps = check_count("dual_steps", dual_steps, looks)
        self._cycles = check_count("cycles", cycles, "It counts turns.")
        near = "It is a residual."
        self._tolerance = check_number("tolerance", tolerance, near, zero=True)
        self._strict = strict

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        """Every constraint must be declared convex."""
        for name, constraint in constraints.items():
            if constraint.curvature not in ("convex", "linear"):
                return (
                    f"{name!r} is not declared convex in the parameters, as the risk "
                    'of a linear score would be (curvature="convex")'
                )
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
        sides = [_Side(name, visited) for name in constraints]
        try:
            self._cycle(visited, sides)
        except BaseException:
            # NaN at a visited point, or Ctrl-C: leave the best point, not that one.
            assign(parameters, visited.best_point)
            raise
        moved = difference(visited.best_point, visited.evaluator.origin)
        apart = norm(combine([1.0] * (1 + len(sides)), [moved, *_pulls(sides)]))
        return visited.report(
            multipliers={side.name: side.mu for side in sides},
            kkt_residual=apart / max(norm(moved), apart) if apart > 0 else 0.0,
            lower_bound=math.sqrt(2.0 * max(0.0, _dual_value(sides))),
        )

    def _cycle(self, visited: VisitedPoints, sides: list[_Side]) -> None:
        """Project onto one constraint after the other until the gap is closed."""
        origin = visited.evaluator.origin
        at = combine([0.0], [origin])
        for _ in range(self._cycles if len(sides) > 1 else 1):
            for side in sides:
                y = combine([1.0, 1.0], [at, side.pull])
                found = self._project_onto(side, y)
                if found is None:
                    return
                at = found
            half = 0.5 * distance(visited.best_point, origin) ** 2
            # At a solution half - dual value = -sum_j mu_j c_j, and c_j >= -2 tol.
            allowed = WITHIN * self._tolerance * math.fsum(side.mu for side in sides)
            if visited.accepted and half - _dual_value(sides) <= allowed:
                return

    def _project_onto(self, side: _Side, y: list[Tensor]) -> list[Tensor] | None:
        """``argmin |d - y|`` with ``c_j(d) + shift <= 0``; None if there is none."""
        value, steepness = side.start(y)
        if value <= 0.0:
            return y
        if steepness == 0.0:
            return None  # a minimum of a convex constraint, and it is not feasible
        low, high = 0.0, max(side.mu, value / steepness)
        for k in range(DOUBLINGS):
            at, value = side.proximal_point(high, self._dual_steps, self._tolerance)
            if value <= 0.0:
                break
            # Newton's step falls short of a convex constraint, but seldom by far.
            beyond = high if k else min(high, 2.0 * value / steepness)
            low, high = high, high + beyond
        else:
            return None
        for _ in range(self._bisection_steps):
            # Or the ends are so near that the constraint is the same at both.
            if min(abs(value), (high - low) * steepness) <= self._tolerance:
                return at
            middle = 0.5 * (low + high)
            at, value = side.proximal_point(middle, self._dual_steps, self._tolerance)
            low, high = (low, middle) if value <= 0.0 else (middle, high)
        return at


class _Side:
    """One constraint: its multiplier, and what it takes off the point."""

    def __init__(self, name: str, visited: VisitedPoints) -> None:
        """Start with a multiplier of 0."""
        self.name, self.mu = name, 0.0
        self._trail = visited
        self._gap = visited.evaluator.margins[name]
        self.dual = ExampleDual(combine([0.0], [visited.evaluator.origin]))

    @property
    def pull(self) -> list[Tensor]:
        """``mu w``, with w a subgradient of c_j."""
        return combine([self.mu], [self.dual.mixture])

    def start(self, y: list[Tensor]) -> tuple[float, float]:
        """Look at y; returns ``c_j + shift`` and the squared norm of its gradient."""
        self.dual.recenter(y)
        value, gradient = self._look(y)
        if value <= 0.0:
            self.mu = 0.0
        return value, dot(gradient, gradient)

    def proximal_point(
        self, mu: float, steps: int, tolerance: float
    ) -> tuple[list[Tensor], float]:
        """``argmin_d (1/2)|d - y|^2 + mu c_j(d)``, and ``c_j + shift`` there."""
        least, waited = math.inf, 0
        self.mu = mu
        for _ in range(steps):
            at = self.dual.solve(mu)
            value, _ = self._look(at)
            gap = value - self._trail.shift - self.dual.model
            waited = 0 if gap < 0.5 * least else waited + 1
            least = min(least, gap)
            if gap <= max(tolerance**2, self._gap) or waited >= STALLED:
                break
            if abs(value) > tolerance and self._is_sign_sure(value, gap):
                break
        return at, value

    def _is_sign_sure(self, value: float, gap: float) -> bool:
        """Whether ``c_j + shift`` has the same sign at the proximal point itself.

        The proximal problem is 1-strongly convex and solved up to ``mu gap``, so that
        point is within ``r = sqrt(2 mu gap)``. From here c_j falls no faster than its
        gradient says, and there ``y - x`` is mu times a subgradient.
        """
        r = math.sqrt(2.0 * self.mu * max(0.0, gap))
        rise = self.dual.length + r / self.mu
        return value > self.dual.slope * r or value < -rise * r

    def _look(self, d: list[Tensor]) -> tuple[float, list[Tensor]]:
        view = self._trail.evaluator
        assign(view.parameters, combine([1.0, 1.0], [view.origin, d]))
        seen = self._trail.visit(self.name)
        value, gradient = seen.values[self.name], seen.gradients[self.name]
        self.dual.add(value, gradient)
        return value + self._trail.shift, gradient


def _pulls(sides: list[_Side]) -> list[list[Tensor]]:
    return [side.pull for side in sides]


def _dual_value(sides: list[_Side]) -> float:
    """``sum_j mu_j b_j - (1/2)|sum_j mu_j w_j|^2``, at most half the distance squared.

    Weak duality: true for every mu >= 0 and all mixtures ``b_j + <w_j, d> <= c_j``.
    """
    pulled = combine([1.0] * len(sides), _pulls(sides))
    heights = math.fsum(side.mu * side.dual.height for side in sides)
    return heights - 0.5 * dot(pulled, pulled)
