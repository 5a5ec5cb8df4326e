"""Sets of matrices, given by their singular values.

The nearest point keeps the singular vectors and moves the values to the nearest ones
that are allowed. Each residual or projection costs one singular value decomposition, in
float64: about ``m n min(m, n)`` operations.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from oneproj.arguments import check_count
from oneproj.errors import InvalidProblemError
from oneproj.sets.balls import L1Ball, Sorted
from oneproj.sets.base import (
    AbstractDistanceSet,
    AbstractThinSet,
    check_radius,
    directed,
    length,
)

MATRIX_DIM = 2


class AbstractSingularValueSet(AbstractDistanceSet):
    """A set of matrices that is a set of their singular values s, in falling order."""

    def check_shape(self, tensor: Tensor) -> None:
        """Refuse what is not a matrix."""
        if tensor.dim() != MATRIX_DIM or not tensor.numel():
            message = (
                f"{type(self).__name__} is a set of matrices, but the tensor has shape "
                f"{tuple(tensor.shape)}. To constrain it in another arrangement, use "
                "an oneproj.function of the residual of the reshaped tensor."
            )
            raise InvalidProblemError(message)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        U, s, Vh = torch.linalg.svd(x, full_matrices=False)
        value, normal = self._measure_values(s)
        return value, (U * normal) @ Vh

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        U, s, Vh = torch.linalg.svd(x, full_matrices=False)
        nearest = self._nearest_values(s, margin)
        return x if nearest is s else (U * nearest) @ Vh

    @abstractmethod
    def _measure_values(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """The signed distance at these singular values and its gradient."""

    @abstractmethod
    def _nearest_values(self, s: Tensor, margin: float) -> Tensor:
        """The nearest singular values, or s itself if they are allowed."""


class NuclearBall(AbstractSingularValueSet):
    """``{X : sum_i s_i(X) <= radius}``, s the singular values; the convex way to rank.

    The singular values are projected onto the L1 ball: all are lowered by one
    threshold, found by sorting, and cut off at zero. Outside, the residual is the
    distance; inside, minus the distance to the boundary, which is
    ``(sum_i s_i - radius) / sqrt(min(m, n))``.

    Its boundary has edges, where the matrices of low rank are; they have many normals.

    Example:
        >>> X = torch.diag(torch.tensor([3.0, 2.0]))
        >>> NuclearBall(3.0).project(X).tolist()
        [[2.0, 0.0], [0.0, 1.0]]
    """

    convex = True

    def __init__(self, radius: float) -> None:
        """Set the radius."""
        self.radius = check_radius("a nuclear-norm ball", radius)
        self._values = L1Ball(self.radius)

    def depth(self, x: Tensor) -> float:
        """The zero matrix is deepest."""
        return self.radius / math.sqrt(min(x.shape))

    def _measure_values(self, s: Tensor) -> tuple[Tensor, Tensor]:
        return self._values._measure(s)  # noqa: SLF001 - a set of our own

    def _nearest_values(self, s: Tensor, margin: float) -> Tensor:
        # Rounding moves every singular value, also those that are zero.
        radius = self.radius - margin * math.sqrt(s.numel())
        if radius <= 0:
            return torch.zeros_like(s)
        return s if s.sum() <= radius else Sorted(s).lowered(radius)


class SpectralBall(AbstractSingularValueSet):
    """``{X : s_1(X) <= radius}``, s_1 the largest singular value: a Lipschitz bound.

    The nearest point cuts every singular value off at the radius. Outside, the residual
    is the distance, the length of what is cut off; inside it is ``s_1 - radius``.

    Where several singular values equal the radius the boundary has an edge, with many
    normals.

    Example:
        >>> X = torch.diag(torch.tensor([3.0, 0.5]))
        >>> SpectralBall(1.0).project(X).tolist()
        [[1.0, 0.0], [0.0, 0.5]]
    """

    convex = True

    def __init__(self, radius: float) -> None:
        """Set the radius."""
        self.radius = check_radius("a spectral-norm ball", radius)

    def depth(self, x: Tensor) -> float:
        """The zero matrix is deepest."""
        del x
        return self.radius

    def _measure_values(self, s: Tensor) -> tuple[Tensor, Tensor]:
        over = s - self.radius
        if over[0] > 0:
            return directed(over.clamp(min=0))
        first = torch.zeros_like(s)
        first[0] = 1.0
        return over[0], first

    def _nearest_values(self, s: Tensor, margin: float) -> Tensor:
        radius = max(self.radius - margin, 0.0)
        return s if s[0] <= radius else s.clamp(max=radius)


class Rank(AbstractThinSet, AbstractSingularValueSet):
    """``{X : rank(X) <= rank}``, the matrices of low rank; not convex.

    The nearest point keeps the largest ``rank`` singular values and drops the others
    (Eckart and Young); the distance is the length of what is dropped. Where the last
    value kept equals the first dropped, several points are nearest and this is one.

    A matrix of low rank is hardly ever a matrix of floating-point numbers. The members
    are therefore the matrices whose distance to low rank is at most ``tolerance |X|``
    in the Frobenius norm. Projections aim at rank exactly ``rank``, up to rounding.

    For the rank of a product of parameters, which is no parameter itself, constrain
    the residual: ``oneproj.function(lambda: Rank(4).residual(A @ B)) <= 0.0``.

    Not being convex, it has no global guarantee where it is combined with other
    constraints: the projector ``"cuts"`` then finds a point that is nearest locally.

    Args:
        rank: The largest rank allowed, >= 1 and below both sides of the matrix.
        tolerance: The relative thickness; None takes eps^0.75 of the tensor's dtype.

    Example:
        >>> X = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
        >>> Rank(1).project(X).diagonal().tolist(), Rank(1).residual(X).item() > 2.2
        ([3.0, 0.0, 0.0], True)
    """

    convex = False

    def __init__(self, rank: int, *, tolerance: float | None = None) -> None:
        """Set the rank and the tolerance."""
        zero = "A matrix of rank 0 is zero: freeze the parameter instead."
        self.rank = check_count("The rank", rank, zero)
        super().__init__(tolerance)

    def check_shape(self, tensor: Tensor) -> None:
        """Refuse what is not a matrix, and a rank that every such matrix has."""
        super().check_shape(tensor)
        if self.rank >= min(tensor.shape):
            message = (
                f"Every matrix of shape {tuple(tensor.shape)} has rank <= {self.rank}, "
                "so the bound constrains nothing. Leave it out, or lower it."
            )
            raise InvalidProblemError(message)

    def _measure_values(self, s: Tensor) -> tuple[Tensor, Tensor]:
        # The tolerance grows with |X|, slowly: the gradient takes it as a constant.
        dropped = s.clone()
        dropped[: self.rank] = 0.0
        distance, normal = directed(dropped)
        return distance - self._band * length(s), normal

    def _nearest_values(self, s: Tensor, margin: float) -> Tensor:
        del margin  # the band takes care of rounding
        if self._measure_values(s)[0] <= 0:
            return s
        kept = s.clone()
        kept[self.rank :] = 0.0
        return kept
