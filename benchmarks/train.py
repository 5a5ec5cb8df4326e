"""``python -m benchmarks.train``: every method on the paper's six problems.

The bars for ``oneproj.solve(problem, steps=500)``: an objective no larger than that of
Projected SGD, smaller by a tenth on networks that abstain, and within 0.3 % of SLSQP's
on the Gaussian abstention problem; 20 times as fast as Projected SGD on networks and 5
times on linear scores, with the same projector; at most twice the time of a bare loop
over the same minibatches; and no residual above zero, in any run.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.train_contestants import (
    STEPS,
    extrapolated_contestants,
    library_contestants,
)
from benchmarks.train_outcome import PROJECTOR, Contestant, Task
from benchmarks.train_peers import peer_contestants
from benchmarks.train_record import TrainRecord
from benchmarks.train_trace import Trace, is_due
from oneproj.errors import InvalidProblemError, OneprojError
from oneproj.files import check_place
from oneproj.progress import progress_bar
from oneproj.training.solve import solve
from oneproj_paper.cli.exits import console, exits
from oneproj_paper.experiments.interrupts import abandoning
from oneproj_paper.tasks import PAPER, Experiment, build

SEEDS = 5
WARM_UP = 20
LIMIT = 600.0
"""Seconds that a run may take: SLSQP on a network may never end."""


def all_contestants(*, extrapolate: bool = False) -> dict[str, Contestant]:
    """Every contestant by name, in the order in which they run.

    Example:
        >>> "cooper" in all_contestants(), len(all_contestants(extrapolate=True))
        (True, 20)
    """
    more = extrapolated_contestants() if extrapolate else []
    listed = [*library_contestants(), *peer_contestants(), *more]
    return {contestant.name: contestant for contestant in listed}


def train_record(
    problems: Sequence[str] = tuple(PAPER),
    *,
    contestants: Sequence[str] | None = None,
    seeds: int = SEEDS,
    steps: int = STEPS,
    extrapolate: bool = False,
    limit: float = LIMIT,
    out: Path | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run what ``out`` does not hold yet; the record is plain JSON.

    The first seed is traced: at some updates a copy is projected and judged, and the
    time of that is subtracted. Ctrl-C loses the run that it meets, nothing else.

    Args:
        problems: Names of experiments; one whose data is missing is skipped.
        contestants: Names; all of them if left out.
        seeds: Seeds 0 to ``seeds - 1``, each of data, start and sampling.
        steps: Updates of each run.
        extrapolate: Time slower projectors as well, on networks.
        limit: Seconds that a run may take.
        out: The file; a record that is there is continued.
        progress: As in ``oneproj.progress.progress_bar``.

    Raises:
        InvalidProblemError: There is no such problem or contestant, or ``out`` holds
            a record made under other conditions.
    """
    entered = _chosen(contestants, extrapolate=extrapolate)
    _check_problems(problems)
    conditions = {
        "steps": steps,
        "projector": PROJECTOR,
        "dtype": "float32",
        "limit": limit,
    }
    record = TrainRecord(out, conditions)
    pairs = [(problem, seed) for problem in problems for seed in range(seeds)]
    with (
        progress_bar("bench train", len(pairs), enabled=progress) as advance,
        abandoning(),
    ):
        for done, (problem, seed) in enumerate(pairs, start=1):
            missing = [
                c
                for c in entered
                if not (record.has(problem, c.name, seed) or (c.only_seed and seed))
            ]
            experiment = _build(problem, seed, record) if missing else None
            if experiment is None:
                continue
            for contestant in missing:
                record.add(
                    _attempt(contestant, experiment, seed, steps=steps, limit=limit)
                )
            advance(done)
    return record.content


def _chosen(names: Sequence[str] | None, *, extrapolate: bool) -> list[Contestant]:
    known = all_contestants(extrapolate=extrapolate)
    for name in names or ():
        if name not in known:
            message = f"There is no contestant {name!r}. Known: {'; '.join(known)}."
            raise InvalidProblemError(message)
    return [known[name] for name in known if names is None or name in names]


def _check_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        if problem not in PAPER:
            message = f"There is no problem {problem!r}. Known: {', '.join(PAPER)}."
            raise InvalidProblemError(message)


def _build(problem: str, seed: int, record: TrainRecord) -> Experiment | None:
    try:
        experiment = build(problem, seed=seed)
    except OneprojError as error:
        record.skip(problem, str(error))
        return None
    # What torch makes on first use is made before anyone is timed.
    solve(experiment.problem, steps=WARM_UP, on_failure="return", progress=False)
    return experiment


def _attempt(
    contestant: Contestant,
    experiment: Experiment,
    seed: int,
    *,
    steps: int,
    limit: float = math.inf,
) -> dict[str, Any]:
    """One run as plain data; ``reason`` says why there is nothing else."""
    run: dict[str, Any] = {
        "problem": experiment.name,
        "contestant": contestant.name,
        "about": contestant.about,
        "seed": seed,
        "linear": not experiment.settings.hidden,
        "reason": contestant.refuses(experiment),
    }
    if run["reason"] is not None:
        return run
    experiment.reset()
    trace = Trace(experiment.problem, limit=limit)
    if seed == 0:
        trace = Trace(experiment.problem, due=is_due, limit=limit)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            outcome = contestant.run(Task(experiment, seed, steps, trace))
        except OneprojError as error:  # a rival's failure is a result
            return run | {"reason": f"{type(error).__name__}: {error}"}
    return (
        run
        | asdict(outcome)
        | {"feasible": outcome.feasible}
        | {"warnings": [str(warning.message) for warning in raised]}
        | {"trace": [asdict(point) for point in trace.points]}
    )


def main(
    *,
    problems: Annotated[
        list[str] | None,
        typer.Option("--problem", help="Of the paper's six; may be repeated."),
    ] = None,
    contestants: Annotated[
        list[str] | None,
        typer.Option("--contestant", help="By name; may be repeated. Default: all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of data, start and sampling.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Updates of each run.")] = 500,
    extrapolate: Annotated[
        bool,
        typer.Option("--extrapolate", help="Time slower projectors on networks."),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="The record, as JSON; continued if it exists.")
    ] = Path("bench-train.json"),
) -> None:
    """Train on the paper's six problems with every method, side by side.

    Problems whose data is missing are skipped. Projected SGD takes minutes a seed on
    networks, so all of it takes hours; every run is saved when it is done, and the same
    command continues. Beside the record: the anytime plot, as SVG and PNG. A bar that
    is missed is shown and is no failure.
    """
    terminal = console(width=200)
    stopped = f"Stopped. The same command continues from {out}."
    with exits(stopped=stopped):
        from benchmarks.train_figure import draw_anytime
        from benchmarks.train_table import train_tables
        from oneproj_paper.tasks import PAPER

        check_place(out)
        record = train_record(
            problems or list(PAPER),
            contestants=contestants,
            seeds=seeds,
            steps=steps,
            extrapolate=extrapolate,
            out=out,
        )
        for table in train_tables(record):
            terminal.print(table)
        files = ", ".join(str(file) for file in (out, *draw_anytime(record, out)))
        typer.echo(f"Record and figure: {files}")


if __name__ == "__main__":
    typer.run(main)
