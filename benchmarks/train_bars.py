"""What ``bench train`` promises, held against a record: means, ratios, verdicts.

Only runs that are feasible and complete count, and a comparison takes the seeds that
both sides have. How many that are stands beside every number.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.train_contestants import (
    BARE,
    EXTRAPOLATED,
    MINE,
    REFERENCE,
    RIVAL,
    TIGHT,
)

Run = Mapping[str, Any]

NO_WORSE, A_TENTH_LOWER, NEAR_REFERENCE = 1.0, 0.9, 1.003
FASTER_NETWORK, FASTER_LINEAR, FASTER_PAPER = 20.0, 5.0, 200.0
OVERHEAD = 2.0
LOWER_ON = ("abstention-climsim", "abstention-nasa", "abstention-credit")
NEAR_ON = "abstention-gaussian"


@dataclass(frozen=True)
class Summary:
    """All runs of one contestant on one problem; None where none counts."""

    contestant: str
    about: str
    made: int
    """Runs that were tried."""
    counted: int
    """Those of them that are feasible and complete."""
    objective: float | None
    """The mean over those."""
    deviation: float | None
    """Their standard deviation; None for fewer than two."""
    residual_before: float | None
    """The worst one of all runs, as is the next."""
    residual: float | None
    seconds: float | None
    """The median."""
    ratio: float | None
    """The median of its time over that of one projection, seed by seed."""
    constraint_gradients: float | None
    constraint_passes: float | None
    projections: float | None
    """Medians."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Bar:
    """A promise, and what was measured."""

    problem: str
    what: str
    value: float
    bound: float
    at_least: bool
    met: bool
    seeds: int


def problems_of(record: Mapping[str, Any]) -> list[str]:
    """The problems that have runs, in the order in which they were made.

    Example:
        >>> problems_of({"runs": [{"problem": "b"}, {"problem": "a"}]})
        ['b', 'a']
    """
    return list(dict.fromkeys(run["problem"] for run in record["runs"]))


def summaries(record: Mapping[str, Any], problem: str) -> list[Summary]:
    """One line per contestant of a problem."""
    by_name: dict[str, list[Run]] = {}
    for run in record["runs"]:
        if run["problem"] == problem:
            by_name.setdefault(run["contestant"], []).append(run)
    mine = by_name.get(MINE, [])
    return [_summary(name, runs, mine) for name, runs in by_name.items()]


def _summary(name: str, runs: Sequence[Run], mine: Sequence[Run]) -> Summary:
    ran = [run for run in runs if run["reason"] is None]
    valid = [run for run in ran if _counts(run)]
    timed = valid or [run for run in ran if run["objective"] is None]
    objectives = [run["objective"] for run in valid]
    several = len(objectives) > 1
    reasons = [run["reason"] or run["note"] for run in runs]
    return Summary(
        contestant=name,
        about=runs[0]["about"],
        made=len(runs),
        counted=len(valid),
        objective=statistics.mean(objectives) if objectives else None,
        deviation=statistics.stdev(objectives) if several else None,
        residual_before=_worst(ran, "residual_before"),
        residual=_worst(ran, "residual"),
        seconds=_median(timed, "seconds"),
        ratio=_times(timed, mine)[0],
        constraint_gradients=_median(ran, "constraint_gradients"),
        constraint_passes=_median(ran, "constraint_passes"),
        projections=_median(ran, "projections"),
        notes=tuple(dict.fromkeys(reason for reason in reasons if reason)),
    )


def judge_bars(record: Mapping[str, Any]) -> list[Bar]:
    """Hold one projection against its bars, as far as the record has the runs."""
    return [bar for name in problems_of(record) for bar in _bars(record, name)]


def _bars(record: Mapping[str, Any], problem: str) -> list[Bar]:
    runs = [r for r in record["runs"] if r["problem"] == problem]
    ran = [r for r in runs if r["reason"] is None]
    of = {name: [r for r in ran if r["contestant"] == name] for name in NAMES}
    mine, linear = of[MINE], bool(runs and runs[0]["linear"])
    lower = A_TENTH_LOWER if problem in LOWER_ON else NO_WORSE
    faster = FASTER_LINEAR if linear else FASTER_NETWORK
    measured = [
        ("objective / Projected SGD's", *_means(mine, of[RIVAL]), lower, False),
        ("Projected SGD's time", *_times(of[RIVAL], mine), faster, True),
        ("time / bare loop", *_overhead(of[BARE]), OVERHEAD, False),
    ]
    if problem == NEAR_ON:
        near = _means(mine, of[REFERENCE])
        measured.insert(1, ("objective / SLSQP's", *near, NEAR_REFERENCE, False))
    if not linear:
        tight, paper = _times(of[TIGHT], mine), _times(of[EXTRAPOLATED], mine)
        what = "time with projections to KKT 1e-6 (extrapolated)"
        measured.append((what, *tight, FASTER_NETWORK, True))
        what = "time with the paper's projector (extrapolated)"
        measured.append((what, *paper, FASTER_PAPER, True))
    if mine:
        worst = _worst(mine, "residual")
        measured.append(("worst residual", worst, len(mine), 0.0, False))
    return [
        Bar(
            problem=problem,
            what=what,
            value=value,
            bound=bound,
            at_least=at_least,
            met=value >= bound if at_least else value <= bound,
            seeds=seeds,
        )
        for what, value, seeds, bound, at_least in measured
        if value is not None
    ]


NAMES = (MINE, RIVAL, REFERENCE, BARE, EXTRAPOLATED, TIGHT)


def _counts(run: Run) -> bool:
    return bool(run["feasible"] and run["complete"] and run["objective"] is not None)


def _worst(runs: Sequence[Run], key: str) -> float | None:
    return max((run[key] for run in runs if run[key] is not None), default=None)


def _median(runs: Sequence[Run], key: str) -> float | None:
    return statistics.median([run[key] for run in runs]) if runs else None


def _means(mine: Sequence[Run], other: Sequence[Run]) -> tuple[float | None, int]:
    """The ratio of the mean objectives over common seeds, and their number."""
    a = {run["seed"]: run["objective"] for run in mine if _counts(run)}
    b = {run["seed"]: run["objective"] for run in other if _counts(run)}
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        return None, 0
    return sum(a[s] for s in seeds) / sum(b[s] for s in seeds), len(seeds)


def _times(runs: Sequence[Run], reference: Sequence[Run]) -> tuple[float | None, int]:
    """The median ratio of seconds over common seeds, and their number."""
    whole = [run for run in reference if run["reason"] is None and run["complete"]]
    of = {run["seed"]: run["seconds"] for run in whole}
    paired = [run for run in runs if run["complete"] and run["seed"] in of]
    ratios = [run["seconds"] / of[run["seed"]] for run in paired]
    return (statistics.median(ratios) if ratios else None), len(ratios)


def _overhead(runs: Sequence[Run]) -> tuple[float | None, int]:
    found = [run["overhead"] for run in runs]
    return (statistics.median(found) if found else None), len(found)
