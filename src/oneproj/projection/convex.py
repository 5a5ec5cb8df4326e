"""Projection onto convex constraints: keep the cuts, project onto their intersection.

A convex c_j lies above its linearisations, so at every visited point x_k

    ``c_j(x_k) + <grad c_j(x_k), x - x_k> <= 0``

holds for every feasible x: a cut, valid everywhere and for good. The nearest point of
the intersection of all cuts is at most as far away as the nearest feasible point. When
it is feasible, it *is* the nearest feasible point, whether or not c_j has kinks: cuts
from both sides of a kink are kept.

Any point may be evaluated next, since cuts from anywhere are valid. The nearest point
of the cuts lies outside of constraints that curve. While the curvature learned so far
predicts their values, the next point is that of a model with curvature
(``curvature.py``).

Closed-form sets are not cut: the nearest point of the cuts within them is found by its
dual (``within_sets.py``), and all points of the search lie in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
from torch import Tensor

from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.projection.bundle import Bundle, padded
from oneproj.projection.curvature import Center, CurvatureModel
from oneproj.projection.evaluator import ROUGHLY, Evaluation, Evaluator
from oneproj.projection.largest import parts_of
from oneproj.projection.margins import Aim
from oneproj.projection.refutation import PLAIN, Witness
from oneproj.projection.report import (
    describe,
    distance_to_solution,
    relative_residual,
    stationarity_residual,
)
from oneproj.projection.tolerances import TOLERANCES
from oneproj.projection.within_sets import SetBundle
from oneproj.results import Projection
from oneproj.sets import SetConstraint
from oneproj.sets.region import Region, rounding_margin
from oneproj.vectors.arithmetic import (
    Array,
    combine,
    dimension,
    norm,
)
from oneproj.vectors.space import AbstractPacked

SHARES = (1.0, 2**-1, 2**-2, 2**-4, 2**-8, 2**-16, 2**-32)
"""Shares of a step, tried one after the other until the constraints have values."""


def project_convex(
    evaluator: Evaluator,
    bundle: Bundle,
    *,
    max_evaluations: int,
    tolerance: float = 0.0,
    declared: bool = True,
) -> bool:
    """Move the parameters to the nearest feasible point.

    After ``max_evaluations``, or when rounding keeps it from getting any nearer, the
    margins grow with what is still violated: exactness is given up for feasibility.

    Args:
        evaluator: Of the constraints; it knows the best point afterwards.
        bundle: Cuts that are valid for displacements from the evaluator's origin, or
            none yet; it has the multipliers and the lower bound afterwards.
        max_evaluations: Full constraint gradients.
        tolerance: Relative gap between the distance and its proof at which to stop. Up
            to half of it is spent on points a little inside of constraints that curve,
            which are feasible before the nearest point is known exactly.
        declared: Whether the constraints are declared convex. If not, a bound proves
            nothing, and gradients that do not lower the residual end the search.

    Returns:
        Whether the cuts prove that no point is feasible.
    """
    search = _Search(evaluator, bundle, tolerance, declared=declared)
    before = evaluator.evaluations - 1
    while search.solve():
        used = evaluator.evaluations - before
        late = used >= max_evaluations
        hurry = late or search.is_stuck
        if used > 2 * max_evaluations or search.is_done(hurry=hurry, late=late):
            return False
        if search.is_exhausted():
            return False
        if not search.move(hurry=hurry, late=late):
            return False
    size = max(evaluator.space.size_of_origin(), math.sqrt(dimension(evaluator.origin)))
    return evaluator.best.worst > 0 and bundle.excludes(size)


class Exhaustion:
    """Counts the points that change nothing but rounding.

    A point counts if what is violated is violated by rounding only, there or at the
    least violated point so far, and neither the worst residual nor, once a point is
    feasible, the distance is clearly lower than before. The next gain starts the count
    again. Solutions over the cuts are compared with each other: another point may be
    nearer to the boundary, and far from the answer.

    Args:
        evaluator: Of the search.
        start: Its first evaluation.
    """

    def __init__(self, evaluator: Evaluator, start: Evaluation) -> None:
        """Count from the start of a search."""
        self._evaluator, self._lowest = evaluator, start
        self._residuals = {True: start.worst, False: start.worst}
        self._distance = math.inf
        self.count = 0

    def note(self, seen: Evaluation, *, solution: bool = True) -> None:
        """Take an evaluation into account, at a solution or elsewhere."""
        evaluator = self._evaluator
        self._lowest = min(self._lowest, seen, key=lambda other: other.worst)
        gains = 0 < seen.worst < TOLERANCES.better * self._residuals[solution]
        if gains:
            self._residuals[solution] = seen.worst
        judged = self._lowest
        if evaluator.best.worst <= 0:
            least = self._distance * (1.0 - evaluator.share)
            gains = gains or evaluator.best_distance < least
            self._distance = min(self._distance, evaluator.best_distance)
            judged = seen
        if gains:
            self.count = 0
        elif evaluator.is_rounding(judged) and not self._is_inside(judged):
            self.count += 1

    def _is_inside(self, seen: Evaluation) -> bool:
        """Whether a point is feasible by more than rounding."""
        margins = self._evaluator.margins
        return all(c < -ROUGHLY * margins[name] for name, c in seen.values.items())


class _Search:
    """Where the search is, and how far inside it aims."""

    def __init__(
        self, evaluator: Evaluator, bundle: Bundle, tolerance: float, *, declared: bool
    ) -> None:
        self._evaluator, self._bundle = evaluator, bundle
        self._tolerance, self._declared = tolerance, declared
        self._sets = bundle if isinstance(bundle, SetBundle) else None
        # In a basis that is shrunk again and again matrices learn little.
        ample = bundle.capacity >= min(TOLERANCES.vectors, dimension(evaluator.origin))
        self._curvature = CurvatureModel(dense=self._sets is None and ample)
        self._witness = Witness(evaluator)
        self._seen, self._moved = evaluator.first, 0.0
        self._at = evaluator.space.displacement(evaluator.origin)
        self._y: Array = np.zeros(0)
        self._is_solution = False
        self._margins = {name: self._margin(name) for name in evaluator.margins}
        self._aim = Aim(self._margins, curved=self._curved())
        self._exhaustion = Exhaustion(evaluator, evaluator.first)
        self._least = self._outside = evaluator.first.worst
        self._waited = self._vain = self._blurred = 0
        self._farthest, self._gap = 0.0, math.inf
        self._aims_wide = True

    def _curved(self) -> set[str]:
        """Return the constraints that are neither linear nor closed-form sets."""
        return {
            name
            for name, c in self._evaluator.constraints.items()
            if c.curvature != "linear" and not isinstance(c, SetConstraint)
        }

    @property
    def is_stuck(self) -> bool:
        """Whether no progress is made, or only rounding is left."""
        stuck = self._vain >= TOLERANCES.stuck
        return stuck or self._exhaustion.count >= TOLERANCES.stalled

    def is_exhausted(self) -> bool:
        """Whether more gradients are of no use."""
        outside = self._evaluator.best.worst > 0
        most = TOLERANCES.stuck // 2 if self._sets is not None else TOLERANCES.stuck
        if outside and self._vain >= (2 if self._sets is None else 1) * most:
            return True
        return self._exhaustion.count >= most

    def solve(self) -> bool:
        """Add the cuts of the last point, and solve; False if they are inconsistent."""
        self._add_cuts()
        bundle = self._bundle
        if bundle.solve(self._aim.margins()):
            self._aim_inside()
            return True
        if self._stop_aiming_wide() and bundle.solve(self._aim.margins()):
            return True
        # A set without interior has no point inside by a margin, yet has points.
        self._aim.drop()
        if bundle.solve(self._aim.margins()):
            return True
        self._blurred += 1
        return not bundle.contradicts and self._blurred < TOLERANCES.stuck

    def is_done(self, *, hurry: bool, late: bool) -> bool:
        """Whether the nearest feasible point was seen; if it is late, any feasible one.

        Within sets, whose points are exact, any one is taken in a hurry too.

        It was if the solution is feasible, or if another point is and the solution is
        nearer by no more than the margin costs anyway.
        """
        evaluator = self._evaluator
        if evaluator.best.worst > 0:
            return False
        if late or (hurry and self._sets is not None):
            return True
        gap, far = max(evaluator.share, TOLERANCES.gap), evaluator.best_distance
        if far <= self._bundle.proof * (1.0 + self._tolerance):
            return True
        solved = self._is_solution and self._seen.worst <= 0
        if not solved and far > self._bundle.length() * (1.0 + gap):
            return False
        if not self._stop_aiming_wide():
            return True
        self._bundle.solve(self._aim.margins())  # wide margins lengthen the solution
        return False

    def _aim_inside(self) -> None:
        """Aim inside what curves by half of the distance that the tolerance allows.

        A constraint's margin is that distance times the length of its gradient, so its
        units do not count.
        """
        total = float(self._bundle.z.sum())
        if not self._aims_wide or total <= 0:
            self._aim.aim_inside({})
            return
        inside = 0.5 * self._tolerance * self._bundle.length() ** 2 / total
        gradients = self._seen.gradients.items()
        self._aim.aim_inside({name: inside * norm(g) for name, g in gradients})

    def _stop_aiming_wide(self) -> bool:
        """Aim at the boundary from now on; whether that is a change."""
        wide, self._aims_wide = self._aim.is_wide, False
        self._aim.aim_inside({})
        return wide

    def move(self, *, hurry: bool, late: bool) -> bool:
        """Evaluate the solution over the cuts, or a point that allows for curvature.

        Returns:
            Whether the constraints have values there, or on the way there.
        """
        before = self._at
        curvature, plain, bend = self._curvature, True, 0.0
        aim: Array | None = None
        if not hurry and curvature.is_trusted:
            aim = curvature.step(self._bundle, self._aim.margins())
            plain = aim is None
        elif not hurry and self._seen.worst > 0:
            # From a feasible point that is not the nearest one the solution is next.
            bend = curvature.along_step
            plain = bend == 0.0
            if self._sets is None and not plain:
                aim = self._bundle.toward(self._y, bend)
                plain = aim is None
        share = self._evaluate_toward(self._bundle.d if aim is None else aim, bend)
        if share == 0.0:
            return False
        self._is_solution = plain and share == 1.0
        self._at = self._evaluator.displacement()
        self._moved = self._at.minus(before).norm()
        self._believe()
        self._record_progress(hurry=hurry, late=late)
        return True

    def _evaluate_toward(self, aim: Array, bend: float) -> float:
        """Evaluate at coordinates, or where constraints have values on the way there.

        Returns:
            The share of the way; 0 if they have values nowhere.
        """
        evaluator, bundle, sets = self._evaluator, self._bundle, self._sets
        start = padded(self._y, aim.shape)
        target = None if sets is None else sets.target(self._at, bend)
        for share in SHARES:
            there = aim if share == 1.0 else (1.0 - share) * start + share * aim
            try:
                if sets is None or target is None:
                    self._seen = evaluator.move(bundle.basis.vector(there, self._at))
                else:
                    self._seen = evaluator.move_to(self._member(sets, target, share))
            except NonFiniteError:
                continue
            self._y = there
            return share
        return 0.0

    def _member(
        self, sets: SetBundle, target: list[Tensor], share: float
    ) -> list[Tensor]:
        """Return the set's point nearest to a share of the way to the target."""
        if share < 1.0:
            here = [
                x.detach().to(y)
                for x, y in zip(self._evaluator.parameters, target, strict=True)
            ]
            target = combine([share, 1.0 - share], [target, here])
        return sets.region.member(target, like=self._evaluator.origin)

    def _believe(self) -> None:
        """Refuse a curvature that what was just seen refutes.

        A declaration has the benefit of the doubt; a guess that none made has not.
        """
        seen, bundle, far = self._seen, self._bundle, self._at.norm()
        unseen = PLAIN if self._declared else 0.0
        if self._sets is not None:
            self._y = bundle.basis.products(self._at)
        said = bundle.predictions(seen.values, self._y)
        if self._witness.refusal(seen, said, far, unseen=unseen):
            exact = bundle.basis.products(self._at)
            said = bundle.predictions(seen.values, exact)
            self._witness.check(seen, said, far, unseen=unseen)

    def _record_progress(self, *, hurry: bool, late: bool) -> None:
        """Count gradients without progress, and adapt the margins."""
        seen, evaluator = self._seen, self._evaluator
        self._exhaustion.note(seen, solution=self._is_solution)
        length, outside = self._bundle.length(), evaluator.best.worst
        # Of constraints that are not declared convex a length proves nothing.
        farther = length > TOLERANCES.farther * self._farthest
        self._farthest = length if farther else self._farthest
        progress = farther and self._declared
        if outside <= 0:
            gap = evaluator.best_distance - length
            progress |= gap < TOLERANCES.better * self._gap
            self._gap = min(self._gap, gap)
        if self._sets is not None:
            progress = False
            self._margins.update({n: self._margin(n) for n in self._margins})
        else:
            self._margins.update(evaluator.margins)
        if outside < TOLERANCES.better * self._outside:
            self._outside, progress = outside, True
        # A feasible point off the solution may be far from the answer, and on its way.
        counts = self._is_solution or outside > 0
        self._vain = 0 if progress else self._vain + counts
        if not self._is_solution:
            # Elsewhere a residual near zero does not mean that the answer is near.
            return
        better = seen.worst < TOLERANCES.better * self._least
        self._waited = 0 if better else self._waited + 1
        self._least = min(self._least, seen.worst)
        wide = TOLERANCES.wider * max(self._aim.margins().values())
        if seen.worst > TOLERANCES.wider * self._least:
            return  # where a wider margin only leads away, the set has no inside
        if self._waited >= TOLERANCES.stalled and self._least < wide:
            self._aim.widen(TOLERANCES.wider)
            self._waited = 0
        if late or (hurry and not better):
            self._aim.allow(seen.values)

    def _margin(self, name: str) -> float:
        """Return how far inside to aim: within sets, which are exact, hardly at all."""
        constraint = self._evaluator.constraints[name]
        margin = self._evaluator.margins[name]
        if self._sets is None:
            return margin
        if name in self._sets.region.places:
            return 0.0
        if isinstance(constraint, SetConstraint):
            x = constraint.tensor.detach()
            nearest = constraint.members.project(x.double())
            rounding = rounding_margin(nearest, x.dtype)
            return min(margin, TOLERANCES.wider * max(rounding, self._sets.missed))
        return margin

    def _add_cuts(self) -> None:
        """Linearise here what is violated, or nearly, and learn how it curves.

        All cuts of a linear function are the same, but for rounding: another is taken
        only where more than that is violated.
        """
        seen, bundle, evaluator = self._seen, self._bundle, self._evaluator
        mu, far, places = bundle.multipliers(), self._at.norm(), self._places()
        wanted = {
            name: evaluator.space.pack(g)
            for name, g in seen.gradients.items()
            if name not in places
            and (
                mu.get(name, 0.0) > 0 or seen.values[name] + self._aim.margin(name) > 0
            )
        }
        beside = [self._y, *self._curvature.points()]
        others = self._other_linearisations(wanted)
        columns = bundle.make_room(len(wanted) + len(others), beside)
        if columns is not None:
            self._curvature.rotate(columns)
            self._y = columns.T @ padded(self._y, (len(columns),))
        slopes = {}
        for name, pull in wanted.items():
            value = seen.values[name]
            noise = self._rounding(name, pull, far)
            if value + self._aim.margin(name) > noise:
                unit = evaluator.rounding(name, value, pull.norm())
                slopes[name] = bundle.add(name, value, pull, self._at, rounding=unit)
            elif evaluator.constraints[name].curvature != "linear":
                slopes[name] = bundle.coordinates(pull)
        for name, value, pull in others:
            unit = evaluator.rounding(name, value, pull.norm())
            bundle.add(name, value, pull, self._at, rounding=unit)
        size = (len(bundle.basis),)
        self._y = padded(self._y, size)
        slopes = {name: padded(g, size) for name, g in slopes.items()}
        self._curvature.update(Center(self._y, seen.values, slopes), self._moved, mu)

    def _other_linearisations(
        self, names: Iterable[str]
    ) -> list[tuple[str, float, AbstractPacked]]:
        """Return name, value and gradient of examples that are almost the largest.

        Where a constraint bounds the largest value over data, each example's is at most
        that, and so is its linearisation. They are left out where memory is short.
        """
        evaluator, found = self._evaluator, []
        if self._bundle.capacity < TOLERANCES.vectors:
            return []
        for name in names:
            constraint = evaluator.constraints[name]
            for part in [*parts_of(constraint).values()][1:]:
                value, gradient = part.value_and_gradient(evaluator.parameters)
                if value + self._aim.margin(name) > 0:
                    found.append((name, value, evaluator.space.pack(gradient)))
        return found

    def _places(self) -> set[str]:
        return set() if self._sets is None else set(self._sets.region.places)

    def _rounding(self, name: str, pull: AbstractPacked, far: float) -> float:
        """Return the rounding of a linear function this far away; 0 for any other.

        One that has a cut is not cut again where steps are allowed to violate it.
        """
        if self._evaluator.constraints[name].curvature != "linear":
            return 0.0
        if name in self._bundle.names and self._moved > 0 and not self._is_solution:
            return math.inf
        return TOLERANCES.bound_units * pull.eps * far * pull.norm()


