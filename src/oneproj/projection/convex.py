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
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
from torch import Tensor

from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.projection.bundle import Bundle, padded
from oneproj.projection.curvature import Center, CurvatureModel
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.largest import parts_of
from oneproj.projection.refutation import Witness
from oneproj.projection.report import (
    describe,
    distance_to_solution,
    relative_residual,
    stationarity_residual,
)
from oneproj.projection.tolerances import TOLERANCES
from oneproj.projection.within_sets import SetBundle
from oneproj.results import NEAREST, Projection
from oneproj.sets import SetConstraint
from oneproj.sets.region import Region, rounding_margin
from oneproj.vectors.arithmetic import (
    Array,
    combine,
    dimension,
    norm,
    snapshot,
)
from oneproj.vectors.space import AbstractPacked, Packed

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
    if not (evaluator.best.worst > 0 and bundle.excludes(size)):
        return False
    search.test_declarations()
    return not bundle.doubt  # in doubt of a declaration nothing is proven


def _probe(points: Sequence[tuple[list[Tensor], float]], k: int) -> list[Tensor]:
    """Return the k-th point to evaluate: between two points, or beside the only one."""
    (best, _), *others = sorted(points, key=lambda point: point[1])
    if others:
        return combine([0.5, 0.5], [best, others[-(k % 2)][0]])
    far = max(norm(best), 1.0) / math.sqrt(dimension(best))
    return [t + far for t in best]


