"""Which runs are to be made, and which of them are done already.

A report puts all records of a folder side by side, so they have to be comparable: of
one version of this library and of torch, of the same data, and each with the settings
that it would be made with today. A folder that is not is refused rather than mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oneproj.errors import InvalidProblemError
from oneproj_paper.data import Splits
from oneproj_paper.errors import RecordError
from oneproj_paper.experiments.plain_json import to_plain
from oneproj_paper.experiments.record_schema import Key, Record
from oneproj_paper.experiments.specs import Spec
from oneproj_paper.experiments.surroundings import versions

COMPARED = ("oneproj", "torch")
"""Packages whose versions all records of a folder share."""


@dataclass(frozen=True)
class Job:
    """One run that is to be made."""

    spec: Spec
    seed: int
    until: int | None
    """Updates after which it stops; None for all."""
    command: str

    @property
    def key(self) -> Key:
        """What the run is known by."""
        return self.spec.key(self.seed)

    def is_done_by(self, record: Record | None) -> bool:
        """Whether a record has at least the updates that are asked for."""
        wanted = self.spec.updates if self.until is None else self.until
        if record is None:
            return False
        return record.extrapolated_from is None or record.updates >= wanted


def make_plan(
    specs: Iterable[Spec],
    *,
    seeds: int,
    extrapolate_from: int,
    projected_sgd_seeds: int | None = None,
) -> list[Job]:
    """The runs of some specs.

    Projected SGD has ``projected_sgd_seeds`` seeds, if that is given and fewer.

    Slow ones are stopped after ``extrapolate_from`` updates if that is less than half
    of them. What is left of such a run is its runtime, for which one seed is enough; 0
    makes slow runs like all others.

    Raises:
        InvalidProblemError: A number has no meaning.

    Example:
        >>> from oneproj_paper.experiments.specs import make_spec
        >>> spec = make_spec("abstention-nasa", "paper", "projected-sgd")
        >>> [job.until for job in make_plan([spec], seeds=3, extrapolate_from=50)]
        [50]
        >>> [job.until for job in make_plan([spec], seeds=3, extrapolate_from=0)]
        [None, None, None]
    """
    if seeds < 1 or extrapolate_from < 0 or projected_sgd_seeds == 0:
        message = (
            "seeds must be at least 1 and extrapolate_from at least 0, got "
            f"{seeds} and {extrapolate_from}."
        )
        raise InvalidProblemError(message)
    plan = []
    for spec in specs:
        cut = extrapolate_from if spec.is_slow else 0
        until = cut if 0 < 2 * cut < spec.updates else None
        most = seeds
        if spec.method == "projected-sgd" and projected_sgd_seeds is not None:
            most = min(seeds, projected_sgd_seeds)
        command = _command(spec, most, extrapolate_from)
        count = most if until is None else 1
        plan += [Job(spec, seed, until, command) for seed in range(count)]
    return plan


def missing(
    plan: Iterable[Job], found: Mapping[Key, Record], folder: Path
) -> list[Job]:
    """The runs that the records of a folder do not have yet.

    Raises:
        RecordError: A record there would not compare with what would be made now; the
            message names the file, the difference and what to do.
    """
    now = versions()
    for record in found.values():
        for package in COMPARED:
            before = record.versions.get(package, "unknown")
            if before != now[package]:
                reason = f"was made with {package} {before}, this is {now[package]}"
                raise _refusal(folder / record.key.path, reason)
    jobs = []
    for job in plan:
        known = found.get(job.key)
        if known is not None:
            _check_settings(job, known, folder)
        if not job.is_done_by(known):
            jobs.append(job)
    return jobs


def _check_settings(job: Job, record: Record, folder: Path) -> None:
    wanted, has = to_plain(job.spec.settings()), record.settings
    for name, value in wanted.items():
        if has.get(name, "absent") != value:
            reason = f"was made with {name} = {has.get(name, 'absent')}, now {value}"
            raise _refusal(folder / record.key.path, reason)


def check_data(record: Record, data: Splits, folder: Path) -> None:
    """Refuse a record of other data than a new run would have.

    Raises:
        RecordError: It is a stand-in where the paper's data has come since, say.
    """
    if (record.data.stand_in, record.data.note) != (data.stand_in, data.note):
        reason = f"was made of other data ({record.data.note!r}, now {data.note!r})"
        raise _refusal(folder / record.key.path, reason)


def _refusal(path: Path, reason: str) -> RecordError:
    message = (
        f"{path} {reason}: side by side with new runs it would mislead. Use another "
        "folder (--out), or delete the records of this one and make them again."
    )
    return RecordError(message)


def _command(spec: Spec, seeds: int, extrapolate_from: int) -> str:
    words = ["oneproj-paper reproduce", spec.experiment, "--preset", spec.preset]
    words += ["--method", spec.method, "--projector", spec.projector]
    words += ["--seeds", str(seeds)]
    if spec.is_slow:
        words += ["--extrapolate-from", str(extrapolate_from)]
    if spec.calibrated is not None:
        words += ["--thresholds", spec.calibrated.name]
    return " ".join(words)
