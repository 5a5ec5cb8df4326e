"""The loop of a run: updates, callbacks, checkpoints, and the reasons to stop.

**Batch norm** gathers its running statistics in the first half of a run and keeps them
in the second. A minibatch is normalised by its own mean and variance while they are
gathered, an anchor by the gathered ones: objective and constraints would be of two
functions to the end. With statistics that are kept there is one function, the one that
the projection and ``model.eval()`` see.

**Ctrl-C** ends the updates, and what there is by then becomes the answer. A loop around
the call goes on; pressed twice, Ctrl-C stops that as well.

**Callbacks** are called as one, the logs among them. An exception in a callback of the
user is not caught. A log that cannot be written costs the log, not the run.
"""

from __future__ import annotations

import enum
import math
import reprlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneproj.arguments import check_number
from oneproj.distributed import agreeing, is_first_with
from oneproj.errors import InvalidProblemError, NonFiniteError, OneprojWarning, warn
from oneproj.files import check_place, in_words, locked
from oneproj.logs import AbstractLog
from oneproj.methods.base import check_returned
from oneproj.oracles import Estimate
from oneproj.problem.autograd import require_autograd
from oneproj.problem.modes import frozen_statistics
from oneproj.progress import Stderr, progress_bar
from oneproj.results import KEPT, Status, Update
from oneproj.training.checkpoints import (
    Files,
    cannot_write,
    resumed_from,
    write_checkpoint,
    written_by_another,
)
from oneproj.training.run import Run

Callback = Callable[[Update], bool | None]


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


AGAIN = 3.0  # seconds after a warning within which Ctrl-C counts as the second one
_WARNED: ContextVar[float] = ContextVar("warned", default=-math.inf)


class End(enum.Enum):
    """Why no further update was made.

    Example:
        >>> End.PRESSED.status.name, End.PLANNED.status.name
        ('INTERRUPTED', 'FEASIBLE')
    """

    PLANNED = "all of them were made, or more would do nothing"
    ASKED = "a callback asked for it"
    PRESSED = "Ctrl-C"
    LATE = "the time was up"
    STUCK = "a projection of the method failed"

    @property
    def status(self) -> Status:
        """The status of a solution that ended so, if its point is feasible."""
        if self is End.PLANNED:
            return Status.FEASIBLE
        return Status.OUT_OF_TIME if self is End.LATE else Status.INTERRUPTED


class Loop:
    """How the updates of a run are made, watched, saved and ended.

    Args:
        callback: Called after every update; stops the run if it returns True.
        progress: Whether to show a bar.
        seconds: After which no update begins; None for no limit.
        files: Where to save the run, and how often.

    Raises:
        InvalidProblemError: The budget of time has no meaning.
    """

    def __init__(
        self,
        callback: Callback,
        files: Files,
        *,
        progress: bool | None,
        seconds: float | None,
    ) -> None:
        """Check and keep the settings."""
        self._callback, self._progress, self._files = callback, progress, files
        self._seconds = math.inf
        self._save: Callable[[int], None] = lambda _: None
        self._held = ExitStack()  # the lock of the checkpoint
        if seconds is not None:
            budget = "It is a budget of time for the updates; None for none."
            self._seconds = check_number("seconds", seconds, budget, infinite=True)

    def begin(self, run: Run, done: int) -> None:
        """Write the first checkpoint of this call, where there is to be one.

        Every rank of a process group takes part: all of them have read a file before
        one is written, and of ranks that name the same file the first writes it. It
        keeps other processes from the file until the updates end.

        Raises:
            CheckpointError: It cannot be written, or another process writes it.
            InvalidProblemError: It cannot be written on another rank.
        """
        path = self._files.target
        if path is None:
            return
        writes = is_first_with(str(path.absolute()))
        try:
            with agreeing("the first checkpoint"), resumed_from(self._files.source):
                if writes:
                    self._save = self._saving(run, done, path)
        except BaseException:
            self._held.close()
            raise

    def run(self, run: Run, done: int) -> End:
        """Make the updates after the first ``done``; returns why they ended.

        The point is not judged here. An exception in a callback is not caught.
        """
        history, k = run.history, done
        steps = history.steps
        self._begun = time.monotonic()
        try:
            with (
                torch.enable_grad(),
                progress_bar("training", steps, enabled=self._progress) as advance_to,
                _interrupts(wait=self._files.target is not None) as pressed,
            ):
                end = End.PLANNED if k == steps else None
                while end is None:
                    k += 1
                    with frozen_statistics(
                        run.context.problem.model if self._keeps(run, k) else None
                    ):
                        estimate = _update(run, k)
                    if run.method.stuck:
                        return End.STUCK
                    seen = estimate.objective, estimate.residuals, run.method.outer
                    update = history.add(k, *seen)
                    advance_to(k)
                    with torch.enable_grad():  # whatever mode a callback leaves behind
                        stop = self._callback(update)
                    if k == steps or run.method.done:
                        end = End.PLANNED
                    elif pressed():
                        end = End.PRESSED
                    elif stop:
                        end = End.ASKED
                    elif self._elapsed >= self._seconds:
                        end = End.LATE
                    if end is not None or k % self._files.every == 0:
                        self._save(k)
        except KeyboardInterrupt:  # inside an update: not a state to go on from
            return End.PRESSED
        finally:
            history.close()
            self._held.close()
        return end

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    def _keeps(self, run: Run, k: int) -> bool:
        """Whether batch norm keeps its statistics in the k-th update.

        By the clock if time is short, but not where the run is saved: resumed, it has
        to give the same bits.
        """
        spent = 0.0 if self._files.target else self._elapsed / self._seconds
        return 2 * max(k / run.history.steps, spent) > 1

    def _saving(self, run: Run, done: int, path: Path) -> Callable[[int], None]:
        """Save a run, and return how to save it again after an update.

        A disk that fails later costs checkpoints and not the run: a warning says so
        once, and the next save is tried.

        Raises:
            CheckpointError: It cannot be saved now.
        """
        try:
            self._held.enter_context(locked(path))
            write_checkpoint(path, run.state_dict(done))
        except BlockingIOError as error:
            raise written_by_another(path) from error
        except (OSError, ValueError) as error:
            raise cannot_write(path, error) from error
        kept, warned = done, False

        def save(k: int) -> None:
            nonlocal kept, warned
            try:
                write_checkpoint(path, run.state_dict(k))
                kept, warned = k, False
            except OSError as error:
                message = (
                    f"The checkpoint {str(path)!r} could not be replaced after update "
                    f"{k}: {in_words(error)}. The run goes on and tries again at every "
                    "checkpoint; until one is written, a stop would lose what came "
                    f"after update {kept}."
                )
                if not warned:
                    warn(message)
                warned = True

        return save


