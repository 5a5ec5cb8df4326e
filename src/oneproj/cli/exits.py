"""Where output goes, and how failures become exit codes, for every command."""

from __future__ import annotations

import codecs
import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from oneproj.errors import OneprojError
from oneproj.files import in_words

FAILED, INTERRUPTED = 1, 130
ADVICE = (
    "Files need a folder that you can write to, on a disk with room: make room, or "
    "choose another place."
)
"""Where a file or a disk refused and nobody below knew more."""


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
    return Console(width=None if sys.stdout.isatty() else width)


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
def exits(out: Console, *, stopped: str) -> Iterator[None]:
    """Say what went wrong in words, or what Ctrl-C left, and exit with a code."""
    try:
        yield
    except BrokenPipeError:  # nobody reads on, as with `| head`: typer's to handle
        raise
    except OneprojError as error:
        out.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(FAILED) from error
    except OSError as error:
        told = f"{in_words(error)}. {ADVICE}"
        out.print(told, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        out.print(stopped, markup=False, highlight=False)
        raise typer.Exit(INTERRUPTED) from error
