"""The report in a terminal: one line per group of runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from oneproj_paper.report.groups import Group
from oneproj_paper.report.quantities import AMBIGUITY, RUNTIME, TARGET_RISK
from oneproj_paper.report.result_tables import agreements, row_labels
from oneproj_paper.report.runtime_table import speedups
from oneproj_paper.report.tables import NONE

HEADINGS = ("runs of", "runs", "feasible")


def summary(groups: Sequence[Group]) -> Table:
    """What was run, whether it agrees with the paper, and how much faster it is.

    Example:
        >>> summary([]).row_count
        0
    """
    table = Table(
        title="Our runs beside the paper's",
        caption=(
            "agree: means within two of the paper's standard deviations of its means. "
            "* stand-in data, never compared. ~ extrapolated runtime."
        ),
    )
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right")
    for heading in ("risk / ambiguity", "agree", "seconds", "speed-up", "paper's"):
        table.add_column(heading, justify="right", no_wrap=True)
    ratios = {id(found.group): found for found in speedups(groups)}
    for group in groups:
        found = ratios.get(id(group))
        faster = ("", "")
        if found is not None:
            faster = (found.text, found.paper_text or NONE)
        table.add_row(*_cells(group), *(Text(text) for text in faster))
    return table


def _cells(group: Group) -> list[Text]:
    quantity = AMBIGUITY if group.task == "abstention" else TARGET_RISK
    value, runtime = quantity.spread(group.finished), RUNTIME.spread(group.timed)
    feasible = sum(record.feasible for record in group.records)
    star = " *" if group.stand_in else ""
    method, projector, settings, runs = row_labels(group)[1:]
    about = "~" if group.extrapolated else ""
    return [
        Text(f"{group.experiment}{star}\n{method}\n{projector}\n{settings}"),
        Text(runs),
        Text(f"{feasible} of {len(group.records)}"),
        Text(NONE if value is None else value.text(quantity.digits)),
        _agree(group),
        Text("" if runtime is None else about + runtime.text(RUNTIME.digits)),
    ]


def _agree(group: Group) -> Text:
    found = agreements(group)
    if not found:
        return Text(NONE)
    within = sum(each.within for each in found)
    style = "green" if within == len(found) else "bold red"
    return Text(f"{within} of {len(found)}", style)
