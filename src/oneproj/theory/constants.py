"""The constants of the assumptions: what has to be known about a problem.

Implements the assumptions of the paper's section "Main Results" (ass:convex,
ass:convex-smooth, ass:nonconvex) and the constants that its appendices "Proofs for
Convex Constraints" and "Proofs for Nonconvex Constraints" derive from them.

The paper works on the unit ball. Here a ball of any radius R is allowed, and every
derived constant is given in the user's coordinates x = c + R u; at R = 1 each formula
is the paper's. Where the centre c lies changes no constant. `on_unit_ball` returns the
constants of u -> f(c + R u), u -> g(c + R u), to which the theorems apply.
"""

from __future__ import annotations

from dataclasses import dataclass

from oneproj.errors import InvalidScheduleError
from oneproj.theory.assumptions import check_slopes, check_values


@dataclass(frozen=True, kw_only=True)
class ConvexConstants:
    """The constants of ass:convex: weakly convex objective, convex constraint.

    Attributes:
        weak_convexity: ell > 0 such that f + ell/2 |x|^2 is convex; for Theorem
            thm:convex-smooth also a Lipschitz constant of the gradient of f.
        gradient_bound: G_f, a Lipschitz constant of f on the ball that also bounds the
            norm of every stochastic subgradient, almost surely.
        constraint_gradient_bound: G_g >= |grad g(x)| for x in the ball.
        boundary_slope: sigma <= |grad g(z)| wherever g(z) = 0 in the ball.
        initial_gap: Delta_f = f(x_0) - min f over the ball, or an upper bound. None
            means the bound that always holds, 2 G_f R.
        radius: R, the radius of the safeguard ball.

    Raises:
        InvalidProblemError: a value is not finite and positive (the gap may be 0), or
            sigma > G_g, which no g allows.

    Example:
        >>> constants = ConvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     boundary_slope=3.0,
        ... )
        >>> constants.proximal_lipschitz, constants.strength, constants.gap_bound
        (6.0, 4.0, 4.0)
    """

    weak_convexity: float
    gradient_bound: float
    constraint_gradient_bound: float
    boundary_slope: float
    initial_gap: float | None = None
    radius: float = 1.0

    def __post_init__(self) -> None:
        """Validate: ass:convex with the numbers given."""
        check_values(self)
        check_slopes(self, ("boundary_slope",))

    def on_unit_ball(self) -> ConvexConstants:
        """Return the constants of the same problem seen through x = c + R u.

        First derivatives gain a factor R, second derivatives R^2, values none.

        Example:
            >>> ConvexConstants(
            ...     weak_convexity=1.0,
            ...     gradient_bound=2.0,
            ...     constraint_gradient_bound=4.0,
            ...     boundary_slope=3.0,
            ...     radius=10.0,
            ... ).on_unit_ball().weak_convexity
            100.0
        """
        R = self.radius
        return ConvexConstants(
            weak_convexity=self.weak_convexity * R * R,
            gradient_bound=self.gradient_bound * R,
            constraint_gradient_bound=self.constraint_gradient_bound * R,
            boundary_slope=self.boundary_slope * R,
            initial_gap=self.initial_gap,
        )

    @property
    def gap_bound(self) -> float:
        """Delta_f, or 2 G_f R when no gap was given (end of app:convex-schedule)."""
        if self.initial_gap is None:
            return 2.0 * self.gradient_bound * self.radius
        return self.initial_gap

    @property
    def proximal_lipschitz(self) -> float:
        """G_F = G_f + 4 ell R, for f + ell |x - x_t|^2 (eq. convex-error-constants)."""
        return self.gradient_bound + 4.0 * self.weak_convexity * self.radius

    @property
    def strength(self) -> float:
        """lambda_0 = 2 G_F / sigma, the exact-penalty weight (eq. convex-settings)."""
        return 2.0 * self.proximal_lipschitz / self.boundary_slope

    @property
    def subproblem_gradient_bound(self) -> float:
        """G_H = G_F + lambda_0 G_g (eq. convex-error-constants)."""
        return self.proximal_lipschitz + self.strength * self.constraint_gradient_bound


