"""Steps that end in the ball, and at its edge go along it.

``x = P_B(x - eta D g)`` with a diagonal matrix D, as Adam has it, holds where ``D g``
is a negative multiple of ``x - c``. A minimum over the ball asks that of g. So at the
edge, where g pulls outwards, the base step gets the part of it that runs along it,

    ``h = g + nu (x - c)``,  ``nu = -<g, x - c> / |x - c|^2 > 0``.

Then the points that stay are the right ones: if ``D h = -a (x - c)`` then ``<h, D h>``
is zero, since h and ``x - c`` are orthogonal, and h is zero. A step along ``-g``, with
momentum or without, needs none of this.
"""

from __future__ import annotations

import math

import torch
from torch.optim import SGD, Optimizer

from oneproj.autograd import densify
from oneproj.parameters import Vector, dot, norm, offset, project_ball_

WIDTH = 1e-3
"""Of the edge, as a share of the radius: steps along it end a little off."""


def step_in_ball_(
    base: Optimizer,
    point: Vector,
    radius: float,
    center: Vector | None,
    *,
    touched: bool,
) -> float:
    """One step of the base, then P_B; returns how far outside the step ended.

    While no step has left the ball, which ``touched`` tells, its edge costs nothing.

    Example:
        >>> w = torch.tensor([0.6, 0.8], requires_grad=True)
        >>> w.grad = torch.tensor([0.0, -0.2])
        >>> base = SGD([w], lr=1.0)
        >>> round(step_in_ball_(base, [w], 1.0, None, touched=False), 3)
        0.166
    """
    if not isinstance(base, SGD):  # whose steps go along gradients
        densify(point)  # torch's Adam and its like take no sparse ones
        if touched:
            follow_edge_(point, radius, center)
    base.step()
    return 0.0 if radius == math.inf else project_ball_(point, radius, center)


@torch.no_grad()
def follow_edge_(point: Vector, radius: float, center: Vector | None) -> None:
    """Take the pull outwards out of ``.grad``, in place, if the point is at the edge.

    Example:
        >>> w = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> w.grad = torch.tensor([2.0, -3.0])
        >>> follow_edge_([w], 1.0, None); w.grad.tolist()
        [2.0, 0.0]
    """
    z = list(point)
    away = offset(z, center)
    length = norm(away)
    reached = [(p.grad, o) for p, o in zip(z, away, strict=True) if p.grad is not None]
    if length < (1.0 - WIDTH) * radius:
        return
    slopes, offsets = [g for g, _ in reached], [o for _, o in reached]
    if -math.inf < (inner := dot(slopes, offsets)) < 0:  # not of what is not finite
        torch._foreach_add_(slopes, offsets, alpha=-inner / length**2)
