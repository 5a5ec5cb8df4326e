"""A limit to what is added to a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from oneproj.parameters import Vector, norm


@contextmanager
def limited_push(parameters: Vector, most: float) -> Iterator[None]:
    """Shorten what a block adds to ``.grad`` to a length of ``most``.

    Example:
        >>> w = torch.zeros(2, requires_grad=True)
        >>> w.grad = torch.tensor([1.0, 0.0])
        >>> with limited_push([w], 5.0):
        ...     w.grad += torch.tensor([3e6, 4e6])
        >>> w.grad.tolist()
        [4.0, 4.0]
    """
    before = [None if p.grad is None else p.grad.clone() for p in parameters]
    yield
    reached = [(p.grad, b) for p, b in zip(parameters, before, strict=True)]
    slopes = [slope for slope, _ in reached if slope is not None]
    own = [
        torch.zeros_like(slope) if b is None else b
        for slope, b in reached
        if slope is not None
    ]
    push = list(torch._foreach_sub(slopes, own)) if slopes else []
    length = norm(push)
    if length > most:
        torch._foreach_copy_(slopes, own)
        torch._foreach_add_(slopes, push, alpha=most / length)
