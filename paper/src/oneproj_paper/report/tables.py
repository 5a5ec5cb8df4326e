"""A table of the report as data: what the page, the CSV and the LaTeX file show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from oneproj_paper.experiments.spread import Spread
from oneproj_paper.report.groups import Group, task_of
from oneproj_paper.report.published import DATA, Printed

Mark = Literal["", "within", "outside", "same", "differs"]
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
NONE = "\N{EN DASH}"
"""Stands where there is nothing to show."""
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
"""The commas inside of a number."""


@dataclass(frozen=True)
class Cell:
    """Ours, and the paper's below it.

    Example:
        >>> Cell("3,000", paper="500", mark="differs").fields
        ('3000', '500')
    """

    ours: str
    paper: str = ""
    mark: Mark = ""
    note: str = ""
    """Shown small below: a distance, or that a runtime is extrapolated."""
    fields: tuple[str, ...] = ()
    """What the CSV file holds, in full precision where it is a number."""

    def __post_init__(self) -> None:
        """Text cells export what they show, with numbers as programs read them."""
        shown = self.fields or (self.ours, self.paper)
        plain = tuple(THOUSANDS.sub("", text) for text in shown)
        object.__setattr__(self, "fields", plain)


@dataclass(frozen=True)
class Column:
    """A heading, and the CSV columns under it.

    Example:
        >>> number_column("Ambiguity (%)").fields[:2]
        ('Ambiguity (%)', 'Ambiguity (%), sd')
    """

    heading: str
    fields: tuple[str, ...]
    compared: bool = True
    """Whether the paper has this column too."""


@dataclass(frozen=True)
class Line:
    """One row: what it is about, its cells, and what they say.

    Example:
        >>> Line(("Gaussian",), (Cell("500"),)).verdict
        ''
    """

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """Such as ``"stand-in"`` and ``"extrapolated"``."""


@dataclass(frozen=True)
class Table:
    """A table with everything around it.

    Example:
        >>> table = Table("t", "T", "What it shows.", ("Data",), (), ())
        >>> table.key, table.lines
        ('t', ())
    """

    key: str
    """Names its files."""
    title: str
    caption: str
    labels: tuple[str, ...]
    """Headings of the columns that say what a row is about."""
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    commands: tuple[str, ...] = ()
    """What made the records behind it."""
    missing: tuple[str, ...] = ()
    """Commands that would fill the rows that are not there."""


def number_column(heading: str) -> Column:
    """A column of means with standard deviations, ours and the paper's.

    Example:
        >>> len(number_column("Runtime (s)").fields)
        5
    """
    parts = ("", ", sd", ", runs", ", paper", ", paper sd")
    return Column(heading, tuple(heading + part for part in parts))


def text_column(heading: str, *, compared: bool = True) -> Column:
    """A column of texts; beside the paper's if compared.

    Example:
        >>> text_column("Updates").fields
        ('Updates', 'Updates, paper')
    """
    fields = (heading, f"{heading}, paper")
    return Column(heading, fields if compared else fields[:1], compared)


def number_cell(
    ours: Spread | None,
    paper: Printed | None,
    *,
    digits: int,
    mark: Mark = "",
    note: str = "",
) -> Cell:
    """Mean and standard deviation beside the paper's.

    Example:
        >>> from oneproj_paper.experiments.spread import spread
        >>> number_cell(spread([1.0]), Printed("0.90", "0.20"), digits=2).fields
        ('1.0', '', '1', '0.90', '0.20')
    """
    shown = NONE if ours is None else ours.text(digits)
    mine = ("", "", "0")
    if ours is not None:
        mine = (
            repr(ours.mean),
            "" if ours.sd is None else repr(ours.sd),
            f"{ours.runs}",
        )
    printed = ("", "") if paper is None else (paper.mean_text, paper.sd_text)
    beside = "" if paper is None else f" {PLUS_MINUS} ".join(printed)
    return Cell(shown, beside, mark, note, (*mine, *printed))


def sameness(ours: str, paper: str) -> Mark:
    """The mark of a text that should be the paper's.

    Example:
        >>> sameness("500", "500")
        'same'
    """
    return "same" if ours == paper else "differs"


def flags_of(group: Group) -> tuple[str, ...]:
    """The labels that a row of these runs must carry.

    Example:
        >>> flags_of(Group("abstention-nasa", "paper", "projected-sgd", "cuts", ()))
        ()
    """
    flags = (
        ("stand-in", group.stand_in),
        ("extrapolated", group.extrapolated),
        (f"{group.aborted} aborted", group.aborted),
        (f"{group.infeasible} infeasible", group.infeasible),
    )
    return tuple(name for name, holds in flags if holds)


def data_title(experiment: str) -> str:
    """The paper's name of the data, or the experiment's own.

    Example:
        >>> data_title("abstention-nasa")
        'NASA rainfall'
    """
    return DATA[experiment].title if experiment in DATA else experiment


def experiment_title(experiment: str) -> str:
    """Data and task, where both tasks meet in one table.

    Example:
        >>> experiment_title("abstention-nasa")
        'NASA rainfall (abstention)'
    """
    return f"{data_title(experiment)} ({task_of(experiment)})"


def command_for(experiment: str, preset: str = "paper") -> str:
    """What a user runs to get records of an experiment.

    Example:
        >>> command_for("transfer-climsim")
        'oneproj-paper reproduce transfer-climsim --preset paper --seeds 10'
    """
    return f"oneproj-paper reproduce {experiment} --preset {preset} --seeds 10"
