"""Ways into the feasible set where local models found none, descent above all.

Far from the feasible set the models of ``local.py`` may promise much and hold little,
step after step. Adam's steps promise nothing and lower the sum of the violated
constraints all the same; the point they reach is feasible, not near, and is where the
models begin again. Where they go from wall to wall, ``valley.py`` goes along the floor.
On a plateau, which has no slope, a few points are worth a look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim.adam import adam

from oneproj.errors import NonFiniteError
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.nonconvex.valley import PAIRS, follow_valley
from oneproj.vectors.arithmetic import Vector, combine, difference, dimension, norm

RATE = 0.03
"""A step of each parameter, as a share of what the move so far makes on average."""
PATIENCE = 60
"""Looks in a row that find no lower worst residual before it is given up."""
FLAT, LEVEL = 10, 0.99
"""As many looks in a row end it if neither their worst residuals nor their distances
from the start differ by more than a hundredth: they go to and fro at a minimum. On a
plateau the distance changes. Adam's memory is ten."""
LONG = 2
"""Times as many looks are worth it along a narrow valley, as long as they go down."""
DOUBLINGS = 10
"""How often to double the move so far."""
NEARLY = 1e-3
"""The share of the parameters that is left where zero itself has no gradient."""
SMALLER = (0.3, 0.1, 1.0)
"""Shares of the parameters to descend from: a network of smaller weights has scores
near zero, where a loss that is flat for large ones is not."""
NUDGES = (1e-2, 1e-1, 1.0, -1.0)
"""The lengths of random moves, as shares of the parameters' norm."""


