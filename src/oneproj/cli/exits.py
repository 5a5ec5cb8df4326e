"""Where output goes, and how failures become exit codes, for every command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from oneproj.errors import OneprojError

FAILED, INTERRUPTED = 1, 130


def console(width: int = 160) -> Console:
    """Standard output; as wide as given where no terminal says how wide it is."""
    return Console(width=None if sys.stdout.isatty() else width)


@contextmanager
def exits(out: Console, *, stopped: str) -> Iterator[None]:
    """Say what went wrong in words, or what Ctrl-C left, and exit with a code."""
    try:
        yield
    except OneprojError as error:
        out.print(str(error), markup=False)
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        out.print(stopped, markup=False, highlight=False)
        raise typer.Exit(INTERRUPTED) from error
