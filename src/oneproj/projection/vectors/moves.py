"""Displacements from the start, in whichever form they are known."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from oneproj.parameters import Vector, assign, norm
from oneproj.projection.vectors.packed import AbstractPacked
from oneproj.projection.vectors.space import AbstractSpace


class AbstractMove(ABC):
    """A displacement from the origin, which need not exist as a vector."""

    length: float

    @abstractmethod
    def apply(self, space: AbstractSpace, point: Vector) -> None:
        """Write the origin plus the displacement into tensors without a gradient."""


class Plain(AbstractMove):
    """A displacement that is kept, not copied: a large model has none to spare."""

    def __init__(self, displacement: Vector) -> None:
        self._displacement, self.length = list(displacement), norm(displacement)

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        moving = list(point)
        torch._foreach_copy_(moving, space.origin)
        torch._foreach_add_(moving, self._displacement)


class Packed(AbstractMove):
    """A displacement that is packed."""

    def __init__(self, displacement: AbstractPacked) -> None:
        self._displacement, self.length = displacement, displacement.norm()

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        space.write(self._displacement, point)


class Arrived(AbstractMove):
    """A displacement that is known by where it led."""

    def __init__(self, there: Vector, length: float) -> None:
        self._there, self.length = there, length

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        del space
        assign(point, self._there)
