"""What a gradient needs of torch: a mode that records, and tensors that were recorded.

``torch.no_grad()`` around a call does no harm: gradients are switched on where they are
taken. ``torch.inference_mode()`` cannot be left from inside, and what is made in it can
never be differentiated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError


def require_autograd(parameters: Iterable[Tensor] = ()) -> None:
    """Refuse to go on where gradients would be missing, and so seem to be zero.

    Raises:
        InvalidProblemError: ``torch.inference_mode()`` is on, or a parameter was made
            in it, or is frozen by now.

    Example:
        >>> require_autograd([torch.ones(2, requires_grad=True)])
    """
    if torch.is_inference_mode_enabled():
        message = (
            "This was called inside torch.inference_mode(), where nothing can be "
            "differentiated: every gradient would be missing, or seem to be zero. Call "
            "it outside of that block; torch.no_grad() does no harm."
        )
        raise InvalidProblemError(message)
    for tensor in parameters:
        if tensor.is_inference():
            message = (
                f"A parameter of shape {tuple(tensor.shape)} was made inside "
                "torch.inference_mode(), so nothing that depends on it can be "
                "differentiated. Build or load the model outside of that block."
            )
            raise InvalidProblemError(message)
        if not tensor.requires_grad:
            message = (
                f"A parameter of shape {tuple(tensor.shape)} was frozen after the "
                "problem was built: it has requires_grad=False by now, and no gradient "
                "reaches it. Turn requires_grad on again, or build a new Problem, in "
                "which it is a constant."
            )
            raise InvalidProblemError(message)


def check_real(name: str, value: Tensor) -> Tensor:
    """Refuse values without a gradient: whole numbers, truth values, complex ones.

    Example:
        >>> check_real("risk", torch.ones(1))
        tensor([1.])
    """
    if value.is_floating_point():
        return value
    message = (
        f"The function of {name!r} returned values of dtype {value.dtype}, but only "
        "real floating-point ones can be optimised. A count or an accuracy has no "
        "gradient: use a surrogate, such as a sigmoid of the score. Of a complex value "
        "take the real part or the absolute value."
    )
    raise InvalidProblemError(message)


def densify(parameters: Iterable[Tensor]) -> None:
    """Make sparse gradients dense, as norms, anchors and averages need them.

    ``torch.nn.Embedding(sparse=True)`` leaves them in ``.grad``.

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
    """Let others use ``.grad`` for a while; afterwards it is what it was.

    No copy is made, so what is there must be replaced and not written into.

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
