"""The problems of Theorems 1 and 2: the feasible set is a disc."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oneproj.theory import ConvexConstants, Schedule, convex_schedule
from oneproj.vectors.arithmetic import Array, Mask
from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.objectives import length
from oneproj_paper.laboratory.proximal import constrained_prox
from oneproj_paper.laboratory.shapes import Disc


@dataclass(frozen=True, kw_only=True)
class AbstractConvexProblem(AbstractLaboratoryProblem):
    """What Theorems 1 and 2 share: the disc, the constants, the schedule."""

    disc: Disc

    @property
    def set(self) -> Disc:
        """The feasible disc."""
        return self.disc

    @cached_property
    def constants(self) -> ConvexConstants:
        """The constants of ass:convex, all in closed form."""
        f, x_0 = self.objective, self.start_point
        return ConvexConstants(
            weak_convexity=max(f.weak_convexity, f.curvature),
            gradient_bound=self.gradient_bound,
            constraint_gradient_bound=self.disc.gradient_bound,
            boundary_slope=self.disc.boundary_slope,
            initial_gap=float(f.value(x_0)) - f.minimum,
        )

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of eq. cv-schedule with the smallest K."""
        return convex_schedule(self.constants, self.epsilon, inner_steps="smallest")

    @abstractmethod
    def measure_at(self, x: Array) -> Array:
        """The measure at feasible points."""

    def measure(self, x: Array) -> Array:
        """The measure at the projection of x, which is what would be returned."""
        return self.measure_at(self.disc.project(x))

    def achieved(self, selected: Array, output: Array) -> Array:
        """The measure at the output."""
        del selected  # these theorems bound the output alone
        return self.measure_at(output)

    def meets(self, selected: Array, output: Array) -> Mask:
        """Feasible, and measure <= epsilon."""
        feasible = self.disc.value(output) <= 0
        return feasible & (self.achieved(selected, output) <= self.epsilon)


@dataclass(frozen=True, kw_only=True)
class SmoothProblem(AbstractConvexProblem):
    """Theorem 1 (thm:convex-smooth): smooth nonconvex objective, convex set.

    Example:
        >>> from oneproj_paper.laboratory.problems import smooth_problem
        >>> problem = smooth_problem()
        >>> problem.start_measure > problem.epsilon
        True
        >>> problem.measure_at(problem.solutions).round(12)
        array([0., 0.])
    """

    @property
    def measure_name(self) -> str:
        """The projected-gradient mapping."""
        return "G_ell"

    @property
    def solutions(self) -> Array:
        """The two minimisers: on the circle f is convex in x_1, least at a/2."""
        x_1 = 0.5 * self.objective.center
        height = self.disc.height(x_1)
        return np.array([[x_1, height], [x_1, -height]])

    def measure_at(self, x: Array) -> Array:
        """G_ell(x) = ell |x - P(x - grad f(x) / ell)| (eq. gradient-mapping)."""
        ell = self.constants.weak_convexity
        moved = self.disc.project(x - self.objective.gradient(x) / ell)
        return ell * length(x - moved)


@dataclass(frozen=True, kw_only=True)
class NonsmoothProblem(AbstractConvexProblem):
    """Theorem 2 (thm:convex-nonsmooth): nonsmooth weakly convex, convex set.

    Example:
        >>> from oneproj_paper.laboratory.problems import nonsmooth_problem
        >>> problem = nonsmooth_problem()
        >>> problem.start_measure > problem.epsilon
        True
        >>> problem.measure_at(problem.solutions).round(12)
        array([0., 0.])
    """

    @property
    def measure_name(self) -> str:
        """The norm of the gradient of the Moreau envelope."""
        return "S_ell"

    @property
    def solutions(self) -> Array:
        """The two minimisers: on the kink, where it meets the circle."""
        a = self.objective.center
        return np.array([[a, self.disc.height(a)], [a, -self.disc.height(a)]])

    def measure_at(self, x: Array) -> Array:
        """S_ell(x) = 2 ell |x - Q_ell(x)| (eq. moreau-measure)."""
        ell = self.constants.weak_convexity
        y = constrained_prox(self.objective, self.disc, x, ell)
        return 2.0 * ell * length(x - y)
