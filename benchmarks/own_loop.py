"""``python -m benchmarks.own_loop``: ``AutoPenalty`` in a loop, against ``solve``.

The loop is the one that README shows: an optimiser with Adam's lr, ``penalty()`` added
to the loss, ``finish()``. Nothing else is chosen for a problem. It makes the updates of
``solve``, on minibatches of the same size. Three lrs are reported, each with a cosine
decay as users have it, or a constant lr. The bar: with the best of the three the
objective is within 5 percent of that of ``solve`` in the median and never above 1.5
times, and every run ends feasible.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.commands import exits_and_place, write_record
from benchmarks.measure import surroundings
from benchmarks.train_battery.__main__ import chosen
from benchmarks.train_battery.registry import Case
from oneproj.errors import OneprojError, OneprojWarning
from oneproj.methods.auto_penalty import AutoPenalty
from oneproj.methods.one_projection import OneProjection
from oneproj.oracles.base import Sampler
from oneproj.problem.problem import Problem
from oneproj.training.solve import solve
from oneproj_paper.experiments.interrupts import abandoning
from oneproj_paper.tasks import PAPER, build

LRS = (0.1, 0.03, 0.01)
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "OneProjection": OneProjection,
    "Adam": Adam,
}
MEDIAN_BAR, WORST_BAR = 1.05, 1.5


def own_loop(
    problem: Problem,
    make: Callable[..., Optimizer],
    *,
    lr: float,
    steps: int,
    batch_size: int,
    decay: bool,
    seed: int,
) -> tuple[float, bool, int]:
    """Train in a loop of one's own.

    Returns:
        The objective of the answer, whether it is feasible, and the gradients that the
        projection took.
    """
    optimizer = make(problem.parameters, lr=lr)
    penalty = AutoPenalty(
        optimizer, problem.constraints, seed=seed, model=problem.model
    )
    scheduler = CosineAnnealingLR(optimizer, steps) if decay else None
    draws = torch.Generator().manual_seed(seed)
    sampler = Sampler(problem.objective, batch_size, draws)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = problem.objective.batch_value(sampler.draw())
        total = loss + penalty()
        total.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    projection = penalty.finish(on_failure="return", progress=False)
    value = problem.objective.value()
    return value, projection.feasible, projection.projection.gradients


def loop_row(case: Case, seed: int, *, decay: bool) -> dict[str, Any]:
    """The answers of ``solve`` and of both optimisers with every lr."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", OneprojWarning)
        torch.manual_seed(seed)
        own: dict[str, Any] = {"method": "one-projection", "on_failure": "return"}
        reference = solve(
            case.build(seed), steps=case.steps, seed=seed, progress=False, **own
        )
        row: dict[str, Any] = {
            "problem": case.name,
            "seed": seed,
            "decay": decay,
            "solve": reference.objective if reference.feasible else None,
        }
        for name, make in OPTIMIZERS.items():
            for lr in LRS:
                torch.manual_seed(seed)
                begun = time.process_time()
                try:
                    found: tuple[float | None, bool, int] = own_loop(
                        case.build(seed),
                        make,
                        lr=lr,
                        steps=case.steps,
                        batch_size=int(reference.settings["batch_size"]),
                        decay=decay,
                        seed=seed,
                    )
                except OneprojError as error:
                    row[f"{name} {lr:g} error"] = str(error).splitlines()[0]
                    found = None, False, 0
                row[f"{name} {lr:g}"] = found
                row[f"{name} {lr:g} seconds"] = round(time.process_time() - begun, 2)
    return row


def ratios(rows: list[dict[str, Any]], optimizer: str) -> list[tuple[str, float]]:
    """The objective with the best lr over that of ``solve``, by problem."""
    found = []
    for row in rows:
        values = [row[f"{optimizer} {lr:g}"] for lr in LRS]
        feasible = [value for value, met, _ in values if met]
        if feasible and row["solve"]:
            found.append((f"{row['problem']} {row['seed']}", _ratio(feasible, row)))
    return found


def _ratio(feasible: list[float], row: dict[str, Any]) -> float:
    before: float = row["solve"]
    change = (min(feasible) - before) / abs(before)
    return 1.0 + change


def paper_cases() -> list[Case]:
    """The six problems of the paper; those whose data are not here are left out."""
    found = []
    for name in PAPER:
        try:
            build(name, seed=0)
        except OneprojError as error:
            typer.echo(f"{name} is left out: {error}")
            continue
        found.append(Case(name, "paper", partial(_paper_problem, name)))
    return found


def _paper_problem(name: str, seed: int) -> Problem:
    return build(name, seed=seed).problem


def main(
    *,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's problems alone.")
    ] = False,
    only: Annotated[str, typer.Option(help="Words in names, with commas.")] = "",
    family: Annotated[str, typer.Option(help="A word in the family's name.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every problem.")] = 1,
    decay: Annotated[bool, typer.Option(help="Cosine decay of the lr.")] = True,
    out: Annotated[Path | None, typer.Option(help="Where to keep the rows.")] = None,
) -> None:
    """Compare the loop that README shows with solve, on the training battery."""
    rows = []
    with exits_and_place(out), abandoning():
        for case in paper_cases() if paper else chosen(only, family):
            for seed in range(seeds):
                row = loop_row(case, seed, decay=decay)
                rows.append(row)
                cells = [f"{name}: {row[name]}" for name in ("solve", *_columns())]
                typer.echo(f"{case.name} {seed}: " + " | ".join(cells))
        for name in OPTIMIZERS:
            pairs = ratios(rows, name)
            values = [ratio for _, ratio in pairs]
            worst = sorted(pairs, key=lambda pair: -pair[1])[:8]
            missed = [
                f"{row['problem']} {lr:g}"
                for row in rows
                for lr in LRS
                if not row[f"{name} {lr:g}"][1]
            ]
            typer.echo(
                f"{name}: median {statistics.median(values):.3f} (bar {MEDIAN_BAR}), "
                f"worst {worst} (bar {WORST_BAR}), infeasible {missed}"
            )
        if rows:
            write_record({"surroundings": surroundings(), "rows": rows}, out)


def _columns() -> list[str]:
    return [f"{name} {lr:g}" for name in OPTIMIZERS for lr in LRS]


if __name__ == "__main__":
    typer.run(main)
