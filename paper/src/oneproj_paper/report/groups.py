"""Records that differ in the seed alone, in the order of the paper's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.report.published import EXPERIMENTS, ONE_PROJECTION, PROJECTED_SGD

PAPER, OWN = "paper", "oneproj"
PRESETS = {PAPER: "the paper's", OWN: "oneproj's"}
"""Whose settings a preset holds."""
METHODS = {ONE_PROJECTION: "One Projection", PROJECTED_SGD: "Projected SGD"}
PROJECTORS = {
    "dual-bisection": "dual bisection",
    "augmented-lagrangian": "augmented Lagrangian",
    "cuts": "cuts",
}
"""The paper's two first, so that its own choice leads."""


@dataclass(frozen=True)
class Group:
    """The runs of one experiment, preset, method and projector, by seed.

    Example:
        >>> Group("abstention-nasa", "paper", "projected-sgd", "cuts", ()).method_title
        'Projected SGD'
    """

    experiment: str
    preset: str
    method: str
    projector: str
    records: tuple[Record, ...]

    @property
    def task(self) -> str:
        """Transfer or abstention."""
        return task_of(self.experiment)

    @property
    def method_title(self) -> str:
        """The method as the paper writes it."""
        return METHODS.get(self.method, self.method)

    @property
    def projector_title(self) -> str:
        """The projector in words."""
        return PROJECTORS.get(self.projector, self.projector)

    @property
    def preset_title(self) -> str:
        """Whose settings these are."""
        return PRESETS.get(self.preset, self.preset)

    @property
    def finished(self) -> tuple[Record, ...]:
        """The runs that made all their updates: only these have results."""
        return tuple(record for record in self.records if record.complete)

    @property
    def timed(self) -> tuple[Record, ...]:
        """The runs whose runtime counts: finished ones, or else the extrapolated."""
        cut = (r for r in self.records if r.extrapolated_from is not None)
        return self.finished or tuple(cut)

    @property
    def extrapolated(self) -> bool:
        """Whether the runtime is extrapolated from runs that were cut."""
        return not self.finished and bool(self.timed)

    @property
    def aborted(self) -> int:
        """How many runs ended early because a projection failed: they show nothing."""
        return sum(not r.complete and r.extrapolated_from is None for r in self.records)

    @property
    def infeasible(self) -> int:
        """How many runs made all their updates and ended outside the constraints."""
        return sum(not record.feasible for record in self.finished)

    @property
    def stand_in(self) -> bool:
        """Whether any run used data that stands in for the paper's."""
        return any(record.data.stand_in for record in self.records)


def task_of(experiment: str) -> str:
    """What an experiment is about: its name begins with it.

    Example:
        >>> task_of("abstention-nasa")
        'abstention'
    """
    return experiment.partition("-")[0]


def group_records(records: Iterable[Record]) -> list[Group]:
    """Collect the runs that differ in the seed alone.

    Order: experiments as in the paper, its preset first, One Projection first, the
    paper's projectors first; names that are unknown here come last, by alphabet.

    Example:
        >>> group_records([])
        []
    """
    found: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in records:
        key = (record.experiment, record.preset, record.method, record.projector)
        found.setdefault(key, []).append(record)
    groups = [
        Group(*key, tuple(sorted(runs, key=lambda record: record.seed)))
        for key, runs in found.items()
    ]
    return sorted(groups, key=_order)


def _order(group: Group) -> tuple[tuple[int, str], ...]:
    return (
        _place(group.experiment, EXPERIMENTS),
        _place(group.preset, tuple(PRESETS)),
        _place(group.method, tuple(METHODS)),
        _place(group.projector, tuple(PROJECTORS)),
    )


def _place(name: str, known: Sequence[str]) -> tuple[int, str]:
    return (known.index(name) if name in known else len(known), name)


def commands_of(groups: Iterable[Group]) -> tuple[str, ...]:
    """The commands that made these records, each once.

    Example:
        >>> commands_of([])
        ()
    """
    return tuple(
        sorted({record.command for group in groups for record in group.records})
    )