class _Search:
    """Where the search is, and how far inside it aims."""

    def __init__(
        self, evaluator: Evaluator, bundle: Bundle, tolerance: float, *, declared: bool
    ) -> None:
        evaluator.return_to_start()  # another search may have left it elsewhere
        self._evaluator, self._bundle = evaluator, bundle
        self._tolerance, self._declared = tolerance, declared
        self._sets = bundle if isinstance(bundle, SetBundle) else None
        # In a basis that is shrunk again and again matrices learn little.
        ample = bundle.capacity >= min(TOLERANCES.vectors, dimension(evaluator.origin))
        self._curvature = CurvatureModel(dense=self._sets is None and ample)
        self._witness = Witness(evaluator, declared=declared)
        self._seen, self._moved = evaluator.first, 0.0
        self._at = evaluator.space.displacement(evaluator.origin)
        self._y: Array = np.zeros(0)
        self._is_solution = False
        self._is_spanned = self._sets is None
        """Whether the bundle's basis spans the displacements of the points."""
        self._aims_inside = self._has_margins = True
        self._inside: dict[str, float] = {}
        self._extra = dict.fromkeys(evaluator.margins, 0.0)
        self._aim = self._margins()
        """How far inside each constraint to aim."""
        self._outside = self._least = evaluator.first.worst
        self._without_progress = self._unsolved = 0
        self._farthest, self._gap = 0.0, math.inf

    @property
    def is_stuck(self) -> bool:
        """Whether no progress is made; soon, where only rounding is left."""
        few = TOLERANCES.stalled if self._is_rounding() else TOLERANCES.stuck
        return self._without_progress >= few

    def _is_rounding(self) -> bool:
        """Whether no point is feasible, and the best one is but for rounding."""
        best = self._evaluator.best
        return best.worst > 0 and self._evaluator.is_rounding(best)

    def is_exhausted(self) -> bool:
        """Whether more gradients are of no use."""
        outside = self._evaluator.best.worst > 0
        most = TOLERANCES.stuck // 2 if self._sets is not None else 2 * TOLERANCES.stuck
        return outside and self._without_progress >= most

    def solve(self) -> bool:
        """Add the cuts of the last point, and solve; False if they are inconsistent."""
        self._add_cuts()
        bundle = self._bundle
        if bundle.solve(self._aim):
            self._aim_inside()
            return True
        if self._aim_at_boundary() and bundle.solve(self._aim):
            return True
        # A set without interior has no point inside by a margin, yet has points.
        self._extra, self._has_margins = dict.fromkeys(self._extra, 0.0), False
        self._aim = self._margins()
        if bundle.solve(self._aim):
            return True
        self._unsolved += 1
        return not bundle.contradicts and self._unsolved < TOLERANCES.stuck

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
        far = evaluator.best_distance
        if far <= self._bundle.proof * (1.0 + self._tolerance):
            return True
        solved = self._is_solution and self._seen.worst <= 0
        if not solved and far > self._bundle.length() * (1.0 + evaluator.share):
            return False
        if not self._aim_at_boundary():
            return True
        self._bundle.solve(self._aim)  # wide margins lengthen the solution
        return False

    def _aim_inside(self) -> None:
        """Aim inside what curves by half of the distance that the tolerance allows.

        A constraint's margin is that distance times the length of its gradient, so its
        units do not count.
        """
        total = float(self._bundle.z.sum())
        if not self._aims_inside or total <= 0:
            return
        width = 0.5 * self._tolerance * self._bundle.length() ** 2 / total
        for name, gradient in self._seen.gradients.items():
            constraint = self._evaluator.constraints[name]
            if constraint.curvature != "linear" and not isinstance(
                constraint, SetConstraint
            ):
                self._inside[name] = width * norm(gradient)
        self._aim = self._margins()

    def _aim_at_boundary(self) -> bool:
        """Aim at the boundary from now on; returns whether that is a change."""
        changes, self._aims_inside = any(self._inside.values()), False
        self._inside = {}
        self._aim = self._margins()
        return changes

    def _margins(self) -> dict[str, float]:
        """Return how far inside to aim, given what is known of rounding."""
        return {
            name: max(self._margin(name) + more, self._inside.get(name, 0.0))
            for name, more in self._extra.items()
        }

    def move(self, *, hurry: bool, late: bool) -> bool:
        """Evaluate the solution over the cuts, or a point that allows for curvature.

        Returns:
            Whether the constraints have values there, or on the way there.
        """
        before = self._at
        curvature, plain, bend = self._curvature, True, 0.0
        aim: Array | None = None
        if not hurry and curvature.is_trusted:
            aim = curvature.step(self._bundle, self._aim)
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
        self._check_declarations()
        self._record_progress(hurry=hurry, late=late)
        return True

    def _evaluate_toward(self, aim: Array, bend: float) -> float:
        """Evaluate at coordinates, or where constraints have values on the way there.

        Returns:
            The share of the way; 0 if they have values nowhere.
        """
        evaluator, bundle, sets = self._evaluator, self._bundle, self._sets
        start, here, target = padded(self._y, aim.shape), list[Tensor](), list[Tensor]()
        if sets is not None:
            here, target = snapshot(evaluator.parameters), sets.target(self._at, bend)
        for share in SHARES:
            there = (1.0 - share) * start + share * aim
            try:
                if sets is None:
                    self._seen = evaluator.move(bundle.basis.vector(there, self._at))
                else:
                    way = combine([share, 1.0 - share], [target, here])
                    member = sets.region.member(way, like=evaluator.origin)
                    self._seen = evaluator.move_to(member)
            except NonFiniteError:
                continue
            self._y = there
            return share
        return 0.0

    def _check_declarations(self) -> None:
        """Refuse a curvature that the last evaluation refutes."""
        seen, far, witness = self._seen, self._at.norm(), self._witness
        if not self._is_spanned:
            self._y = self._bundle.basis.products(self._at)
        for name, said in self._bundle.linearisations(self._y).items():
            refuted = witness.compare(name, seen.values[name], far, *said)
            if refuted:
                raise InvalidProblemError(refuted)

    def test_declarations(self) -> None:
        """Test the declared curvatures before emptiness is claimed on their account.

        Linearisations that exclude every point prove emptiness only if the functions
        are convex, as declared. A few more points are evaluated, halfway between the
        best point of the search and, in turn, the second best and the worst.

        Raises:
            InvalidProblemError: A declared curvature is wrong.
        """
        evaluator, self._is_spanned = self._evaluator, False
        points = self._extremes()
        for k in range(TOLERANCES.probes):
            if self._witness.refuted:
                raise InvalidProblemError(self._witness.refuted)
            target = _probe(points, k)
            if self._sets is not None:
                target = self._sets.region.member(target, like=evaluator.origin)
            try:
                self._seen = evaluator.move_to(list(target))
            except NonFiniteError:
                return
            points.append((list(target), self._seen.worst))
            self._at = evaluator.displacement()
            self._check_declarations()
            if self._seen.worst <= 0:  # yet the linearisations exclude all points
                raise InvalidProblemError(self._most_wrong())
            self._add_cuts()

    def _extremes(self) -> list[tuple[list[Tensor], float]]:
        """Return the two best visited points and the worst, with their residuals.

        The basis spans all of them unless there are sets; then the start, the best
        point and the last one are returned.
        """
        basis, evaluator = self._bundle.basis, self._evaluator
        visited = [
            (point.y, max(point.values.values()))
            for point in self._witness.points
            if point.outside == 0.0
        ]
        if self._sets is None and len(visited) > 1:
            visited.sort(key=lambda point: point[1])
            return [
                (evaluator.point_after(Packed(basis.vector(y, self._at))), worst)
                for y, worst in visited[:2] + visited[2:][-1:]
            ]
        found = [(evaluator.origin, evaluator.first.worst)]
        if evaluator.best is not evaluator.first:
            found.append((evaluator.best_point, evaluator.best.worst))
        if not any(self._seen is known for known in (evaluator.first, evaluator.best)):
            found.append((snapshot(evaluator.parameters), self._seen.worst))
        return found

    def _most_wrong(self) -> str:
        """Say which linearisation is the most above a value."""
        values = self._seen.values
        said = {
            name: float(rows[0].max())
            for name, rows in self._bundle.linearisations(self._y).items()
            if rows.size
        }
        name = max(said, key=lambda name: said[name] - values[name])
        return self._witness.message(name, said[name], values[name])

    def _record_progress(self, *, hurry: bool, late: bool) -> None:
        """Count gradients without progress, and adapt the margins."""
        seen, evaluator = self._seen, self._evaluator
        length, outside = self._bundle.length(), evaluator.best.worst
        farther = length > TOLERANCES.farther * self._farthest
        self._farthest = length if farther else self._farthest
        # Of constraints that are not declared convex a length proves nothing.
        progress = farther and self._declared and not self._is_rounding()
        if outside <= 0:
            gap = evaluator.best_distance - length
            progress |= gap < TOLERANCES.better * self._gap
            self._gap = min(self._gap, gap)
        if outside < TOLERANCES.better * self._outside:
            self._outside, progress = outside, True
        # A feasible point off the solution may be far from the answer, and on its way.
        counts = self._is_solution or outside > 0
        self._without_progress = 0 if progress else self._without_progress + counts
        if self._is_solution:
            better = seen.worst < TOLERANCES.better * self._least
            self._least = min(self._least, seen.worst)
            if late or (hurry and not better):
                self._widen()
        self._aim = self._margins()

    def _widen(self) -> None:
        """Double what was added to margins, and add what is still violated."""
        for name, value in self._seen.values.items():
            if value > 0:
                self._extra[name] = 2.0 * self._extra[name] + value

    def _margin(self, name: str) -> float:
        """Return how far inside to aim: beside sets, which are exact, hardly at all."""
        constraint = self._evaluator.constraints[name]
        margin = self._evaluator.margins[name] if self._has_margins else 0.0
        if self._sets is None or not isinstance(constraint, SetConstraint):
            return margin
        x = constraint.tensor.detach()
        rounding = rounding_margin(constraint.members.project(x.double()), x.dtype)
        return min(margin, TOLERANCES.wider * max(rounding, self._sets.missed))

    def _add_cuts(self) -> None:
        """Linearise here what is violated, or nearly, and learn how it curves."""
        seen, bundle, evaluator = self._seen, self._bundle, self._evaluator
        mu, far, places = bundle.multipliers(), self._at.norm(), self._places()
        wanted = {
            name: evaluator.space.pack(g)
            for name, g in seen.gradients.items()
            if name not in places
            and (mu.get(name, 0.0) > 0 or seen.values[name] + self._aim[name] > 0)
        }
        beside = [self._y, *self._curvature.points()]
        others = self._other_linearisations(wanted)
        columns = bundle.make_room(len(wanted) + len(others), beside)
        if columns is not None:
            self._curvature.rotate(columns)
            self._witness.rotate(columns)
            self._y = columns.T @ padded(self._y, (len(columns),))
        coordinates = {}
        for name, gradient in wanted.items():
            value = seen.values[name]
            unit = evaluator.rounding(name, value, gradient.norm())
            coordinates[name] = bundle.add(
                name, value, gradient, self._at, rounding=unit
            )
        for name, value, gradient in others:
            unit = evaluator.rounding(name, value, gradient.norm())
            bundle.add(name, value, gradient, self._at, rounding=unit)
        size = (len(bundle.basis),)
        self._y = padded(self._y, size)
        coordinates = {name: padded(g, size) for name, g in coordinates.items()}
        for name, g in coordinates.items():
            value, level = seen.values[name], wanted[name].dot(self._at)
            self._witness.compare_with_points(name, value, g, level, far)
        self._witness.add(self._y, far, seen, inside=self._is_spanned)
        bundle.doubt = self._witness.doubt
        self._curvature.update(
            Center(self._y, seen.values, coordinates), self._moved, mu
        )

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
                if value + self._aim[name] > 0:
                    found.append((name, value, evaluator.space.pack(gradient)))
        return found

    def _places(self) -> set[str]:
        return set() if self._sets is None else set(self._sets.region.places)


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
    near = [name for name in best.gradients if _may_be_noise(evaluator, name)]
    if best.worst > 0 or best is evaluator.first or not near:
        return
    aim = dict.fromkeys(evaluator.constraints, 0.0)
    for name, noise in evaluator.noise(near).items():
        aim[name] = TOLERANCES.safe * noise
    steps, seen = TOLERANCES.inside_steps, best
    bundle = Bundle(steps * len(best.gradients) + 1)
    pack, here = evaluator.space.pack, evaluator.displacement()
    there, at = here, here.times(0.0)
    for _ in range(steps):
        if all(c <= -0.5 * aim[name] for name, c in seen.values.items()):
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
    if seen is not best and all(c <= -0.5 * aim[n] for n, c in seen.values.items()):
        evaluator.set_best(seen, there)