def move_inside_noise(evaluator: Evaluator) -> None:
    """Move a feasible best point inside by the rounding noise of its functions.

    A function may be the difference of large numbers, so that its value near 0 is
    rounding. The noise is measured: values nearby differ from what the gradient
    predicts. Functions with a bound have their size from it, averages are added up in
    float64, and sets are computed in it: for these the margins are enough. Where no
    such point is found the best point stays.

    Example:
        >>> import torch
        >>> from oneproj.problem.functions import function
        >>> w = torch.tensor([2.0], requires_grad=True)
        >>> low = {"low": function(lambda: (w + 30.0 - 31.0).sum()) <= 0.0}
        >>> evaluator = Evaluator([w], low, differentiate_all=True)
        >>> _ = evaluator.move([torch.tensor([-1.0])]); move_inside_noise(evaluator)
        >>> evaluator.best.values["low"] < -2e-6
        True
    """
    best = evaluator.best
    near = [name for name in best.gradients if _is_near(evaluator, name)]
    if best.worst > 0 or best is evaluator.first or not near:
        return
    noise = {n: _noise(evaluator, n, s) for n, s in evaluator.noise(near).items()}
    wanted = {n: TOLERANCES.safe * noise.get(n, 0.0) for n in evaluator.constraints}
    aim = {name: TOLERANCES.beyond * width for name, width in wanted.items()}
    steps, seen = TOLERANCES.inside_steps, best
    bundle = Bundle(steps * len(best.gradients) + 1)
    pack, here = evaluator.space.pack, evaluator.displacement()
    there, at = here, here.times(0.0)
    for _ in range(steps):
        if all(c <= -wanted[name] for name, c in seen.values.items()):
            break
        for name, gradient in seen.gradients.items():
            bundle.add(name, seen.values[name], pack(gradient), at)
        if not bundle.solve(aim):
            return
        at = bundle.displacement(at)
        there = here.minus(at.times(-1.0))
        try:
            seen = evaluator.move(there)
        except NonFiniteError:
            return
    if seen is not best and all(c <= -wanted[n] for n, c in seen.values.items()):
        evaluator.set_best(seen, there)


