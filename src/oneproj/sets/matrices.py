"""Sets of matrices, given by their singular values.

The nearest point keeps the singular vectors and moves the values to the nearest ones
that are allowed. Each residual or projection costs one singular value decomposition, in
float64: about ``m n min(m, n)`` operations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from oneproj.arguments import check_count
from oneproj.errors import InvalidProblemError
from oneproj.sets.balls import Sorted
from oneproj.sets.base import (
    AbstractDistanceSet,
    AbstractThinSet,
    check_radius,
    directed,
    length,
)

MATRIX_DIM = 2


class Svd(NamedTuple):
    """The factors of ``X = U diag(s) V'``, s in falling order."""

    U: Tensor
    s: Tensor
    Vh: Tensor

    def matrix(self, s: Tensor) -> Tensor:
        """The matrix with these singular values in place of s."""
        return (self.U * s) @ self.Vh


class NuclearBall(AbstractDistanceSet):
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

    def depth(self, x: Tensor) -> float:
        """The zero matrix is deepest."""
        return self.radius / math.sqrt(min(x.shape))

    def check_shape(self, tensor: Tensor) -> None:
        """Refuse what is not a matrix."""
        check_matrix("A nuclear-norm ball", tensor)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        svd = decompose(x)
        excess, k = svd.s.sum() - self.radius, svd.s.numel()
        if excess > 0:
            theta = torch.maximum(Sorted(svd.s).threshold(self.radius), excess / k)
            value, normal = directed(svd.s.clamp(max=theta))
        else:
            value = excess / math.sqrt(k)
            normal = torch.full_like(svd.s, 1 / math.sqrt(k))
        return value, svd.matrix(normal)

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        svd = decompose(x)
        radius = self.radius - margin * math.sqrt(svd.s.numel())
        if radius <= 0:
            return torch.zeros_like(x)
        if svd.s.sum() <= radius:
            return x
        return svd.matrix(Sorted(svd.s).lowered(radius))


class SpectralBall(AbstractDistanceSet):
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

    def check_shape(self, tensor: Tensor) -> None:
        """Refuse what is not a matrix."""
        check_matrix("A spectral-norm ball", tensor)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        svd = decompose(x)
        over = svd.s - self.radius
        if over[0] > 0:
            value, normal = directed(over.clamp(min=0))
        else:
            value, normal = over[0], torch.zeros_like(over)
            normal[0] = 1.0
        return value, svd.matrix(normal)

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        svd = decompose(x)
        radius = max(self.radius - margin, 0.0)
        return x if svd.s[0] <= radius else svd.matrix(svd.s.clamp(max=radius))


class Rank(AbstractThinSet):
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
        check_matrix("A bound on the rank", tensor)
        if self.rank >= min(tensor.shape):
            message = (
                f"Every matrix of shape {tuple(tensor.shape)} has rank <= {self.rank}, "
                "so the bound constrains nothing. Leave it out, or lower it."
            )
            raise InvalidProblemError(message)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        # The tolerance grows with |X|, slowly: the gradient takes it as a constant.
        svd = decompose(x)
        dropped = svd.s.clone()
        dropped[: self.rank] = 0.0
        distance, normal = directed(dropped)
        return distance - self._band * length(svd.s), svd.matrix(normal)

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        del margin  # the band takes care of rounding
        svd = decompose(x)
        dropped = length(svd.s[self.rank :])
        if dropped <= self._band * length(svd.s):
            return x
        kept = svd.s.clone()
        kept[self.rank :] = 0.0
        return svd.matrix(kept)


def decompose(x: Tensor) -> Svd:
    """The thin singular value decomposition.

    Example:
        >>> decompose(torch.tensor([[0.0, 2.0], [1.0, 0.0]])).s.tolist()
        [2.0, 1.0]
    """
    return Svd(*torch.linalg.svd(x, full_matrices=False))


def check_matrix(what: str, tensor: Tensor) -> None:
    """Refuse a tensor that is not a matrix with entries.

    Example:
        >>> check_matrix("A ball", torch.ones(2, 3))
    """
    if tensor.dim() != MATRIX_DIM or not tensor.numel():
        message = (
            f"{what} is a set of matrices, but the tensor has shape "
            f"{tuple(tensor.shape)}. To constrain it in another arrangement, use an "
            "oneproj.function of the residual of the reshaped tensor."
        )
        raise InvalidProblemError(message)
