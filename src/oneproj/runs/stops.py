"""What ended a run before its time, and was not asked for in the call: Ctrl-C, mostly.

Ctrl-C is a wish to finish early, and what there is by then is returned: nothing is
lost, and what a script does next, such as saving the model, is done. A loop over
several runs goes on as well. Pressed twice, it is meant for that loop too.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from oneproj.errors import InvalidProblemError, OneprojWarning, warn
from oneproj.files import check_place, in_words, is_special
from oneproj.logs import AbstractLog
from oneproj.progress import Stderr
from oneproj.results import Update
from oneproj.runs.iterate import Callback, End

AGAIN = 3.0
"""Seconds after a warning within which Ctrl-C counts as the second one."""
_TAKEN: set[str] = set()
_WARNED: ContextVar[float] = ContextVar("warned", default=-math.inf)


class Wishes:
    """All callbacks as one. A log that cannot be written costs the log, not the run.

    Example:
        >>> wishes = Wishes([lambda update: None, lambda update: update.update == 3])
        >>> [wishes(Update(k, 9, 0.0, {}, 0.0)) for k in (1, 2, 3)]
        [False, False, True]
    """

    def __init__(self, callbacks: Iterable[Callback] | Callback) -> None:
        """Take one callback, or several."""
        self._calls = _as_calls(callbacks)
        self._failed: set[int] = set()
        for call in self._calls:
            if isinstance(call, AbstractLog):
                _check_place(call)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While the block runs, the logs are this run's; then they are closed.

        Raises:
            InvalidProblemError: One of them writes where another does already.
        """
        with ExitStack() as places:
            for call in self._calls:
                if isinstance(call, AbstractLog):
                    places.enter_context(_taken(call))
            try:
                yield
            finally:
                self.close()

    def __call__(self, update: Update) -> bool:
        """Call every one of them, also after one that wants to stop."""
        answers = [self._answer(call, update) for call in self._calls]
        return any(answers)

    def close(self) -> None:
        """Tell the logs that no update follows, each of them."""
        for call in self._calls:
            if isinstance(call, AbstractLog):
                try:
                    call.close()
                except Exception as error:  # noqa: BLE001 - the run is worth more
                    self._warn(call, error, "when the updates had ended")

    def _answer(self, call: Callback, update: Update) -> bool:
        if not isinstance(call, AbstractLog):
            return _truth(call(update))
        try:
            call(update)
        except OSError as error:
            self._warn(call, error, f"at update {update.update}")
        return False

    def _warn(self, log: AbstractLog, error: Exception, when: str) -> None:
        """Once per log: the disk that was full at one update is so at the next."""
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


@contextmanager
def _taken(log: AbstractLog) -> Iterator[None]:
    """Keep others from the place of a log; a device or a pipe is for everybody."""
    if log.place is None or is_special(log.place):
        yield
        return
    place = os.path.realpath(log.place)
    if place in _TAKEN:
        message = (
            f"{log!r} is written by another log already, of this run or of one that "
            "goes on, and the entries of both would mix. Give each run, and each log "
            "of it, a place of its own."
        )
        raise InvalidProblemError(message)
    _TAKEN.add(place)
    try:
        yield
    finally:
        _TAKEN.remove(place)


def _check_place(log: AbstractLog) -> None:
    try:
        if log.place is not None:
            check_place(log.place)
    except (OSError, ValueError) as error:
        message = (
            f"{log!r} cannot be written: {in_words(error)}. No update was made. Choose "
            "a place that you can write to, on a disk with room, or leave it out."
        )
        raise InvalidProblemError(message) from error


def _truth(answer: object) -> bool:
    try:
        return bool(answer)
    except (RuntimeError, TypeError, ValueError) as error:
        message = (
            "A callback returns True to stop the run, and False or nothing to go on, "
            f"but one returned a {type(answer).__name__} that is neither: {error}. "
            "Return one truth, with .all() or .any() for example."
        )
        raise InvalidProblemError(message) from error


def _as_calls(callbacks: Iterable[Callback] | Callback) -> tuple[Callback, ...]:
    if callable(callbacks):
        return (callbacks,)
    calls = tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
    for call in calls:
        if not callable(call):
            message = (
                f"A callback is called with an Update after every update, but got "
                f"{call!r}. Pass a function of one argument, or a list of them."
            )
            raise InvalidProblemError(message)
    return calls


def heed_end(end: End, stopped: float, update: int, steps: int) -> None:
    """Say of a run with a feasible point why it has fewer updates than planned.

    Args:
        end: The reason. That a callback or a budget of time ends it is no news.
        stopped: When, by the monotonic clock.
        update: The last one that was made.
        steps: The updates that were planned.

    Raises:
        KeyboardInterrupt: It was the second Ctrl-C.
    """
    if end is End.PRESSED:
        heed_interrupt(stopped, update, steps)
    if end is End.STUCK:
        message = (
            f"The projection of update {update + 1} failed by its own account, and the "
            f"run of {steps} updates ended there. The point that it left is feasible "
            "nevertheless: the parameters hold it, and the status of the solution is "
            "INTERRUPTED. Try another projector."
        )
        warn(message)


def heed_interrupt(pressed: float, update: int, steps: int) -> None:
    """Warn that Ctrl-C ended a run early; if it is the second one, raise.

    Where warnings are errors it is said on stderr, and the solution returned.

    Args:
        pressed: When, by the monotonic clock.
        update: The last one that was made.
        steps: The updates that were planned.

    Raises:
        KeyboardInterrupt: The last warning is less than ``AGAIN`` seconds old.
    """
    soon = pressed - _WARNED.get() < AGAIN
    _WARNED.set(-math.inf if soon else time.monotonic())
    if soon:
        raise KeyboardInterrupt
    message = (
        f"Ctrl-C ended this run after update {update} of {steps}. The point so far was "
        "projected: the parameters hold it, it is feasible, and the status of the "
        "solution is INTERRUPTED. A loop around this call goes on. To stop that, press "
        f"Ctrl-C again within {AGAIN:.0f} seconds, or test solution.status in it."
    )
    try:
        warn(message)
    except OneprojWarning:  # warnings are errors, but whoever presses it makes none:
        Stderr().write(f"{message}\n")  # raised, it would cost the solution
