"""Every number that the certificates choose, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerances:
    """Numbers of the certificates: unit, meaning, source.

    "Rule" marks a choice that no result depends on to first order; "tests" names the
    test file in ``tests/certificates`` that fails if the number is far off. A rounding
    is the relative rounding error of the parameters' dtype.

    Attributes:
        kkt_reach: Share of the point's length. A constraint farther away than this gets
            no multiplier. Rule; tests: kkt.
        shortest_point: Share of ``min(1, radius)``. A shorter point counts as this
            long. Rule.
        set_rounds: Rounds in which closed-form sets are asked for one more normal. A
            few suffice; the limit bounds the cost. Tests: kkt_sets.
        negligible_normal: Share of the reach. A normal that shortens the step by less
            changes nothing. Tests: kkt_sets.
        max_iterations: Steps of the cutting-plane method. The error says what they
            achieved. Tests: strongly_convex.
        relative_error: Target for the error, as a share of the distance to the proximal
            point. Rule.
        absolute_error: Target for the error, as a share of the radius. Rule.
        stalled_steps: Steps without a smaller error after which rounding is the limit.
            Rule.
        pull_overshoot: Share by which an infeasible point is moved farther inside than
            convexity asks for; multiplied by 8 with every attempt. Rule.
        pulls: Attempts to move an infeasible point inside. Rule.
        idle_cuts: Cuts without weight that are kept. More cost memory, fewer cost
            steps. Tests: strongly_convex.
        refuted_cut: Roundings. A cut that lies higher above its function refutes a
            claimed constant. Tests: moreau, penalty_residual.
        sqp_dimension: Numbers in the parameters up to which SLSQP suggests a point; its
            dense matrices cost more than they save beyond. Rule.
        sqp_evaluations: Evaluations of SLSQP, at most, beyond 4 per dimension. Rule.
        interior_weights: Proximal weights, in units of slope over distance, with which
            an interior point is searched for: from near to far. Tests: moreau.
        interior_iterations: Steps of the cutting-plane method for each weight. Rule.
        directions: Random directions, each with its opposite, in which the assumptions
            of a theorem are tested. Tests: withdrawal.
        boundary_segments: Segments on which these tests look for the boundary. Rule.
        bisections: Halvings after which two points are neighbours in float64.
        gradient_jump: Share of the largest gradient. A smaller change between
            neighbours is no jump. Tests: withdrawal.
        convexity_excess: Share of its terms by which a linearisation must exceed a
            value to refute convexity. Tests: withdrawal.
        inside: Distance of the tested points from the centre, in radii. Rule.
        outside: Distances from the centre, in radii, at which no point may be feasible.
            Rule.
        slope_samples: Points that the slope check draws by volume. Tests: slope.
        descents: Lowest samples from which it searches on. Tests: slope.
        descent_dimension: Numbers in the parameters up to which it does; a search
            without derivatives is no better than sampling beyond. Rule.
        descent_evaluations: Evaluations per dimension plus one, at most. Rule.
        tie_roundings: Roundings within which two values are equal, or a point is on the
            ball. Rule.
        claim_roundings: Roundings of the gradient by which a slope may fall short of
            its claim. Tests: slope.
        zero_slope: Share of the steepest gradient below which a slope is zero. Tests:
            slope.
    """

    kkt_reach: float = 1e-2
    shortest_point: float = 1e-3
    set_rounds: int = 50
    negligible_normal: float = 1e-10
    max_iterations: int = 300
    relative_error: float = 1e-8
    absolute_error: float = 1e-10
    stalled_steps: int = 10
    pull_overshoot: float = 1e-3
    pulls: int = 5
    idle_cuts: int = 128
    refuted_cut: float = 1e3
    sqp_dimension: int = 100
    sqp_evaluations: int = 50
    interior_weights: tuple[float, ...] = (1e-1, 1e-3, 1e-5)
    interior_iterations: int = 100
    directions: int = 4
    boundary_segments: int = 2
    bisections: int = 64
    gradient_jump: float = 1e-3
    convexity_excess: float = 1e-6
    inside: float = 0.9
    outside: tuple[float, float] = (1.01, 3.0)
    slope_samples: int = 200
    descents: int = 3
    descent_dimension: int = 20
    descent_evaluations: int = 100
    tie_roundings: float = 64.0
    claim_roundings: float = 8.0
    zero_slope: float = 1e-6


TOLERANCES = Tolerances()