def _update(run: Run, k: int) -> Estimate:
    """Make the k-th update; an error says which it was."""
    try:
        found = run.method.update()
    except NonFiniteError as error:
        raise NonFiniteError(error.quantity, step=k) from error
    except RuntimeError:
        require_autograd(run.context.problem.parameters)  # a callback may freeze one
        raise
    what = f"update() of {type(run.method).__name__}"
    advice = "Return what backward() of context.oracle(penalty) returned."
    check_returned(found, Estimate, what, advice)
    lacks = run.context.problem.constraints.keys() - found.residuals.keys()
    if lacks:
        message = (
            f"{what} returned an Estimate without the constraints {sorted(lacks)}, "
            "whose values are part of the record. An oracle without a penalty sees "
            "none: return Estimate(objective, problem.residuals()), or what you know."
        )
        raise InvalidProblemError(message)
    return found


@contextmanager
def _interrupts(*, wait: bool) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C wait for the end of an update; the second does not.

    Yields whether it was pressed. Only where Python's own handler is in place, in the
    main thread: handlers that someone else installed stay.
    """
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (wait and default and threading.current_thread() is threading.main_thread()):
        yield lambda: False
        return
    presses: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        if presses:
            signal.default_int_handler(number, frame)
        presses.append(number)

    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(presses)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def warn_of_end(
    end: End,
    stopped: float,
    update: int,
    steps: int,
    *,
    kept: Status | None = None,
    saved: Path | None = None,
) -> None:
    """Warn of a run with a feasible point that made fewer updates than planned.

    Args:
        end: The reason. A budget of time is no reason to warn, nor is a callback,
            unless it ends the run at the first update: that was hardly meant.
        stopped: When, by the monotonic clock.
        update: The last one that was made.
        steps: The updates that were planned.
        kept: The status, where the answer is not what the run ended with.
        saved: The checkpoint of the run, if there is one.

    Raises:
        KeyboardInterrupt: It was the second Ctrl-C: the warning of the last one is less
            than ``AGAIN`` seconds old.
    """
    message = ""
    if end is End.PRESSED:
        soon = stopped - _WARNED.get() < AGAIN
        _WARNED.set(-math.inf if soon else time.monotonic())
        if soon:
            raise KeyboardInterrupt
        outcome = (
            f"The point so far is no better than {KEPT[kept]}: the parameters hold "
            f"that, which is feasible, and the status of the solution is {kept.name}."
            if kept is not None
            else "The point so far was projected: the parameters hold it, it is "
            "feasible, and the status of the solution is INTERRUPTED."
        )
        resume = (
            f" The run can be resumed from the checkpoint {str(saved)!r}."
            if saved is not None
            else ""
        )
        message = (
            f"Ctrl-C ended this run after update {update} of {steps}. "
            f"{outcome}{resume} A loop around this call goes on. To stop that, press "
            f"Ctrl-C again within {AGAIN:.0f} seconds, or test solution.status in it."
        )
    elif end is End.ASKED and update == 1 < steps:
        message = (
            f"A callback returned True after the first of {steps} updates, which ends "
            "the run. The update() of a progress bar, such as tqdm's, returns True "
            "where it draws: call it in a function that returns nothing."
        )
    elif end is End.STUCK and kept is None:
        message = (
            f"The projection of update {update + 1} failed by its own account, and the "
            f"run of {steps} updates ended there. The point that it left is feasible "
            "nevertheless: the parameters hold it, and the status of the solution is "
            "INTERRUPTED. Try another projector."
        )
    if not message:
        return
    try:
        warn(message)
    except OneprojWarning:  # where warnings are errors, Ctrl-C must not cost the answer
        if end is not End.PRESSED:
            raise
        Stderr().write(f"{message}\n")
