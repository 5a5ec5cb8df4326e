"""Hooks on the gradients of parameters: which of them leave a gradient what it is.

``Tensor.register_hook`` is how loops clip, scale or mask gradients. A mask keeps some
entries where they are, and what is left is the gradient in the others. Any other change
makes it the gradient of nothing: cuts would cut off feasible points, and certificates
would speak of another slope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError

ROUNDING = 1e-2
"""A hook may round, to bfloat16 for example; what clips or scales changes by more."""


def check_hooks(look: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Refuse hooks that make something else of a gradient than it, or zeros.

    Args:
        look: Computes a value anew.
        parameters: Whose hooks are tried, on a gradient that is long enough to be
            clipped.

    Raises:
        InvalidProblemError: A hook changes an entry to something other than zero.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> _ = w.register_hook(lambda slope: slope * torch.tensor([1.0, 0.0]))
        >>> check_hooks(lambda: w.sum(), [w])
        >>> _ = w.register_hook(lambda slope: slope.clamp(-1.0, 1.0))
        >>> check_hooks(lambda: w.sum(), [w])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: A hook on a parameter of shape (2,) chan...
    """
    hooked = [p for p in parameters if p._backward_hooks]  # noqa: SLF001 - no other name
    if not hooked:
        return
    for p, slope in zip(hooked, _slopes(look, hooked), strict=True):
        made = _after_hooks(p, slope).to_dense()
        same = torch.isclose(made, slope.to_dense(), rtol=ROUNDING, equal_nan=True)
        if not bool((same | (made == 0)).all()):
            message = (
                f"A hook on a parameter of shape {tuple(p.shape)} changes its gradient "
                "(register_hook), by clipping or scaling it for example: what is then "
                "said to be feasible nowhere, nearest or stationary need not be. Only "
                "a mask may be there, which sets entries to zero. Remove the hook with "
                "handle.remove(), and clip where you step: solve(..., clip=1.0), or "
                "torch.nn.utils.clip_grad_norm_ in a loop of your own."
            )
            raise InvalidProblemError(message)


def _slopes(look: Callable[[], Tensor], hooked: Sequence[Tensor]) -> list[Tensor]:
    """A large multiple of the gradient of a value, as it is without the hooks."""
    kept = [p._backward_hooks for p in hooked]  # noqa: SLF001 - as above
    value = look()
    large = torch.full_like(value, torch.finfo(value.dtype).max ** 0.25)
    try:
        for p in hooked:
            p._backward_hooks = None  # noqa: SLF001 - as above
        return list(torch.autograd.grad(value, hooked, large, materialize_grads=True))
    finally:
        for p, hooks in zip(hooked, kept, strict=True):
            p._backward_hooks = hooks  # noqa: SLF001 - as above


@torch.no_grad()
def _after_hooks(p: Tensor, slope: Tensor) -> Tensor:
    """What the hooks make of a gradient, one after the other as torch calls them.

    Two backward passes would not tell: a loss with noise has two gradients.
    """
    made = slope.clone()  # a hook may write into what it is given
    for hook in (p._backward_hooks or {}).values():  # noqa: SLF001 - as above
        replaced = hook(made)
        made = made if replaced is None else replaced
    return made
