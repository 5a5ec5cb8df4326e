"""The loop of a run: updates, callbacks, checkpoints, and the reasons to stop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch

from oneproj.arguments import check_number, is_count
from oneproj.checkpoints import write_checkpoint
from oneproj.errors import InfeasibleError, InvalidProblemError, NonFiniteError
from oneproj.progress import progress_bar
from oneproj.projection.project import OnFailure
from oneproj.results import Status, Update
from oneproj.runs import Run

Callback = Callable[[Update], bool | None]


@dataclass(frozen=True)
class Loop:
    """How the updates of a run are made, watched, saved and ended.

    Args:
        callbacks: Each called after every update; one that returns True stops it.
        on_failure: Of a projection inside an update.
        progress: Whether to show a bar.
        seconds: After which no update begins; None for no limit.
        checkpoint: Where to save the run; None for nowhere.
        checkpoint_every: Updates between two checkpoints.
    """

    callbacks: Iterable[Callback] | Callback
    on_failure: OnFailure
    progress: bool | None
    seconds: float | None
    checkpoint: Path | None
    checkpoint_every: int

    def __post_init__(self) -> None:
        """Refuse a budget or an interval without meaning."""
        if self.seconds is not None:
            budget = "It is a budget of time for the updates; None for none."
            check_number("seconds", self.seconds, budget, infinite=True)
        if not is_count(self.checkpoint_every):
            message = (
                "checkpoint_every must be a whole number of updates, at least 1, got "
                f"{self.checkpoint_every!r}."
            )
            raise InvalidProblemError(message)

    def run(self, run: Run, done: int) -> Status:
        """Make the updates after the first ``done``; says why they ended.

        ``Status.FEASIBLE`` stands for all of them. The point is not judged here.
        """
        history, k = run.history, done
        calls = self.callbacks
        calls = (calls,) if callable(calls) else tuple(calls)
        steps, until = history.steps, time.monotonic() + (self.seconds or math.inf)
        self._save(run, k)  # now, so that what cannot be saved is found at once
        try:
            with (
                torch.enable_grad(),
                progress_bar("training", steps, enabled=self.progress) as advance_to,
                _interrupts(wait=self.checkpoint is not None) as pressed,
            ):
                ended = Status.FEASIBLE if k == steps else None
                while ended is None:
                    k += 1
                    sight, method = run.method.update(), run.method
                    update = history.add(
                        k, sight.objective, sight.residuals, method.outer
                    )
                    advance_to(k)
                    wishes = [callback(update) for callback in calls]
                    if k == steps or method.done:
                        ended = Status.FEASIBLE
                    elif any(wishes) or pressed():
                        ended = Status.INTERRUPTED
                    elif time.monotonic() >= until:
                        ended = Status.OUT_OF_TIME
                    if ended is not None or k % self.checkpoint_every == 0:
                        self._save(run, k)
        except NonFiniteError as error:
            raise NonFiniteError(error.quantity, step=k) from error
        except InfeasibleError:  # a method that projects as it goes could not
            if self.on_failure == "raise":
                raise
            return Status.INTERRUPTED
        except KeyboardInterrupt:  # inside an update: not a state to go on from
            return Status.INTERRUPTED
        finally:
            history.close()
        return ended

    def _save(self, run: Run, k: int) -> None:
        if self.checkpoint is not None:
            write_checkpoint(self.checkpoint, run.state_dict(k))


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