def _is_near(evaluator: Evaluator, name: str) -> bool:
    constraint, value = evaluator.constraints[name], evaluator.best.values[name]
    plain = constraint.size is None and not isinstance(constraint, SetConstraint)
    unknown = plain and constraint.scale() == 0.0
    return unknown and value > -TOLERANCES.near * evaluator.margins[name]


def _noise(evaluator: Evaluator, name: str, noise: float) -> float:
    """Return the noise; 0 if it is so large that the function is random."""
    slope, value = norm(evaluator.best.gradients[name]), evaluator.best.values[name]
    unit = evaluator.rounding(name, value, slope) / evaluator.eps
    return noise if noise <= math.sqrt(evaluator.eps) * unit else 0.0


TRIED = 50
"""Full gradients of a search within sets that are not convex; most take ten."""
NARROW, EVEN = 1e-3, 1e-2
"""The duality gap and the KKT residual, as shares of the distance, up to which such an
answer is taken for the nearest one."""


def project_within_any(
    evaluator: Evaluator, region: Region, *, capacity: int, max_evaluations: int = TRIED
) -> tuple[Projection | None, bool]:
    """Move to a feasible point of the region; whether it is surely the nearest one.

    It is if the duality gap is narrow, and the functions are declared convex or their
    gradients balance the displacement. None if no feasible point was found.

    Example:
        >>> import torch, oneproj
        >>> from oneproj.sets.region import region_of
        >>> w = torch.diag(torch.tensor([3.0, 2.0])).double().requires_grad_()
        >>> both = {
        ...     "rank": oneproj.sets.Rank(1).on(w),
        ...     "trace": oneproj.function(lambda: w.trace(), curvature="linear") <= 1.0,
        ... }
        >>> evaluator = Evaluator([w], both, differentiate_all=True)
        >>> region = region_of([w], both)
        >>> found, sure = project_within_any(evaluator, region, capacity=10)
        >>> round(found.distance, 6), sure  # to (1, 0)
        (2.828427, True)
    """
    few = min(TRIED, max_evaluations)
    bundle = SetBundle(region, evaluator.origin, capacity)
    # A contradiction shows that an undeclared function is not convex.
    with suppress(InvalidProblemError):
        project_convex(evaluator, bundle, max_evaluations=few)
    if evaluator.best.worst > 0:
        return None, False
    far, mu = evaluator.moved(), bundle.multipliers()
    uneven = stationarity_residual(evaluator, mu, bundle.unit_normals())
    functions = evaluator.constraints.keys() - region.places.keys()
    declared = all(evaluator.constraints[name].curvature for name in functions)
    bound = bundle.lagrangian_bound()
    narrow = far - bound <= NARROW * far
    sure = narrow and (declared or uneven <= EVEN * far)
    left = uneven
    if narrow and declared:  # at a kink, one of its gradients does not balance
        gap = math.sqrt(max(0.0, far**2 - bound**2))
        left = min(uneven, max(distance_to_solution(evaluator, bundle)[0], gap))
    kkt_residual = relative_residual(left, far)
    found = describe(
        evaluator, evaluator.best, far, multipliers=mu, kkt_residual=kkt_residual
    )
    return found, sure
