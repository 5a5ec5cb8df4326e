"""``python -m benchmarks.hinges``: the defaults against tuned hinges, by seed.

The rival is Adam on the objective plus a fixed hinge of the minibatch's constraint, and
a projection at the end, with three strengths and three step sizes. It may choose the
best of its nine feasible answers afterwards, by the objective. The bar is an objective
at most 10 percent above that.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.commands import exits_and_place, write_record
from benchmarks.measure import surroundings
from benchmarks.train_battery.problems import CASES
from benchmarks.train_battery.registry import Case
from oneproj.errors import OneprojWarning
from oneproj.methods import PenaltySGD
from oneproj.results import Solution
from oneproj.training.solve import solve
from oneproj_paper.experiments.interrupts import abandoning

BAR = 1.1
"""The ratio to the best hinge that the defaults may reach."""
STRENGTHS, LRS = (1.0, 10.0, 100.0), (0.001, 0.003, 0.01)
PROBLEMS = "continual_cnn_500,continual_cnn_2000"


def hinge_row(case: Case, seed: int) -> dict[str, Any]:
    """The objectives of the defaults and of nine hinges; None where infeasible.

    Example:
        >>> from dataclasses import replace
        >>> row = hinge_row(replace(CASES["polygon"], steps=20), seed=0)
        >>> row["problem"], len(row["hinges"])
        ('polygon', 9)
    """
    hinges = {
        f"{strength:g}, lr {lr:g}": _objective(
            _run(case, seed, PenaltySGD(lr=lr, strength=strength, base="adam"))
        )
        for strength, lr in product(STRENGTHS, LRS)
    }
    mine = _run(case, seed)
    found, feasible = _objective(mine), [f for f in hinges.values() if f is not None]
    best = min(feasible, default=math.inf)
    return {
        "problem": case.name,
        "seed": seed,
        "objective": found,
        "lr": mine.settings["lr"],
        "hinges": hinges,
        "best": best if feasible else None,
        "met": found is not None and found <= BAR * best,
    }


def _run(case: Case, seed: int, method: PenaltySGD | None = None) -> Solution:
    given: dict[str, Any] = {} if method is None else {"method": method}
    with (
        warnings.catch_warnings(),
        torch.random.fork_rng(devices=[]),  # dropout draws from the global state
    ):
        warnings.simplefilter("ignore", OneprojWarning)
        torch.manual_seed(seed)
        return solve(
            case.build(seed),
            steps=case.steps,
            seed=seed,
            progress=False,
            on_failure="return",
            **given,
        )


def _objective(solution: Solution) -> float | None:
    return solution.objective if solution.feasible else None


def print_row(row: dict[str, Any], write: Callable[[str], object]) -> None:
    """Write a row of a Markdown table: ours, the best of nine, and which it was."""
    known = {name: f for name, f in row["hinges"].items() if f is not None}
    best = min(known, key=lambda name: known[name], default="none feasible")
    mine, least = (
        "infeasible" if f is None else f"{f:.4g}"
        for f in (row["objective"], row["best"])
    )
    write(
        f"| {row['problem']} | {row['seed']} | {mine} ({row['lr']:g}) | {least} "
        f"({best}) | {len(known)} of {len(row['hinges'])} | {row['met']} |"
    )


def main(
    *,
    only: Annotated[str, typer.Option(help="Names of the battery.")] = PROBLEMS,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every problem.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Compare the defaults with nine fixed hinges on problems of the battery.

    A bar that is missed is shown and is no failure.
    """
    with exits_and_place(out), abandoning():
        typer.echo("| problem | seed | ours (lr) | best hinge | feasible | met |")
        typer.echo("|---|---|---|---|---|---|")
        rows = []
        for seed, name in product(range(seeds), only.split(",")):
            rows.append(hinge_row(CASES[name], seed))
            print_row(rows[-1], typer.echo)
        write_record({"surroundings": surroundings(), "rows": rows}, out)


if __name__ == "__main__":
    typer.run(main)
