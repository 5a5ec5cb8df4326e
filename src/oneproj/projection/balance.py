"""How far an answer is from the balance of a nearest point."""

from __future__ import annotations

import math
from collections.abc import Mapping

from oneproj.parameters import Vector, combine, difference, norm
from oneproj.projection.convex.bundle import Bundle
from oneproj.projection.view import View


def apart(view: View, bundle: Bundle) -> tuple[float, float]:
    """How far the best point is from the solution over cuts, and from the origin."""
    view.return_to_best()
    displacement = view.displacement()
    left = displacement.minus(bundle.displacement(displacement)).norm()
    return left, displacement.norm()


def imbalance(
    view: View, multipliers: Mapping[str, float], normals: Mapping[str, Vector]
) -> float:
    """``|x_hat - x + sum_j mu_j grad c_j(x_hat)|``, with the normals of sets given.

    Where a bound proves that the answer is nearest it is not looked at: gradients of
    cuts balance then, and at a kink the gradient is only one of those that do.
    """
    gradients = {**view.best.gradients, **normals}
    used = [name for name in gradients if multipliers.get(name, 0.0) > 0]
    moved = difference(view.best_point, view.origin)
    pulls = [gradients[name] for name in used]
    return norm(combine([1.0, *(multipliers[n] for n in used)], [moved, *pulls]))


def relative(left: float, moved: float) -> float:
    """What is left of a balance as a share of the move, at most 1.

    Example:
        >>> relative(0.5, 2.0), relative(0.0, 0.0), relative(3.0, 2.0)
        (0.25, 0.0, 1.0)
    """
    return left / max(moved, left) if 0 < left < math.inf else float(left != 0)
