"""Convex constraints: risks of linear scores, ellipsoids, maxima, norms, thin sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from benchmarks.projection.cases import (
    Case,
    Instance,
    below_zero,
    convex_below,
    leaf,
    numbers,
)
from oneproj.problem.functions import mean
from oneproj.problem.terms import AbstractTerm
from oneproj.sets import Box, L1Ball

SEEDS = 3
EXAMPLES = 200
IMPOSSIBLE = 0.3
"""A logistic risk that no linear score reaches with a quarter of wrong labels."""
HALVINGS = 200
"""Of an interval, for roots of monotone functions: to the last bit."""

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logistic": lambda score, y: softplus(-y * score),
    "hinge": lambda score, y: (1 - y * score).clamp(min=0),
    "squared": lambda score, y: (score - y) ** 2,
    "quantile": lambda score, y: torch.maximum(0.9 * (y - score), 0.1 * (score - y)),
}
"""The loss of an example, of its score and its label -1 or 1."""


def instances() -> list[Instance]:  # noqa: C901 - a list of what there is
    """All convex families.

    Example:
        >>> len(instances()) >= 100
        True
    """
    made: list[Instance] = []

    def add(family: str, name: str, make: Callable[[int], Case]) -> None:
        made.extend(Instance(family, name, s, partial(make, s)) for s in range(SEEDS))

    for loss in LOSSES:
        for d in (5, 20, 100):
            add("risks", f"{loss} d={d}", partial(risk, loss, d))
    sizes = [(c, d) for c in (1e0, 1e2, 1e4, 1e6, 1e8) for d in (2, 20, 100)]
    sizes += [(1e2, 500), (1e4, 500), (1e6, 500), (1e2, 2000), (1e4, 2000)]
    for condition, d in sizes:
        name = f"condition {condition:.0e} d={d}"
        add("ellipsoids", name, partial(ellipsoid, condition, d, declared=True))
    for condition, d in ((1e2, 20), (1e4, 20), (1e4, 100)):
        name = f"undeclared, condition {condition:.0e} d={d}"
        add("ellipsoids", name, partial(ellipsoid, condition, d, declared=False))
    for d in (5, 20, 50):
        add("maxima", f"affine d={d}", partial(max_affine, d, declared=True))
        add("maxima", f"log-sum-exp d={d}", partial(log_sum_exp, d))
    add("maxima", "affine undeclared d=20", partial(max_affine, 20, declared=False))
    for kind in NORMS:
        for d in (20, 200):
            add("norms", f"{kind} d={d}", partial(ball, kind, d, declared=True))
            add(
                "norms undeclared",
                f"{kind} d={d}",
                partial(ball, kind, d, declared=False),
            )
    for d in (5, 20, 100):
        add("entropies and cones", f"entropy d={d}", partial(entropy, d))
        add("entropies and cones", f"divergence d={d}", partial(divergence, d))
        add("entropies and cones", f"cone d={d}", partial(cone, d))
    add("entropies and cones", "semidefinite cone d=36", partial(semidefinite, 6))
    for kind in ("touching balls", "thin slab", "lens", "shell undeclared"):
        add("thin", kind, partial(thin, kind))
    for kind in ("balls", "halfspaces", "risk", "risk undeclared", "outside a box"):
        add("empty", kind, partial(empty, kind))
    return made


def linear_data(seed: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels and the weights that most labels follow.

    Example:
        >>> [len(part) for part in linear_data(0, 3)]
        [200, 200, 3]
    """
    x = numbers(seed, EXAMPLES, d)
    weights = numbers(seed + 100, d) * (2 / math.sqrt(d))
    y = torch.sign(x @ weights + numbers(seed + 200, EXAMPLES, scale=0.5))
    return x, y, weights


