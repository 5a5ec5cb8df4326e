r"""Two records of the same runs: how much do distances and gradients differ?

The same projection on another processor rounds differently. To see what that changes,
make a record under each instruction set and compare::

    ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Prescott \
        python -m benchmarks.projection --kept-aside --record plain.json
    ATEN_CPU_CAPABILITY=avx2 OPENBLAS_CORETYPE=Haswell \
        python -m benchmarks.projection --kept-aside --record avx2.json
    python -m benchmarks.projection --kept-aside --record plain.json --compare avx2.json
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.projection.cases import Instance
from benchmarks.projection.record import EXACT, Record, Run
from oneproj.results import table as columns

SAME_DISTANCE, SAME_GRADIENTS = 0.01, 0.2
"""Relative differences up to which two records say the same: of the distance of an
instance, and of the gradients of a family."""


def comparison(
    one: Record, other: Record, instances: Sequence[Instance], label: str
) -> str:
    """A row for every family: the largest difference of distance, and of gradients."""
    mine, theirs = one.runs.get(label, {}), other.runs.get(label, {})
    titles = ("family", "problems", "other end", "distance", "of", "gradients", "same")
    rows: list[tuple[str, ...]] = [titles]
    for family in dict.fromkeys(i.family for i in instances):
        pairs = {
            i.key: (mine[i.key], theirs[i.key])
            for i in instances
            if i.family == family and i.key in mine and i.key in theirs
        }
        if pairs:
            rows.append((family, str(len(pairs)), *_row(pairs)))
    return "\n".join(columns(rows))


def _row(pairs: dict[str, tuple[Run, Run]]) -> tuple[str, ...]:
    ends = sum(a["feasible"] != b["feasible"] for a, b in pairs.values())
    distances = [
        (relative(a["distance"], b["distance"]), key)
        for key, (a, b) in pairs.items()
        if a["feasible"] and b["feasible"]
    ]
    apart, key = max(distances, default=(0.0, ""))
    counts = [(a.get("gradients", 0), b.get("gradients", 0)) for a, b in pairs.values()]
    gradients = relative(*(float(sum(side)) for side in zip(*counts, strict=True)))
    same = not ends and apart <= SAME_DISTANCE and gradients <= SAME_GRADIENTS
    of = key.partition("/")[2] if apart else ""
    return str(ends), f"{apart:.1e}", of, f"{gradients:.1%}", "yes" if same else "NO"


def relative(a: float, b: float) -> float:
    """The difference of two numbers as a share of the smaller.

    Example:
        >>> relative(1.0, 1.5), relative(0.0, 0.0)
        (0.5, 0.0)
    """
    apart = abs(a - b)
    return 0.0 if apart <= EXACT else apart / max(min(abs(a), abs(b)), EXACT)
