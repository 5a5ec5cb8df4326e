"""``python -m benchmarks.projection``: the cost of one projection, ours and others'.

The bars for ``"cuts"``: on networks, at most 15 full constraint gradients from a random
start and 8 from an iterate of the method, as medians of several instances; a fiftieth
of the augmented Lagrangian's; 5 times as fast as SLSQP from 10^3 parameters on; at most
1.3 times the time of the gradients it uses.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.commands import exits_and_place, write_record
from benchmarks.instances import (
    HUGE,
    LINEAR_SIZE,
    STARTS,
    Instance,
    Start,
    make_instance,
)
from benchmarks.measure import Spread, alternate, paired_ratio, surroundings
from benchmarks.rivals import Answer, attempt, rivals
from oneproj.progress import progress_bar
from oneproj.projection.cuts import Cuts
from oneproj_paper.cli.exits import console

SIZES = (LINEAR_SIZE, 10**3, 10**5, 10**7)
LIMIT = 80.0
"""Seconds that a rival may take; with it the default sizes fit in a quarter hour."""
QUICK, SLOW_REPEATS = 2.0, 2
"""A rival that takes longer than these seconds is timed once; if cuts does, it takes
turns with its gradients only so often."""
MORE_INSTANCES = 4
"""Further instances whose gradients are counted, for the median; not of huge ones."""
MOST_GRADIENTS = {"random": 15, "trained": 8}
FEWER, FASTER, OVERHEAD = 50.0, 5.0, 1.3
FASTER_FROM = 10**3
MINE, PAPER = "cuts", "augmented-lagrangian"
ALONE = "its gradients alone"
"""As many gradients as cuts used, at the start: what its time is held against."""


@dataclass(frozen=True)
class Row:
    """One rival on one problem; ``reason`` says why there is nothing else."""

    size: int
    start: Start
    rival: str
    reason: str | None = None
    answer: Answer | None = None
    runs: int = 0
    """How many were timed."""
    seconds: Spread | None = None
    ratio: Spread | None = None
    """Its time over that of cuts, repeat by repeat."""
    overhead: float | None = None
    """Its time over that of as many gradients."""


@dataclass(frozen=True)
class Bar:
    """A promise about cuts, and what was measured."""

    size: int
    start: Start
    what: str
    value: float
    bound: float
    at_least: bool
    met: bool


def projection_record(
    sizes: Sequence[int] = SIZES,
    *,
    repeats: int = 5,
    seed: int = 0,
    limit: float = LIMIT,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run every rival at every size from both starts; the record is plain JSON.

    Args:
        sizes: Numbers of parameters; 18 has linear scores, others are networks.
        repeats: Timed rounds, in which all quick rivals take turns.
        seed: Of data and starts.
        limit: Seconds after which a rival is stopped where it is.
        progress: As in ``oneproj.progress.progress_bar``.
    """
    before = surroundings()
    problems = [(size, start) for size in sizes for start in STARTS]
    rows: list[Row] = []
    bars: list[Bar] = []
    with progress_bar("bench projection", len(problems), enabled=progress) as advance:
        for done, (size, start) in enumerate(problems, start=1):
            generator = torch.Generator().manual_seed(seed)
            instance = make_instance(size, start, generator)
            found = compare(instance, start, repeats=repeats, limit=limit)
            more = count_gradients(size, start, seed)
            rows += found
            bars += judge_bars({row.rival: row for row in found}, more)
            advance(done)
    return {
        "benchmark": "projection",
        "surroundings": before,
        "settings": {
            "dtype": "float64",
            "repeats": repeats,
            "seed": seed,
            "limit": limit,
        },
        "rows": [asdict(row) for row in rows],
        "bars": [asdict(bar) for bar in bars],
    }


