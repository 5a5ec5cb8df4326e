"""Base steps: the update of ``torch.optim`` inside Algorithm 1, and how its lr decays.

The theorems cover plain SGD with the step of their schedule. Momentum and Adam, and a
step that decays to zero over the planned updates, are additions for practice.

**At the edge of the ball** steps go along it. ``x = P_B(x - eta D g)`` with a diagonal
matrix D, as Adam has it, holds where ``D g`` is a negative multiple of ``x - c``. A
minimum over the ball requires that of g. So where g pulls outwards, the base step gets
the part of g that is tangential,

    ``h = g + nu (x - c)``,  ``nu = -<g, x - c> / |x - c|^2 > 0``.

Then the fixed points are the minima: if ``D h = -a (x - c)`` then ``<h, D h>`` is zero,
since h and ``x - c`` are orthogonal, and h is zero. A step along ``-g``, with momentum
or without, needs none of this.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from oneproj.defaults import OWN, Defaults
from oneproj.errors import InvalidProblemError
from oneproj.methods.checks import Groups
from oneproj.problem.autograd import densify
from oneproj.vectors.arithmetic import Vector, dot, norm, offset, project_ball_

WIDTH = 1e-3
"""Of the edge, as a share of the radius: steps along it end a little off."""


def step_in_ball_(
    base: Optimizer,
    point: Vector,
    radius: float,
    center: Vector | None,
    *,
    touched: bool,
) -> float:
    """One step of the base, then P_B; returns how far outside the step ended.

    While no step has left the ball, which ``touched`` tells, its edge costs nothing.

    Example:
        >>> w = torch.tensor([0.6, 0.8], requires_grad=True)
        >>> w.grad = torch.tensor([0.0, -0.2])
        >>> base = SGD([w], lr=1.0)
        >>> round(step_in_ball_(base, [w], 1.0, None, touched=False), 3)
        0.166
    """
    if not isinstance(base, SGD):  # whose steps go along gradients
        densify(point)  # torch's Adam and its like take no sparse ones
        if touched:
            follow_edge_(point, radius, center)
    base.step()
    return 0.0 if radius == math.inf else project_ball_(point, radius, center)


@torch.no_grad()
def follow_edge_(point: Vector, radius: float, center: Vector | None) -> None:
    """Take the pull outwards out of ``.grad``, in place, if the point is at the edge.

    Example:
        >>> w = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> w.grad = torch.tensor([2.0, -3.0])
        >>> follow_edge_([w], 1.0, None); w.grad.tolist()
        [2.0, 0.0]
    """
    z = list(point)
    away = offset(z, center)
    length = norm(away)
    if length < (1.0 - WIDTH) * radius:
        return
    pairs = [(p.grad, o) for p, o in zip(z, away, strict=True) if p.grad is not None]
    gradients, offsets = [g for g, _ in pairs], [o for _, o in pairs]
    if -math.inf < (inner := dot(gradients, offsets)) < 0:  # a finite pull outwards
        torch._foreach_add_(gradients, offsets, alpha=-inner / length**2)


BaseLike: TypeAlias = Literal["sgd", "momentum", "adam"] | Callable[[Groups], Optimizer]
DecayLike: TypeAlias = (
    Literal["linear", "cosine", "constant"] | Callable[[Optimizer], LRScheduler]
)

SMALLEST = 1e-8
"""Adam's epsilon, torch's own. In float16 it would be 0, and a gradient of zeros NaN:
there it is the least normal number, 6e-5."""

FUSED = ("cpu", "cuda")
"""Devices on which torch has Adam as one pass over memory."""


def unrecorded(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step of an optimiser without what torch puts around each.

    That is a record for its profiler, and hooks. On the paper's problems they take 4 to
    8 percent of an update, for each of the two optimisers of a method, which needs
    neither.

    Example:
        >>> class Plain(SGD):
        ...     step = unrecorded(SGD.step)
        >>> w = torch.ones(1, requires_grad=True); w.grad = torch.ones(1)
        >>> Plain([w], lr=0.25).step(); w.item()
        0.75
    """
    alone: Callable[..., Any] = torch.no_grad()(inspect.unwrap(step))
    alone.hooked = True  # type: ignore[attr-defined]  # by this mark torch leaves it so
    return alone


