"""A progress bar for long work: rich, where it is installed and someone watches."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oneproj.errors import InvalidProblemError


@contextmanager
def progress_bar(
    label: str, total: int, *, enabled: bool | None
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; yields a function that moves it to a count.

    Args:
        label: What is going on.
        total: The count at which it is done.
        enabled: None shows it when stderr is a terminal and rich is installed.

    Example:
        >>> with progress_bar("training", 10, enabled=False) as advance_to:
        ...     advance_to(10)
    """
    installed = importlib.util.find_spec("rich") is not None
    if enabled and not installed:
        message = "progress=True needs rich: pip install oneproj[cli]."
        raise InvalidProblemError(message)
    if enabled is False or not installed or not (enabled or sys.stderr.isatty()):
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # A terminal is left clean; a file, which cannot be redrawn, keeps the last state.
    with Progress(console=console, transient=console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def _ignore(done: int) -> None:
    del done
