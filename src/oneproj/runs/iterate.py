"""The loop of a run: updates, callbacks, checkpoints, and the reasons to stop."""

from __future__ import annotations

import enum
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from oneproj.arguments import check_count, check_number
from oneproj.autograd import require_autograd
from oneproj.errors import NonFiniteError, warn
from oneproj.files import in_words
from oneproj.oracles import Sight
from oneproj.progress import progress_bar
from oneproj.results import Status
from oneproj.runs.callbacks import Callback
from oneproj.runs.checkpoints import begin_checkpoint, write_checkpoint
from oneproj.runs.run import Run
from oneproj.runs.statistics import Statistics


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
        interval = "It is how many updates there are from one checkpoint to the next."
        self._every = check_count("checkpoint_every", checkpoint_every, interval)

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
        save = _saving(run, self.checkpoint, k)
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
                        sight = _update(run, k)
                    if method.stuck:
                        return End.STUCK
                    seen = sight.objective, sight.residuals, method.outer
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
                        save(k)
        except KeyboardInterrupt:  # inside an update: not a state to go on from
            return End.PRESSED
        finally:
            history.close()
        return end


def _update(run: Run, k: int) -> Sight:
    """Make the k-th update; an error says which it was."""
    try:
        return run.method.update()
    except NonFiniteError as error:
        raise NonFiniteError(error.quantity, step=k) from error
    except RuntimeError:
        require_autograd(run.setting.problem.parameters)  # a callback may freeze one
        raise


def _saving(run: Run, path: Path | None, done: int) -> Callable[[int], None]:
    """Save a run, and say how to save it again after an update.

    A disk that fails meanwhile costs checkpoints and not the run: it is warned of, once
    until one is written, and tried again.

    Raises:
        CheckpointError: It cannot be saved now.
    """
    if path is None:
        return lambda _: None
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
