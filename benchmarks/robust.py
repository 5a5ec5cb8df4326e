"""``python -m benchmarks.robust``: defaults, on one problem in many disguises.

The bar: the answer is feasible, and its objective is at most 5 percent above that of
the best method on the same problem, or ``solve`` says why not. All methods make the
same number of updates, each with one set of settings for all disguises; SLSQP, which
sees all data at every iteration, is among them where scores are linear. With a network
it would go on to fit the training data by heart, which no few hundred minibatches can.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.commands import exits_and_place, write_record
from benchmarks.measure import surroundings
from benchmarks.variations import VARIATIONS, Variation
from oneproj.errors import OneprojError, OneprojWarning
from oneproj.progress import progress_bar
from oneproj.training.solve import solve
from oneproj_paper.experiments.interrupts import abandoning

BAR = 0.05
"""How far above the best method's objective the defaults may end, relative to it."""
HIDDEN = 8
"""Units of the network's hidden layer."""
DEFAULTS = "one-projection"
CONTESTANTS: dict[str, dict[str, Any]] = {
    DEFAULTS: {"method": "one-projection"},
    "penalty-sgd": {"method": "penalty-sgd", "base": "adam"},
    "lagrangian": {"method": "lagrangian", "base": "adam"},
    "switching-subgradient": {"method": "switching-subgradient", "base": "adam"},
    "slsqp": {"method": "slsqp"},
}
"""What each method is called with, beyond steps and seed."""


@dataclass(frozen=True)
class Row:
    """One disguise: the mean objective of each method over the seeds."""

    variation: str
    hidden: int
    objectives: dict[str, float | None]
    """None where a seed ended infeasible or with an error."""
    best: str
    above: float | None
    """How far the defaults are above the best, relative to it."""
    worst_residual: float | None
    """Of the defaults, over the seeds."""
    message: str
    """What the defaults said: an error, or warnings."""
    met: bool
    """Whether they are feasible and near the best; if not, see the message."""


def robust_record(
    variations: Sequence[Variation] = VARIATIONS,
    *,
    steps: int = 500,
    seeds: int = 3,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run every method on every disguise, linear and network; plain JSON.

    Example:
        >>> record = robust_record(VARIATIONS[:1], steps=20, seeds=1)
        >>> [row["hidden"] for row in record["rows"]]
        [0, 8]
    """
    cells = [(hidden, variation) for hidden in (0, HIDDEN) for variation in variations]
    rows = []
    with (
        abandoning(),  # or the rest of a run that Ctrl-C ended would be judged
        progress_bar("bench robust", len(cells), enabled=progress) as advance_to,
    ):
        for done, (hidden, variation) in enumerate(cells, start=1):
            rows.append(_compare(variation, hidden, steps, range(seeds)))
            advance_to(done)
    return {
        "benchmark": "robust",
        "surroundings": surroundings(),
        "settings": {"steps": steps, "seeds": seeds, "bar": BAR},
        "rows": [asdict(row) for row in rows],
    }


def _compare(variation: Variation, hidden: int, steps: int, seeds: range) -> Row:
    residuals: list[float] = []
    messages: list[str] = []

    def mean_objective(name: str) -> float | None:
        found = []
        for seed in seeds:
            try:
                objective, residual, said = _run(variation, hidden, steps, seed, name)
            except OneprojError as error:
                messages.append(f"{name}: {str(error).splitlines()[0]}")
                return None
            found.append(objective)
            if name == DEFAULTS:
                residuals.append(residual)
                messages.extend(f"{name}, seed {seed}: {text}" for text in said)
        return sum(found) / len(found)

    known = [name for name in CONTESTANTS if not (hidden and name == "slsqp")]
    objectives = {name: mean_objective(name) for name in known}
    reached = {name: f for name, f in objectives.items() if f is not None}
    best = min(reached, key=lambda name: reached[name], default="")
    own, above = objectives[DEFAULTS], None
    if own is not None:
        above = own / reached[best] - 1.0
    return Row(
        variation=variation.name,
        hidden=hidden,
        objectives=objectives,
        best=best,
        above=above,
        worst_residual=max(residuals, default=None),
        message="; ".join(text for text in messages if text.startswith(DEFAULTS)),
        met=above is not None and above <= BAR and max(residuals) <= 0,
    )


def _run(
    variation: Variation, hidden: int, steps: int, seed: int, name: str
) -> tuple[float, float, list[str]]:
    problem = variation.problem(hidden=hidden, seed=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OneprojWarning)
        solution = solve(
            problem, steps=steps, seed=seed, progress=False, **CONTESTANTS[name]
        )
    said = [str(w.message) for w in caught]
    return solution.objective, max(solution.residuals.values()), said


def robust_lines(record: Mapping[str, Any], write: Callable[[str], object]) -> None:
    """Write the record as a Markdown table, and below it what missed rows said."""
    names = list(CONTESTANTS)
    write("| model | disguise | " + " | ".join(names) + " | above the best | |")
    write("|---|---|" + "---|" * (len(names) + 2))
    for row in record["rows"]:
        found = [row["objectives"].get(name) for name in names]
        shown = ["-" if value is None else f"{value:.4g}" for value in found]
        above = "-" if row["above"] is None else f"{100 * row['above']:.1f} %"
        model = "network" if row["hidden"] else "linear"
        cells = [model, row["variation"], *shown, above]
        verdict = "met" if row["met"] else "told" if row["message"] else "MISSED"
        write(f"| {' | '.join(cells)} | {verdict} |")
    write("")
    for row in record["rows"]:
        if row["message"] and not row["met"]:
            write(f"- {row['variation']}: {row['message']}")


def main(
    *,
    steps: Annotated[int, typer.Option(min=1, help="Updates of every run.")] = 500,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Try the defaults on one problem in many disguises; prints a Markdown table.

    The bar is an objective at most 5 percent above that of the best method. A bar that
    is missed is shown and is no failure.
    """
    with exits_and_place(out):
        record = robust_record(steps=steps, seeds=seeds)
        robust_lines(record, typer.echo)
        write_record(record, out)


if __name__ == "__main__":
    typer.run(main)
