"""Loggers: callbacks of ``solve`` that write what every update saw.

A log holds one run. One that is resumed goes on in the same place: what was written
after the checkpoint, and is made again, replaces what was there. One that begins anew
replaces all of it, from its first update on, whichever is the first to be written.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from oneproj.arguments import as_path, check_count
from oneproj.errors import InvalidProblemError
from oneproj.files import write_text
from oneproj.progress import require, stderr_console
from oneproj.results import Update


class AbstractLog(ABC):
    """Decides which updates are written: every n-th, and the last.

    The last of the plan is known as such; of a run that stops earlier, ``solve`` says
    so by ``close()``. In a loop of your own, call it at the end.

    Args:
        every: Updates from one entry to the next.

    Example:
        >>> class Worst(AbstractLog):
        ...     "Keeps the largest residual of every second update."
        ...     def __init__(self):
        ...         super().__init__(every=2)
        ...         self.seen = []
        ...     def write(self, update):
        ...         self.seen.append(max(update.residuals.values()))
        >>> log = Worst()
        >>> for k in (1, 2, 3):
        ...     log(Update(k, 500, 0.7, {"cap": 0.1 * k}, 0.01))
        >>> log.close()
        >>> [round(residual, 1) for residual in log.seen]
        [0.2, 0.3]
    """

    def __init__(self, every: int = 1) -> None:
        """Check the interval."""
        interval = "It is how many updates there are from one entry to the next."
        self._every = check_count("every", every, interval)
        self._last: int | None = None
        self._unwritten: Update | None = None
        self._from: Update | None = None
        """From where on the log is to be begun, if it is."""

    def __call__(self, update: Update) -> None:
        """Write the update if it is its turn; the first of a run begins the log.

        After a write that failed, the next one begins the log again from there.
        """
        if self._last is None or update.update <= self._last:
            self._from = update
        self._last = update.update
        self._begin()
        self._unwritten = update
        if update.update % self._every == 0 or update.update == update.steps:
            self._unwritten = None  # also if this fails: it is not tried again
            self._write(update)

    def close(self) -> None:
        """Write the last update if it is not; the next one is of another run."""
        last, self._last, self._unwritten = self._unwritten, None, None
        if last is not None:
            self._begin()
            self._write(last)

    def _begin(self) -> None:
        if self._from is not None:
            self.begin(self._from)
            self._from = None

    def _write(self, update: Update) -> None:
        self._from = update
        self.write(update)
        self._from = None

    @property
    def place(self) -> Path | None:
        """The file that this log alone may write; None if there is none."""
        return None

    def begin(self, update: Update) -> None:  # noqa: B027 - most have nothing to do
        """Make room for a run, of which this is the first update that is seen."""

    @abstractmethod
    def write(self, update: Update) -> None:
        """Write the update."""


class CsvLog(AbstractLog):
    """Writes a CSV file, a row per update, each handed over before the next begins.

    The columns are update, objective, seconds, outer and the constraints by name. After
    a crash the file ends with whole rows, but for the last, which is dropped when the
    run is resumed. A run that begins anew replaces the file's rows.

    Args:
        path: The file; made if it is not there.
        every: Updates from one row to the next; the last one has a row in any case.

    Raises:
        InvalidProblemError: The file has other columns: it is of another problem.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = CsvLog(Path(folder, "run.csv"))
        ...     log(Update(1, 500, 0.7, {"cap": 0.1}, 0.01, outer=0))
        ...     Path(folder, "run.csv").read_text().splitlines()
        ['update,objective,seconds,outer,cap', '1,0.7,0.01,0,0.1']
    """

    def __init__(self, path: str | PathLike[str], every: int = 1) -> None:
        """Keep the path; nothing is written before the first update."""
        super().__init__(every)
        self._path = as_path("path", path)
        if self._path.is_dir():
            message = (
                f"The log {str(path)!r} is a folder, but one run is one file. Name a "
                f"file in it: {str(self._path / 'run.csv')!r}."
            )
            raise InvalidProblemError(message)

    def __repr__(self) -> str:
        """The file."""
        return f"CsvLog({str(self._path)!r})"

    @property
    def place(self) -> Path:
        """The file."""
        return self._path

    def begin(self, update: Update) -> None:
        """Drop the rows of another run, and those that are made again."""
        names = ["update", "objective", "seconds", "outer", *update.residuals]
        self._keep_rows_before(update.update, names)

    def write(self, update: Update) -> None:
        """Append a row."""
        seen = update.update, update.objective, update.seconds, update.outer
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line([*seen, *update.residuals.values()]))

    def _keep_rows_before(self, update: int, names: list[str]) -> None:
        """Leave what an earlier part of the same run wrote, in whole rows."""
        header, kept = _line(names), [_line(names)]
        if self._path.is_file():  # a device or a pipe has no rows to keep
            text = self._path.read_text(encoding="utf-8", errors="replace")
            found, *rows = text.splitlines(keepends=True) or [header]
            if found != header:
                message = (
                    f"The log {str(self._path)!r} has the columns {found.strip()}, but "
                    f"this run has {header.strip()}. Choose another file, or delete it."
                )
                raise InvalidProblemError(message)
            whole = [row for row in rows if row.endswith("\n")]
            kept += [row for row in whole if self._update_of(row) < update]
        write_text(self._path, "".join(kept))

    def _update_of(self, row: str) -> int:
        number = row.split(",", 1)[0]
        if number.isdecimal():
            return int(number)
        message = (
            f"The log {str(self._path)!r} has the row {row.strip()!r}, which begins "
            "with no update: something else wrote to it. Choose another file, or "
            "delete that row."
        )
        raise InvalidProblemError(message)


class RichLog(AbstractLog):
    """Prints a line every n updates, with rich.

    Args:
        every: Updates from one line to the next.
        console: Where to; rich's own to stderr when left out.

    Raises:
        OneprojError: rich is not installed; the message names the extra.

    Example:
        >>> from rich.console import Console
        >>> log = RichLog(every=100, console=Console(width=80))
        >>> log(Update(100, 500, 0.7, {"cap": 0.1, "size": -2.0}, 1.5, outer=4))
        update 100/500  objective 0.7  worst: cap +1.00e-01  outer 4  1.5 s
    """

    def __init__(self, every: int = 50, console: Any = None) -> None:  # noqa: ANN401 - a rich Console
        """Find the console."""
        super().__init__(every)
        require("rich.console", "progress")
        self._console = stderr_console() if console is None else console

    def write(self, update: Update) -> None:
        """Print a line."""
        words = [
            f"update {update.update}/{update.steps}",
            f"objective {update.objective:.6g}",
        ]
        if update.residuals:
            worst = max(update.residuals, key=lambda name: update.residuals[name])
            words.append(f"worst: {worst} {update.residuals[worst]:+.2e}")
        if update.outer is not None:
            words.append(f"outer {update.outer}")
        words.append(f"{update.seconds:.1f} s")
        self._console.print("  ".join(words), highlight=False, markup=False)


class TensorBoardLog(AbstractLog):
    """Writes scalars for TensorBoard: objective, seconds, and residual/<constraint>.

    Args:
        folder: For the event files.
        every: Updates from one point to the next.

    Raises:
        OneprojError: TensorBoard is not installed; the message names the extra.

    Example:
        >>> log = TensorBoardLog("logs/run")            # doctest: +SKIP
        >>> oneproj.solve(problem, callbacks=log)       # doctest: +SKIP
    """

    def __init__(self, folder: str | PathLike[str], every: int = 1) -> None:
        """Import TensorBoard; the event file is made at the first update."""
        super().__init__(every)
        self._folder = as_path("folder", folder)
        self._make = require("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._writer: Any = None

    def __repr__(self) -> str:
        """The folder."""
        return f"TensorBoardLog({str(self._folder)!r})"

    @property
    def place(self) -> Path:
        """Stands for the event files."""
        return self._folder / "events"

    def begin(self, update: Update) -> None:
        """Open an event file, which hides the points of others from here on."""
        self._close_file()
        self._writer = self._make(str(self._folder), purge_step=update.update)

    def write(self, update: Update) -> None:
        """Write the scalars, to the disk."""
        k = update.update
        self._writer.add_scalar("objective", update.objective, k)
        self._writer.add_scalar("seconds", update.seconds, k)
        for name, residual in update.residuals.items():
            self._writer.add_scalar(f"residual/{name}", residual, k)
        self._writer.flush()
        if k == update.steps:
            self.close()

    def close(self) -> None:
        """Write what is left and close the event file; ``solve`` has done it."""
        super().close()
        self._close_file()

    def _close_file(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _line(values: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
