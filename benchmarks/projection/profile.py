"""The performance profile of Dolan and More: who solves how much, for how much more.

E. D. Dolan, J. J. More: Benchmarking optimization software with performance profiles,
Mathematical Programming 91, 2002.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.projection.cases import Instance
from benchmarks.projection.peers import PEERS
from benchmarks.projection.record import EXACT, OURS, Record, is_nearest

STYLES: dict[str, dict[str, Any]] = {
    OURS: {"color": "#0b5fa5", "linewidth": 2.4, "zorder": 5},
    "SLSQP": {"color": "#b3402f", "linewidth": 1.5},
    "IPOPT": {"color": "#2b8a4b", "linewidth": 1.5, "linestyle": "--"},
    "trust-constr": {"color": "#8457a8", "linewidth": 1.5, "linestyle": "-."},
    "augmented Lagrangian": {"color": "#7a7a7a", "linewidth": 1.5, "linestyle": ":"},
}
LARGEST_FACTOR = 128
"""Where the axis ends."""


def labels_of(record: Record, instances: Sequence[Instance]) -> list[str]:
    """This library and the peers whose runs are complete, in a fixed order.

    Complete: a run of every instance that any peer ran on. Half of a peer's runs would
    be compared with all of another's.
    """
    keys = {i.key for i in instances}
    ran = {name: keys & record.runs.get(name, {}).keys() for name in PEERS}
    every = set().union(*ran.values())
    return [OURS, *(name for name in PEERS if every and ran[name] == every)]


def contested(record: Record, instances: Sequence[Instance]) -> list[str]:
    """The problems of a profile: every peer ran on them, and there is a way to go.

    Left out are narrow dtypes, problems without a feasible point and starts that are
    feasible already.
    """
    every = labels_of(record, instances)
    return [
        i.key
        for i in instances
        if len(every) > 1
        and all(i.key in record.runs.get(name, {}) for name in every)
        and (record.nearest(i.key) or 0.0) > EXACT
    ]


def factors(record: Record, instances: Sequence[Instance]) -> dict[str, list[float]]:
    """By label, sorted: its gradients over the fewest that solved the problem.

    Solved: feasible, and within 0.1 % of the best distance known. Infinite where it did
    not solve it. A count of 0, where sets alone gave the answer, counts as 1.
    """
    labels = labels_of(record, instances)
    found: dict[str, list[float]] = {label: [] for label in labels}
    for key in contested(record, instances):
        best, counts = record.nearest(key), {}
        for label in found:
            run = record.runs[label].get(key)
            if run is not None and is_nearest(run, best):
                counts[label] = max(1, run["gradients"])
        fewest = min(counts.values(), default=1)
        for label, values in found.items():
            values.append(counts.get(label, math.inf) / fewest)
    return {label: sorted(values) for label, values in found.items()}


def share(sorted_factors: Sequence[float], factor: float) -> float:
    """The share of problems solved within a factor of the fewest gradients.

    Example:
        >>> share([1.0, 1.5, 4.0, math.inf], 2.0)
        0.5
    """
    within = bisect.bisect_right(sorted_factors, factor * (1.0 + EXACT))
    return within / len(sorted_factors)


def described(found: dict[str, list[float]]) -> str:
    """The curves in words, for the figure's file.

    Example:
        >>> described({"a": [1.0, 3.0, math.inf, math.inf]})
        '4 problems. Share at factor 1, 2, 8, any: a 0.250 0.250 0.500 0.500.'
    """
    rows = []
    for label, values in found.items():
        shares = [share(values, factor) for factor in (1.0, 2.0, 8.0)]
        shares.append(sum(map(math.isfinite, values)) / len(values))
        rows.append(f"{label} {' '.join(f'{s:.3f}' for s in shares)}")
    problems = len(next(iter(found.values())))
    at = "Share at factor 1, 2, 8, any"
    return f"{problems} problems. {at}: {'; '.join(rows)}."


def draw(record: Record, instances: Sequence[Instance], out: Path) -> None:
    """Draw the profile and save it; the suffix of the file decides the format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    found = factors(record, instances)
    problems = len(found[OURS])
    # A fixed salt keeps the identifiers in the SVG, and so the file, the same.
    with mpl.rc_context({"svg.hashsalt": "oneproj", "font.size": 9}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        for label, values in found.items():
            finite = [f for f in values if f <= LARGEST_FACTOR]
            x = [1.0, *finite, LARGEST_FACTOR]
            y = [share(values, f) for f in x]
            axes.step(x, y, where="post", label=label, **STYLES[label])
        axes.set_xscale("log", base=2)
        axes.set_xlim(1, LARGEST_FACTOR)
        axes.set_ylim(0, 1)
        ticks = [2**k for k in range(8)]
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel(
            "gradients, as a multiple of the fewest that solved the problem"
        )
        axes.set_ylabel(f"share of {problems} problems solved")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none")
        about = {"Date": None, "Description": described(found)}
        figure.savefig(out, dpi=130, metadata=about if out.suffix == ".svg" else None)
