"""The problem of Theorem 3: the feasible set is a disc with a dent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oneproj.theory import NonconvexConstants, Schedule, nonconvex_schedule
from oneproj.vectors.arithmetic import Array, Mask
from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.dent import DentedDisc
from oneproj_paper.laboratory.objectives import length
from oneproj_paper.laboratory.proximal import Witness, penalized_prox

ROUNDING = 1e-9
"""What a witness computed in double precision may miss of an exact equation."""


@dataclass(frozen=True, kw_only=True)
class NonconvexProblem(AbstractLaboratoryProblem):
    """Theorem 3 (thm:nonconvex): nonconvex set, infeasible start, nonsmooth objective.

    Attributes:
        dented: the feasible set.
        margin: h_feas / epsilon; the theorem asks for more than 1.
        stiffness: beta / rho_lambda; the theorem asks for more than 1. About 1.6
            makes T K smallest here.

    Example:
        >>> from oneproj_paper.laboratory.problems import nonconvex_problem
        >>> problem = nonconvex_problem()
        >>> bool(problem.set.value(problem.start_point) > 0)
        True
        >>> problem.start_measure > problem.epsilon
        True
    """

    dented: DentedDisc
    margin: float
    stiffness: float

    @property
    def set(self) -> DentedDisc:
        """The feasible disc with a dent."""
        return self.dented

    @property
    def measure_name(self) -> str:
        """The penalty residual."""
        return "R_{lambda,beta}"

    @property
    def strength(self) -> float:
        """Lambda, such that h_feas = lambda sigma_out - G_f = margin * epsilon."""
        h_feas = self.margin * self.epsilon
        return (self.gradient_bound + h_feas) / self.dented.infeasible_slope

    @cached_property
    def constants(self) -> NonconvexConstants:
        """The constants of ass:nonconvex.

        The gap is bounded by dropping the penalty, which is >= 0, at the minimum.
        """
        f, x_0 = self.objective, self.start_point
        excess = max(float(self.dented.value(x_0)), 0.0)
        return NonconvexConstants(
            weak_convexity=f.weak_convexity,
            gradient_bound=self.gradient_bound,
            constraint_gradient_bound=self.dented.gradient_bound,
            constraint_smoothness=self.dented.smoothness,
            boundary_slope=self.dented.boundary_slope,
            infeasible_slope=self.dented.infeasible_slope,
            initial_gap=float(f.value(x_0)) + self.strength * excess - f.minimum,
        )

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of eq. nc-schedule with the smallest K."""
        rho = self.constants.penalized_weak_convexity(self.strength)
        return nonconvex_schedule(
            self.constants,
            self.epsilon,
            strength=self.strength,
            prox_weight=self.stiffness * rho,
            inner_steps="smallest",
        )

    @property
    def solutions(self) -> Array:
        """The points where the kink of f meets the boundary, above and below."""
        a = self.objective.center
        found = []
        for outside in (1.0, -1.0):
            low, high = 0.0, outside
            for _ in range(100):
                middle = 0.5 * (low + high)
                inside = self.dented.value(np.array([a, middle])) <= 0
                low, high = (middle, high) if inside else (low, middle)
            found.append([a, low])
        return np.array(found)

    def witness(self, x: Array) -> Witness:
        """The proximal point of the penalised objective, with v and mu."""
        schedule = self.schedule
        return penalized_prox(
            self.objective,
            self.dented,
            x,
            strength=schedule.strength,
            prox_weight=schedule.prox_weight,
        )

    def measure(self, x: Array) -> Array:
        """R_{lambda,beta}(x) = beta |x - Q_{lambda,beta}(x)| (eq. nc-residual)."""
        return self.witness(x).residual

    def achieved(self, selected: Array, output: Array) -> Array:
        """The penalty residual at the selected iterate."""
        del output  # the theorem bounds the residual before the projection
        return self.measure(selected)

    def meets(self, selected: Array, output: Array) -> Mask:
        """Every claim of eq. nc-guarantee, at the witness of the selected iterate."""
        eps, beta, found = (
            self.epsilon,
            self.schedule.prox_weight,
            self.witness(selected),
        )
        kkt = found.v + found.mu[..., None] * self.dented.gradient(found.y)
        g_y = self.dented.value(found.y)
        tube = self.constants.tube_radius
        moved = length(output - selected)
        claims: Mask = np.stack(
            [
                self.dented.value(output) <= 0,
                moved < tube,  # inside the tube the projection is unique
                found.residual <= eps,
                found.error <= ROUNDING,
                length(found.y) < 1,
                g_y <= ROUNDING,
                length(output - found.y) <= 2 * eps / beta + ROUNDING,
                length(kkt) <= eps + ROUNDING,
                np.abs(found.mu * g_y) <= ROUNDING,
                (found.mu >= 0) & (found.mu <= self.schedule.strength),
            ]
        )
        return np.asarray(claims.all(axis=0))
