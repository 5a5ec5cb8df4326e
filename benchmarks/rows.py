"""``python -m benchmarks.rows``: the time of training by the number of rows.

The problem: a network with 2,113 parameters on a table, and a cap on its risk on a
second table with as many rows. Training is timed against a bare loop that sees
minibatches of the same size. The bar is a ratio of 2.0, whatever the rows. The pass
that judges the start, the projection and the certificate look at all rows: their times
are shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import SGD

from benchmarks.commands import exits_and_place, write_record
from benchmarks.measure import Spread, alternate, paired_ratio, surroundings
from benchmarks.overhead import run_bare
from oneproj.problem.functions import mean
from oneproj.problem.problem import Problem
from oneproj.results import Solution
from oneproj.training.solve import solve
from oneproj.vectors.arithmetic import assign, snapshot
from oneproj_paper.experiments.interrupts import abandoning

BAR = 2.0
"""The ratio that training may reach."""
ROWS = (10**3, 10**4, 10**5, 10**6)
FEATURES, HIDDEN = 31, 64
CAP = 0.45
"""On the risk of the second table, whose labels differ from those of the first."""
PARTS = ("start", "train", "project", "certify")
"""Of a run of ``solve``, in its order."""


def table_problem(rows: int, seed: int = 0) -> Problem:
    """Learn one table under a cap on the risk on another.

    Example:
        >>> problem = table_problem(100)
        >>> problem.objective.size, sum(p.numel() for p in problem.parameters)
        (100, 2113)
    """
    generator = torch.Generator().manual_seed(seed)
    layers = nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.1, generator=generator)
    target, other = torch.randn(2, FEATURES, generator=generator)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * model(batch[0])[:, 0])

    def table(direction: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.randn(rows, FEATURES, generator=generator)
        noise = torch.randn(rows, generator=generator)
        return x, torch.where(x @ direction + noise > 0, 1.0, -1.0)

    capped = mean(loss, data=table(target + other)) <= CAP
    objective = mean(loss, data=table(target))
    return Problem(model.parameters(), objective, {"other": capped})


def rows_record(
    rows: Sequence[int] = ROWS, *, updates: int = 500, repeats: int = 3, seed: int = 0
) -> dict[str, Any]:
    """Time ``solve`` and the bare loop in turns, for each number of rows; plain JSON.

    Example:
        >>> record = rows_record([200], updates=10, repeats=2)
        >>> [row["rows"] for row in record["rows"]]
        [200]
    """
    with abandoning():
        measured = [_measure(count, updates, repeats, seed) for count in rows]
    return {
        "settings": {"updates": updates, "repeats": repeats, "seed": seed},
        "surroundings": surroundings(),
        "rows": measured,
    }


def _measure(rows: int, updates: int, repeats: int, seed: int) -> dict[str, Any]:
    problem, solutions = table_problem(rows, seed), list[Solution]()
    start = snapshot(problem.parameters)

    def ours() -> None:
        assign(problem.parameters, start)
        solution = solve(
            problem, steps=updates, seed=seed, progress=False, on_failure="return"
        )
        solutions.append(solution)

    def bare() -> None:
        assign(problem.parameters, start)
        run_bare(problem, SGD, updates, solutions[0].settings["batch_size"])

    tasks: dict[str, Callable[[], object]] = {"ours": ours, "bare": bare}
    loop = alternate(tasks, repeats=repeats)["bare"]
    kept = solutions[-repeats:]
    parts = {part: [s.seconds[part] for s in kept] for part in PARTS}
    ratio = paired_ratio(parts["train"], loop)
    return {
        "rows": rows,
        "ratio": vars(ratio),
        "met": ratio.median <= BAR,
        "bare seconds": Spread.of(loop).median,
        "seconds": {part: Spread.of(took).median for part, took in parts.items()},
        "objective": kept[-1].objective,
        "residual": max(kept[-1].residuals.values()),
    }


def print_table(record: dict[str, Any], write: Callable[[str], object]) -> None:
    """Write the record as a Markdown table."""
    around = record["surroundings"]
    write(
        f"{record['settings']['updates']} updates, {around['threads']} thread(s) on "
        f"{around['cpu_count']} cores, load {around['load']}. Ratio: training over the "
        f"bare loop, median and quartiles; the bar is {BAR}."
    )
    write("")
    write("| rows | ratio | bare | " + " | ".join(PARTS) + " | residual |")
    write("|---|---|---|" + "---|" * len(PARTS) + "---|")
    for row in record["rows"]:
        ratio = row["ratio"]
        parts = " | ".join(f"{row['seconds'][part]:.2f} s" for part in PARTS)
        write(
            f"| {row['rows']:,} | {ratio['median']:.2f} [{ratio['lower']:.2f}, "
            f"{ratio['upper']:.2f}] | {row['bare seconds']:.2f} s | {parts} "
            f"| {row['residual']:.1e} |"
        )


def main(
    *,
    rows: Annotated[
        list[int] | None, typer.Option(min=1, help="Of each table; may be repeated.")
    ] = None,
    updates: Annotated[int, typer.Option(min=2, help="Of every run.")] = 500,
    repeats: Annotated[int, typer.Option(min=2, help="Alternating rounds.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of data and start.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Time training by the number of rows, against a bare loop.

    10^7 rows take 3 GB of memory. A bar that is missed is shown and is no failure.
    """
    with exits_and_place(out):
        record = rows_record(rows or ROWS, updates=updates, repeats=repeats, seed=seed)
        print_table(record, typer.echo)
        write_record(record, out)


if __name__ == "__main__":
    typer.run(main)
