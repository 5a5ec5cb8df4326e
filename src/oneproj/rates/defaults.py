"""The numbers behind rates: gradients, the search for counts, confidence bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RateDefaults:
    """Chosen by the runs in ``benchmarks/NOTES.md``, "Rates" and "Confidence bounds".

    None of them affects that a count is exact, or that a confidence bound is valid.
    """

    # --- the gradient of a count ------------------------------------------------------
    near_share: float = 0.1
    """Share of the rows that lie within one width of the threshold."""
    near_rows: int = 8
    """Rows that lie within one width of the threshold, at least."""
    least_width: float = 1e-3
    """Least width, as a share of the mean distance from the threshold."""
    ridge: float = 0.02
    """Weight of the plain mean in the local regression, in squared widths."""
    roundings: int = 8
    """Units of rounding by which a score may be off, relative to the largest score."""
    # --- the search for surrogate bounds under which counts hold ----------------------
    rounds: int = 12
    """Projections onto surrogate bounds, at most."""
    gain: float = 0.01
    """Share of the distance by which a round must be nearer for another one."""
    halvings: int = 8
    """Points on the way back to the start whose counts are evaluated."""
    # --- moves of thresholds ----------------------------------------------------------
    offset_entries: int = 64
    """Entries of the largest tensor in which a direction that moves all scores alike is
    searched for. Each takes gradients of ``rows_per_entry`` single scores."""
    rows_per_entry: int = 2
    """Scores per entry that must move alike: more than one, or any direction would."""
    uneven: float = 1e-4
    """By how much a move of all scores by 1 may differ between rows: float32 rounds."""
    # --- confidence bounds ------------------------------------------------------------
    nuisance_share: float = 0.002
    """Share of the error spent on an interval for one of two rates."""
    cells: int = 32
    """Cells that this interval is divided into."""
    split: int = 8
    """Cells that each of those is divided into, between the rates at its ends."""
    ranking_quantile: float = 1.645
    """Normal quantile of the limits by which outcomes of two counts are ranked."""
    step: float = 1e-4
    """Precision of the other rate, as a share of the interval."""
    tail: float = 1e-12
    """Probability of counts that are not enumerated; it is added to the test's."""
    largest_bet: float = 0.75
    """Share of the capital that a bet may lose, at most."""
    bisections: int = 40
    """Bisection steps for a mean: it is rounded up to 2^-40 of its range."""
    range_rounding: float = 1e-6
    """Share of its range by which a value may be outside of it: float32 rounds."""


DEFAULTS = RateDefaults()
