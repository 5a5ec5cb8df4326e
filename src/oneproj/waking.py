"""Ctrl-C while torch is imported, which takes seconds: a command leaves in words.

A program that imports the library has its own way with Ctrl-C, so nothing is done
there. The package is imported before any line of its ``__main__`` can run: this is the
first thing that it imports.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = 130
TOLD = b"Stopped before anything began.\n"


def is_command(words: Sequence[str]) -> bool:
    """Whether Python was started as ``oneproj`` or ``python -m oneproj``.

    Args:
        words: As ``sys.orig_argv`` has them: workers of a command have others.

    Example:
        >>> is_command(["python", "-m", "oneproj", "report"])
        True
        >>> is_command(["python", "/usr/bin/oneproj", "--help"])
        True
        >>> is_command(["python", "train.py", "oneproj"])
        False
    """
    rest = [word for word in words[1:] if word == "-m" or not word.startswith("-")]
    return rest[:2] == ["-m", "oneproj"] or (
        bool(rest) and Path(rest[0]).stem == "oneproj"
    )


def _leave(number: int, frame: object) -> None:
    del number, frame
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, TOLD)
    os._exit(INTERRUPTED)  # an import that is cut off could not be cleaned up


def wake() -> None:
    """Ctrl-C is an exception from here on, as it always is."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command(sys.orig_argv) and (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _leave)
