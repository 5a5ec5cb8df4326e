"""Projection onto convex constraints: keep the cuts, project onto their intersection.

A convex c_j lies above its linearisations, so at every visited point x_k

    ``c_j(x_k) + <grad c_j(x_k), x - x_k> <= 0``

holds for every feasible x: a cut, valid everywhere and for good. The nearest point of
the intersection of all cuts is at most as far away as the nearest feasible point. When
it is feasible, it *is* the nearest feasible point, whether or not c_j has kinks: cuts
from both sides of a kink are kept.

Where to look next is free, since cuts from anywhere are valid. At the nearest point of
the cuts, progress is slow if the constraints curve: it overshoots what the cuts do not
know. While the curvature learned so far predicts what is seen, the next look is at the
nearest point of a model that has it: ``curved`` for models of up to 16,384 parameters,
whose matrices it can keep, and one number (``bend``) for others.
"""

from __future__ import annotations

import math

from oneproj.errors import NonFiniteError
from oneproj.projection.convex.bend import Bend
from oneproj.projection.convex.bundle import ROUNDED, Bundle
from oneproj.projection.convex.curved import Curved
from oneproj.projection.convex.refutation import Witness
from oneproj.projection.convex.stalls import (
    SHARES,
    STALLED,
    WIDER,
    Exhaustion,
    Stall,
)
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.margins import Aim
from oneproj.vectors.arithmetic import dimension
from oneproj.vectors.space import AbstractPacked, is_short

STUCK = 12
"""Looks without progress, of the residual or of the bound on the distance, after which
wider margins do not help either; on a hundred risk caps there were never more than two,
and between the many facets of a maximum it is the bound that goes on."""
PATIENCE = 40
"""Looks after which a search is long, and learned curvature is used. With 25 a logistic
risk in 100 dimensions takes 54 gradients in place of 38; from the first look on, hinge
risks take a quarter to a half more (benchmarks/projection_suite)."""
FARTHER = 1.0001
"""The factor by which the bound on the distance has to grow to count as progress."""
FORGETFUL = 20
"""How often the older half of the cuts may be left behind for the sake of rounding."""
BLIND, NEARER = 50, 0.1
"""Looks at a solution that rounding decided, before cuts are left behind; and the share
of the longest move so far that those keep to, until one is lower than the start. Where
no point is feasible, cuts nearly cancel before they do: what is missing is more cuts,
and those from nearby are rounded least."""


def project_convex(
    evaluator: Evaluator, bundle: Bundle, *, max_evaluations: int, declared: bool = True
) -> bool:
    """Move the evaluator's parameters to the nearest feasible point.

    After ``max_evaluations``, or when rounding keeps it from getting any nearer, the
    margins grow with what is still violated: exactness is given up for feasibility.

    Args:
        evaluator: Of the constraints; it knows the best point afterwards.
        bundle: Cuts, valid for displacements from the evaluator's origin, or none
            yet; it has the multipliers and the lower bound afterwards.
        max_evaluations: Full constraint gradients.
        declared: Whether the constraints are declared convex. If not, a bound proves
            nothing, and looks that do not lower the residual end the search.

    Returns:
        Whether the cuts prove that no point is feasible.
    """
    search, before = _Search(evaluator, bundle), evaluator.evaluations - 1
    while search.solve():
        used = evaluator.evaluations - before
        hurry = used >= max_evaluations or search.is_stuck
        if used >= 2 * max_evaluations or search.is_done(hurry=hurry):
            return False
        if search.is_exhausted or (search.is_vain and not declared):
            return False
        if not search.move(hurry=hurry or search.is_rounded):
            return False
    size = max(
        evaluator.space.size_of_origin(), math.sqrt(dimension(evaluator.parameters))
    )
    return evaluator.best.worst > 0 and bundle.excludes(size)


