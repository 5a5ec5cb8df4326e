"""The points that a reference projector visits, judged by the paper's tolerance.

The paper (appendix on experimental details) calls a point feasible when its residuals
are at most a tolerance of 1e-5; this library means <= 0. Both are served by one shift:
aimed at ``c_j <= -tolerance``, what the paper accepts is ``c_j <= 0``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from oneproj.problem.terms import AbstractTerm
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.report import describe
from oneproj.results import Projection
from oneproj.vectors.arithmetic import Vector, assign, combined_norm, distance, snapshot


class VisitedPoints:
    """Counts the looks and remembers the best point, from the start onwards.

    Args:
        parameters: Hold the start now, and the best point after ``report``.
        constraints: Name to constraint.
        tolerance: What the paper accepts as feasible.
        strict: Aim inside by the tolerance, so that accepted means <= 0.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0], requires_grad=True)
        >>> cap = {"w": oneproj.function(w.sum) <= 1.0}
        >>> visited = VisitedPoints([w], cap, 1e-5, strict=True)
        >>> assign([w], [torch.tensor([0.5])]); visited.visit().worst
        -0.5
        >>> visited.accepted, visited.report().distance, visited.report().gradients
        (True, 1.5, 2)
    """

    def __init__(
        self,
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        tolerance: float,
        *,
        strict: bool,
    ) -> None:
        """Take the first look."""
        self.evaluator = Evaluator(parameters, constraints, differentiate_all=True)
        self.shift = tolerance if strict else 0.0
        """Added to every residual: the aim is ``c_j + shift <= 0``."""
        self.slack = tolerance - self.shift
        """The residual up to which a point is accepted."""
        self.best, self.best_point = self.evaluator.first, self.evaluator.origin
        self._best_distance = 0.0

    @property
    def accepted(self) -> bool:
        """Whether the best point so far is feasible within the slack."""
        return self.best.worst <= self.slack

    def visit(self, only: str | None = None) -> Evaluation:
        """Look where the parameters are, and remember the point if it is the best.

        Args:
            only: The constraint whose gradient is wanted; None for all.
        """
        seen = self.evaluator.evaluate(only)
        # Before a point is accepted the distance does not matter.
        far = math.inf
        if seen.worst <= self.slack:
            far = distance(self.evaluator.parameters, self.evaluator.origin)
        if self._is_better(seen, far):
            self.best, self.best_point = seen, snapshot(self.evaluator.parameters)
            self._best_distance = far
        return seen

    def report(
        self,
        *,
        multipliers: Mapping[str, float] | None = None,
        kkt_residual: float = 0.0,
        lower_bound: float | None = None,
    ) -> Projection:
        """Make the parameters hold the best point, and describe it honestly."""
        evaluator = self.evaluator
        assign(evaluator.parameters, self.best_point)
        return describe(
            evaluator,
            self.best,
            combined_norm([1.0, -1.0], [evaluator.parameters, evaluator.origin]),
            multipliers=multipliers,
            kkt_residual=kkt_residual,
            lower_bound=lower_bound,
        )

    def _is_better(self, seen: Evaluation, far: float) -> bool:
        """Accepted points are ranked by distance, others by their worst residual."""
        if seen.worst > self.slack or not self.accepted:
            return seen.worst < self.best.worst
        return far < self._best_distance
