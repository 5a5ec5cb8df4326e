"""The laboratory problems as problems of the library, for its optimiser and judges."""

from __future__ import annotations

from torch import Tensor

from oneproj.problem.functions import function
from oneproj.problem.problem import Problem
from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.dent import DentedDisc


def objective_value(problem: AbstractLaboratoryProblem, w: Tensor) -> Tensor:
    """f(w) without noise, differentiable.

    Example:
        >>> import torch
        >>> from oneproj_paper.laboratory.problems import smooth_problem
        >>> w = torch.tensor([0.9, 1.0], dtype=torch.float64)
        >>> round(objective_value(smooth_problem(), w).item(), 6)
        -0.285
    """
    c, k, a, ell = problem.objective.parameters
    d = w[0] - a
    return 0.5 * c * d * d + k * d.abs() - 0.5 * ell * w[1] * w[1]


def constraint_value(problem: AbstractLaboratoryProblem, w: Tensor) -> Tensor:
    """g(w), differentiable.

    Example:
        >>> import torch
        >>> from oneproj_paper.laboratory.problems import smooth_problem
        >>> w = torch.tensor([0.0, 1.0], dtype=torch.float64)
        >>> round(constraint_value(smooth_problem(), w).item(), 6)
        0.04
    """
    set_, square = problem.set, w.square().sum()
    if isinstance(set_, DentedDisc):
        half, height, peak, narrow = set_.parameters
        away = w[0].square() + (w[1] - peak).square()
        return 0.5 * square - half + height / (1.0 + narrow * away)
    r = set_.radius
    if square <= r * r:
        return (square - r * r) * (0.5 / r)
    return square.sqrt() - r


def as_problem(problem: AbstractLaboratoryProblem, w: Tensor) -> Problem:
    """Return the laboratory problem over the tensor w, of shape (2,).

    Example:
        >>> import torch
        >>> from oneproj_paper.laboratory.problems import nonconvex_problem
        >>> w = torch.tensor([0.05, 0.93], dtype=torch.float64, requires_grad=True)
        >>> as_problem(nonconvex_problem(), w).residuals()["shape"] > 0
        True
    """
    return Problem(
        w,
        objective=function(lambda: objective_value(problem, w)),
        constraints={"shape": function(lambda: constraint_value(problem, w)) <= 0.0},
        radius=1.0,
    )
