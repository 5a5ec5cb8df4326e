"""How far inside a constraint to aim, so that rounding does not undo the answer.

The margin is a share of the size of the numbers that the constraint's value is made of,
near the answer. That is its bound, where it has one. Where the bound is 0, or inside
the function, what is known is how the value answers to its parameters: moved by a share
of themselves, and of the way from the start, they change it by that share of

    ``sum_i |g_i x_i| + |g| |x - x_0|``.

It is taken where the value was the nearest to 0 so far. A value that is much larger
than the bound at the start says nothing about the answer: a sum of exponentials falls
by thirty orders on the way there. It counts as long as that makes no difference.

Where two constraints are the sides of a band, a margin wider than half of it would ask
for what no point satisfies. It takes a share of that half, as of the depth of a set.

The parameters of the answer are rounded too, and so is the way to them. That changes
the value by about ``eps (|(g_i x_i)_i| + |g| |x - x_0|)``, where it was the nearest to
0 as well, and no margin is less. It matters in bfloat16, for large parameters, as those
of separable data become, and from starts far away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import torch

from oneproj.problem.terms import AbstractTerm
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import Vector, norm

MARGIN_POWER = 0.75
"""The margin is eps^0.75 of a constraint's size, in the coarsest precision that it is
computed in: far above the rounding of its value, which another batch size or thread
count may change, and far below what matters."""
SIZES = 5.0
"""How many numbers of the bound's size a value is made of near the answer, at most."""
MOST = SIZES * (2.0**-23) ** MARGIN_POWER
"""The share of a bound that a margin may be for the sake of a large value at the start:
as much as in float32 those numbers make of it."""
DEEPEST = 0.25
"""The share of a set's depth, or of half a band, that a margin may take."""


def coarsest(parameters: Vector, constraints: Mapping[str, AbstractTerm]) -> float:
    """The rounding unit of the parameters, or of values that are computed with less.

    Example:
        >>> coarsest([torch.zeros(1), torch.zeros(1).double()], {}) == 2**-23
        True
    """
    dtypes = {parameter.dtype for parameter in parameters}
    computed = {constraint.precision() for constraint in constraints.values()}
    return max(torch.finfo(dtype).eps for dtype in dtypes | computed if dtype)


def opposed(gradients: Mapping[str, Vector]) -> list[tuple[str, str]]:
    """The pairs of constraints whose gradients are exactly opposite, and not 0.

    Such are the two sides of a band: ``e <= t`` and ``e >= -t``, or the same of two
    functions.

    Example:
        >>> up, aside = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
        >>> opposed({"upper": [up], "lower": [-up], "other": [aside]})
        [('upper', 'lower')]
    """
    alike: dict[float, list[str]] = {}
    for name, gradient in gradients.items():
        alike.setdefault(norm(gradient), []).append(name)
    return [
        (one, other)
        for length, names in alike.items()
        for one, other in combinations(names, 2)
        if length > 0 and _are_opposite(gradients[one], gradients[other])
    ]


def _are_opposite(a: Vector, b: Vector) -> bool:
    return all(torch.equal(x, -y) for x, y in zip(a, b, strict=True))


class Margin:
    """How far inside one constraint to aim; ``renew`` it at every evaluation.

    Args:
        constraint: Seen at the start.
        eps: The unit that its values and the parameters are rounded to.
        value: Its residual there.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0])
        >>> margin = Margin(oneproj.function(w.sum) <= 2.0, 1e-12, 1e9)
        >>> margin.renew(0.0, [torch.ones(1)], [w], 1.0)
        >>> margin.width
        1e-08
    """

    def __init__(self, constraint: AbstractTerm, eps: float, value: float) -> None:
        """Know nothing but the start."""
        self._constraint, self._eps = constraint, eps
        self._share = share = eps**MARGIN_POWER
        self._nearest, scale = abs(value), constraint.scale()
        self._of_value = share * (scale + self._nearest)
        self._steady = 0.0 < scale and self._of_value <= MOST * scale
        if isinstance(constraint, SetConstraint):
            depth = constraint.members.depth(constraint.tensor)
            self._of_value, self._steady = min(self._of_value, DEEPEST * depth), True
        elif scale > 0:
            self._of_value = min(self._of_value, MOST * scale)
        elif value <= 0:
            # It does not bind there, and may be 0 only because the parameters are.
            self._nearest = math.inf
        self._of_point, is_set = 0.0, isinstance(constraint, SetConstraint)
        self._nearest_of_point = 0.0 if is_set else math.inf  # sets know their rounding
        self.width = self._of_value

    def renew(
        self, value: float, gradient: Vector | None, point: Vector, moved: float
    ) -> None:
        """Adapt to the value and gradient at a point, this far from the start.

        A gradient that was not computed is None; a bound of 0 then says nothing.
        """
        scale = self._constraint.scale()
        unknown = scale == 0.0 and gradient is None
        if not (self._steady or unknown or abs(value) >= self._nearest):
            self._nearest = abs(value)
            size = max(SIZES * scale, scale + self._nearest)
            if scale == 0.0 and gradient is not None:
                pulls = zip(gradient, point, strict=True)
                swings = sum(float((g * x).abs().sum()) for g, x in pulls)
                size = swings + norm(gradient) * moved
            self._of_value = self._share * size
            if scale > 0:
                self._of_value = min(self._of_value, MOST * scale)
        if gradient is not None and abs(value) < self._nearest_of_point:
            self._nearest_of_point = abs(value)
            pairs = zip(gradient, point, strict=True)
            changes = [norm([g * x]) for g, x in pairs]
            size = math.hypot(*changes) + norm(gradient) * moved
            self._of_point = self._eps * size
        self.width = max(self._of_value, self._of_point)
