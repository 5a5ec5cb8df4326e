"""Closed-form sets together with functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.projection.cases import (
    Case,
    Instance,
    convex_below,
    leaf,
    numbers,
)
from benchmarks.projection.convex import SEEDS, root
from oneproj.problem.functions import function
from oneproj.problem.terms import Curvature
from oneproj.sets import (
    AbstractSet,
    Box,
    L1Ball,
    NuclearBall,
    Rank,
    Simplex,
    SpectralBall,
)

SETS: dict[str, tuple[Callable[[], AbstractSet], tuple[int, ...]]] = {
    "box": (lambda: Box(lower=-0.5, upper=0.5), (40,)),
    "simplex": (lambda: Simplex(1.0), (30,)),
    "l1": (lambda: L1Ball(2.0), (40,)),
    "nuclear": (lambda: NuclearBall(3.0), (8, 6)),
    "spectral": (lambda: SpectralBall(1.0), (8, 6)),
    "rank": (lambda: Rank(2), (8, 6)),
}
"""A set and the shape of the tensor that it is a set of."""


def instances() -> list[Instance]:
    """Every set with a linear function, declared or not, and with a curved one.

    Example:
        >>> len(instances())
        54
    """
    return [
        Instance("with sets", f"{name}, {kind}", seed, partial(_case, name, kind, seed))
        for name in SETS
        for kind in ("linear", "linear undeclared", "curved")
        for seed in range(SEEDS)
    ]


def _case(name: str, kind: str, seed: int) -> Case:
    make, shape = SETS[name]
    members = make()
    x, a = numbers(seed, *shape), numbers(seed + 1, *shape)
    w = leaf(x)
    inside = members.project(x)
    if kind == "curved":
        center = members.project(numbers(seed + 2, *shape))
        cap = 0.5 * float(((inside - center) ** 2).sum())
        size = convex_below(w, lambda z: ((z - center) ** 2).sum(), cap)
        best = None
        if members.convex:
            best = _distance_within_ball(members, x, center, cap)
        return Case([w], {"set": members.on(w), "size": size}, best=best)
    level = float((a * inside).sum())
    lowest = float((a * members.project(inside - 100 * a)).sum())
    bound = level - 0.5 * (level - lowest)
    if name == "rank":  # a cone: there is no lowest value
        bound = -level if level > 0 else 2 * level
    curvature: Curvature | None = None if kind.endswith("undeclared") else "linear"

    def level_of() -> Tensor:
        return (a * w).sum()

    line = function(level_of, curvature=curvature) <= bound
    best = None
    if members.convex:
        mu = root(lambda mu: float((a * members.project(x - mu * a)).sum()) - bound)
        best = float((members.project(x - mu * a) - x).norm())
    return Case([w], {"set": members.on(w), "level": line}, best=best)


def _distance_within_ball(
    members: AbstractSet, x: Tensor, center: Tensor, cap: float
) -> float:
    """The distance to the points of a set within a ball: one multiplier is sought."""

    def there(mu: float) -> Tensor:
        return members.project((x + mu * center) / (1 + mu))

    mu = root(lambda mu: float(((there(mu) - center) ** 2).sum()) - cap)
    return float(torch.linalg.vector_norm(there(mu) - x))
