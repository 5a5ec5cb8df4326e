"""A folder of records to a page, with its figures and tables as files beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from oneproj.errors import OneprojError
from oneproj.files import check_place, in_words, write_text
from oneproj_paper.errors import RecordError
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.records import Damaged, Found, read_folder
from oneproj_paper.report.certificate_table import certificate_table
from oneproj_paper.report.data_tables import data_tables
from oneproj_paper.report.figures import (
    SUFFIXES,
    FigureEntry,
    bar_figure,
    history_figures,
)
from oneproj_paper.report.formats import csv_text, latex_text
from oneproj_paper.report.groups import Group, group_records
from oneproj_paper.report.inline import THEME
from oneproj_paper.report.overview import Overview, overview
from oneproj_paper.report.reasons import Reasons, read_reasons
from oneproj_paper.report.result_tables import result_tables
from oneproj_paper.report.runtime_table import runtime_table
from oneproj_paper.report.tables import Table


@dataclass(frozen=True)
class Surroundings:
    """What the runs ran on.

    Example:
        >>> surroundings([]).mixed
        ()
    """

    lines: tuple[tuple[str, str], ...]
    """A name and its value, or its values with the number of runs of each."""
    mixed: tuple[str, ...]
    """Names whose values differ between runs."""
    warnings: tuple[str, ...]
    """What the library warned about, with the number of runs."""


def surroundings(records: Sequence[Record]) -> Surroundings:
    """Collect versions, machines and warnings over all runs.

    Example:
        >>> surroundings([]).lines
        ()
    """
    lines: dict[str, str] = {}
    mixed: list[str] = []
    parts = ([r.versions for r in records], [r.machine for r in records])
    for name, values in (pair for part in parts for pair in _values(part).items()):
        lines[name] = _shown(values)
        if len(values) > 1:
            mixed.append(name)
    warned = Counter(text for record in records for text in set(record.warnings))
    return Surroundings(
        lines=tuple(lines.items()),
        mixed=tuple(mixed),
        warnings=tuple(
            f"{text} ({n} of {len(records)} runs)" for text, n in sorted(warned.items())
        ),
    )


def _values(parts: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, Counter())[str(value)] += 1
    return found


def _shown(values: Counter[str]) -> str:
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(
        f"{value} ({n} {'run' if n == 1 else 'runs'})"
        for value, n in sorted(values.items())
    )


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own.

    Example:
        >>> Section("runtime", "Runtime", (), ()).title
        'Runtime'
    """

    key: str
    title: str
    tables: tuple[Table, ...]
    figures: tuple[FigureEntry, ...]


def render_page(
    overview: Overview,
    sections: Sequence[Section],
    surroundings: Surroundings,
    *,
    beside: str,
) -> str:
    """The text of the page.

    Args:
        overview: Comes first.
        sections: In their order.
        surroundings: Come last.
        beside: Folder of the files, from the page; links to them are relative.
    """
    from jinja2 import Environment, StrictUndefined

    folder = files("oneproj_paper.report").joinpath("templates")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["theme"] = theme_colour
    template = environment.from_string(folder.joinpath("page.html").read_text("utf-8"))
    content: dict[str, Any] = {
        "overview": overview,
        "sections": sections,
        "surroundings": surroundings,
        "beside": beside,
        "suffixes": SUFFIXES,
        "style": folder.joinpath("page.css").read_text("utf-8"),
    }
    return template.render(content)


def theme_colour(colour: str) -> str:
    """The CSS of a figure's colour, so that legends follow the theme as figures do.

    Example:
        >>> theme_colour("#222222"), theme_colour("#123456")
        ('var(--ink)', '#123456')
    """
    return f"var(--{THEME[colour]})" if colour in THEME else colour


FIGURES, TABLES = "figures", "tables"


