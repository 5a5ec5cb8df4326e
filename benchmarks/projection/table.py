"""A record summed up: a row for every family and label."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.projection.cases import Instance
from benchmarks.projection.record import Record, Run, is_false, is_nearest
from oneproj.results import table as columns

ALL = "all"
EXACT_SOURCES = {"closed form", "clarabel", "slsqp"}
"""Where a best distance comes from that a lower bound may not exceed."""


@dataclass(frozen=True)
class Summary:
    """The runs of one label on one family."""

    family: str
    label: str
    problems: int
    well: int
    """Feasible; where no point is feasible: ended, and said so."""
    near: int
    """Within 0.1 % of the best distance known."""
    false: int
    """Wrong claims of feasibility, of emptiness or of a lower bound."""
    errors: int
    """Runs that raised or were stopped."""
    gradients: tuple[int, ...]
    """Of every run that has a count."""

    @property
    def mean(self) -> float | None:
        """The mean number of gradients."""
        return statistics.mean(self.gradients) if self.gradients else None

    @property
    def median(self) -> float | None:
        """The median number of gradients."""
        return statistics.median(self.gradients) if self.gradients else None


def summaries(
    record: Record, instances: Sequence[Instance], labels: Sequence[str]
) -> list[Summary]:
    """By family, in the order of the instances, then by label; last, all families."""
    families = [*dict.fromkeys(i.family for i in instances), ALL]
    made = []
    for family in families:
        keys = [i.key for i in instances if family in {i.family, ALL}]
        for label in labels:
            runs = record.runs.get(label, {})
            found = {key: runs[key] for key in keys if key in runs}
            if found:
                made.append(_summary(record, family, label, found))
    return made


def _summary(record: Record, family: str, label: str, found: dict[str, Run]) -> Summary:
    well = near = false = 0
    for key, run in found.items():
        empty, best = record.is_empty(key), record.nearest(key)
        well += run["feasible"] != empty and not (empty and "error" in run)
        near += is_nearest(run, best)
        exact = record.best.get(key, {}).get("source") in EXACT_SOURCES
        false += is_false(run, None if empty else best, exact=exact)
    return Summary(
        family=family,
        label=label,
        problems=len(found),
        well=well,
        near=near,
        false=false,
        errors=sum("error" in run for run in found.values()),
        gradients=tuple(r["gradients"] for r in found.values() if "gradients" in r),
    )


def table(record: Record, instances: Sequence[Instance], labels: Sequence[str]) -> str:
    """The summaries as text, one line each.

    ``ended well``: feasible, or infeasible where there is no feasible point.
    ``nearest``: within 0.1 % of the best distance known.
    """
    titles = ("family", "label", "problems", "ended well", "nearest", "mean gradients")
    rows: list[tuple[str, ...]] = [(*titles, "median", "false claims", "errors")]
    rows += [
        (
            s.family,
            s.label,
            str(s.problems),
            str(s.well),
            str(s.near),
            number(s.mean),
            number(s.median),
            str(s.false),
            str(s.errors),
        )
        for s in summaries(record, instances, labels)
    ]
    return "\n".join(columns(rows))


def number(value: float | None) -> str:
    """A count to three digits, or nothing.

    Example:
        >>> number(12.34), number(1234.5), number(None)
        ('12.3', '1234', '')
    """
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - digits
