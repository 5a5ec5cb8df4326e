"""Base steps: the update of ``torch.optim`` inside Algorithm 1, and how its lr decays.

The theorems cover plain SGD with the step of their schedule. Momentum and Adam, and a
step that decays to zero over the planned updates, are what practice adds to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from oneproj.errors import InvalidProblemError
from oneproj.methods.one_projection import Groups

BaseLike: TypeAlias = Literal["sgd", "momentum", "adam"] | Callable[[Groups], Optimizer]
DecayLike: TypeAlias = (
    Literal["linear", "constant"] | Callable[[Optimizer], LRScheduler]
)

FORGETTING = 0.95
"""Adam's second beta, so that it remembers about 20 squared gradients, not a thousand:
a penalty pushes seldom and hard, and would hold the step back long afterwards."""

SMALLEST = 1e-8
"""Adam's epsilon, torch's own. In float16 it would be 0, and a gradient of zeros NaN:
there it is the least normal number, 6e-5."""


def _adam(groups: Groups) -> Optimizer:
    tiny = [torch.finfo(p.dtype).tiny for group in groups for p in group["params"]]
    return Adam(groups, betas=(0.9, FORGETTING), eps=max([SMALLEST, *tiny]))


BASES: dict[str, Callable[[Groups], Optimizer]] = {
    "sgd": SGD,
    "momentum": partial(SGD, momentum=0.9),
    "adam": _adam,
}
"""Base steps by name."""


def choose_base(base: BaseLike) -> Callable[[Groups], Optimizer]:
    """The maker of a base optimiser, by its name or as it is.

    Example:
        >>> choose_base("sgd") is SGD
        True
    """
    if callable(base):
        return base
    if base in BASES:
        return BASES[base]
    known = ", ".join(repr(name) for name in BASES)
    message = (
        f"There is no base step {base!r}. Use {known}, or a function that makes a "
        "torch.optim optimiser from parameter groups."
    )
    raise InvalidProblemError(message)


def schedule_lr(decay: DecayLike, optimizer: Optimizer, steps: int) -> LRScheduler:
    """The scheduler of a run: linear to zero over ``steps``, constant, or the user's.

    Example:
        >>> import torch
        >>> optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = schedule_lr("linear", optimizer, 4)
        >>> optimizer.step(); scheduler.step(); scheduler.get_last_lr()
        [0.75]
    """
    if callable(decay):
        return decay(optimizer)
    if decay == "constant":
        return LambdaLR(optimizer, lambda _: 1.0)
    if decay == "linear":
        return LambdaLR(optimizer, lambda k: max(0.0, 1.0 - k / steps))
    message = (
        f'decay must be "linear", "constant" or a function that makes a scheduler of '
        f"torch.optim.lr_scheduler for an optimiser, got {decay!r}."
    )
    raise InvalidProblemError(message)