def risk(loss: str, d: int, seed: int) -> Case:
    """The mean loss of linear scores, at most little more than a good point's.

    Example:
        >>> risk("hinge", 5, 0).constraints["risk"].value() > 0
        True
    """
    x, y, weights = linear_data(seed, d)
    of = LOSSES[loss]
    cap = 1.1 * float(of(x @ weights, y).mean())
    start = numbers(seed + 300, d) - weights
    w = leaf(start)

    def examples(batch: tuple[Tensor, Tensor]) -> Tensor:
        return of(batch[0] @ w, batch[1])

    term = mean(examples, data=(x, y), curvature="convex") <= cap
    if loss in {"hinge", "quantile"}:
        solved = partial(_risk_program, loss, (x, y), cap, start)
        return Case([w], {"risk": term}, program=solved)

    def pieces(z: Tensor) -> Tensor:
        return (of(x @ z, y).mean() - cap).reshape(1)

    return Case([w], {"risk": term}, pieces=pieces)


def _risk_program(
    loss: str, data: tuple[Tensor, Tensor], cap: float, start: Tensor
) -> float:
    import cvxpy as cp

    x, y = (part.numpy() for part in data)
    z: Any = cp.Variable(len(start))
    if loss == "hinge":
        losses = cp.pos(1 - cp.multiply(y, x @ z))
    else:
        losses = cp.maximum(0.9 * (y - x @ z), 0.1 * (x @ z - y))
    return _clarabel(z, start, [cp.sum(losses) / len(y) <= cap])


def _clarabel(z: Any, start: Tensor, constraints: list[Any]) -> float:  # noqa: ANN401
    import cvxpy as cp

    problem = cp.Problem(cp.Minimize(cp.sum_squares(z - start.numpy())), constraints)
    tight = 1e-11
    problem.solve(
        solver="CLARABEL", tol_gap_abs=tight, tol_gap_rel=tight, tol_feas=tight
    )
    return math.sqrt(float(problem.value))


def ellipsoid(condition: float, d: int, seed: int, *, declared: bool) -> Case:
    """``sum_i a_i w_i^2 <= 1`` in rotated coordinates, a from 1 to the condition.

    Example:
        >>> ellipsoid(1.0, 2, 0, declared=True).best > 0
        True
    """
    a = torch.logspace(0, math.log10(condition), d, dtype=torch.float64)
    rotation = torch.linalg.qr(numbers(seed, d, d)).Q if d <= 500 else None  # noqa: PLR2004
    axes = numbers(seed + 1, d) * (3.0 / math.sqrt(d))
    start = axes if rotation is None else rotation @ axes
    w = leaf(start)

    def value(z: Tensor) -> Tensor:
        y = z if rotation is None else z @ rotation
        return (a * y**2).sum()

    one = convex_below(w, value, 1.0)
    other = below_zero(w, lambda z: value(z) - 1.0)
    best = _ellipsoid_distance(a, axes)
    return Case([w], {"ellipsoid": one if declared else other}, best=best)


def _ellipsoid_distance(a: Tensor, x: Tensor) -> float:
    def excess(mu: float) -> float:
        return float((a * (x / (1 + mu * a)) ** 2).sum()) - 1.0

    mu = root(excess)
    return float((x - x / (1 + mu * a)).norm())


