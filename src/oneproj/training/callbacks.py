"""All callbacks of a run as one, the logs among them.

An exception in a callback of the user is not caught. A log that cannot be written costs
the log, not the run.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from oneproj.errors import InvalidProblemError, warn
from oneproj.files import check_place, in_words, is_special
from oneproj.logs import AbstractLog
from oneproj.results import Update

Callback = Callable[[Update], bool | None]
_TAKEN: set[str] = set()  # the files that the logs of running solves write to


class Callbacks:
    """All of them as one, which stops the run if one of them wants to.

    Example:
        >>> calls = Callbacks([lambda update: None, lambda update: update.update == 3])
        >>> [calls(Update(k, 9, 0.0, {}, 0.0)) for k in (1, 2, 3)]
        [False, False, True]
    """

    def __init__(self, callbacks: Iterable[Callback] | Callback) -> None:
        """Take one callback, or several."""
        several = isinstance(callbacks, Iterable) and not callable(callbacks)
        calls: Any = callbacks if several else (callbacks,)
        self._calls: tuple[Callback, ...] = tuple(calls)
        for call in self._calls:
            if not callable(call):
                message = (
                    "A callback is called with an Update after every update, but got "
                    f"{call!r}. Pass a function of one argument, or a list of them."
                )
                raise InvalidProblemError(message)
        self._logs = [call for call in self._calls if isinstance(call, AbstractLog)]
        self._failed: set[int] = set()
        for log in self._logs:
            try:
                if log.place is not None:
                    check_place(log.place)
            except (OSError, ValueError) as error:
                message = (
                    f"{log!r} cannot be written: {in_words(error)}. No update was "
                    "made. Choose a place that you can write to, on a disk with room, "
                    "or leave it out."
                )
                raise InvalidProblemError(message) from error

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Reserve the logs' files for this run while a block runs; then close them.

        Raises:
            InvalidProblemError: One of them writes where another does already.
        """
        own: list[str] = []
        try:
            for log in self._logs:
                if log.place is None or is_special(log.place):
                    continue  # any number of logs may write to a device or a pipe
                place = os.path.realpath(log.place)
                if place in _TAKEN:
                    message = (
                        f"{log!r} is written by another log already, of this run or of "
                        "one that goes on, and the entries of both would mix. Give "
                        "each run, and each log of it, a place of its own."
                    )
                    raise InvalidProblemError(message)
                _TAKEN.add(place)
                own.append(place)
            try:
                yield
            finally:
                self.close()
        finally:
            _TAKEN.difference_update(own)

    def __call__(self, update: Update) -> bool:
        """Call every one of them, also after one that wants to stop."""
        answers = [self._answer(call, update) for call in self._calls]
        return any(answers)

    def close(self) -> None:
        """Close every log: no update follows."""
        for log in self._logs:
            try:
                log.close()
            except Exception as error:  # noqa: BLE001 - the run is worth more
                self._warn(log, error, "when the updates had ended")

    def _answer(self, call: Callback, update: Update) -> bool:
        if not isinstance(call, AbstractLog):
            return _stops(call(update))
        try:
            call(update)
        except OSError as error:
            self._warn(call, error, f"at update {update.update}")
        return False

    def _warn(self, log: AbstractLog, error: Exception, when: str) -> None:
        """Once per log: a disk that was full at one update is full at the next."""
        if id(log) in self._failed:
            return
        self._failed.add(id(log))
        reason = in_words(error) if isinstance(error, OSError) else repr(error)
        message = (
            f"{log!r} could not be written {when}: {reason}. That costs entries of "
            "the log and not the run; each further one is tried. What is missing there "
            "is in solution.history, of a long run every n-th update."
        )
        warn(message)


def _stops(answer: object) -> bool:
    """Whether an answer is True; one that is neither True nor False is a mistake."""
    if answer is None or isinstance(answer, bool):
        return bool(answer)
    if isinstance(answer, np.generic | np.ndarray | Tensor):
        alone = math.prod(answer.shape) == 1
        if alone and "bool" in str(answer.dtype):
            return bool(answer)
    message = (
        "A callback returns True to stop the run, and False or nothing to go on, but "
        f"one returned {reprlib.repr(answer)}, a {type(answer).__name__}. A lambda "
        "returns what it computes: write a function without return."
    )
    raise InvalidProblemError(message)
