"""Many runs with joblib: one record each, written by the process that asked for them.

Runs are independent and each computes with one thread, so the numbers do not depend on
how many are made at once or where. Only the caller touches the folder: workers may be
on other machines, and one that is left over from a killed sweep can harm nothing.
Several callers may share a folder: each run is made by the one that claims it first.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

from oneproj.errors import OneprojError, RecordError
from oneproj.files import check_place, in_words
from oneproj_paper.experiments.claims import Claims
from oneproj_paper.experiments.live import Watcher, pulse
from oneproj_paper.experiments.plan import Job, missing
from oneproj_paper.experiments.records import Key, Record, read_record, write_record
from oneproj_paper.experiments.run import run

PERIOD = 1.0
"""Seconds between two looks at the runs that another process is making."""


@dataclass(frozen=True)
class Failure:
    """A run without a record, and why."""

    job: Job
    reason: str

    @property
    def key(self) -> Key:
        """What the run is known by."""
        return self.job.key


def sweep(
    jobs: Sequence[Job], folder: Path, *, processes: int | None, watcher: Watcher
) -> int:
    """Make runs and write their records as they come; returns how many were made here.

    A run that another process is making is waited for, and made if nothing came of it.

    Args:
        jobs: What to run.
        folder: Of the records.
        processes: At once; None for what ``joblib.parallel_config`` says, or else 1.
        watcher: Is told of every run.

    Raises:
        RecordError: A record cannot be written; found before the first run if it can.
        OneprojError: Runs failed; the others were finished first.
    """
    made, failures = 0, []
    with _told(folder):
        for job in jobs[:1]:
            check_place(folder / job.key.path)
    left, elsewhere = list(jobs), list[Job]()
    with Claims(folder) as claims:
        while left:
            mine = _unmade(left, claims, elsewhere, watcher)
            # joblib would start all of them, for a single run too.
            few = None if processes is None else min(processes, len(left))
            for outcome in _outcomes(mine, few, watcher.folder):
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                    watcher.advance(f"failed: {_name(outcome.job)}")
                else:
                    made += 1
                    with _told(folder):
                        write_record(outcome, folder)
                    watcher.advance(_line(outcome))
                claims.give_back(outcome.key)
            left, elsewhere = elsewhere, []
            if left:
                time.sleep(PERIOD)
    _tell(failures, len(jobs), folder)
    return made


def _tell(failures: Sequence[Failure], total: int, folder: Path) -> None:
    if failures:
        told = "\n".join(f"- {_name(f.job)}: {f.reason}" for f in failures)
        message = (
            f"{len(failures)} of {total} runs failed; the records of the others "
            f"are in {folder}, and the same command tries these again:\n{told}"
        )
        raise OneprojError(message)


def _unmade(
    jobs: Iterable[Job], claims: Claims, elsewhere: list[Job], watcher: Watcher
) -> Iterator[Job]:
    """The runs to make, each claimed just before it starts.

    Those that another process has made meanwhile are passed over, and those that it is
    making are put into ``elsewhere``.
    """
    for job in jobs:
        if not claims.take(job.key):
            elsewhere.append(job)
        elif _is_made(job, claims.folder):
            claims.give_back(job.key)
            watcher.advance(f"made by another process: {_name(job)}")
        else:
            yield job


def _is_made(job: Job, folder: Path) -> bool:
    """Whether a record is there that a new run would only repeat."""
    try:
        record = read_record(folder, job.key)
        return record is not None and not missing([job], {job.key: record}, folder)
    except RecordError:  # of other settings: what is asked for now replaces it
        return False


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Say what a disk that refuses a record means for the others."""
    try:
        yield
    except OSError as error:
        message = (
            f"Records cannot be written to {folder}: {in_words(error)}. Those that are "
            "there stay. Give a folder that can be made and written to, on a disk with "
            "room; the same command then makes the runs that are missing."
        )
        raise RecordError(message) from error


def _outcomes(
    jobs: Iterable[Job], processes: int | None, signs: Path | None
) -> Iterator[Record | Failure]:
    """What becomes of each run, in the order in which they end."""
    # One task per run: batches would hold back records that are finished.
    settings: dict[str, Any] = {"n_jobs": processes, "batch_size": 1}
    tasks = (joblib.delayed(_attempt)(job, signs) for job in jobs)
    try:
        parallel = joblib.Parallel(return_as="generator_unordered", **settings)
    except ValueError:  # of a backend that hands out its results only all at once
        parallel = joblib.Parallel(**settings)
        width = joblib.effective_n_jobs(processes)
        while some := list(itertools.islice(tasks, width)):
            yield from parallel(some)
    else:
        yield from parallel(tasks)


def _attempt(job: Job, signs: Path | None) -> Record | Failure:
    """One run, where an error is a result: it must not take the others with it."""
    total = job.spec.updates if job.until is None else job.until
    tell = pulse(signs, job.key, total)
    try:
        return run(job.spec, job.seed, until=job.until, command=job.command, tell=tell)
    except Exception as error:  # noqa: BLE001 - also what nobody thought of
        return Failure(job, f"{type(error).__name__}: {error}")


def _name(job: Job) -> str:
    return " ".join([*job.key[:4], f"seed {job.seed}"])


def _line(record: Record) -> str:
    kind = "feasible" if record.feasible else f"NOT FEASIBLE ({record.status})"
    time = f"{record.runtime:.2f} s"
    if record.extrapolated_from is not None:
        time += f", extrapolated from {record.extrapolated_from} updates"
    words = [*record.key[:4], f"seed {record.seed}"]
    return f"{' '.join(words)}: {kind}, {time}"
