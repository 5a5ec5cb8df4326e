"""The records as a table: for the terminal, and for the documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oneproj_paper.laboratory.plans import QUICK_FACTOR
from oneproj_paper.laboratory.records import Record

COLUMNS = (
    *("theorem", "constants", "epsilon", "T", "K", "trials", "at the start"),
    *("worst output", "successes", "95 % bound", "projections", "seconds", "verdict"),
)
_SYMBOLS = {
    "weak_convexity": "ell",
    "gradient_bound": "G_f",
    "constraint_gradient_bound": "G_g",
    "constraint_smoothness": "L_g",
    "boundary_slope": "sigma",
    "infeasible_slope": "sigma_out",
    "initial_gap": "Delta",
}


def table_cells(record: Record) -> list[str]:
    """Return the cells of one row, in the order of ``COLUMNS``."""
    # The nonconvex setting has two slopes and calls this one sigma_bd.
    symbols = _SYMBOLS | (
        {"boundary_slope": "sigma_bd"} if "infeasible_slope" in record.constants else {}
    )
    constants = [
        f"{symbol} {value:.3g}"
        for name, symbol in symbols.items()
        if isinstance(value := record.constants.get(name), float)
    ]
    verdict = "pass" if record.passed else "FAIL: " + "; ".join(record.failures)
    if record.factor > 1:
        verdict += " (outside the theorem)"
    return [
        f"{record.key.removeprefix('theorem-')}: {record.title}",
        ", ".join(constants),
        f"{record.epsilon:g}",
        f"{record.outer_steps:,}",
        f"{record.inner_steps:,}",
        str(record.trials),
        f"{record.measure_name} = {record.start_measure:.4f}",
        f"{max(record.measures):.2g}",
        f"{record.successes}/{record.trials}",
        f"{_floor(record.success_bound):.3f}",
        str(record.projections),
        f"{record.seconds:.0f}",
        verdict,
    ]


def _floor(bound: float) -> float:
    """Round a lower bound down, so that the table does not promise more."""
    return math.floor(bound * 1000) / 1000


def table_title(records: Sequence[Record]) -> str:
    """Say whether the rows are the theorems' or shortened ones."""
    if all(record.factor == 1 for record in records):
        return "The theorems' schedules, executed to the letter"
    return (
        f"Outside the theorems: T and K are theirs divided by {QUICK_FACTOR}, "
        "so no probability is promised"
    )


LEGEND = """\
- *at the start*: the theorem's measure at x_0. It exceeds epsilon, so the run had
  something to do.
- *worst output*: the largest measure among the trials.
- *successes*: trials whose output is feasible (g <= 0, evaluated) and satisfies every
  inequality of the theorem.
- *95 % bound*: one-sided Clopper-Pearson lower bound on the success probability; the
  theorem promises 2/3.
- *projections*: onto the feasible set, counted; one per trial.
- *seconds*: of computation, summed over the cores. The machine may have done other work
  as well."""
FIGURE = """\
![The measure of every trial along the outer iterations](theory.png)

Each line is one trial: the measure of the output if the drawn index J had been t. Rings
mark the J that were drawn. The dotted line is epsilon. The measures are evaluated after
the run, for the figure only. Where a line rises again, the trial leaves a saddle point
of the objective. The level at the end is the inner error of a finite K."""


LIMITS = """\
**What this shows, and what it does not.**

- The three problems have two parameters each (d = 2).
- A compiled copy of `OneProjection` makes the steps. A test compares it with the
  original, on the same noise, for a few outer iterations.
- The table checks that the promise holds. It does not show that the schedules are
  tight: they are worst-case bounds. Far fewer steps succeed too. With the theorems' T
  and K = 2 (T K divided by 4.5e6 to 7.9e6), 8 of 8 trials succeed in every row; with a
  quarter of T and T K divided by 2e7, 8, 8 and 7 of 8."""


def _answer(records: Sequence[Record]) -> str:
    passed = sum(record.passed for record in records)
    successes = sum(record.successes for record in records)
    trials = sum(record.trials for record in records)
    projections = sum(record.projections for record in records)
    return (
        f"Does the algorithm keep the theorems' promises? {passed} of {len(records)} "
        f"rows pass: {successes} of {trials} trials\nended feasible and as accurate as "
        f"promised, with {projections} projections in all."
    )


def markdown_table(records: Sequence[Record]) -> str:
    """Return the page that the command writes next to the records."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(table_cells, records)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    first = records[0]
    versions = ", ".join(f"{name} {value}" for name, value in first.versions.items())
    steps = sum(r.outer_steps * r.inner_steps * r.trials for r in records)
    options = f"--trials {first.trials} --seed {first.seed}"
    if first.factor > 1:
        options = f"--quick {options}"
    made = f"Made by `oneproj-paper theory {options}`: {steps:.2e} inner steps."
    title, answer = f"# {table_title(records)}", _answer(records)
    parts = [title, answer, made, table, LEGEND, LIMITS, FIGURE]
    parts.append(f"Versions: {versions}.")
    return "\n\n".join(parts) + "\n"
