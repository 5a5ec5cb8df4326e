"""What changed between two sets of runs, problem by problem, beyond their noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from benchmarks.train_battery.runs import Run

SMALLEST = 1e-2
"""Objectives below this are compared absolutely, in this unit: 10 percent is 1e-3."""
SLIGHT, GREAT = 0.01, 0.1
"""Changes of the mean objective that are listed."""
ERRORS = 2.0
"""Standard errors of the mean change over seeds that are noise."""


@dataclass(frozen=True)
class Change:
    """One problem in two sets of runs, over the seeds that both have."""

    problem: str
    before: float
    after: float
    """Mean objectives."""
    change: float
    """Of the mean objective, relative; positive is worse."""
    noise: float
    """What may be chance: relative, from the spread over seeds; nan if unknown."""
    seeds: int
    feasible: tuple[int, int]
    """Runs that ended feasible, before and after."""
    gradients: tuple[float, float]
    """Mean gradients of the projection."""

    @property
    def ratio(self) -> float:
        """After over before, as far as ``SMALLEST`` allows."""
        return 1.0 + self.change

    @property
    def lost(self) -> bool:
        """Whether fewer runs end feasible."""
        return self.feasible[1] < self.feasible[0]

    def exceeds(self, share: float) -> bool:
        """Whether it changed by more than a share and by more than chance."""
        noise = 0.0 if math.isnan(self.noise) else self.noise
        return abs(self.change) > max(share, noise)


def changes(
    before: Iterable[Run], after: Iterable[Run], chance: Iterable[Run] = ()
) -> list[Change]:
    """Compare the problems that both have, in the order of the first.

    Args:
        before: Runs, with any number of seeds.
        after: Runs of the same problems.
        chance: Runs that differ from the first in their minibatches only: as far as
            they are away from them, a change is noise.

    Example:
        >>> changes([], [])
        []
    """
    old, new, other = _by_problem(before), _by_problem(after), _by_problem(chance)
    found = []
    for problem, runs in old.items():
        seeds = [seed for seed in runs if seed in new.get(problem, {})]
        if seeds:
            rows = [runs[s] for s in seeds], [new[problem][s] for s in seeds]
            alike = [(runs[s], r) for s, r in other[problem].items() if s in runs]
            found.append(_change(problem, *rows, _spread(list(runs.values()), alike)))
    return found


def _by_problem(runs: Iterable[Run]) -> dict[str, dict[int, Run]]:
    found: dict[str, dict[int, Run]] = defaultdict(dict)
    for made in runs:
        found[made.problem][made.seed] = made
    return found


def _spread(old: Sequence[Run], alike: Sequence[tuple[Run, Run]]) -> float:
    """How far an objective is moved by chance: other minibatches, or another start."""
    if alike:
        squares = [(_objective(y) - _objective(x)) ** 2 for x, y in alike]
        return math.sqrt(fmean(squares))
    return stdev(map(_objective, old)) if len(old) > 1 else math.nan


def _change(
    problem: str, old: Sequence[Run], new: Sequence[Run], spread: float
) -> Change:
    a, b = [_objective(r) for r in old], [_objective(r) for r in new]
    unit = max(abs(fmean(a)), SMALLEST)
    moved = [(y - x) / unit for x, y in zip(a, b, strict=True)]
    spread = spread / unit
    if len(moved) > 1:  # two values say little of their spread: the larger counts
        spread = max(stdev(moved), spread)
    return Change(
        problem,
        before=fmean(a),
        after=fmean(b),
        change=fmean(moved),
        noise=ERRORS * spread / math.sqrt(len(moved)),
        seeds=len(moved),
        feasible=(sum(r.feasible for r in old), sum(r.feasible for r in new)),
        gradients=(fmean(r.gradients for r in old), fmean(r.gradients for r in new)),
    )


def _objective(made: Run) -> float:
    return math.inf if made.objective is None else made.objective


def lines(found: Sequence[Change], write: Callable[[str], object]) -> None:
    """Write the comparison as a Markdown table, and what stands out below it."""
    write("| problem | before | after | ratio | noise | feasible | gradients |")
    write("|---|---|---|---|---|---|---|")
    for c in found:
        noise = "-" if math.isnan(c.noise) else f"{c.noise:.3f}"
        feasible = f"{c.feasible[0]} -> {c.feasible[1]} of {c.seeds}"
        gradients = f"{c.gradients[0]:.0f} -> {c.gradients[1]:.0f}"
        write(
            f"| {c.problem} | {c.before:.5g} | {c.after:.5g} | {c.ratio:.3f} | {noise} "
            f"| {feasible} | {gradients} |"
        )
    write("")
    write(summary(found))
    for share in (GREAT, SLIGHT):
        for word, sign in (("worse", 1.0), ("better", -1.0)):
            beyond = [c for c in found if c.exceeds(share) and sign * c.change > 0]
            told = ", ".join(f"{c.problem} {c.ratio:.3f}" for c in beyond) or "none"
            write(f"- {word} by more than {share:.0%} and the noise: {told}")
    lost = ", ".join(c.problem for c in found if c.lost) or "none"
    write(f"- fewer runs feasible: {lost}")


def summary(found: Sequence[Change]) -> str:
    """The median ratio, in a sentence.

    Example:
        >>> summary([])
        'No problem is in both.'
    """
    if not found:
        return "No problem is in both."
    total = [sum(c.gradients[k] * c.seeds for c in found) for k in (0, 1)]
    return (
        f"{len(found)} problems: median ratio {median(c.ratio for c in found):.4f}; "
        f"gradients of the projections {total[0]:.0f} -> {total[1]:.0f}."
    )


def short(found: Sequence[Change], share: float = SLIGHT) -> tuple[str, str]:
    """What gets worse, and what gets better, by more than a share and the noise.

    Example:
        >>> short([])
        ('-', '-')
    """
    worse = [c for c in found if c.lost or (c.exceeds(share) and c.change > 0)]
    better = [c for c in found if not c.lost and c.exceeds(share) and c.change < 0]
    return _listed(worse), _listed(better)


def _listed(found: Sequence[Change]) -> str:
    ordered = sorted(found, key=lambda c: -abs(c.change))
    told = [f"{c.problem} {c.ratio:.2f}" + " (infeasible)" * c.lost for c in ordered]
    return ", ".join(told) or "-"
