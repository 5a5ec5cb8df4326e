"""The paper's four tables of results, method by method, ours beside its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oneproj_paper.report.agreement import Agreement, agreement_line, compare, judged
from oneproj_paper.report.groups import PAPER, Group, commands_of, task_of
from oneproj_paper.report.published import EXPERIMENTS, RESULTS, Row
from oneproj_paper.report.quantities import (
    ACCURACY,
    AMBIGUITY,
    CLASS_0,
    CLASS_1,
    RUNTIME,
    SOURCE_CAP,
    SOURCE_RISK,
    TARGET_ERROR,
    TARGET_RISK,
    THRESHOLDS,
    UPDATES,
    Fact,
    Quantity,
)
from oneproj_paper.report.reasons import Reason, Reasons
from oneproj_paper.report.tables import (
    Cell,
    Column,
    Line,
    Table,
    command_for,
    data_title,
    experiment_title,
    flags_of,
    number_cell,
    number_column,
    sameness,
    text_column,
)

LABELS = ("Data", "Method", "Projector", "Settings", "Runs")


@dataclass(frozen=True)
class Plan:
    """What a table shows, before there are records.

    Example:
        >>> [plan.key for plan in PLANS]
        ['transfer', 'transfer-budgets', 'abstention', 'calibration']
    """

    key: str
    title: str
    caption: str
    task: str
    columns: tuple[Quantity | Fact, ...]


PLANS = (
    Plan(
        "transfer",
        "Transfer: results on the target",
        "Target test error and logistic risk, and training runtime with the source "
        "fit: mean and sample standard deviation.",
        "transfer",
        (TARGET_ERROR, TARGET_RISK, RUNTIME),
    ),
    Plan(
        "transfer-budgets",
        "Transfer: update budgets and source risks",
        "Updates after the source fit, the cap on the source risk, and the source risk "
        "of the answer on the full training data.",
        "transfer",
        (UPDATES, SOURCE_CAP, SOURCE_RISK),
    ),
    Plan(
        "abstention",
        "Abstention: results",
        "Test errors of both classes, share of the test points on which the "
        "classifier abstains, and training runtime.",
        "abstention",
        (CLASS_0, CLASS_1, AMBIGUITY, RUNTIME),
    ),
    Plan(
        "calibration",
        "Abstention: calibration",
        "Thresholds on the surrogate class errors, chosen on validation data, the "
        "number of updates that they are for, and the test accuracy where the "
        "classifier decides.",
        "abstention",
        (THRESHOLDS, UPDATES, ACCURACY),
    ),
)


def result_tables(groups: Sequence[Group], reasons: Reasons) -> list[Table]:
    """One table per plan, in the paper's order.

    Example:
        >>> [len(table.missing) for table in result_tables([], {})]
        [2, 2, 4, 4]
    """
    return [_table(plan, groups, reasons) for plan in PLANS]


def _table(plan: Plan, groups: Sequence[Group], reasons: Reasons) -> Table:
    mine = [g for g in groups if g.task == plan.task]
    there = {group.experiment for group in mine if group.preset == PAPER}
    expected = [e for e in EXPERIMENTS if task_of(e) == plan.task]
    return Table(
        key=plan.key,
        title=plan.title,
        caption=plan.caption,
        labels=LABELS,
        columns=tuple(_column(column) for column in plan.columns),
        lines=tuple(_line(plan, group, reasons) for group in mine),
        commands=commands_of(mine),
        missing=tuple(command_for(e) for e in expected if e not in there),
    )


def _column(column: Quantity | Fact) -> Column:
    if isinstance(column, Quantity):
        return number_column(column.heading)
    return text_column(column.heading)


def row_labels(group: Group) -> tuple[str, ...]:
    """What a row is about: data, method, projector, whose settings, how many runs.

    Example:
        >>> row_labels(Group("abstention-nasa", "paper", "projected-sgd", "cuts", ()))
        ('NASA rainfall (abstention)', 'Projected SGD', 'cuts', "the paper's", '0')
    """
    return (
        experiment_title(group.experiment),
        group.method_title,
        group.projector_title,
        group.preset_title,
        str(len(group.records)),
    )


def agreements(
    group: Group, columns: Sequence[Quantity | Fact] | None = None
) -> list[Agreement]:
    """Every number of a group that is held against the paper.

    Args:
        group: Of runs.
        columns: Those of one table; all tables of its task if left out.

    Example:
        >>> agreements(Group("abstention-nasa", "oneproj", "projected-sgd", "cuts", ()))
        []
    """
    paper = _published(group)
    if paper is None or not judged(group):
        return []
    if columns is None:
        plans = [plan for plan in PLANS if plan.task == group.task]
        columns = [column for plan in plans for column in plan.columns]
    found = []
    for column in columns:
        if isinstance(column, Quantity) and column.judged:
            ours = column.spread(group.finished)
            if ours is not None:
                found.append(compare(column.key, ours, paper.numbers[column.key]))
    return found


def _published(group: Group) -> Row | None:
    return RESULTS.get(group.experiment, {}).get(group.method)


def _line(plan: Plan, group: Group, reasons: Reasons) -> Line:
    found = agreements(group, plan.columns)
    cells = tuple(_cell(column, group, found) for column in plan.columns)
    keys = [(group.experiment, group.method, a.key) for a in found if not a.within]
    return Line(
        labels=(data_title(group.experiment), *row_labels(group)[1:]),
        cells=cells,
        verdict=agreement_line(group, found),
        reasons=tuple(
            f"{key[2].capitalize()}: {_text(reasons.get(key), group)}" for key in keys
        ),
        flags=flags_of(group),
    )


def _text(reason: Reason | None, group: Group) -> str:
    if reason is None or not reason.holds_for({r.seed for r in group.finished}):
        return "no reason written yet."
    return reason.text


def fact_cell(column: Fact, group: Group) -> Cell:
    """A setting of a group beside the paper's; marked where they should be the same.

    Example:
        >>> group = Group("abstention-nasa", "oneproj", "projected-sgd", "cuts", ())
        >>> fact_cell(UPDATES, group).paper
        '500'
    """
    paper = _published(group)
    ours = column.text(group.records)
    theirs = "" if paper is None else column.published(paper)
    compared = group.preset == PAPER and not group.stand_in
    return Cell(ours, theirs, sameness(ours, theirs) if compared else "")


def _cell(column: Quantity | Fact, group: Group, found: Sequence[Agreement]) -> Cell:
    if isinstance(column, Fact):
        return fact_cell(column, group)
    paper = _published(group)
    printed = None if paper is None else paper.numbers[column.key]
    if column is RUNTIME:
        ours_spread = column.spread(group.timed)
        note = "extrapolated" if group.extrapolated else ""
        return number_cell(ours_spread, printed, digits=column.digits, note=note)
    verdict = next((a for a in found if a.key == column.key), None)
    few = ", 1 run" if len(group.finished) == 1 else ""
    return number_cell(
        column.spread(group.finished),
        printed,
        digits=column.digits,
        mark="" if verdict is None else "within" if verdict.within else "outside",
        note="" if verdict is None else verdict.words + few,
    )
