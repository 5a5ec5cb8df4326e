"""Projection onto convex functions' caps within closed-form sets.

A set has a normal for every direction it can be left in, and at a corner many: cuts
would collect them one by one. Its nearest point is known in closed form instead, so
that only the functions are cut, and the nearest point of what is left of the sets is
found by its dual (``region_dual.py``). All points that are looked at lie in the sets.
"""

from __future__ import annotations

from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.projection.convex.bend import Bend
from oneproj.projection.convex.bundle import ROUNDED
from oneproj.projection.convex.refutation import Witness
from oneproj.projection.convex.region_dual import RegionDual
from oneproj.projection.convex.stalls import (
    SHARES,
    STALLED,
    WIDER,
    Exhaustion,
    Stall,
)
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.margins import Aim
from oneproj.sets import SetConstraint
from oneproj.sets.region import Region, rounding_margin
from oneproj.vectors.arithmetic import (
    Vector,
    combine,
    difference,
    distance,
    norm,
    rounding_unit,
)
from oneproj.vectors.space import is_short

STUCK = 6
"""Looks in a row that are hardly less outside than one before: where the sets touch
what the functions allow, the dual has no end, and cuts of the sets are better."""


class Within:
    """A search for the nearest feasible point; all its looks are in the region.

    Args:
        evaluator: Of the constraints; it knows the best point afterwards.
        region: The sets; constraints that are not of it are cut.
        capacity: Cuts to keep at most.
        max_evaluations: Full constraint gradients after which any feasible point will
            do, and margins grow with what is still violated.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        region: Region,
        *,
        capacity: int,
        max_evaluations: int,
    ) -> None:
        """Begin at the evaluator's origin."""
        self._evaluator, self._region = evaluator, region
        self._budget = max_evaluations
        self.dual = RegionDual(region, evaluator.origin, capacity)
        self._at = combine([0.0], [evaluator.origin])
        self._wanted = {name: self._margin(name) for name in evaluator.margins}
        self._aim = Aim(self._wanted)
        self._stall, self._vain = Stall(), Stall()
        self._bend, self._witness = Bend(), Witness(evaluator)
        self._exhaustion = Exhaustion(evaluator, evaluator.first)
        self._excluded = False

    def _margin(self, name: str) -> float:
        """What to begin with: of a set, which is computed in float64, a hair."""
        constraint, margin = (
            self._evaluator.constraints[name],
            self._evaluator.margins[name],
        )
        if name in self._region.places:
            return 0.0
        if isinstance(constraint, SetConstraint):
            x = constraint.tensor.detach()
            nearest = constraint.members.project(x.double())
            return min(margin, WIDER * rounding_margin(nearest, x.dtype))
        return margin

    def search(self) -> bool:
        """Move the evaluator's parameters to the nearest feasible point.

        Returns:
            Whether the cuts prove that no point of the region is feasible. If not, the
            evaluator may have none yet: then these looks led nowhere.
        """
        evaluator, seen = self._evaluator, self._evaluator.first
        while self._cut(seen) and self._solve():
            spent, hurry = self._exhaustion.looks, evaluator.evaluations > self._budget
            if self._is_done(hurry=hurry) or evaluator.evaluations > 2 * self._budget:
                return False
            if self._is_stuck() or spent >= 2 * STALLED:
                return False
            hurry = hurry or spent >= STALLED  # to a point inside by a wider margin
            pulls = {
                name: evaluator.space.pack(g) for name, g in seen.gradients.items()
            }
            here, mu = evaluator.displacement(), self.dual.multipliers()
            self._bend.update(seen.values, pulls, here, mu)
            # From a feasible point that is not the nearest one the solution is next.
            h = 0.0 if hurry or seen.worst <= 0 else self._bend.curvature
            look, share = self._look(h)
            if look is None:
                return False
            seen = look
            solution = h == 0.0 and share == 1.0
            self._exhaustion.note(seen, solution=solution)
            if solution:
                if seen.worst <= 0:
                    return False
                self._adapt_margins(seen, hurry=hurry)
        return evaluator.best.worst > 0 and self._is_empty()

    def member(self, point: Vector) -> Vector:
        """The nearest point of the region, in the parameters' precision."""
        return self._region.member(self._wide(list(point)), like=self._evaluator.origin)

    def _is_empty(self) -> bool:
        return self._excluded or self.dual.excludes_all()

    def imbalance(self) -> float:
        """How far the best point is from the solution."""
        y = self.dual.target()
        nearest = self._region.nearest(y)
        return distance(self._wide(self._evaluator.best_point), self._wide(nearest))

    def normals(self) -> dict[str, list[Tensor]]:
        """The unit normals of the sets that balance at the solution, by name."""
        found = {}
        for name, vector in self.dual.normals().items():
            length = norm([vector])
            if length > 0:
                found[name] = combine([0.0], [self._evaluator.origin])
                found[name][self._region.places[name]] = vector / length
        return found

    def _wide(self, point: list[Tensor]) -> list[Tensor]:
        return [x.double() for x in point] if is_short(point) else point

    def _solve(self) -> bool:
        if self.dual.solve(self._aim.margins()):
            return True
        # A set without interior has no point inside by a margin, yet has points.
        self._aim.drop()
        return self.dual.solve(self._aim.margins())

    def _is_done(self, *, hurry: bool) -> bool:
        """Whether a feasible point is as near as the margins allow."""
        evaluator = self._evaluator
        if evaluator.best.worst > 0 or evaluator.evaluations == 1:
            return False
        return hurry or evaluator.best_distance <= self._length() * (
            1.0 + evaluator.share
        )

    def _is_stuck(self) -> bool:
        """Whether the looks do not come any nearer to the constraints."""
        worst = self._evaluator.best.worst
        self._vain.note(worst)
        return worst > 0 and self._vain.waited >= STUCK

    def _length(self) -> float:
        nearest = self._region.nearest(self.dual.target())
        return distance(self._wide(nearest), self._wide(self._evaluator.origin))

    def _look(self, curvature: float) -> tuple[Evaluation | None, float]:
        """Look at the solution, or where something can be seen on the way there."""
        evaluator, y = self._evaluator, self.dual.target()
        if curvature > 0:
            y = self.dual.step(self._aim.margins(), self._at, curvature)
        here = combine([1.0, 1.0], [self._wide(evaluator.origin), self._at])
        for share in SHARES:
            there = combine([share, 1.0 - share], [y, here]) if share < 1.0 else y
            try:
                seen = evaluator.move_to(
                    self._region.member(there, like=evaluator.origin)
                )
            except NonFiniteError:
                continue
            self._at = self._displacement()
            self._wanted.update({name: self._margin(name) for name in self._wanted})
            said = self.dual.predictions(self._at)
            self._witness.check(seen, said, norm(self._at))
            return seen, share
        return None, 0.0

    def _displacement(self) -> list[Tensor]:
        here = [x.detach() for x in self._evaluator.parameters]
        return difference(self._wide(here), self._wide(self._evaluator.origin))

    def _cut(self, seen: Evaluation) -> bool:
        """Linearise the functions that are violated here; False if one always is.

        All cuts of a linear function are the same, but for rounding: another is taken
        only where more than that is violated.
        """
        far = norm(self._at)
        for name, gradient in seen.gradients.items():
            linear = self._evaluator.constraints[name].curvature == "linear"
            noise = ROUNDED * rounding_unit(gradient) * far * norm(gradient)
            inside = seen.values[name] + self._aim.margin(name)
            if name in self._region.places or inside <= (noise if linear else 0.0):
                continue
            if not self.dual.add(name, seen.values[name], gradient, self._at):
                self._excluded = True
                return False
        return True

    def _adapt_margins(self, seen: Evaluation, *, hurry: bool) -> None:
        self._stall.note(seen.worst)
        if hurry or self._stall.waited >= STALLED:
            self._aim.widen(WIDER)
            self._stall.waited = 0
        if hurry:
            self._aim.allow(seen.values)