def _may_be_noise(evaluator: Evaluator, name: str) -> bool:
    """Whether a function's value is near 0, and the size of its terms unknown."""
    constraint, value = evaluator.constraints[name], evaluator.best.values[name]
    if isinstance(constraint, SetConstraint) or constraint.size is not None:
        return False
    near = value > -TOLERANCES.near * evaluator.margins[name]
    return near and constraint.scale() == 0.0


def project_within_any(
    evaluator: Evaluator, region: Region, *, capacity: int, max_evaluations: int
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
        >>> most, region = {"capacity": 10, "max_evaluations": 50}, region_of([w], both)
        >>> found, sure = project_within_any(evaluator, region, **most)
        >>> round(found.distance, 6), sure  # to (1, 0)
        (2.828427, True)
    """
    few = min(TOLERANCES.tried, max_evaluations)
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
    narrow = far - bound <= TOLERANCES.narrow_gap * far
    sure = narrow and (declared or uneven <= NEAREST.kkt_residual * far)
    left = uneven
    if narrow and declared:  # at a kink, one of its gradients does not balance
        gap = math.sqrt(max(0.0, far**2 - bound**2))
        left = min(uneven, max(distance_to_solution(evaluator, bundle)[0], gap))
    kkt_residual = relative_residual(left, far)
    found = describe(
        evaluator, evaluator.best, far, multipliers=mu, kkt_residual=kkt_residual
    )
    return found, sure
