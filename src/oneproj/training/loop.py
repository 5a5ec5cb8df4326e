"""When batch norm gathers its running statistics in a run, and when it keeps them.

As deep networks need, it gathers them from the minibatches of the first updates. Such a
minibatch, of one class perhaps, is normalised by its own mean and variance, but an
anchor by the gathered ones: objective and constraints are then of two functions, and
never agree. So the later updates keep the statistics and use them, as the projection
and ``model.eval()`` do: from there on there is one function.

The loop of a run: updates, callbacks, checkpoints, and the reasons to stop.

What ended a run before its time, and was not asked for in the call: Ctrl-C, mostly.

Ctrl-C is a wish to finish early, and what there is by then is returned: nothing is
lost, and what a script does next, such as saving the model, is done. A loop over
several runs goes on as well. Pressed twice, it is meant for that loop too.
"""

from __future__ import annotations

import enum
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType

import torch
from torch import nn

from oneproj.arguments import check_count, check_number
from oneproj.distributed import agreeing, is_first_with
from oneproj.errors import NonFiniteError, OneprojWarning, warn
from oneproj.files import in_words
from oneproj.oracles import Estimate
from oneproj.problem.autograd import require_autograd
from oneproj.problem.modes import settled
from oneproj.progress import Stderr, progress_bar
from oneproj.results import KEPT, Status
from oneproj.training.callbacks import Callback
from oneproj.training.checkpoints import begin_checkpoint, write_checkpoint
from oneproj.training.run import Run

GATHERING = 0.5
"""The share of a run in which batch norm gathers statistics."""


class Statistics:
    """Says for each update whether the norms of a model gather or keep statistics.

    Args:
        model: Of the problem; None for one without norms.
        steps: The updates that are planned.
        seconds: A budget of time, which may end long before they do; None for none.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2))
        >>> statistics = Statistics(model, steps=10, seconds=None)
        >>> for k in (5, 6):
        ...     with statistics.during(k):
        ...         model[0].training
        True
        False
    """

    def __init__(
        self, model: nn.Module | None, steps: int, seconds: float | None
    ) -> None:
        """The time begins to run."""
        self._model, self._steps = model, steps
        self._budget, self._begun = seconds or math.inf, time.monotonic()

    def during(self, k: int) -> AbstractContextManager[None]:
        """Put the norms into the mode of the k-th update while a block runs.

        It is said anew each time, for a callback that calls ``model.train()``.
        """
        spent = (time.monotonic() - self._begun) / self._budget
        keeps = max(k / self._steps, spent) > GATHERING
        return settled(self._model if keeps else None)


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
        checkpoint: Where to save the run; None for nowhere.
        checkpoint_every: Updates between two checkpoints.

    Raises:
        InvalidProblemError: The budget or the interval has no meaning.
    """

    def __init__(
        self,
        *,
        callback: Callback,
        progress: bool | None,
        seconds: float | None,
        checkpoint: Path | None,
        checkpoint_every: int,
    ) -> None:
        """Check and keep the settings."""
        self._callback, self._progress, self.checkpoint = callback, progress, checkpoint
        self._seconds = seconds
        if seconds is not None:
            budget = "It is a budget of time for the updates; None for none."
            self._seconds = check_number("seconds", seconds, budget, infinite=True)
        self._save: Callable[[int], None] = lambda _: None
        interval = "It is how many updates there are from one checkpoint to the next."
        self._every = check_count("checkpoint_every", checkpoint_every, interval)

    def begin(self, run: Run, done: int) -> None:
        """Write the first checkpoint of this call, where there is to be one.

        Every rank of a process group takes part: all of them have looked for a file
        before one is written, and of ranks that name the same file the first writes it.

        Raises:
            CheckpointError: It cannot be written.
            InvalidProblemError: It cannot be written on another rank.
        """
        file = self.checkpoint
        if file is None:
            return
        writes = is_first_with(str(file.absolute()))
        with agreeing("the first checkpoint"):
            if writes:
                self._save = _saving(run, file, done)

    def run(self, run: Run, done: int) -> End:
        """Make the updates after the first ``done``; says why they ended.

        The point is not judged here. What a callback raises passes as it is.
        """
        history, method, k = run.history, run.method, done
        steps, model = history.steps, run.setting.problem.model
        until = time.monotonic() + (self._seconds or math.inf)
        # Not by the clock where it is saved: resumed, a run gives the same bits.
        statistics = Statistics(
            model, steps, None if self.checkpoint else self._seconds
        )
        try:
            with (
                torch.enable_grad(),
                progress_bar("training", steps, enabled=self._progress) as advance_to,
                _interrupts(wait=self.checkpoint is not None) as pressed,
            ):
                end = End.PLANNED if k == steps else None
                while end is None:
                    k += 1
                    with statistics.during(k):
                        estimate = _update(run, k)
                    if method.stuck:
                        return End.STUCK
                    seen = estimate.objective, estimate.residuals, method.outer
                    update = history.add(k, *seen)
                    advance_to(k)
                    with torch.enable_grad():  # whatever mode a callback leaves behind
                        stop = self._callback(update)
                    if k == steps or method.done:
                        end = End.PLANNED
                    elif pressed():
                        end = End.PRESSED
                    elif stop:
                        end = End.ASKED
                    elif time.monotonic() >= until:
                        end = End.LATE
                    if end is not None or k % self._every == 0:
                        self._save(k)
        except KeyboardInterrupt:  # inside an update: not a state to go on from
            return End.PRESSED
        finally:
            history.close()
        return end


def _update(run: Run, k: int) -> Estimate:
    """Make the k-th update; an error says which it was."""
    try:
        return run.method.update()
    except NonFiniteError as error:
        raise NonFiniteError(error.quantity, step=k) from error
    except RuntimeError:
        require_autograd(run.setting.problem.parameters)  # a callback may freeze one
        raise


def _saving(run: Run, path: Path, done: int) -> Callable[[int], None]:
    """Save a run, and say how to save it again after an update.

    A disk that fails meanwhile costs checkpoints and not the run: it is warned of, once
    until one is written, and tried again.

    Raises:
        CheckpointError: It cannot be saved now.
    """
    begin_checkpoint(path, run.state_dict(done))
    kept, warned = done, False

    def save(k: int) -> None:
        nonlocal kept, warned
        try:
            write_checkpoint(path, run.state_dict(k))
            kept, warned = k, False
        except OSError as error:
            message = (
                f"The checkpoint {str(path)!r} could not be replaced after update {k}: "
                f"{in_words(error)}. The run goes on and tries again at every "
                "checkpoint; until one is written, a stop would lose what came after "
                f"update {kept}."
            )
            if not warned:
                warn(message)
            warned = True

    return save


@contextmanager
def _interrupts(*, wait: bool) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C wait for the end of an update; the second does not.

    Yields whether it was pressed. Only where Python's own handler is in place, in the
    main thread: handlers that someone else installed stay.
    """
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (wait and own and threading.current_thread() is threading.main_thread()):
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


