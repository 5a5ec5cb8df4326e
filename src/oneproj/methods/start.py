"""The start of a run: settings in range, x_0 in the ball, J drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from oneproj.arguments import check_number, is_count
from oneproj.autograd import require_autograd
from oneproj.errors import InvalidProblemError, OneprojWarning
from oneproj.parameters import Vector, project_ball_
from oneproj.trainable import check_writable

Select = Literal["last", "random"]
STEP = "It is the length of a step against the gradient; 0.001 to 0.1 are usual."
RADIUS = "It bounds every iterate; leave it out for no bound."
ROUNDING = 16.0
"""In units of the radius's last place: outside by less is an earlier P_B's rounding."""


def move_start_into_ball(
    parameters: Vector, radius: float, center: Vector | None
) -> None:
    """Project a start outside the ball onto it, and say so.

    Example:
        >>> w = torch.tensor([0.5])
        >>> move_start_into_ball([w], 1.0, None); w.item()
        0.5
    """
    outside = project_ball_(parameters, radius, center)
    eps = max((torch.finfo(p.dtype).eps for p in parameters), default=0.0)
    if outside > ROUNDING * eps * radius:
        message = (
            f"The start lies {outside:.3g} outside the safeguard ball of radius "
            f"{radius:.3g} and was projected onto it. Choose a larger radius, or a "
            "center near the start, if the start was meant."
        )
        warnings.warn(message, OneprojWarning, stacklevel=3)


def draw_index(
    select: Select,
    outer_steps: int | None,
    first_index: int,
    generator: torch.Generator | None,
) -> int | None:
    """Draw J uniformly from the index set (line 5); None stands for the last.

    Example:
        >>> draw_index("last", None, 1, None) is None
        True
        >>> draw_index("random", 3, 1, torch.Generator().manual_seed(0)) in {1, 2, 3}
        True
    """
    if first_index not in (0, 1):
        message = (
            f"first_index must be 0 or 1, as the theorems have it, got {first_index}."
        )
        raise InvalidProblemError(message)
    if not (outer_steps is None or is_count(outer_steps)):
        message = (
            "outer_steps must be a whole number >= 1, or None, got "
            f"{outer_steps!r}. It is T, how many outer iterations the run will make."
        )
        raise InvalidProblemError(message)
    if not isinstance(generator, torch.Generator | None):
        message = (
            f"generator must be a torch.Generator or None, got {generator!r}. It draws "
            "J: pass torch.Generator().manual_seed(0), for example."
        )
        raise InvalidProblemError(message)
    if select == "last":
        return None
    if select != "random":
        message = f'select must be "last" or "random", got {select!r}.'
        raise InvalidProblemError(message)
    if outer_steps is None or generator is None:
        message = (
            'select="random" draws J before the run, so it needs outer_steps >= 1 and '
            f"a torch.Generator; got outer_steps={outer_steps}, generator={generator}."
        )
        raise InvalidProblemError(message)
    place = generator.device
    drawn = torch.randint(outer_steps, (), generator=generator, device=place)
    return first_index + int(drawn)


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
    if not is_count(inner_steps):
        message = (
            f"inner_steps must be a whole number >= 1, got {inner_steps!r}. It is K, "
            "the updates of one outer iteration; 10 to 25 are usual."
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


def check_precision(inner_steps: int, parameters: Vector) -> None:
    """Warn where a running mean of ``inner_steps`` points would stop moving.

    The s-th point changes the mean by 1/s of its distance, which is rounded away when
    1/s is below the rounding unit.

    Example:
        >>> check_precision(1000, [torch.ones(1)])
    """
    eps = max((torch.finfo(p.dtype).eps for p in parameters), default=0.0)
    if inner_steps * eps > 1.0:
        message = (
            f"The mean of inner_steps={inner_steps} points cannot be kept in this "
            f"precision (eps = {eps:.1e}): later points would not count. Use fewer "
            "inner steps or parameters of a wider dtype."
        )
        warnings.warn(message, OneprojWarning, stacklevel=3)


def keep_moving(groups: list[dict[str, Any]]) -> list[Tensor]:
    """Leave frozen parameters out of their groups; returns the others.

    Raises:
        InvalidProblemError: There are none, or no gradient can reach them.

    Example:
        >>> groups = [{"params": [torch.ones(1), torch.ones(2, requires_grad=True)]}]
        >>> [p.numel() for p in keep_moving(groups)], len(groups[0]["params"])
        ([2], 1)
    """
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    moving = [p for group in groups for p in group["params"]]
    if not moving:
        message = (
            "There is nothing to optimise: every parameter has requires_grad=False."
        )
        raise InvalidProblemError(message)
    for tensor in moving:
        check_writable(tensor)
    require_autograd(moving)
    return moving


def make_base(
    base: Callable[[list[dict[str, Any]]], Optimizer], groups: list[dict[str, Any]]
) -> Optimizer:
    """The optimiser of lines 11-12; it must take dense gradients, without a closure.

    Example:
        >>> groups = [{"params": [torch.ones(1)], "lr": 0.1}]
        >>> type(make_base(torch.optim.SGD, groups)).__name__
        'SGD'
    """
    made: object = base(groups) if callable(base) else base
    if isinstance(made, Optimizer) and not isinstance(made, LBFGS | SparseAdam):
        return made
    message = (
        "base must make an optimiser of torch.optim from parameter groups, one that "
        "steps with dense gradients and without a closure, but it made a "
        f"{type(made).__name__}. Line 12 takes one step for one stochastic gradient: "
        "use torch.optim.SGD or Adam, or functools.partial of one."
    )
    raise InvalidProblemError(message)


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
        warnings.warn(message, OneprojWarning, stacklevel=3)
    elif inner and not outer:
        message = (
            f"The selected iterate is the start: nothing of {inner} update(s) counts. "
            f"An outer iteration takes inner_steps={inner_steps} of them, and none is "
            "complete. Make more updates, or choose fewer inner_steps."
        )
        warnings.warn(message, OneprojWarning, stacklevel=3)
