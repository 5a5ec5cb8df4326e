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
2. *Bisection*: doubling to find an upper end does not count as a step. It ends when
   ``|c + shift|`` is at most the tolerance.
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

from oneproj.parameters import Vector, assign, combine, difference, distance, dot, norm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.example_dual import ExampleDual
from oneproj.projection.trail import Trail, check_settings
from oneproj.results import Projection
from oneproj.terms import AbstractTerm

DOUBLINGS = 60
"""Of the multiplier, from one Newton step's: beyond 2^60 of it, the set is empty."""


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
        >>> done = oneproj.project(w, {"disc": square <= 1.0}, projector=DualBisection())
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
        check_settings(
            {
                "bisection_steps": (bisection_steps, 0),
                "dual_steps": (dual_steps, 1),
                "cycles": (cycles, 1),
                "tolerance": (tolerance, 0.0),
            }
        )
        self._bisection_steps, self._dual_steps = bisection_steps, dual_steps
        self._cycles, self._tolerance, self._strict = cycles, tolerance, strict

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
        trail = Trail(parameters, constraints, self._tolerance, strict=self._strict)
        if trail.accepted:
            return trail.report()
        try:
            sides = self._cycle(trail)
        except BaseException:
            # NaN at a visited point, or Ctrl-C: leave the best point, not that one.
            assign(parameters, trail.best_point)
            raise
        moved = difference(trail.best_point, trail.view.origin)
        pulled = combine([1.0] * len(sides), [side.pull for side in sides])
        apart = distance(moved, combine([-1.0], [pulled]))
        # Weak duality: any mu >= 0 and any mixtures below the c_j prove a bound.
        heights = math.fsum(side.mu * side.dual.offset() for side in sides)
        bound = 2.0 * heights - dot(pulled, pulled)
        return trail.report(
            multipliers={side.name: side.mu for side in sides},
            kkt_residual=apart / max(norm(moved), apart) if apart > 0 else 0.0,
            lower_bound=math.sqrt(max(0.0, bound)),
        )

    def _cycle(self, trail: Trail) -> list[_Side]:
        """Project onto one constraint after the other until all are accepted."""
        sides = [_Side(name, trail) for name in trail.view.constraints]
        at = combine([0.0], [trail.view.origin])
        for _ in range(self._cycles):
            for side in sides:
                y = combine([1.0, 1.0], [at, side.pull])
                at = self._project_onto(side, y)
            if trail.view.look_is_accepted if False else trail.accepted:
                break
        return sides

    def _project_onto(self, side: _Side, y: list[Tensor]) -> list[Tensor]:
        """``argmin |d - y|`` with ``c_j(d) + shift <= 0``, by bisection of mu_j."""
        value, steepness = side.look(y)
        side.mu, side.pull = 0.0, combine([0.0], [y])
        if value <= 0.0 or steepness == 0.0:
            return y
        low, high = 0.0, 0.0
        for k in range(DOUBLINGS):
            high = 2.0**k * value / steepness
            if self._try(side, y, high) <= 0.0:
                break
            low = high
        return y
