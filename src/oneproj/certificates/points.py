"""Looking at other points without leaving the one that the parameters hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.parameters import Vector, assign, difference, is_finite, norm, snapshot


@contextmanager
def borrowed(parameters: Vector) -> Iterator[list[Tensor]]:
    """Lend the parameters out; afterwards they hold the same bits, come what may.

    Yields the point they held, as a copy in float64: a certificate computes in double
    precision whatever the model's dtype.

    Raises:
        NonFiniteError: The point itself is not finite.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> with borrowed([w]) as x:
        ...     assign([w], [torch.zeros(2)])
        >>> w.tolist(), x[0].dtype
        ([1.0, 1.0], torch.float64)
    """
    require_finite(parameters)
    bits = snapshot(parameters)
    try:
        yield doubled(bits)
    finally:
        assign(parameters, bits)


def require_finite(parameters: Vector) -> None:
    """Refuse a point with NaN or infinite entries.

    Example:
        >>> require_finite([torch.zeros(2)])
    """
    if not is_finite(parameters):
        quantity = "a parameter of the point to be certified"
        raise NonFiniteError(quantity)


def doubled(vector: Vector) -> list[Tensor]:
    """A copy in float64.

    Example:
        >>> doubled([torch.ones(1)])[0].dtype
        torch.float64
    """
    return [tensor.detach().to(torch.float64, copy=True) for tensor in vector]


def outward(point: Vector, center: Vector | None) -> tuple[float, list[Tensor]]:
    """The distance from the ball's center, and the unit vector that points away.

    Example:
        >>> outward([torch.tensor([0.0, 2.0])], None)
        (2.0, [tensor([0., 1.])])
    """
    offset = snapshot(point) if center is None else difference(point, center)
    length = norm(offset)
    if length > 0:
        torch._foreach_div_(offset, length)
    return length, offset


def like(vector: Vector, parameters: Vector) -> list[Tensor]:
    """The vector in the parameters' dtypes and on their devices.

    Example:
        >>> like([torch.ones(1, dtype=torch.float64)], [torch.zeros(1)])[0].dtype
        torch.float32
    """
    return [v.detach().to(p) for v, p in zip(vector, parameters, strict=True)]


def is_on_ball(point: Vector, radius: float, center: Vector | None, eps: float) -> bool:
    """Whether a point lies on the safeguard ball's surface, or outside.

    Within ``4 sqrt(eps)`` of the radius: where an optimiser stops, not where rounding
    does.

    Example:
        >>> is_on_ball([torch.ones(1)], 1.0, None, eps=1e-16)
        True
    """
    if math.isinf(radius):
        return False
    return outward(point, center)[0] >= radius * (1.0 - 4.0 * math.sqrt(eps))