def root(falling: Callable[[float], float]) -> float:
    """Where a function of mu >= 0 that falls is 0; 0 if it is below there.

    Example:
        >>> round(root(lambda mu: 2.0 - mu), 9)
        2.0
    """
    if falling(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while falling(high) > 0:
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high


def max_affine(d: int, seed: int, *, declared: bool) -> Case:
    """The maximum of 3 d affine functions, from far outside.

    Example:
        >>> max_affine(5, 0, declared=True).constraints["max"].value() > 0
        True
    """
    slopes, start = numbers(seed, 3 * d, d), numbers(seed + 1, d, scale=3.0)
    w = leaf(start)

    def value(z: Tensor) -> Tensor:
        return (slopes @ z).max()

    def program() -> float:
        import cvxpy as cp

        z: Any = cp.Variable(d)
        return _clarabel(z, start, [slopes.numpy() @ z <= 1.0])

    one = convex_below(w, value, 1.0)
    other = below_zero(w, lambda z: value(z) - 1.0)
    return Case([w], {"max": one if declared else other}, program=program)


def log_sum_exp(d: int, seed: int) -> Case:
    """A log-sum-exp of 3 d affine functions.

    Example:
        >>> log_sum_exp(5, 0).constraints["log-sum-exp"].value() > 0
        True
    """
    slopes, start = numbers(seed, 3 * d, d), numbers(seed + 1, d, scale=3.0)
    w, cap = leaf(start), 1.0 + math.log(3 * d)

    def value(z: Tensor) -> Tensor:
        return torch.logsumexp(slopes @ z, 0)

    return Case(
        [w],
        {"log-sum-exp": convex_below(w, value, cap)},
        pieces=lambda z: (value(z) - cap).reshape(1),
    )


def _l1_nearest(x: Tensor) -> Tensor:
    return L1Ball(1.0).project(x)


NORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "l2": (lambda z: z.norm(), lambda x: x / x.norm()),
    "l1": (lambda z: z.abs().sum(), _l1_nearest),
    "linf": (lambda z: z.abs().max(), lambda x: x.clamp(-1, 1)),
}
"""A norm, and the nearest point of its unit ball from outside."""


def ball(kind: str, d: int, seed: int, *, declared: bool) -> Case:
    """The unit ball of a norm around a random centre.

    Example:
        >>> ball("l2", 2, 0, declared=True).best > 0
        True
    """
    norm, nearest = NORMS[kind]
    center, x = numbers(seed, d), numbers(seed + 1, d, scale=2.0)
    w = leaf(center + x)
    one = convex_below(w, lambda z: norm(z - center), 1.0)
    other = below_zero(w, lambda z: norm(z - center) - 1.0)
    best = float((x - nearest(x)).norm())
    return Case([w], {"ball": one if declared else other}, best=best)


def entropy(d: int, seed: int) -> Case:
    """``sum_i w_i log w_i <= bound`` over positive w, nearly at its least value.

    Example:
        >>> entropy(5, 0).constraints["entropy"].value() > 0
        True
    """
    w = leaf(1.0 + numbers(seed, d).abs())
    bound = -0.8 * d / math.e
    inside = 1e-9

    def value(z: Tensor) -> Tensor:
        y = z.clamp(min=inside)  # goes on linearly where the logarithm ends
        return (y * y.log() + (z - y) * (y.log() + 1)).sum()

    return Case(
        [w],
        {"entropy": convex_below(w, value, bound)},
        pieces=lambda z: (value(z) - bound).reshape(1),
    )


def cone(d: int, seed: int) -> Case:
    """``|w[1:]| <= w[0]``, as a function.

    Example:
        >>> cone(5, 0).best > 0
        True
    """
    x = numbers(seed, d, scale=2.0)
    x[0] = 0.2
    size, height = float(x[1:].norm()), float(x[0])
    best = (size - height) / math.sqrt(2.0)
    w = leaf(x)
    return Case(
        [w], {"cone": convex_below(w, lambda z: z[1:].norm() - z[0], 0.0)}, best=best
    )


def divergence(d: int, seed: int) -> Case:
    """The Kullback-Leibler divergence of a softmax from a distribution, at most 0.05.

    Of the fixed distribution p and the logits w: ``log sum_i exp w_i - p @ w - H(p)``,
    convex in w.

    Example:
        >>> divergence(5, 0).constraints["divergence"].value() > 0
        True
    """
    p = numbers(seed, d).softmax(0)
    w, entropy_of_p = leaf(numbers(seed + 1, d, scale=2.0)), -float((p * p.log()).sum())

    def value(z: Tensor) -> Tensor:
        return torch.logsumexp(z, 0) - p @ z - entropy_of_p

    return Case(
        [w],
        {"divergence": convex_below(w, value, 0.05)},
        pieces=lambda z: (value(z) - 0.05).reshape(1),
    )