class _Search:
    """Where the search is, and how far inside it aims."""

    def __init__(self, evaluator: Evaluator, bundle: Bundle) -> None:
        self._evaluator, self._bundle = evaluator, bundle
        self._bend, self._looks = Bend(), 0
        # A basis of long vectors would double the memory that cuts take.
        self._curved = Curved(bundle.capacity if is_short(evaluator.origin) else 0)
        self._at = evaluator.space.displacement(evaluator.origin)
        self._take(evaluator.first)
        self._is_solution = False
        self._cautious = self._astray = False
        self._center: AbstractPacked | None = None
        self._aim = Aim(evaluator.margins)
        self._stall, self._vain = Stall(evaluator.first.worst), 0
        self._farthest, self._forgotten = 0.0, 0
        self._reach, self._longest, self._blind = math.inf, 0.0, 0
        self._witness = Witness(evaluator)
        self._exhaustion = Exhaustion(evaluator, evaluator.first)
        self._outside = Stall(evaluator.best.worst)

    @property
    def is_stuck(self) -> bool:
        """Whether the solution does not come any nearer to the constraints."""
        return self._vain >= STUCK

    @property
    def is_vain(self) -> bool:
        """Whether looks, at solutions or not, come no nearer to a feasible point."""
        return self._evaluator.best.worst > 0 and self._outside.waited >= STUCK

    @property
    def is_rounded(self) -> bool:
        """Whether looks change nothing but rounding, and margins have to grow."""
        return self._exhaustion.looks >= STALLED

    @property
    def is_exhausted(self) -> bool:
        """Whether looks have changed nothing but rounding for long."""
        return self._exhaustion.looks >= STUCK

    def solve(self) -> bool:
        """Add the cuts of the last look, and solve; False if they are inconsistent."""
        self._add_cuts()
        bundle = self._bundle
        if bundle.solve(self._aim.margins(), far=not self._astray):
            return True
        # A set without interior has no point inside by a margin, yet has points.
        self._aim.drop()
        while not bundle.solve(self._aim.margins(), far=not self._astray):
            # Less than a proof is rounding, and that of far cuts is the largest.
            if bundle.contradicts or self._forgotten == FORGETFUL:
                return False
            if self._evaluator.best.worst > 0 and self._blind < BLIND:
                self._blind += 1
                if self._reach == math.inf and self._longest > 0:
                    self._reach = NEARER * self._longest
                return True
            bundle.forget()
            self._forgotten += 1
            # What was reached by the cuts that are gone is no measure of progress.
            self._stall, self._vain = Stall(self._seen.worst), 0
            self._farthest = 0.0
        return True

    def is_done(self, *, hurry: bool) -> bool:
        """Whether the nearest feasible point was seen; in a hurry, any feasible one.

        It was if the solution is feasible, or if another point is and the solution is
        nearer by no more than the margin costs anyway.
        """
        evaluator = self._evaluator
        if evaluator.best.worst > 0:
            return False
        if hurry or (self._is_solution and self._seen.worst <= 0):
            return True
        return evaluator.best_distance <= self._bundle.length() * (
            1.0 + evaluator.share
        )

    def move(self, *, hurry: bool) -> bool:
        """Look at the solution, or at a point that allows for curvature.

        False if neither there nor on the way there anything can be seen.
        """
        bundle = self._bundle
        if self._center is None:
            mu = bundle.multipliers()
            self._bend.update(self._seen.values, self._pulls, self._at, mu)
            self._curved.see(self._seen.values, self._pulls, self._at, mu)
            self._looks += 1
        aim, plain = self._aimed(hurry=hurry)
        near, far = aim, aim.norm()
        if far > self._reach and self._evaluator.best.worst > 0:
            near = aim.times(self._reach / far)
        share = self._look(near)
        if share == 0.0:
            return False
        if near is not aim and self._seen.worst < self._evaluator.first.worst:
            self._reach /= NEARER  # what is lower here may be lower still farther on
        self._longest = max(self._longest, near.norm())
        self._cautious = share < 1.0 or near is not aim
        self._center = aim if self._cautious else None
        self._is_solution = plain and not self._cautious
        self._exhaustion.note(self._seen, solution=self._is_solution)
        self._outside.note(self._evaluator.best.worst)
        self._at = self._evaluator.displacement()
        if not self._cautious:
            self._believe(far)
        if self._is_solution:
            # Elsewhere a residual near zero does not mean that the answer is near.
            self._adapt_margins(hurry=hurry)
        if bundle.leads_far and self._seen.worst > self._evaluator.first.worst:
            # Behind a place that is worse than the start there is no set far away.
            self._astray = True
            bundle.retract()
        return True

    def _aimed(self, *, hurry: bool) -> tuple[AbstractPacked, bool]:
        """Where to look next, and whether that is the solution over the cuts."""
        at, smooth = self._center or self._at, not (hurry or self._cautious)
        curved = None
        if smooth and self._looks > PATIENCE and self._curved.is_trusted:
            curved = self._curved.step(self._aim.margins())
        if curved is not None:
            return curved, False
        # From a feasible point that is not the nearest one the solution is next.
        h = self._bend.curvature if smooth and self._seen.worst > 0 else 0.0
        return self._bundle.step(at, h), h == 0.0

    def _believe(self, far: float) -> None:
        """Refuse a declared curvature that what was just seen refutes."""
        seen, witness, said = self._seen, self._witness, self._bundle.predictions
        if witness.refusal(seen, said(seen.values), far):
            witness.check(seen, said(seen.values, self._at), far)

    def _look(self, aim: AbstractPacked) -> float:
        """Look at a displacement, or at a share of the way there; how large a share.

        Cuts from anywhere are valid, so a shorter step is as good as another.
        """
        for share in SHARES:
            there = aim
            if share < 1.0:
                there = self._at.times(1.0 - share)
                there.add(aim, share)
            try:
                self._take(self._evaluator.move(there))
            except NonFiniteError:
                continue
            return share
        return 0.0

    def _take(self, seen: Evaluation) -> None:
        pack = self._evaluator.space.pack
        self._seen = seen
        self._pulls = {name: pack(g) for name, g in seen.gradients.items()}

    def _adapt_margins(self, *, hurry: bool) -> None:
        seen, margins, stall = self._seen, self._aim.margins(), self._stall
        better, length = stall.note(seen.worst), self._bundle.length()
        farther = length > FARTHER * self._farthest
        self._vain = 0 if better or farther else self._vain + 1
        self._farthest = length if farther else self._farthest
        if stall.waited >= STALLED and stall.least < WIDER * max(margins.values()):
            self._aim.widen(WIDER)
            stall.waited = 0
        if hurry and seen.worst <= WIDER * stall.least:
            # Where a wider margin only leads away, the set has no inside.
            self._aim.allow(seen.values)

    def _add_cuts(self) -> None:
        """Linearise here what is violated, or nearly.

        All cuts of a linear function are the same, but for rounding: another is taken
        only where more than that is violated.
        """
        seen, margins = self._seen, self._aim.margins()
        at, far = self._at, self._at.norm()
        tight = [
            name
            for name, pull in self._pulls.items()
            if seen.values[name] + margins[name] > self._rounding(name, pull, far)
        ]
        self._bundle.reserve(len(tight))
        for name in tight:
            value, pull = seen.values[name], self._pulls[name]
            rounding = self._evaluator.rounding(name, value, pull.norm())
            self._bundle.add(
                name, value, pull, at, self._center, far=far, rounding=rounding
            )

    def _rounding(self, name: str, pull: AbstractPacked, far: float) -> float:
        """The rounding of a linear function this far away; 0 for any other."""
        linear = self._evaluator.constraints[name].curvature == "linear"
        return ROUNDED * pull.eps * far * pull.norm() if linear else 0.0