def find_inside(evaluator: Evaluator, *, looks: int, capacity: int = 4 * PAIRS) -> bool:
    """Look for a feasible point wherever one may be; whether there was one.

    Args:
        evaluator: Knows the best point, before and after.
        looks: How many full constraint gradients to use at most, but for a few, and
            for those along a valley.
        capacity: Parameter-size vectors that there is room for.
    """
    last = evaluator.evaluations + looks
    if descend(evaluator, looks=looks) or _shrink(evaluator) or _follow(evaluator):
        return True
    before = evaluator.evaluations
    if follow_valley(evaluator, looks=LONG * looks, pairs=min(PAIRS, capacity // 4)):
        return True
    last += evaluator.evaluations - before
    smaller = (combine([share - 1.0], [evaluator.origin]) for share in SMALLER)
    for start in (*smaller, *nudges(evaluator)):
        least = evaluator.best.worst
        seen = _descent(evaluator, looks=last - evaluator.evaluations, start=start)
        if evaluator.best.worst <= 0:
            return True
        if seen and _same_minimum(evaluator, seen, least):
            return False
    return False


def descend(evaluator: Evaluator, *, looks: int, start: Vector | None = None) -> bool:
    """Go down from the best point; whether a feasible one was reached.

    Args:
        evaluator: Knows the best point, before and after.
        looks: How many full constraint gradients to use at most.
        start: The displacement of another point to go down from.

    Example:
        >>> from oneproj.problem.functions import function
        >>> w = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> disc = {"disc": function(lambda: w.square().sum()) <= 1.0}
        >>> evaluator = Evaluator([w], disc, differentiate_all=True)
        >>> descend(evaluator, looks=100), evaluator.best.worst <= 0
        (True, True)
    """
    _descent(evaluator, looks=looks, start=start)
    return evaluator.best.worst <= 0


def _descent(evaluator: Evaluator, *, looks: int, start: Vector | None) -> list[float]:
    """Go down as ``descend`` says; the worst residuals on the way."""
    seen, moved = evaluator.best, difference(evaluator.best_point, evaluator.origin)
    size = dimension(evaluator.parameters)
    scale = norm(moved) or norm(evaluator.origin) or math.sqrt(size)
    if start is not None:
        scale = norm(start) or norm(evaluator.origin) or math.sqrt(size)
        moved, looks = combine([1.0], [start]), looks - 1
        found = _look(evaluator, start) if looks >= 0 else None
        if found is None:
            return []
        seen = found
    adam = _Adam(moved, rate=RATE * scale / math.sqrt(size))
    worst, far, waited = [seen.worst], [norm(moved)], 0
    for k in range(looks):
        if seen.worst <= 0 or waited >= PATIENCE:
            break
        if _is_flat(worst) and _is_flat(far):
            break
        slope = _slope(evaluator, seen)
        if slope is None and k == 0:
            break  # no slope, and no momentum yet
        adam.step(slope)
        found = _look(evaluator, combine([1.0], [moved]))
        if found is None:
            break
        seen = found
        waited = 0 if seen.worst < min(worst) else waited + 1
        worst.append(seen.worst)
        far.append(norm(moved))
    return worst


def _is_flat(numbers: list[float]) -> bool:
    recent = numbers[-FLAT - 1 :]
    return len(recent) > FLAT and min(recent) >= LEVEL * max(recent)


def _same_minimum(evaluator: Evaluator, seen: list[float], least: float) -> bool:
    """Whether a descent led from higher up to the least residual that was known.

    On a plateau, where there is no slope, many descents end at the same residual.
    """
    fell = seen[0] > least + max(evaluator.margins.values())
    level = LEVEL * min(seen) <= least
    return fell and level and _slope(evaluator, evaluator.best) is not None


def nudges(evaluator: Evaluator) -> Iterator[list[Tensor]]:
    """Displacements along a random direction, always the same, longer and longer.

    At a start without a slope, such as the minimum of what must grow, one direction is
    as good as another, and on a plateau a long way is better than a short one.

    Example:
        >>> from oneproj.problem.functions import function
        >>> w = torch.zeros(4, requires_grad=True)
        >>> grown = {"grown": function(lambda: w.square().sum()) >= 9.0}
        >>> evaluator = Evaluator([w], grown, differentiate_all=True)
        >>> [round(norm(moved), 3) for moved in nudges(evaluator)]  # ones would have 2
        [0.02, 0.2, 2.0, 2.0]
    """
    generator = torch.Generator().manual_seed(0)
    direction = [
        torch.randn(p.shape, generator=generator, dtype=torch.float64, device="cpu").to(
            p
        )
        for p in evaluator.origin
    ]
    length = norm(evaluator.origin) or math.sqrt(dimension(evaluator.origin))
    scale = length / norm(direction)
    for share in NUDGES:
        yield combine([share * scale], [direction])


def _follow(evaluator: Evaluator) -> bool:
    """Go on in the direction of the best point; whether that led inside.

    What lowered the violation before a plateau began may also lead across it. A place
    that is worse than the start is not on the way.
    """
    moved = difference(evaluator.best_point, evaluator.origin)
    if norm(moved) == 0.0:
        return False
    for k in range(1, DOUBLINGS + 1):
        seen = _look(evaluator, combine([2.0**k], [moved]))
        if seen is None or seen.worst <= 0 or seen.worst > evaluator.first.worst:
            break
    return evaluator.best.worst <= 0


def _shrink(evaluator: Evaluator) -> bool:
    """Make all parameters zero, or nearly; whether that is inside.

    A bound on a size is met there, whichever norm it is of.
    """
    shares = (-1.0, NEARLY - 1.0)
    return any(
        _is_inside(evaluator, combine([share], [evaluator.origin])) for share in shares
    )


def _is_inside(evaluator: Evaluator, moved: Vector) -> bool:
    seen = _look(evaluator, moved)
    return seen is not None and seen.worst <= 0


def _look(evaluator: Evaluator, moved: Vector) -> Evaluation | None:
    try:
        return evaluator.move(moved)
    except NonFiniteError:
        return None


def _slope(evaluator: Evaluator, seen: Evaluation) -> list[Tensor] | None:
    """The gradient of the sum of what is violated, or nearly; None if it is zero.

    Its entries are made to be of size one on average: Adam divides by their size, but
    not if they are tiny, as on a plateau.
    """
    pushing = [
        gradient
        for name, gradient in seen.gradients.items()
        if seen.values[name] + evaluator.margins[name] > 0
    ]
    total = combine([1.0] * len(pushing), pushing)
    length = norm(total)
    if length == 0.0:
        return None
    return combine([math.sqrt(dimension(evaluator.parameters)) / length], [total])


class _Adam:
    """Adam without an optimiser object, the first of which imports a compiler."""

    def __init__(self, point: list[Tensor], *, rate: float) -> None:
        self._point, self._rate = point, rate
        self._means = [torch.zeros_like(part) for part in point]
        self._squares = [torch.zeros_like(part) for part in point]
        self._steps = [torch.tensor(0.0, device="cpu") for _ in point]

    def step(self, gradient: list[Tensor] | None) -> None:
        """Move the point, in place; None is a gradient that is zero."""
        adam(
            self._point,
            gradient or [torch.zeros_like(part) for part in self._point],
            self._means,
            self._squares,
            [],
            self._steps,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
