"""A progress bar for long work: rich, where it is installed and someone watches."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oneproj.errors import InvalidProblemError

LONG = 2.0
"""Seconds after which someone who waits begins to wonder."""


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
    if not _is_watched(enabled):
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # A terminal is left clean; a file, which cannot be redrawn, keeps the last state.
    with Progress(console=console, transient=console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def progress_line(
    label: str, *, enabled: bool | None, after: float = LONG
) -> Iterator[Callable[[str], None]]:
    """Show a line while the block runs, for work of unknown length.

    Yields a function that says how far it is; nothing appears before it takes long.

    Args:
        label: What is going on.
        enabled: As for ``progress_bar``.
        after: Seconds after which it takes long.

    Example:
        >>> with progress_line("projecting", enabled=False) as say:
        ...     say("7 gradients so far")
    """
    if not _is_watched(enabled):
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    line = Progress(*columns, console=console, transient=console.is_terminal)
    task, begin = line.add_task(label, total=None), time.monotonic()

    def say(text: str) -> None:
        line.update(task, description=f"{label}: {text}")
        if time.monotonic() - begin >= after:
            line.start()

    try:
        yield say
    finally:
        if line.live.is_started:
            line.stop()


def _is_watched(enabled: bool | None) -> bool:  # noqa: FBT001 - the caller's own
    """Whether to show anything.

    Raises:
        InvalidProblemError: It was asked for, and there is nothing to show it with.
    """
    installed = importlib.util.find_spec("rich") is not None
    if enabled and not installed:
        message = "progress=True needs rich: pip install oneproj[cli]."
        raise InvalidProblemError(message)
    return enabled is not False and installed and (enabled or sys.stderr.isatty())


def _ignore(state: object) -> None:
    del state
