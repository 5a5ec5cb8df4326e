"""The numbers that the projection is tuned by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerances:
    """Numbers of the projection: a unit, a meaning and a source for each.

    "Suite" is ``benchmarks/projection``; what was measured with it is in
    ``benchmarks/NOTES.md``.
    """

    # --- how much is kept, and how long is searched -------------------------------
    vectors: int = 100
    """Parameter-size vectors to keep below a million parameters. Not tuned."""
    cuts: int = 1000
    """Cuts of convex constraints to keep, for they stay valid, as long as ..."""
    cut_numbers: int = 10_000_000
    """... they hold at most this many numbers: 80 MB. Not tuned."""
    large: int = 1_000_000
    """Parameters from which memory counts, and only ``large_vectors`` are kept."""
    large_vectors: int = 16
    """Parameter-size vectors beyond a large model, by default."""
    whole_space: int = 512
    """Parameters up to which the local search works in all of their space."""
    gradients: int = 200
    """Full gradients after which to stop improving. Not tuned."""
    gradients_per_dimension: int = 4
    """The same for each cut that may bind: a maximum over examples has a facet for
    every direction, and about two gradients find one."""
    local_first: int = 20
    """Gradients of the local search before what may be convex is tried as if it were;
    smooth problems take fewer (suite)."""
    sample: int = 2048
    """Examples of a large constraint that are searched in place of all, as many as
    give the gradient of an anchor."""
    samples_of_large: int = 16
    """Samples in a constraint's data from which on it counts as large."""
    screenings: int = 3
    """Points on all data that the search on samples leads to, at most."""
    sampled_aim: float = 0.01
    """Share of the residual at the last of these points by which the next is aimed
    inside; sampling was wrong by up to half a percent of it (NOTES, "Samples")."""
    local_steady: float = 1e-2
    """Share of the worst residual that is left where those gradients made progress."""

    # --- largest values over data -------------------------------------------------
    parts: int = 8
    """Bounds on single examples that the first round adds where the largest violates
    its bound; each further round adds twice as many. With 4, networks take 1 to 2
    rounds more (NOTES, "Largest values")."""
    part_rounds: int = 10
    """Rounds after which the largest is bounded as a whole, one example at a time."""

    # --- convex: the bundle of cuts -----------------------------------------------
    independent: float = 16.0
    """Rounding units: what is left of a gradient below this is in the basis already."""
    bound_units: float = 3.0
    """Rounding units, of value, point and gradient, by which a cut is loosened before
    it proves a distance. With 0, one bound in twenty is above the distance, by up to
    0.6 units (``tests/projection/test_lower_bounds.py``)."""
    sure_units: float = 1e3
    """Rounding units beyond which a contradiction of cuts proves emptiness. With less,
    ellipsoids with axes 1e8 apart were once called empty."""
    sure_share: float = 1e-6
    """Share of its terms beyond which a contradiction of cuts proves emptiness."""
    horizon: float = 1e3
    """Sizes of the parameters within which cuts that cancel must exclude all points."""
    nowhere: float = 1e9
    """Sizes of the parameters within which cuts that nearly cancel must do so."""
    blurred: float = 1e-6
    """Share of a solution's squared length that rounding may have."""
    stale: int = 20
    """Solutions without a weight after which a warm start leaves a cut behind. With 20,
    hinge risks take a third of the gradients of a cold start."""

    # --- convex: the search -------------------------------------------------------
    stalled: int = 3
    """Gradients without progress after which margins grow."""
    stuck: int = 12
    """Gradients without progress after which the search ends; on a hundred risks there
    were never more than two."""
    wider: float = 4.0
    """Factor by which margins grow."""
    better: float = 0.9
    """Share of the least residual so far below which another is progress."""
    farther: float = 1.0001
    """Factor by which the proven distance has to grow to count as progress."""

    plain: float = 0.1
    """Share of the residual at the start by which a value must be below a linearisation
    to refute a declaration: large numbers that cancel inside it are rounded unseen."""
    probes: int = 8
    """Points that are evaluated before emptiness is claimed. With 4, one of 19 wrong
    declarations is called empty (``tests/projection/test_refutation.py``)."""

    # --- convex: curvature --------------------------------------------------------
    sr1_skip: float = 1e-8
    """Share of its factors below which the denominator of an update is rounding
    (Nocedal and Wright, Numerical Optimization, eq. 6.26)."""
    rounds: int = 4
    """Quadratic programs for the multipliers of one step, at most. Not tuned."""
    settled: float = 1e-3
    """Relative change of the multipliers below which they have settled."""
    growth: float = 10.0
    """Factor by which the multipliers of a step may exceed those before: where a model
    has no feasible point they would grow without end."""
    least_curvature: float = 0.1
    """Least curvature of the Lagrangian, whose distance has 1: negative curvature is
    not trusted."""
    penalty: float = 1.5
    """Weight of the violation over the sum of the multipliers, in a merit function."""
    decrease: float = 1e-4
    """Share of the predicted gain of the dual that a step of its ascent must make
    (Nocedal and Wright, eq. 3.4)."""
    shorter: float = 0.4
    """Share of the length of a step that failed that the next may have."""
    memory: float = 0.9
    """Share that a past prediction error keeps at every gradient."""
    trusted: float = 0.6
    """Error, as a share of what curvature predicts, up to which it is used. With 0.7 a
    hinge risk takes 74 gradients in place of 64 (suite)."""
    long_search: int = 40
    """Gradients after which a search is long, and matrices are used. From the first
    gradient on, risks in 200 dimensions take half as many again (suite)."""
    agree: float = 2.0
    """Factor within which two curvatures belong to a smooth constraint."""
    rows: int = 60
    """Cuts in the quadratic program of a step."""

    # --- convex: within sets ------------------------------------------------------
    far_sets: float = 1e6
    """Distances of the farthest cut or set beyond which the dual has no maximum."""
    beyond_sets: float = 1e12
    """Multipliers, in these distances, with which emptiness is tested."""
    ends_within: float = 1e2
    """Distances within which a region ends that such multipliers do not leave."""
    missed_share: float = 0.1
    """Share of its margin by which a solution may miss a cut."""
    missed_units: float = 16.0
    """Rounding units of a point by which a solution may miss a cut."""
    ascent_steps: int = 40
    """Steps of the dual's ascent. Most take ten."""
    bound_least: float = 1e-7
    """Share of the bound in every model, so that each has a maximum."""
    tried: int = 50
    """Full gradients of a search within sets that are not convex; most take ten."""
    narrow_gap: float = 1e-3
    """Duality gap, as a share of the distance, up to which its answer is nearest."""
    entry_gradients: int = 20
    """Full gradients to move from outside into sets; near the answer a few do."""
    bisections: int = 40
    """Doublings of the length of such a step, and then halvings of its bracket."""
    apart: float = 1e-6
    """Relative distance of two slopes whose difference is a curvature."""

    # --- an answer that stays feasible in another order of its sums ---------------
    near: float = 100.0
    """Margins: functions that are farther inside are not in question."""
    safe: float = 8.0
    """Times the noise that was seen by which a step aims inside; half of it will do."""
    inside_steps: int = 8
    """Steps inside, at most: at the kinks of a maximum each finds one more."""

    # --- the local search -----------------------------------------------------------
    local_least_curvature: float = 0.2
    """The curvature of the Lagrangian along a move, at least; 1 without constraints."""
    shortenings: int = 8
    """Lengths that a line search tries, at most."""
    correction: float = 0.25
    """Longest second-order correction that is tried, as a share of the step."""
    penalty_growth: float = 10.0
    """Most that the penalty grows in one step."""
    local_trusted: float = 0.3
    """Share of the predicted decrease that says that the model is right."""
    coarse: float = 20.0
    """Times ``min_gain``: the gain worth a step where the model is wrong. With 10 five
    more of 50 mild networks end within 0.1 %, and two ReLU layers take 35 gradients in
    place of 22 (suite)."""
    balanced: float = 0.2
    """KKT residual above which that coarser stop does not apply."""
    stationary: float = 1e-3
    """Share of the violation that a step as long as the parameters could remove, below
    which a point is stationary for the violation."""
    patience: int = 3
    """Steps in a row without progress that end a search."""
    aim_least: float = 1.0
    """Times ``min_gain``: least share of the squared distance to spend on aiming
    inside, where the model is wrong."""
    aim_most: float = 5.0
    """Times ``min_gain``: most of the squared distance to spend on aiming inside."""
    shortest: float = 1e-3
    """Share of a step with which the next line search begins at least."""
    local_rounding: float = 1e-13
    """Relative changes of the merit, and moves, below this are rounding."""
    damping: float = 1e-2
    """First damping of a restoration, relative to the squared steepest gradient."""
    damping_step: float = 10.0
    """Factor of the damping after a step that failed; the inverse after others."""
    slow: float = 0.81
    """Share of the squared violation above which a step of a restoration is slow."""
    restorations: int = 8
    """Steps in a row that fail or are slow and end a restoration."""
    separations: int = 20
    """Rounds of half-spaces in which a step is kept inside the sets."""
    halfspaces: int = 60
    """Half-spaces that are kept from one step to the next, at most."""
    nudges: tuple[float, ...] = (1e-2, 1e-1, 1.0, -1.0)
    """Lengths of random moves off a plateau, as shares of the parameters' norm."""
    shrinks: tuple[float, ...] = (0.0, 1e-3)
    """Shares of the parameters that are tried where a restoration fails; at zero
    itself a root has no gradient."""
    local_rounds: int = 3
    """Searches, restorations included, at most."""


TOLERANCES = Tolerances()
