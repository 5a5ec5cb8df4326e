"""How far an answer is from the balance of a nearest point."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from oneproj.projection.bundle import Bundle
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.within_sets import SetBundle
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import Vector, combine, difference, norm


def apart(evaluator: Evaluator, bundle: Bundle) -> tuple[float, float]:
    """How far the best point is from the solution over cuts, and from the origin."""
    evaluator.return_to_best()
    displacement = evaluator.displacement()
    left = displacement.minus(bundle.displacement(displacement)).norm()
    return left, displacement.norm()


def imbalance(
    evaluator: Evaluator,
    multipliers: Mapping[str, float],
    normals: Mapping[str, Vector],
) -> float:
    """``|x_hat - x + sum_j mu_j grad c_j(x_hat)|``, with the normals of sets given.

    Where a bound proves that the answer is nearest it is not looked at: gradients of
    cuts balance then, and at a kink the gradient is only one of those that do.
    """
    gradients = {**evaluator.best.gradients, **normals}
    used = [name for name in gradients if multipliers.get(name, 0.0) > 0]
    largest = min(
        (torch.finfo(t.dtype).max for t in evaluator.parameters), default=math.inf
    )
    if any(not multipliers[name] < largest for name in used):
        return math.inf  # of an empty set: no finite weight balances it
    moved = difference(evaluator.best_point, evaluator.origin)
    pulls = [gradients[name] for name in used]
    return norm(combine([1.0, *(multipliers[n] for n in used)], [moved, *pulls]))


def balance_within(
    evaluator: Evaluator, region: Region
) -> tuple[dict[str, float], float]:
    """Multipliers at the best point if it lies in sets, and what is left of a balance.

    A set has a normal for every direction it can be left in, and its distance shows one
    of them. With ``x_hat`` nearest it is ``P(x - sum_j mu_j grad c_j(x_hat))``, P onto
    the sets: mu is that of the problem with functions as they are linearised there, and
    what is left is how far its solution is from ``x_hat``.
    """
    evaluator.return_to_best()
    functions = [name for name in evaluator.constraints if name not in region.places]
    bundle = SetBundle(region, evaluator.origin, len(functions) + 1)
    at, pack = evaluator.displacement(), evaluator.space.pack
    for name in functions:
        value, gradient = evaluator.best.values[name], evaluator.best.gradients[name]
        bundle.add(name, value, pack(gradient), at)
    if not bundle.solve(dict.fromkeys(functions, 0.0)):
        return {}, math.inf
    return bundle.multipliers(), apart(evaluator, bundle)[0]


def relative(left: float, moved: float) -> float:
    """What is left of a balance as a share of the move, at most 1.

    Example:
        >>> relative(0.5, 2.0), relative(0.0, 0.0), relative(3.0, 2.0)
        (0.25, 0.0, 1.0)
    """
    return left / max(moved, left) if 0 < left < math.inf else float(left != 0)
