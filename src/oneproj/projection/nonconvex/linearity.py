"""Whether functions that nothing was declared of are linear, as far as values tell.

A sum of weights beside a simplex is usual, and seldom declared. Within closed-form sets
linear functions take a few gradients; models of both take dozens, for a set has a kink
wherever another of its normals begins to count.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import torch

from oneproj.errors import NonFiniteError
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.descent import NUDGES, nudges
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import Vector, assign, combine, dot, norm

WHOLE = NUDGES.index(1.0)
"""The first random move that is as long as the parameters are, and the next goes the
opposite way: few functions with kinks are linear along both."""


def seems_linear_within_sets(evaluator: Evaluator) -> bool:
    """Whether there are sets, and all else is convex or equals its linearisation.

    That is compared at two random points, the same every time, where only values are
    taken, of what is not declared to be convex: together they count as one evaluation.
    The parameters hold the start before and after.

    Example:
        >>> from oneproj.sets import Simplex
        >>> from oneproj.problem.functions import function
        >>> w = torch.tensor([0.2, 0.8, 0.0], requires_grad=True)
        >>> stated = {"simplex": Simplex(1.0).on(w), "first": function(lambda: w[0])}
        >>> evaluator = Evaluator([w], stated, differentiate_all=True)
        >>> seems_linear_within_sets(evaluator)
        True
    """
    constraints = evaluator.constraints
    unknown = {n: c for n, c in constraints.items() if c.curvature is None}
    sets = {n for n, c in constraints.items() if isinstance(c, SetConstraint)}
    shapes = {c.curvature for c in constraints.values()} - {None}
    if not sets or sets & set(unknown) or not shapes <= {"convex", "linear"}:
        return False
    evaluator.evaluations += 1
    moves = islice(nudges(evaluator), WHOLE, None)
    return all(_is_linear_along(evaluator, unknown, move) for move in moves)


def _is_linear_along(
    evaluator: Evaluator, constraints: Mapping[str, AbstractTerm], move: Vector
) -> bool:
    try:
        assign(evaluator.parameters, combine([1.0, 1.0], [evaluator.origin, move]))
        values = {name: constraint.value() for name, constraint in constraints.items()}
    except (NonFiniteError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        return False
    finally:
        assign(evaluator.parameters, evaluator.origin)
    for name, value in values.items():
        slope = evaluator.first.gradients[name]
        rounding = evaluator.margins[name] + evaluator.share * norm(slope) * norm(move)
        if abs(evaluator.first.values[name] + dot(slope, move) - value) > rounding:
            return False
    return True
