"""Who makes a run: of several processes on one folder, the first to claim it.

A claim is a lock on an empty file beside the place of the record. The system gives it
back when its process ends, in whatever way, so nothing that died holds a run. Where
the disk has no locks every claim is granted: runs may then be made twice, which costs
time alone, since a record is replaced in one step.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Self

import filelock

from oneproj_paper.experiments.records import Key


class Claims:
    """The runs under a folder that are this process's own to make.

    Args:
        folder: Of the records.

    Example:
        >>> import tempfile
        >>> key = Key("abstention-nasa", "paper", "one-projection", "cuts", 3)
        >>> with tempfile.TemporaryDirectory() as name:
        ...     with Claims(Path(name)) as mine, Claims(Path(name)) as yours:
        ...         first = mine.take(key), yours.take(key)
        ...         mine.give_back(key)
        ...         first, yours.take(key)
        ((True, False), True)
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is claimed."""
        self.folder = folder
        self._held: dict[Key, Any] = {}

    def take(self, key: Key) -> bool:
        """Claim a run; False if another process has it."""
        place = self.folder / key.path
        # Taken and given back by different threads of joblib.
        lock = filelock.FileLock(
            place.with_name(f".{place.name}.lock"), thread_local=False
        )
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return False
        except (OSError, NotImplementedError):  # no locks here: nobody has it
            return True
        self._held[key] = lock
        return True

    def give_back(self, key: Key) -> None:
        """Let others have a run; there is nothing to do if it was not taken."""
        lock = self._held.pop(key, None)
        if lock is not None:
            # Removed while it is held: who opens it now finds a record, or the next.
            with contextlib.suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give everything back, in whatever way the end has come."""
        for key in [*self._held]:
            self.give_back(key)