class _Adam(Adam):
    """Adam as a part of a method's update."""

    step = unrecorded(Adam.step)


def _adam(groups: Groups, beta2: float) -> Optimizer:
    parameters = [p for group in groups for p in group["params"]]
    tiny = [torch.finfo(p.dtype).tiny for p in parameters]
    # On strided memory, a column of a matrix say, torch's one pass is wrong.
    fused = all(
        p.device.type in FUSED and torch.empty_like(p).stride() == p.stride()
        for p in parameters
    )
    eps = max([SMALLEST, *tiny])
    return _Adam(groups, betas=(0.9, beta2), eps=eps, fused=fused)


def choose_base(
    base: BaseLike, defaults: Defaults = OWN
) -> Callable[[Groups], Optimizer]:
    """Return the maker of a base optimiser, given its name or the maker itself.

    Example:
        >>> choose_base("sgd") is SGD
        True
    """
    if callable(base):
        return base
    bases: dict[str, Callable[[Groups], Optimizer]] = {
        "sgd": SGD,
        "momentum": partial(SGD, momentum=0.9),
        "adam": partial(_adam, beta2=defaults.adam_beta2),
    }
    if isinstance(base, str) and base in bases:
        return bases[base]
    known = ", ".join(map(repr, bases))
    message = (
        f"There is no base step {base!r}. Use {known}, or a function that makes a "
        "torch.optim optimiser from parameter groups."
    )
    raise InvalidProblemError(message)


def schedule_lr(
    decay: DecayLike, optimizer: Optimizer, steps: int, defaults: Defaults = OWN
) -> LRScheduler:
    """Return the scheduler of a run, given its name or a maker of one.

    ``"linear"`` falls to zero over ``steps``; ``"cosine"`` does after a warm-up, and
    spends longer at small steps, where noise is averaged out; ``"constant"`` stays.

    Example:
        >>> import torch
        >>> optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = schedule_lr("linear", optimizer, 4)
        >>> optimizer.step(); scheduler.step(); scheduler.get_last_lr()
        [0.75]
    """
    if callable(decay):
        return _checked(decay, optimizer)
    if not any(group["lr"] for group in optimizer.param_groups):
        message = (
            "lr=0 trains nothing: every step of the run would be 0, and the start be "
            "projected. Leave lr out for the default, or call oneproj.project to "
            "project only."
        )
        raise InvalidProblemError(message)
    if decay == "constant":
        return LambdaLR(optimizer, lambda _: 1.0)
    if decay == "linear":
        return LambdaLR(optimizer, lambda k: max(0.0, 1.0 - k / steps))
    if decay == "cosine":
        warm = defaults.warm_up * steps
        return LambdaLR(optimizer, partial(_warm_cosine, steps=steps, warm=warm))
    message = (
        'decay must be "linear", "cosine", "constant" or a function that makes a '
        f"scheduler of torch.optim.lr_scheduler for an optimiser, got {decay!r}."
    )
    raise InvalidProblemError(message)


def _checked(
    decay: Callable[[Optimizer], LRScheduler], optimizer: Optimizer
) -> LRScheduler:
    """The scheduler that was asked for; refuses what ``step()`` alone cannot drive."""
    made = decay(optimizer)
    if isinstance(made, ReduceLROnPlateau):
        message = (
            "ReduceLROnPlateau wants a metric at every step, and what a run sees is an "
            "estimate on a minibatch, whose plateaus are noise. Use another scheduler "
            'of torch.optim.lr_scheduler, or decay="cosine".'
        )
        raise InvalidProblemError(message)
    if not isinstance(made, LRScheduler):
        message = (
            "decay must make a scheduler of torch.optim.lr_scheduler for an optimiser, "
            f"but it made a {type(made).__name__}. Pass a function such as lambda "
            "optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 100)."
        )
        raise InvalidProblemError(message)
    return made


def _warm_cosine(k: int, steps: int, warm: float) -> float:
    """The factor of step k, from 0: up over the warm-up, then half a cosine to zero."""
    rise = min(1.0, (k + 1) / warm)
    return rise * 0.5 * (1.0 + math.cos(math.pi * min(1.0, k / steps)))
