"""Runtimes, and how many times faster One Projection is: ratios of means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oneproj.experiments.spread import Spread, speedup
from oneproj.report.groups import PAPER, Group, commands_of
from oneproj.report.published import (
    EXPERIMENTS,
    ONE_PROJECTION,
    PROJECTED_SGD,
    RESULTS,
)
from oneproj.report.quantities import RUNTIME
from oneproj.report.result_tables import LABELS, row_labels
from oneproj.report.tables import (
    Cell,
    Line,
    Table,
    command_for,
    flags_of,
    number_cell,
    number_column,
    text_column,
)


@dataclass(frozen=True)
class Speedup:
    """A measured ratio of mean runtimes beside the paper's.

    Example:
        >>> group = Group("abstention-nasa", "oneproj", "projected-sgd", "cuts", ())
        >>> Speedup(group, 7.04, 191.5).paper_text
        ''
    """

    group: Group
    """The runs of Projected SGD."""
    ours: float
    paper: float

    @property
    def text(self) -> str:
        """The measured ratio with one decimal."""
        return times(self.ours)

    @property
    def paper_text(self) -> str:
        """The paper's ratio, beside its own settings only: ours change both methods."""
        return times(self.paper) if self.group.preset == PAPER else ""


def times(ratio: float) -> str:
    """A ratio with one decimal and a sign.

    Example:
        >>> times(43.21)
        '43.2\N{MULTIPLICATION SIGN}'
    """
    return f"{ratio:.1f}\N{MULTIPLICATION SIGN}"


def published_speedup(experiment: str) -> float:
    """The ratio of the paper's mean runtimes; it states some of these in its text.

    Example:
        >>> times(published_speedup("abstention-credit"))
        '207.4\N{MULTIPLICATION SIGN}'
    """
    rows = RESULTS[experiment]
    slow, fast = rows[PROJECTED_SGD], rows[ONE_PROJECTION]
    return slow.numbers["runtime"].mean / fast.numbers["runtime"].mean


def speedups(groups: Sequence[Group]) -> list[Speedup]:
    """One per group of Projected SGD with runs of One Projection in its preset.

    Example:
        >>> speedups([])
        []
    """
    found = []
    for group in groups:
        fast, slow = _partner(group, groups), RUNTIME.spread(group.timed)
        known = group.experiment in RESULTS
        if group.method == PROJECTED_SGD and fast and slow and known:
            paper = published_speedup(group.experiment)
            found.append(Speedup(group, speedup(slow, fast), paper))
    return found


def _partner(group: Group, groups: Sequence[Group]) -> Spread | None:
    """The runtime of One Projection with the same settings and, if run, projector."""
    partners = {
        other.projector: RUNTIME.spread(other.timed)
        for other in reversed(groups)
        if (other.experiment, other.preset) == (group.experiment, group.preset)
        and other.method == ONE_PROJECTION
    }
    first = next(reversed(partners.values()), None)
    return partners.get(group.projector, first)


def runtime_table(groups: Sequence[Group]) -> Table:
    """The runtime bars as numbers, with the speed-up in the rows of Projected SGD.

    Example:
        >>> len(runtime_table([]).missing)
        6
    """
    ratios = {id(found.group): found for found in speedups(groups)}
    there = {group.experiment for group in groups}
    return Table(
        key="runtime",
        title="Runtime and speed-up",
        caption=(
            "Seconds of training as the paper counts them: updates, all projections "
            "and, for transfer, the source fit. The speed-up is the ratio of the mean "
            "runtimes of Projected SGD and One Projection with the same settings. "
            "The paper's seconds are of another machine: compare the ratios."
        ),
        labels=LABELS,
        columns=(number_column(RUNTIME.heading), text_column("Speed-up")),
        lines=tuple(_line(group, ratios.get(id(group))) for group in groups),
        commands=commands_of(groups),
        missing=tuple(command_for(name) for name in EXPERIMENTS if name not in there),
    )


def _line(group: Group, found: Speedup | None) -> Line:
    paper = RESULTS.get(group.experiment, {}).get(group.method)
    seconds = number_cell(
        RUNTIME.spread(group.timed),
        None if paper is None else paper.numbers["runtime"],
        digits=RUNTIME.digits,
        note="extrapolated" if group.extrapolated else "",
    )
    if found is None:
        return Line(row_labels(group), (seconds, Cell("")), flags=flags_of(group))
    verdict = f"One Projection is {found.ours:.1f} times faster here"
    if group.preset == PAPER:
        verdict += f", {found.paper:.1f} times in the paper."
    else:
        verdict += ", both methods with oneproj's settings."
    if group.preset == PAPER and group.projector == "cuts":
        verdict += " Here with cuts in place of the paper's projector."
    if group.stand_in:
        verdict += " On stand-in data."
    if group.extrapolated:
        run = group.timed[0]
        verdict += f" Extrapolated from {run.updates:,} of {run.planned_updates:,}"
        verdict += " updates."
    cells = (seconds, Cell(found.text, found.paper_text))
    return Line(row_labels(group), cells, verdict, flags=flags_of(group))
