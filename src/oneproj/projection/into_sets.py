"""Into closed-form sets, from where a search along their distances ends just outside.

A simplex has no inside to aim at, and at its corners, as at those of an L1 ball, its
distance has a kink: steps by gradients stop a hair away. The nearest point of the sets
is known, though. From there a function c that is violated is lowered without leaving
them, along ``x(z) = P(x - z grad c)``: its linearisation falls with z, so that the
least z for which it is negative is found by bisection, which takes no gradient.
"""

from __future__ import annotations

from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import Vector, combine, difference, dot

LOOKS = 20
"""Full gradients for it: near the answer a few do."""
DOUBLINGS, HALVINGS = 40, 40
"""Of z: from what the gradient alone would ask for, and then to its least value."""


def enter(evaluator: Evaluator, region: Region) -> None:
    """Look at points of the sets, near the best one, until one is feasible.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([0.9, 0.3], dtype=torch.float64, requires_grad=True)
        >>> both = {
        ...     "sum": oneproj.sets.Simplex().on(w),
        ...     "size": oneproj.function(lambda: w.square().sum()) <= 0.6,
        ... }
        >>> from oneproj.sets.region import region_of
        >>> evaluator = Evaluator([w], both, differentiate_all=True)
        >>> enter(evaluator, region_of([w], both)); evaluator.best.worst <= 0
        True
    """
    point, extra = [x.double() for x in evaluator.best_point], 1.0
    for _ in range(LOOKS):
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


def _worst_function(seen: Evaluation, region: Region) -> str | None:
    """Who is violated most among the constraints that are not the region's sets."""
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
    for _ in range(DOUBLINGS):
        if falls(most):
            break
        least, most = most, 2.0 * most
    else:
        return None
    for _ in range(HALVINGS):
        middle = 0.5 * (least + most)
        least, most = (least, middle) if falls(middle) else (middle, most)
    return there(most)
