"""What ``OneProjection`` refuses, and what it warns of."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from oneproj.arguments import check_count, check_number
from oneproj.autograd import require_autograd
from oneproj.errors import InvalidProblemError, warn
from oneproj.parameters import Vector

STEP = "It is the length of a step against the gradient; 0.001 to 0.1 are usual."
RADIUS = "It bounds every iterate; leave it out for no bound."


class Settings(NamedTuple):
    """Of Algorithm 1, in the paper's symbols."""

    m: float | None
    beta: float
    K: int
    q: float
    radius: float


def check_settings(
    lr: object,
    strong_convexity: object,
    prox_weight: object,
    inner_steps: object,
    *,
    late_weight: object = 0.0,
    radius: object = math.inf,
) -> Settings:
    """Refuse settings with which Algorithm 1 cannot run; returns plain numbers.

    The step size is each group's own: ``check_rates``.

    Example:
        >>> check_settings(0.1, None, 0.2, 25, radius=10)
        Settings(m=None, beta=0.2, K=25, q=0.0, radius=10.0)
    """
    m = None
    if strong_convexity is not None:
        if lr is not None:
            raise _either(lr, strong_convexity)
        step = "The step is 2 / (m (s + 1))."
        m = check_number("strong_convexity", strong_convexity, step)
    pull = "It is the pull towards the proximal centre; 0 is none."
    power = "The mean of line 14 weighs the s-th iterate by s to this power; 0 is none."
    return Settings(
        m,
        check_number("prox_weight", prox_weight, pull, zero=True),
        check_inner_steps(inner_steps),
        check_number("late_weight", late_weight, power, zero=True),
        check_number("radius", radius, RADIUS, infinite=True),
    )


def _either(lr: object, m: object) -> InvalidProblemError:
    return InvalidProblemError(
        "Give either lr (a constant, or for a scheduler) or strong_convexity (for "
        f"the theorems' step 2/(m(s+1))); got lr={lr}, strong_convexity={m}."
    )


def check_rates(groups: list[dict[str, Any]], m: float | None) -> None:
    """Refuse groups without a step size, or with two; make each a plain number.

    Example:
        >>> import numpy as np
        >>> groups = [{"params": [], "lr": np.float32(0.5)}]
        >>> check_rates(groups, None); groups[0]["lr"]
        0.5
    """
    for group in groups:
        if (group["lr"] is None) == (m is None):
            raise _either(group["lr"], m)
        if m is None:
            group["lr"] = check_number("lr", group["lr"], STEP, zero=True)
        else:
            group["lr"] = 1.0 / m  # line 10 for s = 1


def check_inner_steps(inner_steps: object) -> int:
    """Refuse what is no count of inner updates.

    Example:
        >>> check_inner_steps(25)
        25
    """
    why = "It is K, the updates of one outer iteration; 10 to 25 are usual."
    return check_count("inner_steps", inner_steps, why)


def check_step(*, shown: str | None) -> None:
    """Refuse a step that would go to waste.

    Raises:
        InvalidProblemError: ``eval()`` shows an iterate, or nothing is recorded.

    Example:
        >>> check_step(shown=None)
    """
    if torch.is_inference_mode_enabled():
        require_autograd()  # which has the words
    if shown is not None:
        message = (
            "step() was called while the parameters hold the selected iterate. "
            "Call train() first: gradients belong at the inner iterate."
        )
        raise InvalidProblemError(message)


def check_alike(point: Vector, state: Vector, error: Exception) -> None:
    """Say what a step failed of, if parameters are no more what they were built as.

    Raises:
        InvalidProblemError: A parameter has another dtype, device or shape by now.

    Example:
        >>> check_alike([], [], RuntimeError())
    """
    for p, kept in zip(point, state, strict=True):
        now, before = (f"{t.dtype} on {t.device}, {tuple(t.shape)}" for t in (p, kept))
        if now != before:
            message = (
                f"A parameter is {now} by now, and was {before} when the optimiser was "
                "built, so it and its centre x_t cannot be added. Convert or move the "
                "model first, and build the optimiser then."
            )
            raise InvalidProblemError(message) from error


def warn_if_start(outer: int, inner: int, inner_steps: int, drawn: int | None) -> bool:
    """Warn where the iterate to be shown is the start, though updates were made.

    Returns whether it did.

    Line 14 takes the mean of ``z_1 = x_t`` and what the first K - 1 updates make of it:
    with K = 1 that is ``x_t`` itself.

    Args:
        outer: Complete outer iterations.
        inner: Updates since the last one.
        inner_steps: K.
        drawn: J, if it was; x_0 may be what is meant.

    Example:
        >>> warn_if_start(1, 0, 25, None)
        False
    """
    if drawn == 0:
        return False
    if inner_steps == 1 and outer:
        message = (
            f"The selected iterate is the start: nothing of {outer} update(s) counts. "
            "With inner_steps=1 the next centre is the mean of one iterate, the centre "
            "itself (line 14 of Algorithm 1). Choose inner_steps >= 2; 10 to 25 are "
            "usual."
        )
    elif inner and not outer:
        message = (
            f"The selected iterate is the start: nothing of {inner} update(s) counts. "
            f"An outer iteration takes inner_steps={inner_steps} of them, and none is "
            "complete. Make more updates, or choose fewer inner_steps."
        )
    else:
        return False
    warn(message)
    return True