def compare(
    instance: Instance, start: Start, *, repeats: int, limit: float
) -> list[Row]:
    """Time all rivals on one problem, taking turns where they are quick."""
    missing: list[Row] = []
    answers: dict[str, Answer] = {}
    times: dict[str, list[float]] = {}
    tasks: dict[str, Callable[[], object]] = {}
    for name, run in rivals(instance).items():
        if isinstance(run, str):
            missing.append(Row(instance.size, start, name, run))
            continue
        answers[name], seconds = attempt(instance, run, limit=limit)
        times[name] = [seconds]
        if name == MINE or seconds <= QUICK:
            tasks[name] = run
    looks = answers[MINE].gradients or 0
    rounds = repeats if times[MINE][0] <= QUICK else min(repeats, SLOW_REPEATS)
    # Apart from the others: SciPy's threads spin on for a while and slow what is next.
    alone: dict[str, Callable[[], object]] = {
        MINE: tasks[MINE],
        ALONE: lambda: _differentiate(instance, looks),
    }
    quiet = alternate(alone, repeats=rounds)
    times |= alternate(tasks, repeats=rounds) | {ALONE: quiet[ALONE]}
    rows = [
        _row(Row(instance.size, start, name, answer=answers.get(name)), times, looks)
        for name in times
    ]
    overhead = paired_ratio(quiet[MINE], quiet[ALONE]).median
    mine = next(row for row in rows if row.rival == MINE)
    rows[rows.index(mine)] = replace(mine, overhead=overhead)
    return rows + missing


def _row(row: Row, times: Mapping[str, list[float]], looks: int) -> Row:
    """Fill in the times; who was timed only once is held against medians."""
    taken, mine, alone = times[row.rival], times[MINE], times[ALONE]
    runs = len(taken)
    if runs == 1:
        taken = 2 * taken  # a spread without width
        mine, alone = ([statistics.median(t)] * 2 for t in (mine, alone))
    share = (row.answer.gradients or 0) / looks if row.answer is not None else 0.0
    own = [share * seconds for seconds in alone]
    return replace(
        row,
        runs=runs,
        seconds=Spread.of(taken),
        ratio=paired_ratio(taken, mine),
        overhead=paired_ratio(taken, own).median if share > 0 else None,
    )


def _differentiate(instance: Instance, looks: int) -> None:
    instance.reset()
    for _ in range(looks):
        for constraint in instance.constraints.values():
            constraint.value_and_gradient(instance.parameters)


def count_gradients(size: int, start: Start, seed: int) -> list[int]:
    """The gradients that cuts uses on further instances.

    Example:
        >>> len(count_gradients(18, "random", seed=0))
        4
    """
    counts = []
    for k in range(MORE_INSTANCES if size < HUGE else 0):
        generator = torch.Generator().manual_seed(seed + k + 1)
        made = make_instance(size, start, generator)
        counts.append(Cuts().project(made.parameters, made.constraints).gradients)
    return counts


def judge_bars(rows: Mapping[str, Row], more: Sequence[int] = ()) -> list[Bar]:
    """Hold cuts against the bars; linear scores have only some of them.

    Args:
        rows: Of one problem, by rival. One that was stopped proves only a bound.
        more: The gradients of cuts on further instances.
    """
    mine, paper, slsqp = rows[MINE], rows[PAPER], rows["SLSQP"]
    if mine.answer is None or mine.overhead is None:
        return []
    used, measured = float(mine.answer.gradients or 0), []
    if mine.size != LINEAR_SIZE:
        most = float(MOST_GRADIENTS[mine.start])
        middle = float(statistics.median([used, *more]))
        measured.append(("median gradients", middle, most, False))
    if paper.answer is not None and not paper.answer.stopped:
        fewer = (paper.answer.gradients or 0) / used
        measured.append(("augmented Lagrangian's gradients", fewer, FEWER, True))
    if slsqp.answer is not None and slsqp.ratio is not None:
        faster = slsqp.ratio.median
        proven = faster >= FASTER or not slsqp.answer.stopped
        if proven and mine.size >= FASTER_FROM:
            measured.append(("SLSQP's time", faster, FASTER, True))
    measured.append(("time / its gradients", mine.overhead, OVERHEAD, False))
    return [
        Bar(
            size=mine.size,
            start=mine.start,
            what=what,
            value=value,
            bound=bound,
            at_least=at_least,
            met=value >= bound if at_least else value <= bound,
        )
        for what, value, bound, at_least in measured
    ]


def main(
    *,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=18, help="Parameters; may be repeated."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Alternating rounds.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Of data and starts.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Count gradients and time of one projection, by this library and by others.

    18 parameters are two linear scores, other sizes are networks. The default sizes, up
    to 10^7, take about a quarter of an hour, most of it the augmented Lagrangian. A bar
    that is missed is shown and is no failure.
    """
    terminal = console()
    with exits_and_place(out):
        from benchmarks.projection_table import projection_tables

        record = projection_record(sizes or SIZES, repeats=repeats, seed=seed)
        for table in projection_tables(record):
            terminal.print(table)
        write_record(record, out)


if __name__ == "__main__":
    typer.run(main)
