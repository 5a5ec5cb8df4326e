"""Optional packages, and progress bars: rich on a terminal, a line in a notebook."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from oneproj.errors import InvalidProblemError, OneprojError


def require(module: str, extra: str) -> Any:  # noqa: ANN401 - a module without types
    """Import a module, or say which extra brings it.

    Raises:
        OneprojError: It is not installed.

    Example:
        >>> require("json", "progress").loads("1")
        1
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = (
            f"This needs {module!r}, which is not installed. Try: {install(extra)}"
        )
        raise OneprojError(message) from error


def install(extra: str) -> str:
    """The command that brings an extra.

    Example:
        >>> install("progress")
        'pip install "oneproj[progress]" (in a clone: ".[progress]")'
    """
    return f'pip install "oneproj[{extra}]" (in a clone: ".[{extra}]")'


STREAM_ERRORS = (OSError, ValueError, AttributeError)
"""What a stream raises that is broken, closed or missing."""
REDRAW = 0.1
"""Seconds between two states of a line in a notebook: faster cannot be read."""
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
        enabled: None shows it in a notebook, and when stderr is a terminal and rich is
            installed.

    Example:
        >>> with progress_bar("training", 10, enabled=False) as advance_to:
        ...     advance_to(10)
    """
    if not _is_watched(enabled):
        yield _ignore
        return
    if is_notebook():
        with _notebook_line() as show:
            yield lambda done: show(f"{label}: {done}/{total} ({done / total:.0%})")
        return
    from rich.progress import Progress

    console = stderr_console()
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
    if is_notebook():
        with _notebook_line(after) as show:
            yield lambda text: show(f"{label}: {text}")
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = stderr_console()
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


def is_notebook() -> bool:
    """Whether an IPython kernel runs this, as in Jupyter; a terminal's is none.

    Example:
        >>> is_notebook()
        False
    """
    module = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if module is None else module.get_ipython()
    return shell is not None and shell.config.get("IPKernelApp") is not None


@contextmanager
def _notebook_line(after: float = 0.0) -> Iterator[Callable[[str], None]]:
    """A line that is written over as work goes on, by itself: rich needs ipywidgets."""
    stream, begin = Stderr(), time.monotonic()
    drawn, width, latest = -math.inf, 0, ""

    def draw(end: str = "") -> None:
        nonlocal drawn, width
        stream.write(f"\r{latest.ljust(width)}{end}")
        stream.flush()
        drawn, width = time.monotonic(), len(latest)

    def show(text: str) -> None:
        nonlocal latest
        latest, now = text, time.monotonic()
        if now - begin >= after and now - drawn >= REDRAW:
            draw()

    try:
        yield show
    finally:
        if drawn > -math.inf:
            draw("\n")


def stderr_console() -> Any:  # noqa: ANN401 - a rich Console
    """A console to stderr that nothing which happens there can end.

    Rich itself exits when the reader of a pipe is gone.
    """
    return require("rich.console", "progress").Console(file=Stderr())


class Stderr:
    """What stderr is at the time, if there is one: what it cannot take is dropped.

    A program without a terminal has none; that of another may be closed, lead to a
    pipe without a reader, or be an object that can write and nothing else.

    Example:
        >>> Stderr().write("")
        0
    """

    @property
    def encoding(self) -> str:
        """Whose characters there are."""
        return getattr(self._stream(), "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write a text, as far as that goes."""
        with suppress(*STREAM_ERRORS):
            self._stream().write(text)
        return len(text)

    def flush(self) -> None:
        """Hand it over, as far as that goes."""
        with suppress(*STREAM_ERRORS):
            self._stream().flush()

    def isatty(self) -> bool:
        """Whether a terminal is known to be there."""
        with suppress(*STREAM_ERRORS):
            return bool(self._stream().isatty())
        return False

    @staticmethod
    def _stream() -> Any:  # noqa: ANN401 - whatever somebody put there
        # A bar of rich takes the place of stderr, and would be written to itself.
        return getattr(sys.stderr, "rich_proxied_file", sys.stderr)


def _is_watched(enabled: bool | None) -> bool:  # noqa: FBT001 - the caller's own
    """Whether to show anything.

    Raises:
        InvalidProblemError: It was asked for, and there is nothing to show it with; or
            it cannot be told whether it was.
    """
    if enabled not in (None, True, False):
        message = (
            f"progress must be True, False or None, got {enabled!r}. None shows it "
            "in a notebook, and when a terminal is watching."
        )
        raise InvalidProblemError(message)
    if is_notebook():
        return enabled is not False
    installed = importlib.util.find_spec("rich") is not None
    if enabled and not installed:
        message = f"progress=True needs rich. Try: {install('progress')}."
        raise InvalidProblemError(message)
    return enabled is not False and installed and (enabled or Stderr().isatty())


def _ignore(state: object) -> None:
    del state