@dataclass(frozen=True)
class Report:
    """What was written.

    Example:
        >>> Report(Path("report.html"), Path("report-files"), ()).page.name
        'report.html'
    """

    page: Path
    files: Path
    """The folder of figures and tables."""
    groups: tuple[Group, ...]
    damaged: tuple[Damaged, ...] = ()
    """Files in the places of records that held none; the page names them."""


def write_report(folder: Path, out: Path, *, reasons: Reasons | None = None) -> Report:
    """Make the page of the records under a folder.

    The page stands alone: style and figures are inside it. Beside it, in the folder
    ``<name>-files``: every figure as SVG, PNG and PDF, every table as CSV and LaTeX.
    The same records give the same bytes. A damaged record is left out, and named.
    Every file is replaced in one step, the page last: whatever ends this early, what
    was there before is whole.

    Args:
        folder: Of records, as ``oneproj-paper reproduce`` writes them.
        out: The page.
        reasons: Why numbers fall outside; those of the package if left out.

    Raises:
        RecordError: There are no records, or they are of another format.
        OneprojError: The page cannot be written.
    """
    records, damaged = _read(folder)
    if out.is_dir():
        message = (
            f"{out} is a folder; the page is a file, such as {out / 'report.html'}."
        )
        raise OneprojError(message)
    groups = group_records(records)
    beside = out.with_name(f"{out.stem}-files")
    try:
        check_place(out)
        sections = _sections(
            groups, read_reasons() if reasons is None else reasons, beside
        )
        first = overview(groups, damaged=[each.place for each in damaged])
        text = render_page(first, sections, surroundings(records), beside=beside.name)
        write_text(out, text)
        _clear(beside, sections)
    except OSError as error:
        message = (
            f"The report cannot be written to {out}: {in_words(error)}. Give another "
            "place with --out, on a disk with room."
        )
        raise OneprojError(message) from error
    return Report(out, beside, tuple(groups), tuple(damaged))


def _read(folder: Path) -> Found:
    again = "Run `oneproj-paper reproduce --out DIR` first, and give that DIR here."
    if not folder.is_dir():
        message = f"There is no folder {folder}, so there are no records. {again}"
        raise RecordError(message)
    found = read_folder(folder)
    if not found.records:
        damaged = "".join(f"\n- {each.reason}" for each in found.damaged)
        message = f"The folder {folder} holds no records. {again}{damaged}"
        raise RecordError(message)
    return found


def _clear(beside: Path, sections: Sequence[Section]) -> None:
    """Remove the files of an earlier report that this one has not replaced."""
    figures = [f.key for section in sections for f in section.figures if f.panels]
    tables = [table.key for section in sections for table in section.tables]
    for name, suffixes, keys in (
        (FIGURES, SUFFIXES, figures),
        (TABLES, ("csv", "tex"), tables),
    ):
        for suffix in suffixes:
            for file in (beside / name).glob(f"*.{suffix}"):
                if file.stem not in keys:
                    file.unlink()


def _sections(
    groups: Sequence[Group], reasons: Reasons, beside: Path
) -> tuple[Section, ...]:
    results = result_tables(groups, reasons)
    transfer_data, abstention_data = data_tables(groups)
    histories = history_figures(groups, beside / FIGURES)
    of = {
        task: tuple(f for f in histories if f.key.startswith(f"history-{task}-"))
        for task in ("transfer", "abstention")
    }
    bars = bar_figure(groups, beside / FIGURES)
    sections = (
        Section("runtime", "Runtime", (runtime_table(groups),), (bars,)),
        Section("transfer", "Transfer", (*results[:2], transfer_data), of["transfer"]),
        Section(
            *("abstention", "Classification with abstention"),
            (*results[2:], abstention_data),
            of["abstention"],
        ),
        Section("certificates", "Certificates", (certificate_table(groups),), ()),
    )
    for section in sections:
        for table in section.tables:
            stem = beside / TABLES / table.key
            write_text(stem.with_suffix(".csv"), csv_text(table))
            write_text(stem.with_suffix(".tex"), latex_text(table))
    return sections
