"""Who projects: the projectors of this library, and what else one could use."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.instances import LINEAR_CAP, Instance
from benchmarks.watch import TimeUpError
from oneproj.projection.base import AbstractProjector
from oneproj.projection.cuts import Cuts
from oneproj.vectors.arithmetic import Array, assign, distance, flat, unflat
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian
from oneproj_paper.projectors.dual_bisection import DualBisection

TO_THE_END = "cuts, to KKT 1e-6"
"""On networks the default stops where a gradient is not worth what it would gain; this
one goes on to the tolerance, as the exact projections on linear scores do anyway."""
MOST_DENSE = 3000
"""Parameters up to which a method with dense square matrices is tried."""


@dataclass(frozen=True)
class Answer:
    """What a rival left in the parameters, judged outside of it."""

    gradients: int | None
    """Full constraint gradients; None where it has the data and needs none."""
    distance: float
    residual: float
    stopped: bool = False
    """Whether the time limit ended it; then this is how far it came."""


Run = Callable[[], int | None]


def attempt(instance: Instance, run: Run, *, limit: float) -> tuple[Answer, float]:
    """Run once; the answer and its seconds, at most about the limit.

    The limit is noticed at the next gradient.
    """
    instance.watch.start(limit=limit)
    begin, stopped = time.perf_counter(), False
    try:
        gradients = run()
    except TimeUpError:
        gradients = instance.watch.gradients // len(instance.constraints)
        stopped = True
    seconds = time.perf_counter() - begin
    instance.watch.start(limit=math.inf)
    worst = max(c.value() for c in instance.constraints.values())
    moved = distance(instance.parameters, instance.start)
    return Answer(gradients, moved, worst, stopped), seconds


def rivals(instance: Instance) -> dict[str, Run | str]:
    """By name: a run from the start that returns its gradients, or why there is none.

    Example:
        >>> import torch
        >>> from benchmarks.instances import make_instance
        >>> made = make_instance(100, "random", torch.Generator().manual_seed(0))
        >>> rivals(made)["clarabel"]
        'linear scores only'
    """
    found: dict[str, Run | str] = {}
    projectors: tuple[AbstractProjector, ...]
    projectors = Cuts(), AugmentedLagrangian(), DualBisection()
    for projector in projectors:
        reason = projector.accepts(instance.constraints)
        found[projector.name] = (
            _projection(projector, instance) if reason is None else "not convex"
        )
    if instance.scores is None:
        found[TO_THE_END] = _projection(Cuts(min_gain=0), instance)
    for method in ("SLSQP", "trust-constr"):
        gigabytes = 8e-9 * instance.size**2
        found[method] = (
            _scipy(method, instance)
            if instance.size <= MOST_DENSE
            else f"dense matrices of {gigabytes:.3g} GB each"
        )
    if instance.scores is None:
        found["clarabel"] = "linear scores only"
    elif find_spec("cvxpy") is None:
        found["clarabel"] = "cvxpy is not installed"
    else:
        found["clarabel"] = _clarabel(instance, instance.scores)
    return found


def _projection(projector: AbstractProjector, instance: Instance) -> Run:
    def run() -> int:
        instance.reset()
        done = projector.project(instance.parameters, instance.constraints)
        return done.gradients

    return run


def _scipy(method: str, instance: Instance) -> Run:
    """``scipy.optimize.minimize`` with exact gradients; it counts their points."""
    from scipy.optimize import NonlinearConstraint, minimize

    start = flat(instance.start)

    def run() -> int:
        seen: dict[str, Any] = {"at": None, "looks": 0}

        def look(x: Array) -> tuple[Array, Array]:
            if seen["at"] is None or not np.array_equal(seen["at"], x):
                _write(instance, x)
                found = [
                    c.value_and_gradient(instance.parameters)
                    for c in instance.constraints.values()
                ]
                seen["at"], seen["looks"] = x.copy(), seen["looks"] + 1
                seen["values"] = np.array([value for value, _ in found])
                seen["rows"] = np.stack([flat(g) for _, g in found])
            return seen["values"], seen["rows"]

        limits = NonlinearConstraint(
            lambda x: look(x)[0], -np.inf, 0.0, jac=lambda x: look(x)[1]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its curvature estimates
            found = minimize(
                lambda x: 0.5 * float((x - start) @ (x - start)),
                start,
                jac=lambda x: x - start,
                constraints=[limits],
                method=method,
            )
        _write(instance, found.x)
        return int(seen["looks"])

    return run


def _clarabel(instance: Instance, scores: list[Tensor]) -> Run:
    """Clarabel through cvxpy, given the data; modelling is part of its time."""
    cp: Any = import_module("cvxpy")  # an extra of the tests, and without types

    def run() -> None:
        instance.reset()
        weights = [cp.Variable(p.numel()) for p in instance.parameters]
        half = 0.0
        for w, p in zip(weights, instance.start, strict=True):
            half = half + 0.5 * cp.sum_squares(w - p.numpy())
        caps = [
            cp.sum(cp.logistic(-(x.numpy() @ w))) / len(x) <= LINEAR_CAP
            for w, x in zip(weights, scores, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is inaccurate, its residual tells
            cp.Problem(cp.Minimize(half), caps).solve(solver=cp.CLARABEL)
        _write(instance, np.concatenate([w.value for w in weights]))

    return run


def _write(instance: Instance, x: Array) -> None:
    if np.isfinite(x).all():  # not of a failed solver: the residual tells where it is
        assign(instance.parameters, unflat(x, instance.parameters))
