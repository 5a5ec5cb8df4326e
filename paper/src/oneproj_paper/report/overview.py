"""What a reader wants first: what was run, does it agree, how much faster is it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oneproj_paper.report.groups import METHODS, OWN, PAPER, Group
from oneproj_paper.report.published import EXPERIMENTS, ONE_PROJECTION
from oneproj_paper.report.quantities import (
    AMBIGUITY,
    CLASS_0,
    CLASS_1,
    TARGET_RISK,
    UPDATES,
)
from oneproj_paper.report.result_tables import agreements
from oneproj_paper.report.runtime_table import speedups
from oneproj_paper.report.tables import NONE, experiment_title


@dataclass(frozen=True)
class Brief:
    """A line of a small table: a number beside others.

    Example:
        >>> Brief("Gaussian (transfer)", "cuts", (("7.0", ""), ("6.9", ""))).cells[0]
        ('7.0', '')
    """

    title: str
    note: str
    cells: tuple[tuple[str, str], ...]
    """Each a number and what it is traded for, if anything."""


@dataclass(frozen=True)
class Overview:
    """The first lines of a report, in plain language.

    Example:
        >>> overview([]).missing[:2]
        ('transfer-gaussian', 'transfer-climsim')
    """

    ran: tuple[str, ...]
    agreement: tuple[str, ...]
    speed: tuple[Brief, ...]
    """How many times faster One Projection is, beside the paper's."""
    own: tuple[Brief, ...]
    """Risk or ambiguity with our settings, beside the paper's settings, run here."""
    stand_ins: tuple[str, ...]
    """Titles of the experiments whose data stand in for the paper's."""
    missing: tuple[str, ...]
    """Experiments without any record."""


def overview(groups: Sequence[Group], damaged: Sequence[Path] = ()) -> Overview:
    """Sum the groups up, and name the records that could not be read.

    Example:
        >>> overview([]).ran
        ('0 runs of 0 experiments.',)
    """
    there = dict.fromkeys(group.experiment for group in groups)
    stand_ins = dict.fromkeys(g.experiment for g in groups if g.stand_in)
    return Overview(
        ran=(*_ran(groups, len(there)), *_damaged(damaged)),
        agreement=_agreement(groups),
        speed=tuple(_speed(groups)),
        own=tuple(_own(groups)),
        stand_ins=tuple(experiment_title(name) for name in stand_ins),
        missing=tuple(name for name in EXPERIMENTS if name not in there),
    )


def _ran(groups: Sequence[Group], experiments: int) -> tuple[str, ...]:
    records = [record for group in groups for record in group.records]
    feasible = sum(record.feasible for record in records)
    cut = sum(not record.complete for record in records)
    runs, of = _number(len(records), "run"), _number(experiments, "experiment")
    said = [f"{runs} of {of}."]
    if records:
        whole = "every constraint <= 0 on the full training data"
        said.append(f"{feasible} of {len(records)} answers are feasible: {whole}.")
    if cut:
        runs = "run was" if cut == 1 else "runs were"
        said.append(f"{cut} {runs} cut on purpose, to extrapolate the runtime.")
    return tuple(said)


def _damaged(places: Sequence[Path]) -> Iterable[str]:
    if places:
        records = "A record is" if len(places) == 1 else f"{len(places)} records are"
        named = ", ".join(place.as_posix() for place in places)
        yield f"{records} damaged and left out: {named}."


def _agreement(groups: Sequence[Group]) -> tuple[str, ...]:
    """Per method: how many means are within two of the paper's standard deviations."""
    said = []
    for method, name in METHODS.items():
        found = [
            (group, each)
            for group in groups
            if group.method == method
            for each in agreements(group)
        ]
        if not found:
            continue
        outside = [(group, each) for group, each in found if not each.within]
        within = len(found) - len(outside)
        single = sum(len(group.finished) == 1 for group, _ in found)
        said.append(
            f"{name}: {within} of {len(found)} means lie within two of the paper's "
            "standard deviations of its means."
            + (f" {single} of the means are of 1 run." if single else "")
        )
        said += [
            f"Outside: {experiment_title(group.experiment)}, {name} "
            f"({group.projector_title}, {_runs(group)}), {each.key} {each.words}."
            for group, each in outside
        ]
    return tuple(said) or ("Nothing to compare: no run with the paper's settings.",)


def _speed(groups: Sequence[Group]) -> Iterable[Brief]:
    for found in speedups(groups):
        group = found.group
        notes = [
            group.projector_title,
            *(["oneproj's settings"] if group.preset == OWN else []),
            *found.differences,
            *(["extrapolated"] if group.extrapolated else []),
            *(["stand-in data"] if group.stand_in else []),
        ]
        title = experiment_title(group.experiment)
        slower = "" if "faster" in found.words else found.words
        cells = ((found.text, slower), (found.paper_text or NONE, ""))
        yield Brief(title, ", ".join(notes), cells)


def _own(groups: Sequence[Group]) -> Iterable[Brief]:
    for group in groups:
        if (group.preset, group.method) != (OWN, ONE_PROJECTION) or not group.finished:
            continue
        # The paper's projector comes first where several were run.
        theirs = {
            other.method: other
            for other in reversed(groups)
            if (other.experiment, other.preset) == (group.experiment, PAPER)
            and other.finished
        }
        if theirs:
            transfer = group.task == "transfer"
            notes = [
                "target risk" if transfer else "ambiguity, and class errors below",
                _runs(group),
                *_budgets(group, theirs.get(ONE_PROJECTION)),
                *(["stand-in data"] if group.stand_in else []),
            ]
            shown = (group, *(theirs.get(method) for method in METHODS))
            cells = tuple(_tradeoff(each) for each in shown)
            title = experiment_title(group.experiment)
            yield Brief(title, "; ".join(notes), cells)


def _budgets(group: Group, theirs: Group | None) -> Iterable[str]:
    """How many updates each makes, where they differ."""
    if theirs is not None:
        mine, other = (UPDATES.text(each.finished) for each in (group, theirs))
        if mine != other:
            yield f"{mine} updates against {other}"


def _runs(group: Group) -> str:
    return _number(len(group.finished), "run")


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _tradeoff(group: Group | None) -> tuple[str, str]:
    """The number that the task minimises, and what it is traded for."""
    if group is None:
        return NONE, ""
    if group.task == "transfer":
        risk = TARGET_RISK.spread(group.finished)
        return (NONE if risk is None else f"{risk.mean:.3f}"), ""
    spreads = [q.spread(group.finished) for q in (AMBIGUITY, CLASS_0, CLASS_1)]
    ambiguity, *errors = (f"{each.mean:.2f}" for each in spreads if each is not None)
    return f"{ambiguity} %", " / ".join(errors)