@dataclass(frozen=True, kw_only=True)
class NonconvexConstants:
    """The constants of ass:nonconvex: nonconvex constraint, infeasible start.

    Attributes:
        weak_convexity: ell > 0 such that f + ell/2 |x|^2 is convex.
        gradient_bound: G_f, a Lipschitz constant of f on the ball that also bounds the
            norm of every stochastic subgradient, almost surely.
        constraint_gradient_bound: G_g >= |grad g(x)| for x in the ball.
        constraint_smoothness: L_g, a Lipschitz constant of grad g.
        boundary_slope: sigma_bd <= |grad g(z)| wherever g(z) = 0 (eq. boundary-cq).
        infeasible_slope: sigma_out <= dist(0, grad g(x) + N_B(x)) wherever g(x) > 0
            in the ball (eq. infeasible-slope).
        initial_gap: an upper bound on Delta_lambda = Psi(x_0) - min Psi over the ball,
            Psi = f + lambda [g]_+, for the lambda of the schedule. None means the
            bound that always holds, 2 G_lambda R.
        radius: R, the radius of the safeguard ball.

    Raises:
        InvalidProblemError: a value is not finite and positive (the gap may be 0), a
            slope exceeds G_g, or a slope is not below L_g R, which no g allows.

    Example:
        >>> constants = NonconvexConstants(
        ...     weak_convexity=1.0,
        ...     gradient_bound=2.0,
        ...     constraint_gradient_bound=4.0,
        ...     constraint_smoothness=4.0,
        ...     boundary_slope=2.0,
        ...     infeasible_slope=1.0,
        ... )
        >>> constants.tube_radius, constants.feasibility_margin(strength=5.0)
        (0.5, 3.0)
    """

    weak_convexity: float
    gradient_bound: float
    constraint_gradient_bound: float
    constraint_smoothness: float
    boundary_slope: float
    infeasible_slope: float
    initial_gap: float | None = None
    radius: float = 1.0

    def __post_init__(self) -> None:
        """Validate: ass:nonconvex with the numbers given."""
        check_values(self)
        slopes = ("boundary_slope", "infeasible_slope")
        check_slopes(self, slopes, reach=self.constraint_smoothness * self.radius)

    def on_unit_ball(self) -> NonconvexConstants:
        """Return the constants of the same problem seen through x = c + R u.

        First derivatives gain a factor R, second derivatives R^2, values none.
        """
        R = self.radius
        return NonconvexConstants(
            weak_convexity=self.weak_convexity * R * R,
            gradient_bound=self.gradient_bound * R,
            constraint_gradient_bound=self.constraint_gradient_bound * R,
            constraint_smoothness=self.constraint_smoothness * R * R,
            boundary_slope=self.boundary_slope * R,
            infeasible_slope=self.infeasible_slope * R,
            initial_gap=self.initial_gap,
        )

    @property
    def tube_radius(self) -> float:
        """sigma_bd / L_g: closer than this, the projection is unique (lem:geometry)."""
        return self.boundary_slope / self.constraint_smoothness

    def penalized_weak_convexity(self, strength: float) -> float:
        """rho_lambda = ell + lambda L_g, the weak convexity of f + lambda [g]_+."""
        return self.weak_convexity + strength * self.constraint_smoothness

    def strong_convexity(self, strength: float, prox_weight: float) -> float:
        """The m = beta - ell - lambda L_g of the inner problem (eq. nc-parameters).

        Raises:
            InvalidScheduleError: It is not positive.
        """
        rho = self.penalized_weak_convexity(strength)
        if prox_weight > rho:
            return prox_weight - rho
        message = (
            "prox_weight > weak_convexity + strength * constraint_smoothness fails: "
            f"{prox_weight} <= {rho}.\n"
            "Otherwise the inner problem is not strongly convex (eq. nc-parameters). "
            "Try: a larger prox_weight, such as twice the right-hand side."
        )
        raise InvalidScheduleError(message)

    def penalized_lipschitz(self, strength: float) -> float:
        """G_lambda = G_f + lambda G_g, a Lipschitz constant of f + lambda [g]_+."""
        return self.gradient_bound + strength * self.constraint_gradient_bound

    def subproblem_gradient_bound(self, strength: float, prox_weight: float) -> float:
        """G_H = G_lambda + 2 beta R, for every inner stochastic subgradient."""
        return self.penalized_lipschitz(strength) + 2.0 * prox_weight * self.radius

    def feasibility_margin(self, strength: float) -> float:
        """h_feas = lambda sigma_out - G_f.

        A penalty residual below it forces the proximal witness to be feasible
        (lem:nc-transfer).
        """
        return strength * self.infeasible_slope - self.gradient_bound

    def gap_bound(self, strength: float) -> float:
        """Delta_lambda, or 2 G_lambda R when no gap was given (end of app. C)."""
        if self.initial_gap is None:
            return 2.0 * self.penalized_lipschitz(strength) * self.radius
        return self.initial_gap
