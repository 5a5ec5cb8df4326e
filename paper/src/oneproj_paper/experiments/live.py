"""What is going on in other processes, shown while it goes on.

A run leaves its number of updates in a small file, since files are what all backends of
joblib have in common. On a cluster that does not share them, nothing is shown but the
number of finished runs.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from oneproj_paper.experiments.records import Key

if TYPE_CHECKING:
    from rich.table import Table

PERIOD = 0.2
"""Seconds between two signs of life of a run."""
WIDTH = 40
"""Columns of a bar."""


def pulse(folder: Path | None, key: Key, total: int) -> Callable[[int], None]:
    """A function that leaves a number of updates for those who watch.

    Example:
        >>> key = Key("abstention-nasa", "paper", "one-projection", "cuts", 3)
        >>> with tempfile.TemporaryDirectory() as name:
        ...     pulse(Path(name), key, 500)(25)
        ...     running(Path(name))
        [('abstention-nasa paper one-projection cuts seed 3', 25, 500)]
    """
    if folder is None:
        return lambda _: None
    file = folder / key.path.as_posix().replace("/", " ")
    label = " ".join([*key[:4], "seed", str(key.seed)])
    last = 0.0

    def tell(update: int) -> None:
        nonlocal last
        if update < total and time.monotonic() - last < PERIOD:
            return
        last = time.monotonic()
        with contextlib.suppress(OSError):  # another machine has no such folder
            if update < total:
                file.write_text(f"{label}\n{update} {total}", encoding="utf-8")
            else:
                file.unlink(missing_ok=True)

    return tell


def running(folder: Path) -> list[tuple[str, int, int]]:
    """The runs that are under way: a name, updates made, updates planned.

    Example:
        >>> with tempfile.TemporaryDirectory() as name:
        ...     running(Path(name))
        []
    """
    found = []
    for file in sorted(folder.iterdir()):
        # A file that is just being written or removed is there again next time.
        with contextlib.suppress(OSError, ValueError):
            label, numbers = file.read_text(encoding="utf-8").splitlines()
            done, total = map(int, numbers.split())
            found.append((label, done, total))
    return found


class Watcher:
    """What a sweep tells about itself: ``say`` a line, ``advance`` by a finished run.

    Args:
        folder: Where runs leave their signs of life; None where nobody watches.
        say: Where lines go.
    """

    def __init__(self, folder: Path | None, say: Callable[[str], None]) -> None:
        """No run is finished."""
        self.folder, self.say, self.done = folder, say, 0

    def advance(self, line: str) -> None:
        """A run is finished."""
        self.done += 1
        self.say(line)


@contextmanager
def watching(
    total: int, *, enabled: bool | None, say: Callable[[str], None]
) -> Iterator[Watcher]:
    """Show bars while the block runs, one for each run that is under way.

    Args:
        total: Runs to make.
        enabled: None shows them when stderr is a terminal and rich is installed.
        say: Where lines go if no bars are shown; else they appear above the bars.

    Example:
        >>> lines = []
        >>> with watching(1, enabled=False, say=lines.append) as watcher:
        ...     watcher.advance("done")
        >>> lines
        ['done']
    """
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        yield Watcher(None, say)
        return
    console = Console(stderr=True)
    if enabled is False or not (enabled or console.is_terminal):
        yield Watcher(None, say)
        return
    with tempfile.TemporaryDirectory() as name:
        watcher = Watcher(Path(name), lambda line: console.print(line, markup=False))
        with Live(
            console=console,
            get_renderable=lambda: _bars(Path(name), watcher.done, total),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield watcher


def _bars(folder: Path, done: int, total: int) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    for label, k, n in [*running(folder), ("runs", done, total)]:
        grid.add_row(label, ProgressBar(total=n, completed=k, width=WIDTH), f"{k}/{n}")
    return grid
