"""Feasibility, and what every certificate needs to evaluate at other points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.problem.float64 import check_in_float64, warn_if_signs_differ
from oneproj.problem.problem import Problem
from oneproj.rates.correction import has_rates, smooth
from oneproj.results import Measure
from oneproj.vectors.arithmetic import (
    Vector,
    assign,
    difference,
    is_finite,
    norm,
    offset,
    rounding_unit,
    snapshot,
)


@contextmanager
def borrowed(parameters: Vector) -> Iterator[list[Tensor]]:
    """Allow a block to move the parameters; restore them bit for bit, also on errors.

    Yields the point that they held, as a copy in float64: a certificate computes in
    double precision whatever the model's dtype.

    Raises:
        NonFiniteError: The point itself is not finite.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> with borrowed([w]) as x:
        ...     assign([w], [torch.zeros(2)])
        >>> w.tolist(), x[0].dtype
        ([1.0, 1.0], torch.float64)
    """
    require_finite(parameters)
    bits = snapshot(parameters)
    try:
        yield doubled(bits)
    finally:
        assign(parameters, bits)


def require_finite(parameters: Vector) -> None:
    """Refuse a point with NaN or infinite entries.

    Example:
        >>> require_finite([torch.zeros(2)])
    """
    if not is_finite(parameters):
        quantity = "a parameter of the point to be certified"
        raise NonFiniteError(quantity)


def doubled(vector: Vector) -> list[Tensor]:
    """Return a copy in float64.

    Example:
        >>> doubled([torch.ones(1)])[0].dtype
        torch.float64
    """
    return [tensor.detach().to(torch.float64, copy=True) for tensor in vector]


def outward(point: Vector, center: Vector | None) -> tuple[float, list[Tensor]]:
    """Return the distance from the ball's center, and the unit vector away from it.

    Example:
        >>> outward([torch.tensor([0.0, 2.0])], None)
        (2.0, [tensor([0., 1.])])
    """
    offset = snapshot(point) if center is None else difference(point, center)
    length = norm(offset)
    if length > 0:
        torch._foreach_div_(offset, length)
    return length, offset


def like(vector: Vector, parameters: Vector) -> list[Tensor]:
    """Return the vector in the parameters' dtypes and on their devices.

    Example:
        >>> like([torch.ones(1, dtype=torch.float64)], [torch.zeros(1)])[0].dtype
        torch.float32
    """
    return [v.detach().to(p) for v, p in zip(vector, parameters, strict=True)]


def is_on_ball(problem: Problem, point: Vector) -> bool:
    """Return whether a point lies on the safeguard ball's surface, or outside.

    Within ``4 sqrt(rounding)`` of the radius: as near as an optimiser comes.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> is_on_ball(oneproj.Problem(w, oneproj.function(w.sum), {}, radius=1.0), [w])
        True
    """
    if math.isinf(problem.radius):
        return False
    near = 4.0 * math.sqrt(rounding_unit(problem.parameters))
    return outward(point, problem.center)[0] >= problem.radius * (1.0 - near)


def feasibility(problem: Problem) -> Measure:
    """Return the worst residual ``max_j c_j(x)`` on all data, to be compared with 0.

    Feasible means <= 0, without a tolerance. Without constraints the value is -inf.
    Where the model computes in less than float64, the details have the residuals in
    float64 as well, or the reason why they could not be computed; if a sign differs, a
    warning names the constraint. All theorems promise a feasible output.

    **Cost.** One pass over the data of every constraint, two below float64.

    Raises:
        NonFiniteError: A constraint's value is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: w.sum()),
        ...     {"size": oneproj.function(lambda: w.norm()) <= 5.0})
        >>> measure = feasibility(problem)
        >>> measure.value, measure.holds, measure.details["worst constraint"]
        (0.0, True, 'size')
    """
    # The model's own dtype comes last: a function may keep tensors between calls.
    wide = check_in_float64(problem.parameters, problem.constraints)
    residuals = problem.residuals()
    warn_if_signs_differ(residuals, wide.residuals)
    worst = max(residuals, key=lambda name: residuals[name], default=None)
    return Measure(
        "feasibility",
        -math.inf if worst is None else residuals[worst],
        bound=0.0,
        source="all constraints on all data",
        details={
            "residuals": residuals,
            "worst constraint": worst,
            "distance outside the safeguard ball": ball_excess(problem),
            "residuals in float64": wide.residuals,
            "not checked in float64": wide.reasons,
            "constraint passes": len(residuals)
            + len(wide.residuals)
            + len(wide.reasons),
        },
    )


def surrogate_measure(problem: Problem) -> list[Measure]:
    """Return the worst residual with sigmoids in place of decisions, if there are any.

    It is what an update sees slopes of. No bound applies to it: feasibility is about
    the counts.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1, requires_grad=True)
        >>> surrogate_measure(oneproj.Problem(w, oneproj.function(w.sum), {}))
        []
    """
    found = {
        name: smooth(c).value()
        for name, c in problem.constraints.items()
        if has_rates(c)
    }
    if not found:
        return []
    source = "sigmoids in place of decisions; the counts are what has to hold"
    details = {"residuals": found, "constraint passes": 2 * len(found)}
    worst = max(found.values())
    return [Measure("surrogate of rates", worst, source=source, details=details)]


def ball_excess(problem: Problem) -> float:
    """Return how far the point is outside the safeguard ball beyond rounding, else 0.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> ball_excess(oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0))
        1.0
    """
    if math.isinf(problem.radius):
        return 0.0
    excess = norm(offset(problem.parameters, problem.center)) - problem.radius
    noise = 4.0 * math.sqrt(rounding_unit(problem.parameters)) * problem.radius
    return excess if excess > noise else 0.0


def ball_measure(problem: Problem) -> list[Measure]:
    """Return a row for a point outside the safeguard ball, and no row for others.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0)
        >>> [measure.holds for measure in ball_measure(problem)]
        [False]
    """
    excess = ball_excess(problem)
    if excess == 0.0:
        return []
    source = "|x - center| - radius"
    return [Measure("safeguard ball", excess, bound=0.0, source=source)]
