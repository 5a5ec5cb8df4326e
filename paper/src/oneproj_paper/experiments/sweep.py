"""Many runs with joblib: one record each, written by the process that asked for them.

Runs are independent and each computes with one thread, so the numbers do not depend on
how many are made at once or where. Only the caller touches the folder: workers may be
on other machines, and one that is left over from a killed sweep can harm nothing.
Several callers may share a folder: each run is made by the one that locks it first.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import filelock
import joblib

from oneproj.errors import OneprojError
from oneproj.files import check_place, in_words
from oneproj_paper.errors import RecordError
from oneproj_paper.experiments.plan import Job, missing
from oneproj_paper.experiments.record_schema import Key, Record
from oneproj_paper.experiments.records import read_record, write_record
from oneproj_paper.experiments.run import run

Finished = Callable[[str], None]
PERIOD = 1.0
"""Seconds between two looks at the runs that another process is making."""


class RunLocks:
    """The locks of the runs that this process makes; one process makes a run.

    A lock is held on an empty file beside the place of the record. The operating system
    releases it when the process ends, in whatever way. Where the disk has no locks
    every lock is granted: runs may then be made twice, which costs time alone, since a
    record is replaced in one step.

    Args:
        folder: Of the records.

    Example:
        >>> import tempfile
        >>> key = Key("abstention-nasa", "paper", "one-projection", "cuts", 3)
        >>> with tempfile.TemporaryDirectory() as name:
        ...     with RunLocks(Path(name)) as mine, RunLocks(Path(name)) as yours:
        ...         first = mine.acquire(key), yours.acquire(key)
        ...         mine.release(key)
        ...         first, yours.acquire(key)
        ((True, False), True)
    """

    def __init__(self, folder: Path) -> None:
        """No lock is held."""
        self.folder = folder
        self._held: dict[Key, Any] = {}

    def acquire(self, key: Key) -> bool:
        """Lock a run; False if another process has it."""
        place = self.folder / key.path
        # Acquired and released by different threads of joblib.
        lock = filelock.FileLock(
            place.with_name(f".{place.name}.lock"), thread_local=False
        )
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return False
        except (OSError, NotImplementedError):  # this disk has no locks
            return True
        self._held[key] = lock
        return True

    def release(self, key: Key) -> None:
        """Unlock a run, if it is locked."""
        lock = self._held.pop(key, None)
        if lock is not None:
            # Removed while it is held: whoever opens it next finds the record.
            with contextlib.suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()

    def __enter__(self) -> Self:
        """Return the locks."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release every lock."""
        for key in [*self._held]:
            self.release(key)


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
    jobs: Sequence[Job], folder: Path, *, processes: int | None, finished: Finished
) -> int:
    """Make runs and write their records as they come; returns how many were made here.

    A run that another process is making is waited for, and made if nothing came of it.

    Args:
        jobs: What to run.
        folder: Of the records.
        processes: At once; None for what ``joblib.parallel_config`` says, or else 1.
        finished: Called with a line of text after every run.

    Raises:
        RecordError: A record cannot be written; found before the first run if it can.
        OneprojError: Runs failed; the others were finished first.
    """
    made, failures = 0, []
    with _told(folder):
        for job in jobs[:1]:
            check_place(folder / job.key.path)
    left, elsewhere = list(jobs), list[Job]()
    with RunLocks(folder) as locks:
        while left:
            mine = _unmade(left, locks, elsewhere, finished)
            # joblib would start all of them, for a single run too.
            few = None if processes is None else min(processes, len(left))
            for outcome in _outcomes(mine, few):
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                    finished(f"failed: {_name(outcome.job)}")
                else:
                    made += 1
                    with _told(folder):
                        write_record(outcome, folder)
                    finished(_line(outcome))
                locks.release(outcome.key)
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
    jobs: Iterable[Job], locks: RunLocks, elsewhere: list[Job], finished: Finished
) -> Iterator[Job]:
    """The runs to make, each locked just before it starts.

    Those that another process has made meanwhile are passed over, and those that it is
    making are put into ``elsewhere``.
    """
    for job in jobs:
        if not locks.acquire(job.key):
            elsewhere.append(job)
        elif _is_made(job, locks.folder):
            locks.release(job.key)
            finished(f"made by another process: {_name(job)}")
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


def _outcomes(jobs: Iterable[Job], processes: int | None) -> Iterator[Record | Failure]:
    """What becomes of each run, in the order in which they end."""
    # One task per run: batches would hold back records that are finished.
    settings: dict[str, Any] = {"n_jobs": processes, "batch_size": 1}
    tasks = (joblib.delayed(_attempt)(job) for job in jobs)
    try:
        parallel = joblib.Parallel(return_as="generator_unordered", **settings)
    except ValueError:  # of a backend that hands out its results only all at once
        parallel = joblib.Parallel(**settings)
        width = joblib.effective_n_jobs(processes)
        while some := list(itertools.islice(tasks, width)):
            yield from parallel(some)
    else:
        yield from parallel(tasks)


def _attempt(job: Job) -> Record | Failure:
    """One run, where an error is a result: it must not take the others with it."""
    try:
        return run(job.spec, job.seed, until=job.until, command=job.command)
    except Exception as error:  # noqa: BLE001 - any error at all
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
