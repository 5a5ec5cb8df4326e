"""The paper's two tables of data: what was trained on, beside what it trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.report.groups import Group, commands_of, task_of
from oneproj_paper.report.published import DATA, DataSet
from oneproj_paper.report.quantities import in_common
from oneproj_paper.report.tables import (
    Cell,
    Line,
    Table,
    command_for,
    data_title,
    sameness,
    text_column,
)

Read = tuple[str, Callable[[Record], str], Callable[[DataSet], str]]
"""A heading, where a record has it, and where the paper has it."""
PARTS = ("train", "validation", "test")


def _model(record: Record) -> str:
    hidden = record.settings.get("hidden") or ()
    if not hidden:
        return "Linear with intercept"
    widths = ", ".join(str(width) for width in hidden)
    names = {"relu": "ReLU", "softplus": "Softplus"}
    activation = str(record.settings.get("activation"))
    return f"[{widths}] {names.get(activation, activation)} MLP"


def _pair(record: Record, part: str) -> str:
    return "/".join(str(n) for n in record.data.counts[part])


def _classes(record: Record) -> tuple[int, int]:
    counts = [record.data.counts[part] for part in PARTS]
    return sum(n[0] for n in counts), sum(n[1] for n in counts)


TRANSFER: tuple[Read, ...] = (
    ("Target", lambda record: _pair(record, "train"), lambda paper: paper.target),
    ("Source", lambda record: _pair(record, "source"), lambda paper: paper.source),
    ("Variables", lambda r: str(r.data.variables), lambda paper: paper.variables),
    ("Model", _model, lambda paper: paper.model),
)
ABSTENTION: tuple[Read, ...] = (
    (
        "Observations",
        lambda record: f"{sum(_classes(record)):,}",
        lambda paper: paper.observations,
    ),
    (
        "Classes (0/1)",
        lambda record: "/".join(f"{n:,}" for n in _classes(record)),
        lambda paper: paper.classes,
    ),
    ("Raw variables", lambda r: str(r.data.variables), lambda paper: paper.variables),
    (
        "Target error \u03b1",
        lambda record: f"{float(record.settings['target_error']):.2f}",
        lambda paper: paper.target_error,
    ),
)


def data_tables(groups: Sequence[Group]) -> list[Table]:
    """Data and models of the transfer experiments, then of those with abstention.

    Example:
        >>> [table.key for table in data_tables([])]
        ['transfer-data', 'abstention-data']
    """
    transfer = (
        "Class 0/class 1 of the target and source training samples, variables, model."
    )
    abstention = (
        "All observations (training, validation and test), and the class error that "
        "the thresholds are calibrated for."
    )
    return [
        _table("transfer", "Transfer: data and models", transfer, TRANSFER, groups),
        _table("abstention", "Abstention: data", abstention, ABSTENTION, groups),
    ]


def _table(
    task: str,
    title: str,
    caption: str,
    reads: Sequence[Read],
    groups: Sequence[Group],
) -> Table:
    mine = [group for group in groups if group.task == task]
    names = list(dict.fromkeys(group.experiment for group in mine))
    expected = [name for name in DATA if task_of(name) == task]
    return Table(
        key=f"{task}-data",
        title=title,
        caption=caption,
        labels=("Data",),
        columns=tuple(text_column(heading) for heading, _, _ in reads),
        lines=tuple(
            _line(name, reads, [g for g in mine if g.experiment == name])
            for name in names
        ),
        commands=commands_of(mine),
        missing=tuple(command_for(name) for name in expected if name not in names),
    )


def _line(name: str, reads: Sequence[Read], groups: Sequence[Group]) -> Line:
    records = [record for group in groups for record in group.records]
    stand_in = any(group.stand_in for group in groups)
    paper = DATA.get(name)
    cells = []
    for _, ours, theirs in reads:
        shown = in_common(ours(record) for record in records)
        printed = "" if paper is None else theirs(paper)
        mark = "" if stand_in else sameness(shown, printed)
        cells.append(Cell(shown, printed, mark))
    return Line(
        labels=(data_title(name),),
        cells=tuple(cells),
        verdict=_verdict(records, cells, stand_in=stand_in),
        flags=("stand-in",) if stand_in else (),
    )


def _verdict(
    records: Sequence[Record], cells: Sequence[Cell], *, stand_in: bool
) -> str:
    notes = " ".join(sorted({r.data.note for r in records if r.data.note}))
    if stand_in:
        said = "Stand-in data: another sample takes the place of the paper's."
    elif all(cell.mark == "same" for cell in cells):
        said = "As in the paper."
    else:
        said = "Differs from the paper where marked."
    return f"{said} {notes}".strip()
