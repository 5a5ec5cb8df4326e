"""Closed-form sets: their projector, and the ways onto and into them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.report import describe, relative_residual, stationarity_residual
from oneproj.projection.tolerances import TOLERANCES
from oneproj.results import Projection
from oneproj.sets import SetConstraint
from oneproj.sets.base import AbstractThinSet
from oneproj.sets.region import MARGIN_TRIES, Region, nearest_member, region_of
from oneproj.vectors.arithmetic import (
    Vector,
    combine,
    difference,
    distance,
    dot,
)


class ClosedForm(AbstractProjector):
    """Projects onto a product of closed-form sets, each on a parameter of its own.

    The nearest point of a product is the product of the nearest points. It is computed
    in float64 and moved inside by a few units of the dtype's rounding, so that the
    residual is <= 0 after rounding too, in whatever order the caller adds it up.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> done = ClosedForm().project([w], {"size": oneproj.sets.Ball(1.0).on(w)})
        >>> round(done.distance, 6), done.residuals["size"] <= 0
        (4.0, True)
    """

    name = "closed-form"

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        """Every constraint must be a set, and no two on the same tensor."""
        seen: dict[int, str] = {}
        for name, constraint in constraints.items():
            if not isinstance(constraint, SetConstraint):
                return f"{name!r} is not a closed-form set (oneproj.sets)"
            other = seen.setdefault(id(constraint.tensor), name)
            if other != name:
                return f"{other!r} and {name!r} constrain the same tensor"
        return None

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        """Project each constrained tensor in place."""
        evaluator = Evaluator(parameters, constraints, differentiate_all=False)
        region = region_of(parameters, constraints)
        nearest = _nearest(evaluator, region)
        if evaluator.first.worst <= 0 or evaluator.try_point(nearest):
            found = _described_in_sets(evaluator, region, nearest)
        else:  # rounding keeps every attempt outside
            evaluator.move_to(nearest)
            found = describe(evaluator, evaluator.best, evaluator.moved())
        if any(_is_thin(constraint) for constraint in constraints.values()):
            # The bound is on the distance to the set itself, which a band surrounds.
            found = replace(found, lower_bound=None)
        # Only values were taken at that point, and it took no search.
        return replace(found, gradients=evaluator.evaluations, history=())


def _is_thin(constraint: AbstractTerm) -> bool:
    return isinstance(constraint, SetConstraint) and isinstance(
        constraint.members, AbstractThinSet
    )


def project_onto_sets(evaluator: Evaluator, region: Region) -> Projection | None:
    """Move to the nearest point of the region if it satisfies every constraint.

    Then no feasible point is nearer, whatever the functions are: the feasible points
    are a subset of the region, so the distance to the region is a lower bound on the
    distance to any of them, and this point attains it. The region need not be convex.

    Costs one evaluation without gradients, and none if the start lies in the region.

    Args:
        evaluator: At the start, where a constraint is violated.
        region: Sets among the constraints, at most one for each tensor.

    Returns:
        The answer, with the distance to the exact sets as its lower bound; None, with
        the evaluator at the start, if the point violates a constraint.

    Example:
        >>> import torch, oneproj
        >>> from oneproj.sets.region import region_of
        >>> w = torch.tensor([-2.0, -2.0], dtype=torch.float64, requires_grad=True)
        >>> both = {
        ...     "box": oneproj.sets.Box(lower=0.0).on(w),
        ...     "curve": oneproj.function(lambda: w[1] - (1 - w[0]) ** 3) <= 0,
        ... }
        >>> evaluator = Evaluator([w], both, differentiate_all=True)
        >>> found = project_onto_sets(evaluator, region_of([w], both))
        >>> found.distance == found.lower_bound == 8**0.5, found.multipliers["curve"]
        (True, 0.0)
    """
    nearest = _nearest(evaluator, region)
    if not _outside(evaluator, region) or not evaluator.try_point(nearest):
        return None
    return _described_in_sets(evaluator, region, nearest)


def _outside(evaluator: Evaluator, region: Region) -> list[str]:
    """The sets that the start is outside of."""
    return [name for name in region.places if evaluator.first.values[name] > 0]


def _nearest(evaluator: Evaluator, region: Region) -> list[Tensor]:
    """The nearest point of the region; tensors that are in their sets do not move."""
    nearest, outside = list(evaluator.origin), _outside(evaluator, region)
    if outside:
        inside = region.member(evaluator.origin, like=evaluator.origin)
        for i in (region.places[name] for name in outside):
            nearest[i] = inside[i]
    return nearest


def _described_in_sets(
    evaluator: Evaluator, region: Region, nearest: Vector
) -> Projection:
    """Describe the nearest point of the region, which is feasible."""
    multipliers, distances, outside = {}, [], _outside(evaluator, region)
    exact = region.parts(evaluator.origin) if outside else {}
    for name in outside:
        i = region.places[name]
        start = [evaluator.origin[i].double()]
        distances.append(distance([exact[name]], start))
        multipliers[name] = distance([nearest[i].double()], start)
    # The normals are those at the start: at a corner no other one balances the move.
    normals = {name: evaluator.first.gradients[name] for name in outside}
    far = evaluator.moved()
    return describe(
        evaluator,
        evaluator.best,
        far,
        multipliers=multipliers,
        kkt_residual=relative_residual(
            stationarity_residual(evaluator, multipliers, normals), far
        ),
        lower_bound=min(far, math.hypot(*distances)),
    )


def move_into_sets(evaluator: Evaluator, region: Region) -> None:
    """Evaluate points of the sets, near the best one, until one is feasible.

    Each is the nearest point of the sets after a step that lowers the function that is
    violated most, linearised at the last one.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([0.9, 0.3], dtype=torch.float64, requires_grad=True)
        >>> both = {
        ...     "sum": oneproj.sets.Simplex().on(w),
        ...     "size": oneproj.function(lambda: w.square().sum()) <= 0.6,
        ... }
        >>> from oneproj.sets.region import region_of
        >>> evaluator = Evaluator([w], both, differentiate_all=True)
        >>> move_into_sets(evaluator, region_of([w], both)); evaluator.best.worst <= 0
        True
    """
    point, extra = [x.double() for x in evaluator.best_point], 1.0
    for _ in range(TOLERANCES.entry_gradients):
        try:
            seen = evaluator.move_to(region.member(point, like=evaluator.origin))
        except NonFiniteError:
            return
        worst = _worst_function(seen, region)
        if seen.worst <= 0 or worst is None:
            return
        here = [x.detach().double() for x in evaluator.parameters]
        slope = [g.double() for g in seen.gradients[worst]]
        inside = extra * evaluator.margins[worst]
        lower = _lowered(region, here, slope, seen.values[worst] + inside)
        if lower is None:
            return
        point, extra = lower, 2.0 * extra


def remove_rounding_from_sets(evaluator: Evaluator) -> None:
    """Evaluate a point of all sets beside a best point that is outside by rounding.

    Of several sets on a tensor all but one are met as functions are, up to rounding.
    Their nearest points, taken in turn, have none left: those of sets without interior
    first, whose bands have room for what the others change.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([-1e-16, 1.0], dtype=torch.float64, requires_grad=True)
        >>> both = {
        ...     "box": oneproj.sets.Box(lower=0.0).on(w),
        ...     "plane": oneproj.sets.Affine([[1.0, 1.0]], [1.0]).on(w),
        ... }
        >>> evaluator = Evaluator([w], both, differentiate_all=True)
        >>> remove_rounding_from_sets(evaluator); evaluator.best.worst <= 0
        True
    """
    best, places = (
        evaluator.best,
        {id(p): i for i, p in enumerate(evaluator.parameters)},
    )
    sets = {
        name: constraint
        for name, constraint in evaluator.constraints.items()
        if isinstance(constraint, SetConstraint) and id(constraint.tensor) in places
    }
    missed = {name for name, c in best.values.items() if c > 0}
    if not missed or not missed <= sets.keys() or not evaluator.is_rounding(best):
        return
    ordered = sorted(sets.values(), key=lambda constraint: not _is_thin(constraint))
    point = [x.clone() for x in evaluator.best_point]
    for _ in range(MARGIN_TRIES):
        moved = False
        for constraint in ordered:
            i, members = places[id(constraint.tensor)], constraint.members
            if float(members.residual(point[i].double())) > 0:
                point[i], moved = nearest_member(members, point[i], point[i]), True
        if not moved:
            evaluator.move_to(point)
            return


def _worst_function(seen: Evaluation, region: Region) -> str | None:
    """The constraint that is violated most, of those that are not the region's sets."""
    left = {n: c for n, c in seen.values.items() if n not in region.places and c > 0}
    return max(left, key=lambda name: left[name]) if left else None


def _lowered(
    region: Region, x: Vector, slope: Vector, excess: float
) -> list[Tensor] | None:
    """The nearest ``P(x - z slope)`` where a linear function is lower by an excess.

    None if no z makes it so.
    """
    square = dot(slope, slope)
    if not square > 0:
        return None

    def there(z: float) -> list[Tensor]:
        return region.nearest(combine([1.0, -z], [x, slope]))

    def falls(z: float) -> bool:
        return -dot(slope, difference(there(z), x)) >= excess

    least, most = 0.0, excess / square
    for _ in range(TOLERANCES.bisections):
        if falls(most):
            break
        least, most = most, 2.0 * most
    else:
        return None
    for _ in range(TOLERANCES.bisections):
        middle = 0.5 * (least + most)
        least, most = (least, middle) if falls(middle) else (middle, most)
    return there(most)
