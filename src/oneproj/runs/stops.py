"""What ended a run before its time, and was not asked for in the call: Ctrl-C, mostly.

Ctrl-C is a wish to finish early, and what there is by then is returned: nothing is
lost, and what a script does next, such as saving the model, is done. A loop over
several runs goes on as well. Pressed twice, it is meant for that loop too.
"""

from __future__ import annotations

import math
import time
from contextvars import ContextVar

from oneproj.errors import OneprojWarning, warn
from oneproj.progress import Stderr
from oneproj.runs.iterate import End

AGAIN = 3.0
"""Seconds after a warning within which Ctrl-C counts as the second one."""
_WARNED: ContextVar[float] = ContextVar("warned", default=-math.inf)


def heed_end(
    end: End, stopped: float, update: int, steps: int, *, kept: bool = False
) -> None:
    """Say of a run with a feasible point why it has fewer updates than planned.

    Args:
        end: The reason. That a budget of time ends it is no news, nor that a callback
            does, but for the first update: then it was hardly meant.
        stopped: When, by the monotonic clock.
        update: The last one that was made.
        steps: The updates that were planned.
        kept: Whether the answer is the feasible start.

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
    if end is End.STUCK and not kept:
        message = (
            f"The projection of update {update + 1} failed by its own account, and the "
            f"run of {steps} updates ended there. The point that it left is feasible "
            "nevertheless: the parameters hold it, and the status of the solution is "
            "INTERRUPTED. Try another projector."
        )
        warn(message)


def _warn_of_interrupt(update: int, steps: int, *, kept: bool) -> None:
    outcome = (
        "The point so far is no better than the start: the parameters hold the start, "
        "which is feasible, and the status of the solution is START."
        if kept
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
