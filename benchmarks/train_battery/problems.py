"""All problems of the battery, by name."""

from __future__ import annotations

from benchmarks.train_battery import (
    problems_caps,
    problems_finetuning,
    problems_matrices,
    problems_networks,
    problems_rates,
    problems_starts,
)
from benchmarks.train_battery.registry import Case, Family

FAMILIES: tuple[Family, ...] = (
    problems_caps.CAPS,
    problems_caps.PLANE,
    problems_rates.RATES,
    problems_rates.FAIR,
    problems_rates.QUANTILES,
    problems_rates.SHAPES,
    problems_matrices.PORTFOLIOS,
    problems_matrices.MATRICES,
    problems_matrices.BALLS,
    problems_starts.STARTS,
    problems_starts.ASLEEP,
    problems_starts.UNITS,
    problems_networks.EMBEDDINGS,
    problems_networks.SEQUENCES,
    problems_networks.CONVOLUTIONS,
    problems_networks.STRUCTURES,
    problems_finetuning.TRAINED,
)
"""In the order of the table."""
CASES: dict[str, Case] = {
    case.name: case for family in FAMILIES for case in family.cases
}
"""Every problem by its name."""
