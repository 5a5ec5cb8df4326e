"""``reproduce``: every run of the paper's experiments that is not there yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import get_args

from oneproj.errors import InvalidProblemError, OneprojError
from oneproj.progress import Stderr, progress_bar
from oneproj_paper.data import Splits
from oneproj_paper.experiments.calibration_file import read_calibrations
from oneproj_paper.experiments.plan import Job, check_data, make_plan, missing
from oneproj_paper.experiments.record_schema import Method, Preset, Projector, Record
from oneproj_paper.experiments.records import Damaged, read_folder, set_aside
from oneproj_paper.experiments.specs import Spec, make_specs
from oneproj_paper.experiments.sweep import sweep
from oneproj_paper.tasks import PAPER

SEEDS = 10
"""As many as the paper has."""
EXTRAPOLATE_FROM = 50
"""Updates of a slow run: enough for its time, and a tenth of it."""
FOLDER = Path("runs")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Reproduction:
    """What was asked for, as far as it could be made."""

    records: tuple[Record, ...]
    made: int
    """How many of them are new, and made by this call."""
    skipped: Mapping[str, str]
    """Why an experiment has no runs."""
    damaged: tuple[Damaged, ...] = ()
    """Files in the places of records that held none, as they were found."""


def reproduce(
    experiments: Iterable[str] | None = None,
    *,
    seeds: int = SEEDS,
    presets: Iterable[Preset] = get_args(Preset),
    methods: Iterable[Method] = get_args(Method),
    projector: Projector | None = None,
    thresholds: str | PathLike[str] | None = None,
    jobs: int | None = None,
    out: str | PathLike[str] = FOLDER,
    extrapolate_from: int = EXTRAPOLATE_FROM,
    projected_sgd_seeds: int | None = None,
    progress: bool | None = None,
    say: Say = lambda _: None,
) -> Reproduction:
    """Make the runs of the paper's experiments that have no record yet.

    Every run is one file under ``out``, written in one step when it is done. Whatever
    ends this call, finished records stay, and the same call makes the others. A record
    that was damaged since is kept under another name, and its run made again; one whose
    run is not asked for is left where it is. Calls of several processes may share a
    folder: none makes a run that another is making.

    Args:
        experiments: Names; all whose data is there if left out.
        seeds: Seeds 0 to ``seeds - 1``, each of data, start and sampling.
        presets: ``"paper"`` has its settings, ``"oneproj"`` this library's defaults.
        methods: ``"one-projection"``, ``"projected-sgd"``.
        projector: Of Projected SGD, and of the terminal projection of One Projection;
            that of the preset if left out.
        thresholds: A file of ``oneproj-paper calibrate``, for the preset ``"oneproj"``,
            used for what it has; the library's own if left out.
        jobs: Processes, each with one thread; the numbers do not depend on it. None
            leaves it to ``joblib.parallel_config``, or is 1.
        out: The folder.
        extrapolate_from: Projected SGD with the augmented Lagrangian takes about an
            hour a seed on the networks that abstain. It is stopped after these
            updates, if they are less than half, its time is extrapolated, and one seed
            is run; 0 makes all updates on all seeds.
        projected_sgd_seeds: Seeds of Projected SGD, the slower method; as many as
            ``seeds`` if left out.
        progress: Show one bar over all runs; None does so on a terminal.
        say: Called with a line for every damaged record and, where no bar is shown, for
            every finished run.

    Raises:
        InvalidProblemError: There is no such experiment, preset, method or projector,
            or the file of thresholds has nothing for what is asked for.
        DataNotFoundError: The data of an experiment that was named is missing.
        RecordError: A record in the folder would not compare with new ones, or none
            can be written there.
        CalibrationError: The file of thresholds is something else.
        OneprojError: Runs failed, or a package is missing; the message says which.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = reproduce(["abstention-gaussian"], seeds=1, presets=["oneproj"],
        ...                      methods=["one-projection"], out=folder)
        ...     again = reproduce(["abstention-gaussian"], seeds=1, presets=["oneproj"],
        ...                       methods=["one-projection"], out=folder)
        >>> done.made, again.made, done.records[0].feasible
        (1, 0, True)

    The backend is joblib's, so a cluster takes the runs without a change here. With
    Dask (``pip install dask[distributed]``), and likewise with Ray after its
    ``register_ray()``::

        from dask.distributed import Client
        from joblib import parallel_config

        client = Client("scheduler:8786")     # or Client() for this machine
        with parallel_config(backend="dask"):
            reproduce()

    Workers need this package and the data (``ONEPROJ_DATA``), not the folder.
    """
    folder = Path(out)
    given = None if experiments is None else list(experiments)
    names = list(PAPER) if given is None else given
    file = None if thresholds is None else Path(thresholds)
    specs = make_specs(names, presets, methods, projector, thresholds=file)
    if file is not None:
        _check_thresholds(file, specs, say)
    plan = make_plan(
        specs,
        seeds=seeds,
        extrapolate_from=extrapolate_from,
        projected_sgd_seeds=projected_sgd_seeds,
    )
    records, damaged = read_folder(folder)
    found = {record.key: record for record in records}
    left = missing(plan, found, folder)
    data, skipped = _load(left, named=given is not None)
    for record in found.values():
        if record.experiment in data:
            check_data(record, data[record.experiment], folder)
    todo = [job for job in left if job.spec.experiment in data]
    for name, reason in skipped.items():
        say(f"{name} is skipped: {reason}")
    _make_room(damaged, todo, folder, say)
    made = _make(todo, folder, processes=jobs, progress=progress, say=say)
    wanted = {job.key for job in plan}
    records = [r for r in read_folder(folder).records if r.key in wanted]
    return Reproduction(tuple(records), made, skipped, tuple(damaged))


def _make(
    todo: list[Job],
    folder: Path,
    *,
    processes: int | None,
    progress: bool | None,
    say: Say,
) -> int:
    """Make the runs under one progress bar; returns how many were made here."""
    shown = Stderr().isatty() if progress is None else progress
    count = itertools.count(1)
    with progress_bar("runs", len(todo), enabled=progress) as advance_to:

        def finished(line: str) -> None:
            advance_to(next(count))
            if not shown:
                say(line)

        return sweep(todo, folder, processes=processes, finished=finished)


def _check_thresholds(file: Path, specs: Iterable[Spec], say: Say) -> None:
    """Refuse a file of thresholds that is used for nothing, and say what it is for."""
    has = "; ".join(" ".join(found.key) for found in read_calibrations(file))
    asked = [spec for spec in specs if spec.thresholds is not None]
    used = [spec for spec in asked if spec.calibrated is not None]
    if not used:
        message = (
            f"The thresholds of {file} have no effect here. They are for the preset "
            f"'oneproj' of experiments with abstention, and the file has: {has}. Leave "
            "it out, or ask for one of these."
        )
        raise InvalidProblemError(message)
    if len(used) < len(asked):
        say(f"{file} has thresholds for: {has}. All other runs are as without it.")


def _make_room(
    damaged: Iterable[Damaged], todo: Iterable[Job], folder: Path, say: Say
) -> None:
    """Set aside what is damaged where a run is made again, and name all of it."""
    places = {job.key.path for job in todo}
    for each in damaged:
        if each.place in places:
            say(f"{each.reason} It is now {set_aside(folder / each.place)}.")
        else:
            say(f"{each.reason} It stays there now: its run is not asked for.")


def _load(todo: list[Job], *, named: bool) -> tuple[dict[str, Splits], dict[str, str]]:
    """The data of the experiments that have it, and why the others are not run.

    Data is fetched here, once, and not by many workers at the same time.
    """
    found, skipped = {}, {}
    for name in dict.fromkeys(job.spec.experiment for job in todo):
        try:
            found[name] = PAPER[name].load(0)
        except OneprojError as error:
            if named:
                raise
            skipped[name] = str(error)
    return found, skipped
