"""Taking gradients: when torch can record them, and how they are added up.

Calls inside ``torch.no_grad()`` work: gradients are switched on where they are taken.
``torch.inference_mode()`` cannot be switched off from inside, so it is refused. The
caches of ``torch.autocast`` and ``parametrize.cached`` would hold values from before
the parameters moved: the first is switched off, the second is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from oneproj.errors import InvalidProblemError
from oneproj.vectors.arithmetic import Vector


def require_autograd(
    parameters: Iterable[Tensor] = (), *, built: str = "Problem"
) -> None:
    """Raise if gradients of the parameters would be missing, or taken for zero.

    Args:
        parameters: To be optimised.
        built: The object that they were passed to before, for the message.

    Raises:
        InvalidProblemError: ``torch.inference_mode()`` is on, or a parameter was made
            in it, or is frozen now.

    Example:
        >>> require_autograd([torch.ones(2, requires_grad=True)])
    """
    tensors = list(parameters)
    made = [tuple(t.shape) for t in tensors if t.is_inference()]
    if torch.is_inference_mode_enabled() or made:
        what = f"A parameter of shape {made[0]} was made" if made else "This was called"
        message = (
            f"{what} inside torch.inference_mode(), where nothing can be "
            "differentiated: every gradient would be missing, or seem to be zero. Do "
            "it outside of that block; torch.no_grad() does no harm."
        )
        raise InvalidProblemError(message)
    frozen = [tuple(t.shape) for t in tensors if not t.requires_grad]
    if frozen:
        message = (
            f"A parameter of shape {frozen[0]} was frozen after the {built.lower()} "
            "was built: it has requires_grad=False by now, and no gradient reaches it. "
            f"Turn requires_grad on again, or build a new {built} without it."
        )
        raise InvalidProblemError(message)


@contextmanager
def fresh_casts() -> Iterator[None]:
    """Switch off the cache of ``torch.autocast`` while the block runs.

    The cache keeps the low-precision copy of a parameter until the autocast block ends,
    so parameters that are changed in place would be evaluated at their old values. The
    cache of ``parametrize.cached`` does the same, and cannot be switched off.

    Raises:
        InvalidProblemError: The call is inside ``parametrize.cached()``.

    Example:
        >>> layer = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.ones_(layer.weight)
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     before = layer(torch.ones(1)).item()
        ...     _ = torch.nn.init.zeros_(layer.weight)
        ...     kept = layer(torch.ones(1)).item()
        ...     with fresh_casts():
        ...         before, kept, layer(torch.ones(1)).item()
        (1.0, 1.0, 0.0)
    """
    refuse_parametrisation_cache()
    enabled = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


def refuse_parametrisation_cache() -> None:
    """Refuse calls inside ``parametrize.cached()``.

    Example:
        >>> refuse_parametrisation_cache()
    """
    module = _parametrised_module()
    if module.weight is not module.weight:  # computed again by every access
        return
    message = (
        "This was called inside torch.nn.utils.parametrize.cached(), which keeps the "
        "value that a parametrised weight had when it was first used, however the "
        "parameters move. Make this call outside of that block."
    )
    raise InvalidProblemError(message)


@cache
def _parametrised_module() -> nn.Module:
    """Return a module whose only weight is parametrised."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(1, device="cpu"))
    parametrize.register_parametrization(module, "weight", nn.Softplus())
    return module


def accumulate(total: list[Tensor], value: Tensor, parameters: Vector) -> None:
    """Add the gradient of ``value``; a parameter it does not reach contributes 0.

    Example:
        >>> w, total = torch.ones(2, requires_grad=True), [torch.ones(2)]
        >>> accumulate(total, 3.0 * w.sum(), [w]); total
        [tensor([4., 4.])]
    """
    if not value.requires_grad:
        require_autograd()  # a gradient that cannot be recorded is not zero
        return
    parts = torch.autograd.grad(value, list(parameters), allow_unused=True)
    for sums, part in zip(total, parts, strict=True):
        if part is not None:
            sums.add_(part)


def add_gradient(
    values: Sequence[Tensor], weights: Sequence[float], parameters: Sequence[Tensor]
) -> None:
    """Add the gradient of ``sum_j w_j v_j`` to ``.grad``, by one backward pass.

    Only the ``.grad`` of these parameters changes, and it is dense afterwards.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> add_gradient([w.sum(), w[0]], [3.0, 1.0], [w]); w.grad.tolist()
        [4.0, 3.0]
    """
    seeds = [torch.full_like(v, w) for v, w in zip(values, weights, strict=True)]
    torch.autograd.backward(values, seeds, inputs=parameters)
    densify(parameters)


def densify(parameters: Iterable[Tensor]) -> None:
    """Make sparse gradients dense, as norms, anchors and averages need them.

    ``torch.nn.Embedding(sparse=True)`` leaves sparse ones in ``.grad``.

    Example:
        >>> table = torch.nn.Embedding(3, 2, sparse=True)
        >>> table(torch.tensor([1])).sum().backward()
        >>> densify(table.parameters()); table.weight.grad.tolist()
        [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """
    for p in parameters:
        gradient = p.grad
        if gradient is not None and gradient.is_sparse:
            p.grad = gradient.to_dense()


@contextmanager
def borrowing_gradients(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Set every ``.grad`` to None while the block runs, and restore it afterwards.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> with borrowing_gradients([w]):
        ...     w.sum().backward()
        >>> w.grad is None
        True
    """
    kept = [(p, p.grad) for p in parameters]
    for p, _ in kept:
        p.grad = None
    try:
        yield
    finally:
        for p, gradient in kept:
            p.grad = gradient