def semidefinite(n: int, seed: int) -> Case:
    """The least eigenvalue of the symmetric part of an n x n matrix, at least 0.

    Example:
        >>> semidefinite(3, 0).best > 0
        True
    """
    x = numbers(seed, n, n)
    w = leaf(x)

    def value(z: Tensor) -> Tensor:
        least: Tensor = torch.linalg.eigvalsh((z + z.T) / 2)[0]
        return -least

    below = torch.linalg.eigvalsh((x + x.T) / 2).clamp(max=0)
    return Case([w], {"cone": convex_below(w, value, 0.0)}, best=float(below.norm()))


def thin(kind: str, seed: int) -> Case:
    """Sets with one point, with hardly an inside, or with sharp edges.

    Example:
        >>> thin("thin slab", 0).best > 0
        True
    """
    d = 5
    x = numbers(seed, d, scale=3.0)
    w, e = leaf(x), torch.eye(d, dtype=torch.float64)[0]
    if kind == "thin slab":
        a, width = numbers(seed + 1, d), 1e-6
        a /= a.norm()
        level = float(a @ x)
        best = abs(level) - width
        two: dict[str, AbstractTerm] = {
            "above": convex_below(w, lambda z: a @ z, width),
            "below": convex_below(w, lambda z: -(a @ z), width),
        }
        return Case([w], two, best=best)
    if kind == "shell undeclared":
        two = {
            "outside": below_zero(w, lambda z: z.norm() - 1.0 - 1e-4),
            "inside": below_zero(w, lambda z: 1.0 - z.norm()),
        }
        return Case([w], two, best=abs(float(x.norm()) - 1.0 - 1e-4))
    apart = {"touching balls": 1.0 - 1e-9, "lens": 0.9}[kind]
    two = {
        "left": convex_below(w, lambda z: (z + apart * e).norm(), 1.0),
        "right": convex_below(w, lambda z: (z - apart * e).norm(), 1.0),
    }
    return Case([w], two, best=_lens_distance(x, apart))


def _lens_distance(x: Tensor, apart: float) -> float:
    """The distance to the points within 1 of both ``-apart e`` and ``apart e``.

    The nearest point of one ball, if the other has it too; else one of the rim.
    """
    e = torch.eye(len(x), dtype=torch.float64)[0]
    for side in (apart * e, -apart * e):
        near = side + (x - side) / max(1.0, float((x - side).norm()))
        if (near + side).norm() <= 1.0:
            return float((x - near).norm())
    across = x - x[0] * e
    rim = across * (math.sqrt(1.0 - apart**2) / float(across.norm()))
    return float((x - rim).norm())


def empty(kind: str, seed: int) -> Case:
    """Constraints that exclude each other, or a cap below the least value.

    Example:
        >>> empty("balls", 0).empty
        True
    """
    d = 5
    x = numbers(seed, d, scale=3.0)
    w, e = leaf(x), torch.eye(d, dtype=torch.float64)[0]
    if kind == "balls":
        two = {
            "left": convex_below(w, lambda z: (z + 1.2 * e).norm(), 1.0),
            "right": convex_below(w, lambda z: (z - 1.2 * e).norm(), 1.0),
        }
        return Case([w], two, empty=True)
    if kind == "halfspaces":
        three = {
            f"side {j}": convex_below(w, partial(torch.dot, a), -0.5)
            for j, a in enumerate((e.roll(1) - e, -e.roll(1) - e, e))
        }
        return Case([w], three, empty=True)
    if kind == "outside a box":
        two = {
            "size": below_zero(w, lambda z: 4.0 - (z**2).sum()),
            "box": Box(lower=-0.5, upper=0.5).on(w),
        }
        return Case([w], two, empty=True)
    inputs, y, _ = linear_data(seed, d)
    y[: EXAMPLES // 4] *= -1  # a quarter is wrong: the risk cannot be small
    term = mean(
        lambda batch: softplus(-batch[1] * (batch[0] @ w)),
        data=(inputs, y),
        curvature=None if kind == "risk undeclared" else "convex",
    )
    return Case([w], {"risk": term <= IMPOSSIBLE}, empty=True)
