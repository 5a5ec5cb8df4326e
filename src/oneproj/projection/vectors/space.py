"""The points around an origin, as packed displacements from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oneproj.arrays import Array
from oneproj.parameters import Vector, norm, rounding_unit
from oneproj.projection.vectors.blocks import combined_norm
from oneproj.projection.vectors.packed import AbstractPacked, Long, Short, is_short


class AbstractSpace(ABC):
    """Packs vectors, and goes from points to displacements and back.

    No tensor that it is given requires a gradient.
    """

    def __init__(self, origin: list[Tensor]) -> None:
        """Keep the origin."""
        self.origin = origin

    @abstractmethod
    def pack(self, vector: Vector) -> AbstractPacked:
        """A vector for arithmetic; it is not to be changed meanwhile."""

    @abstractmethod
    def size_of_origin(self) -> float:
        """The norm of the origin."""

    @abstractmethod
    def displacement(self, point: Vector) -> AbstractPacked:
        """A point, seen from the origin; in float64 if it is short.

        From far away the rounding of a displacement in float32 is more than the
        residuals near the answer, and cuts whose offsets have it contradict each other.
        """

    @abstractmethod
    def length(
        self,
        point: Vector,
        weights: Sequence[float] = (),
        vectors: Sequence[Vector] = (),
    ) -> float:
        """The length of a displacement plus ``sum_k weights[k] * vectors[k]``."""

    @abstractmethod
    def write(self, displacement: AbstractPacked, point: Vector) -> None:
        """Write the origin plus a displacement into the tensors of a point."""


class _ShortSpace(AbstractSpace):
    """One row of numbers, and the tensors that share its memory.

    One call copies between it and all tensors of a vector. To a small model the calls
    are what costs: three of them per look would be a tenth of the time of a gradient.
    """

    def __init__(self, origin: list[Tensor]) -> None:
        super().__init__(origin)
        sizes = [t.numel() for t in origin]
        flat = torch.zeros(sum(sizes), dtype=torch.float64, device="cpu")
        self._parts = [
            part.view(t.shape)
            for part, t in zip(flat.split_with_sizes(sizes), origin, strict=True)
        ]
        self._numbers: Array = flat.numpy()
        self._eps = rounding_unit(origin)
        self._from = self.pack(origin).numbers

    def pack(self, vector: Vector) -> Short:
        torch._foreach_copy_(self._parts, list(vector))
        return Short(self._numbers.copy(), self._eps)

    def size_of_origin(self) -> float:
        return Short(self._from, self._eps).norm()

    def displacement(self, point: Vector) -> Short:
        torch._foreach_copy_(self._parts, list(point))
        return Short(self._numbers - self._from, self._eps)

    @np.errstate(over="ignore")  # the norm knows what to do
    def length(
        self,
        point: Vector,
        weights: Sequence[float] = (),
        vectors: Sequence[Vector] = (),
    ) -> float:
        total = self.displacement(point)
        for weight, vector in zip(weights, vectors, strict=True):
            total.add(self.pack(vector), weight)
        return total.norm()

    def write(self, displacement: AbstractPacked, point: Vector) -> None:
        if isinstance(displacement, Short):
            np.add(self._from, displacement.numbers, out=self._numbers)
            torch._foreach_copy_(list(point), self._parts)


class _LongSpace(AbstractSpace):
    """Tensors as they are."""

    def pack(self, vector: Vector) -> Long:
        return Long(list(vector))

    def size_of_origin(self) -> float:
        return norm(self.origin)

    def displacement(self, point: Vector) -> Long:
        return self.pack(point).minus(Long(self.origin))

    def length(
        self,
        point: Vector,
        weights: Sequence[float] = (),
        vectors: Sequence[Vector] = (),
    ) -> float:
        return combined_norm([1.0, -1.0, *weights], [point, self.origin, *vectors])

    def write(self, displacement: AbstractPacked, point: Vector) -> None:
        if isinstance(displacement, Long):
            moving = list(point)
            torch._foreach_copy_(moving, self.origin)
            torch._foreach_add_(moving, displacement.tensors)


def space_around(origin: list[Tensor]) -> AbstractSpace:
    """The space whose origin is a point without a gradient, which is kept.

    Example:
        >>> space, w = space_around([torch.ones(2)]), torch.zeros(2)
        >>> space.write(space.pack([torch.tensor([0.5, 2.0])]), [w]); w
        tensor([1.5000, 3.0000])
        >>> space.displacement([w]).norm() ** 2
        4.25
    """
    return _ShortSpace(origin) if is_short(origin) else _LongSpace(origin)
