"""What ``OneProjection`` refuses, and what it warns of."""

from __future__ import annotations

from oneproj.arguments import check_count, check_number
from oneproj.autograd import require_autograd
from oneproj.errors import InvalidProblemError, warn

STEP = "It is the length of a step against the gradient; 0.001 to 0.1 are usual."
RADIUS = "It bounds every iterate; leave it out for no bound."


def check_settings(
    lr: float | None,
    m: float | None,
    beta: float,
    inner_steps: int,
    radius: float,
    *,
    late_weight: float = 0.0,
) -> None:
    """Refuse settings with which Algorithm 1 cannot run.

    Example:
        >>> check_settings(0.1, None, 0.2, 25, 10.0)
    """
    if (lr is None) == (m is None):
        message = (
            "Give either lr (a constant, or for a scheduler) or strong_convexity (for "
            f"the theorems' step 2/(m(s+1))); got lr={lr}, strong_convexity={m}."
        )
        raise InvalidProblemError(message)
    if m is None:
        check_number("lr", lr, STEP, zero=True)
    else:
        check_number("strong_convexity", m, "The step is 2 / (m (s + 1)).")
    pull = "It is the pull towards the proximal centre; 0 is none."
    check_number("prox_weight", beta, pull, zero=True)
    check_number("radius", radius, RADIUS, infinite=True)
    power = "The mean of line 14 weighs the s-th iterate by s to this power; 0 is none."
    check_number("late_weight", late_weight, power, zero=True)
    check_inner_steps(inner_steps)


def check_inner_steps(inner_steps: object) -> None:
    """Refuse what is no count of inner updates.

    Example:
        >>> check_inner_steps(25)
    """
    why = "It is K, the updates of one outer iteration; 10 to 25 are usual."
    check_count("inner_steps", inner_steps, why)


def check_step(*, shown: str | None) -> None:
    """Refuse a step that would go to waste.

    Raises:
        InvalidProblemError: ``eval()`` shows an iterate, or nothing is recorded.

    Example:
        >>> check_step(shown=None)
    """
    require_autograd()
    if shown is not None:
        message = (
            "step() was called while the parameters hold the selected iterate. "
            "Call train() first: gradients belong at the inner iterate."
        )
        raise InvalidProblemError(message)


def check_same(saved: object, own: object) -> None:
    """Refuse a state that was saved with settings other than an optimiser's own.

    Example:
        >>> check_same({"prox_weight": 0.2}, {"prox_weight": 0.2})
    """
    if saved != own:
        message = (
            f"The state was saved with {saved}, this optimiser has {own}. A run "
            "resumes only with its own settings."
        )
        raise InvalidProblemError(message)


def warn_if_start(outer: int, inner: int, inner_steps: int, drawn: int | None) -> None:
    """Warn where the iterate to be shown is the start, though updates were made.

    Line 14 takes the mean of ``z_1 = x_t`` and what the first K - 1 updates make of it:
    with K = 1 that is ``x_t`` itself.

    Args:
        outer: Complete outer iterations.
        inner: Updates since the last one.
        inner_steps: K.
        drawn: J, if it was; x_0 may be what is meant.

    Example:
        >>> warn_if_start(1, 0, 25, None)
    """
    if drawn == 0:
        return
    if inner_steps == 1 and outer:
        message = (
            f"The selected iterate is the start: nothing of {outer} update(s) counts. "
            "With inner_steps=1 the next centre is the mean of one iterate, the centre "
            "itself (line 14 of Algorithm 1). Choose inner_steps >= 2; 10 to 25 are "
            "usual."
        )
        warn(message)
    elif inner and not outer:
        message = (
            f"The selected iterate is the start: nothing of {inner} update(s) counts. "
            f"An outer iteration takes inner_steps={inner_steps} of them, and none is "
            "complete. Make more updates, or choose fewer inner_steps."
        )
        warn(message)