AGAIN = 3.0
"""Seconds after a warning within which Ctrl-C counts as the second one."""
_WARNED: ContextVar[float] = ContextVar("warned", default=-math.inf)


def heed_end(
    end: End, stopped: float, update: int, steps: int, *, kept: Status | None = None
) -> None:
    """Say of a run with a feasible point why it has fewer updates than planned.

    Args:
        end: The reason. That a budget of time ends it is no news, nor that a callback
            does, but for the first update: then it was hardly meant.
        stopped: When, by the monotonic clock.
        update: The last one that was made.
        steps: The updates that were planned.
        kept: The status, where the answer is not what the run ended with.

    Raises:
        KeyboardInterrupt: It was the second Ctrl-C: the warning of the last one is less
            than ``AGAIN`` seconds old.
    """
    if end is End.PRESSED:
        soon = stopped - _WARNED.get() < AGAIN
        _WARNED.set(-math.inf if soon else time.monotonic())
        if soon:
            raise KeyboardInterrupt
        _warn_of_interrupt(update, steps, kept=kept)
    if end is End.ASKED and update == 1 < steps:
        message = (
            f"A callback returned True after the first of {steps} updates, which ends "
            "the run. The update() of a progress bar, such as tqdm's, returns True "
            "where it draws: call it in a function that returns nothing."
        )
        warn(message)
    if end is End.STUCK and kept is None:
        message = (
            f"The projection of update {update + 1} failed by its own account, and the "
            f"run of {steps} updates ended there. The point that it left is feasible "
            "nevertheless: the parameters hold it, and the status of the solution is "
            "INTERRUPTED. Try another projector."
        )
        warn(message)


def _warn_of_interrupt(update: int, steps: int, *, kept: Status | None) -> None:
    outcome = (
        f"The point so far is no better than {KEPT[kept]}: the parameters hold that, "
        f"which is feasible, and the status of the solution is {kept.name}."
        if kept is not None
        else "The point so far was projected: the parameters hold it, it is feasible, "
        "and the status of the solution is INTERRUPTED."
    )
    message = (
        f"Ctrl-C ended this run after update {update} of {steps}. {outcome} "
        "A loop around this call goes on. To stop that, press "
        f"Ctrl-C again within {AGAIN:.0f} seconds, or test solution.status in it."
    )
    try:
        warn(message)
    except OneprojWarning:  # warnings are errors, but whoever presses it makes none:
        Stderr().write(f"{message}\n")  # raised, it would cost the solution
