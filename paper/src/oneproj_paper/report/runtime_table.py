"""Runtimes, and how many times faster One Projection is: ratios of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oneproj_paper.experiments.spread import speedup
from oneproj_paper.report.groups import PAPER, Group, commands_of
from oneproj_paper.report.published import (
    EXPERIMENTS,
    ONE_PROJECTION,
    PROJECTED_SGD,
    RESULTS,
)
from oneproj_paper.report.quantities import RUNTIME, THRESHOLDS, UPDATES
from oneproj_paper.report.result_tables import LABELS, fact_cell, row_labels
from oneproj_paper.report.tables import (
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
        >>> slow = Group("abstention-nasa", "oneproj", "projected-sgd", "cuts", ())
        >>> fast = Group("abstention-nasa", "oneproj", "one-projection", "cuts", ())
        >>> Speedup(slow, fast, 7.04, 191.5).paper_text
        ''
        >>> Speedup(slow, fast, 0.625, 191.5).words
        'takes 1.6 times as long'
    """

    group: Group
    """The runs of Projected SGD."""
    fast: Group
    """Those of One Projection."""
    ours: float
    paper: float

    @property
    def text(self) -> str:
        """The measured ratio with one decimal."""
        return times(self.ours)

    @property
    def words(self) -> str:
        """What One Projection is or does, by the measured ratio."""
        if f"{self.ours:.1f}" == "1.0":
            return "takes as long"
        if self.ours < 1.0:
            slower = 1.0 / self.ours if self.ours else math.inf
            return f"takes {slower:.1f} times as long"
        return f"is {self.ours:.1f} times faster"

    @property
    def differences(self) -> tuple[str, ...]:
        """What else differs between the two: One Projection's comes first."""
        pairs = (
            ("runs", *(str(len(each.timed)) for each in (self.fast, self.group))),
            ("updates", *(UPDATES.text(g.timed) for g in (self.fast, self.group))),
        )
        found = [f"{a} against {b} {name}" for name, a, b in pairs if a != b]
        if THRESHOLDS.text(self.fast.timed) != THRESHOLDS.text(self.group.timed):
            found.append("other thresholds")
        return tuple(found)

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
        partner, slow = _partner(group, groups), RUNTIME.spread(group.timed)
        fast = None if partner is None else RUNTIME.spread(partner.timed)
        known = group.experiment in RESULTS and group.method == PROJECTED_SGD
        if known and partner and fast and slow:
            paper = published_speedup(group.experiment)
            found.append(Speedup(group, partner, speedup(slow, fast), paper))
    return found


def _partner(group: Group, groups: Sequence[Group]) -> Group | None:
    """The runs of One Projection with the same settings and, if run, projector."""
    partners = {
        other.projector: other
        for other in reversed(groups)
        if (other.experiment, other.preset) == (group.experiment, group.preset)
        and other.method == ONE_PROJECTION
        and other.timed
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
            "runtimes of Projected SGD and One Projection with the same settings. If "
            "they differ in updates, runs or thresholds, the words beside it say so. "
            "The paper's seconds are of another machine: compare the ratios."
        ),
        labels=LABELS,
        columns=(
            text_column(UPDATES.heading),
            number_column(RUNTIME.heading),
            text_column("Speed-up"),
        ),
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
    updates = fact_cell(UPDATES, group)
    if found is None:
        cells = (updates, seconds, Cell(""))
        return Line(row_labels(group), cells, flags=flags_of(group))
    cells = (updates, seconds, Cell(found.text, found.paper_text))
    return Line(row_labels(group), cells, _verdict(found), flags=flags_of(group))


def _verdict(found: Speedup) -> str:
    """The ratio in words, and what one should know to judge it."""
    group = found.group
    said = f"One Projection {found.words} here"
    if group.preset == PAPER and "faster" in found.words:
        said += f", {found.paper:.1f} times in the paper."
    elif group.preset == PAPER:
        said += f"; in the paper it is {found.paper:.1f} times faster."
    else:
        said += ", both methods with oneproj's settings."
    if found.differences:
        said += f" With {', '.join(found.differences)}."
    if group.preset == PAPER and group.projector == "cuts":
        said += " Here with cuts in place of the paper's projector."
    if group.stand_in:
        said += " On stand-in data."
    if group.extrapolated:
        run = group.timed[0]
        said += f" Extrapolated from {run.updates:,} of {run.planned_updates:,}"
        said += " updates."
    return said
