"""What counts as 1 in each parameter: for SLSQP, whose first model of f is a sphere.

The weight of a feature in the thousands and that of a ratio beside it are a thousand
times apart. In a loss that is a mean, the gradients of single examples show it: the
weight of a feature has a gradient in proportion to that feature. With ``f_i`` and
``h_i`` the value and the gradient of example i, parameter k gets the unit

    ``t / s_k``,   ``s_k^2 = mean_i h_ik^2 / (mean_i |f_i|)^2``, summed over the terms,

and t is that of a first step along the gradient to where f would be least if its
curvature was ``mean_i h_i h_i' / mean_i |f_i|``. So it is for least squares and,
nearly, for the logarithm of a probability. Whatever the units of features, targets and
terms, SLSQP then begins the same; correlations it learns by itself. Where the objective
has no examples, or says nothing about t, the units have the geometric mean 1.

In a network the gradients of a layer have the size of the weights behind it, which is
no unit: with a last layer near zero the first would go astray. Such sizes change as
soon as the parameters move, by ``CHANGE`` within a unit. Then all units are 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oneproj.arrays import Array
from oneproj.flat import flat, unflat
from oneproj.parameters import Vector, assign, dimension, snapshot
from oneproj.problem import Problem
from oneproj.results import Counts
from oneproj.terms.base import AbstractTerm
from oneproj.terms.modes import evaluating

EXAMPLES = 256
"""Looked at, of all terms together: the sizes of features need no more."""
CHANGE = 10.0
"""Of one size relative to another, within a unit: those of features do not change."""


def parameter_units(problem: Problem, counts: Counts) -> Array:
    """The unit of each parameter, where the parameters are; 1 where nothing tells.

    Example:
        >>> import oneproj
        >>> x = torch.tensor([[1.0, 100.0], [-1.0, 100.0], [1.0, -100.0]])
        >>> w = torch.zeros(2, requires_grad=True)
        >>> loss = oneproj.mean(lambda batch: (batch @ w - 1.0).square(), data=x)
        >>> units = parameter_units(oneproj.Problem(w, loss, {}), Counts())
        >>> round(units[0] / units[1])
        100
    """
    squares, objective = _sizes(problem, counts)
    if not squares.any():
        return np.ones_like(squares)
    usual = math.exp(np.log(squares[squares > 0]).mean() / 2)
    units: Array = 1.0 / np.where(squares > 0, np.sqrt(squares), usual)
    length = 0.0 if objective is None else _first_step(objective, units)
    units *= length if 0 < length < math.inf else usual
    return (
        units
        if _stay_in_proportion(problem, counts, units, squares)
        else np.ones_like(units)
    )


def _sizes(problem: Problem, counts: Counts) -> tuple[Array, _Look | None]:
    """The squares of all s_k, and what was seen of the objective."""
    terms = [problem.objective, *problem.constraints.values()]
    sampled = [term for term in terms if term.size is not None]
    squares, objective = np.zeros(dimension(problem.parameters)), None
    for term in sampled:
        mine = term is problem.objective
        counts.objective_gradients += mine
        counts.constraint_gradients += not mine
        try:
            with evaluating(problem.model):
                seen = _look(term, problem.parameters, EXAMPLES // len(sampled) + 1)
        except (RuntimeError, ValueError):
            continue  # a compiled graph goes backward only once, for example
        with np.errstate(all="ignore"):
            each = np.square(seen.slopes / seen.size).mean(0)
        if np.isfinite(each).all():  # what is wrong otherwise shows in full passes
            squares += each
            objective = seen if mine else objective
    return squares, objective


def _stay_in_proportion(
    problem: Problem, counts: Counts, units: Array, squares: Array
) -> bool:
    """Whether sizes keep their ratios after a move by one unit in each parameter."""
    start = snapshot(problem.parameters)
    there = unflat(flat(start) + units, start)
    try:
        assign(problem.parameters, there)
        then, _ = _sizes(problem, counts)
    finally:
        assign(problem.parameters, start)
    change = then[squares > 0] / squares[squares > 0]
    # Where nothing has a gradient, as beyond a hinge, nothing tells.
    return bool(change.max() <= CHANGE**2 * change.min())


class _Look(NamedTuple):
    values: Array
    slopes: Array
    """One row per example."""

    @property
    def size(self) -> float:
        return float(np.abs(self.values).mean())


def _first_step(seen: _Look, units: Array) -> float:
    """How far to go along the gradient; not less than noise alone would say."""
    with np.errstate(all="ignore"):  # who asks looks at what came out
        slopes = seen.slopes * units
        g = slopes.mean(0)
        noise = np.linalg.norm(slopes) / len(slopes)
        steepness, along = np.linalg.norm(g), np.square(slopes @ g).mean()
        return float(seen.size * max(steepness, noise) * (steepness**2 / along))


@torch.enable_grad()
def _look(term: AbstractTerm, parameters: Vector, most: int) -> _Look:
    """The values of some examples of a term, and their gradients."""
    size, like = term.size or 0, list(parameters)
    indices = torch.arange(0, size, math.ceil(size / most), device="cpu")
    values = term.examples(indices)
    if not values.requires_grad:
        return _Look(flat([values]), np.zeros((len(indices), dimension(like))))
    rows = []
    for value in values:
        parts = torch.autograd.grad(value, like, retain_graph=True, allow_unused=True)
        rows.append(flat([_dense(h, p) for h, p in zip(parts, like, strict=True)]))
    return _Look(flat([values]), np.stack(rows))


def _dense(part: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if part is None else part.to_dense()
