"""Where output goes, and how failures become exit codes, for every command."""

from __future__ import annotations

import codecs
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

import typer
from rich.console import Console

from oneproj.errors import OneprojError
from oneproj.files import in_words

FAILED, INTERRUPTED = 1, 130
ADVICE = (
    "Files need a folder that you can write to, on a disk with room: make room, or "
    "choose another place."
)
"""Added to the error of a file or a disk that has no advice of its own."""


PLAIN = {
    "\N{PLUS-MINUS SIGN}": "+-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{EN DASH}": "-",
    "\N{HORIZONTAL ELLIPSIS}": "...",
}
"""For an output that knows no more than ASCII; what is not here becomes a ``?``."""
PLAINLY = "oneproj-plainly"
"""The name under which Python knows of these."""


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    refused = error.object[error.start : error.end]
    told, end = "".join(PLAIN.get(sign, "?") for sign in refused), error.end
    if len(told) > len(refused) and error.object[end : end + 1] == " ":
        end += 1  # in a table, what follows stays in its column
    return told, end


codecs.register_error(PLAINLY, _plainly)


def speak_plainly() -> None:
    """Let no output fail over a sign that its encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=PLAINLY)


def console(width: int = 160) -> Console:
    """Standard output; as wide as given where no terminal says how wide it is."""
    speak_plainly()
    out = _standard_output()
    return Console(width=None if out is not None and out.isatty() else width)


class _Notices(logging.Handler):
    """Shows messages on standard error, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        err = Console(stderr=True)
        err.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def notices(name: str) -> Iterator[None]:
    """Show what a part of the library says while it works: waiting, trying again."""
    log, handler = logging.getLogger(name), _Notices()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)


@contextmanager
def exits(*, stopped: str) -> Iterator[None]:
    """Say what went wrong in words, or what Ctrl-C left, and exit with a code.

    It goes to standard error: what is piped or kept in a file is results alone.
    """
    try:
        yield
    except BrokenPipeError:  # the reader is gone, as with `| head`: typer handles it
        raise
    except OneprojError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from error
    except OSError as error:
        typer.echo(f"{in_words(error)}. {ADVICE}", err=True)
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        typer.echo(stopped, err=True)
        raise typer.Exit(INTERRUPTED) from error


@contextmanager
def last_words() -> Iterator[None]:
    """End in a sentence where results were made and cannot be shown: a full disk."""
    try:
        yield
    except OSError as error:
        sys.exit(f"The output cannot be written: {in_words(error)}.")
    finally:
        if (out := _standard_output()) is not None:
            try:
                out.flush()
            except OSError:  # Python would try once more, and say so in its own words
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM, or a terminal that is closed, end the block as Ctrl-C would.

    Their default is to end this process alone: those that it has started would stay
    for minutes, and so would drafts and locks.
    """
    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # not every system has both
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, _press)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _press(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C would do now; some commands have their own way for it."""
    pressed = signal.getsignal(signal.SIGINT)
    if not callable(pressed):  # ignored, as in the background of a script
        raise KeyboardInterrupt
    pressed(number, frame)


def _standard_output() -> TextIO | None:
    """None where whoever started the program has closed it."""
    return sys.stdout
