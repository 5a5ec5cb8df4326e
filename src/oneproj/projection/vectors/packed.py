"""Parameter-size vectors for arithmetic: one array each, if they are short.

A sum or a product of a few numbers takes a fifth of the time in NumPy that it takes in
tensors, and one array less than several tensors: beside the gradient of a small model
that is the difference between a tenth of the time and as much again. Long vectors stay
the tensors that they are, without a copy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from oneproj.arrays import Array
from oneproj.parameters import Vector, dimension, dot, norm, rounding_unit
from oneproj.simplex_qp import EPSILON

SHORT = 2**14
"""Numbers in a vector up to which copying it costs less than looping over vectors."""
TINY, HUGE = 1e-150, 1e150
"""Lengths whose squares are numbers like others."""


class AbstractPacked(ABC):
    """A vector that is added to and multiplied with others like it."""

    eps: float
    """The rounding unit of the numbers that it was made of."""
    sum_eps: float
    """The rounding unit of sums of such vectors."""

    @abstractmethod
    def dot(self, other: Self) -> float:
        """The inner product, in float64."""

    @abstractmethod
    def norm(self) -> float:
        """The length."""

    @abstractmethod
    def minus(self, other: Self) -> Self:
        """The difference, as a new vector."""

    @abstractmethod
    def times(self, weight: float) -> Self:
        """A multiple, as a new vector."""

    @abstractmethod
    def add(self, other: Self, weight: float) -> None:
        """Add a multiple of another vector, in place."""


class Short(AbstractPacked):
    """A vector in one array of float64.

    Example:
        >>> import numpy as np
        >>> a = Short(np.ones(3), eps=2**-52)
        >>> a.dot(a), a.minus(a).numbers.tolist()
        (3.0, [0.0, 0.0, 0.0])
    """

    def __init__(self, numbers: Array, eps: float) -> None:
        """Keep the numbers, made of others with this rounding unit."""
        self.numbers, self.eps = numbers, eps
        self.sum_eps = EPSILON

    def dot(self, other: Self) -> float:
        return float(self.numbers.dot(other.numbers))

    def norm(self) -> float:
        length = math.sqrt(self.numbers.dot(self.numbers))
        return length if TINY < length < HUGE else math.hypot(*self.numbers.tolist())

    def minus(self, other: Self) -> Self:
        return type(self)(self.numbers - other.numbers, self.eps)

    def times(self, weight: float) -> Self:
        return type(self)(weight * self.numbers, self.eps)

    def add(self, other: Self, weight: float) -> None:
        self.numbers += weight * other.numbers


class Long(AbstractPacked):
    """A vector as it is.

    Example:
        >>> a = Long([torch.ones(2), torch.ones(1)])
        >>> a.dot(a), a.minus(a).tensors
        (3.0, [tensor([0., 0.]), tensor([0.])])
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        """Keep the tensors."""
        self.tensors = tensors
        self.eps = self.sum_eps = rounding_unit(tensors)

    def dot(self, other: Self) -> float:
        return dot(self.tensors, other.tensors)

    def norm(self) -> float:
        return norm(self.tensors)

    def minus(self, other: Self) -> Self:
        return type(self)(list(torch._foreach_sub(self.tensors, other.tensors)))

    def times(self, weight: float) -> Self:
        return type(self)([weight * t for t in self.tensors])

    def add(self, other: Self, weight: float) -> None:
        torch._foreach_add_(self.tensors, other.tensors, alpha=weight)


def is_short(vector: Vector) -> bool:
    """Whether vectors like this one are packed in arrays.

    Example:
        >>> is_short([torch.zeros(3)])
        True
    """
    on_cpu = all(t.device.type == "cpu" for t in vector)
    return on_cpu and dimension(vector) <= SHORT
