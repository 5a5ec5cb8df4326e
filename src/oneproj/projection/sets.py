"""Closed-form sets: a residual that is <= 0 on the set, and the nearest point.

A set becomes a constraint on one parameter tensor by ``.on(tensor)``. Its residual is
the signed distance to its boundary, so its gradient has norm 1 everywhere outside:
in the words of Assumption 1, ``G_g = sigma = 1``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

from oneproj.errors import InvalidProblemError
from oneproj.terms import Constraint, function

if TYPE_CHECKING:
    from torch import Tensor


class AbstractSet(ABC):
    """A closed set with a projection in closed form.

    Example:
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> Ball(1.0).on(w).value()
        4.0
    """

    convex: bool
    """Whether the set, and with it the signed distance to it, is convex."""

    def on(self, tensor: Tensor) -> SetConstraint:
        """Require that ``tensor``, a parameter, lies in this set."""
        if not tensor.is_leaf:
            message = (
                "A set constrains a parameter itself, but got the result of a "
                "computation (a slice or a product, for example), which projecting "
                "would not move. Pass the parameter, or constrain an oneproj.function "
                "of it."
            )
            raise InvalidProblemError(message)
        self.check_shape(tensor)
        return SetConstraint(self, tensor)

    @abstractmethod
    def check_shape(self, tensor: Tensor) -> None:
        """Refuse a tensor that this set is not a set of."""

    @abstractmethod
    def residual(self, x: Tensor) -> Tensor:
        """The signed distance to the boundary, differentiable; <= 0 on the set."""

    @abstractmethod
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """The nearest point whose residual is at most ``-margin``."""


class SetConstraint(Constraint):
    """The constraint ``tensor in set``; made by ``AbstractSet.on``.

    Example:
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> constraint = Ball(1.0).on(w)
        >>> constraint.tensor is w, constraint.members.radius
        (True, 1.0)
    """

    def __init__(self, members: AbstractSet, tensor: Tensor) -> None:
        """Keep the set and the parameter."""
        # In float64, so that <= 0 is decided beyond the rounding of the parameter.
        residual = function(
            lambda: members.residual(tensor.double()),
            curvature="convex" if members.convex else None,
        )
        super().__init__(residual, 0.0, sense=1)
        self.members = members
        self.tensor = tensor


class Ball(AbstractSet):
    """``{x : |x - center| <= radius}`` in the Euclidean (Frobenius) norm.

    Example:
        >>> Ball(2.5).project(torch.tensor([3.0, 4.0])).tolist()
        [1.5, 2.0]
    """

    convex = True

    def __init__(self, radius: float, center: Tensor | None = None) -> None:
        """Set radius and center; a center of None is the origin."""
        if not 0 < radius < math.inf:
            message = f"A ball needs a finite radius > 0, got {radius}."
            raise InvalidProblemError(message)
        if center is not None and not bool(torch.isfinite(center).all()):
            message = "A ball needs a finite center, got one with NaN or inf."
            raise InvalidProblemError(message)
        self.radius = float(radius)
        self.center = None if center is None else center.detach().clone()

    def check_shape(self, tensor: Tensor) -> None:
        """The center must be shaped like the tensor."""
        if self.center is not None and self.center.shape != tensor.shape:
            message = (
                f"The ball's center has shape {tuple(self.center.shape)}, the "
                f"parameter {tuple(tensor.shape)}; they must agree."
            )
            raise InvalidProblemError(message)

    def residual(self, x: Tensor) -> Tensor:
        """``|x - center| - radius``."""
        distance: Tensor = torch.linalg.vector_norm(self._centered(x))
        return distance - self.radius

    @torch.no_grad()
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """Shrink towards the center, and not beyond it, whatever the margin."""
        offset = self._centered(x)
        length = float(torch.linalg.vector_norm(offset, dtype=torch.float64))
        target = max(self.radius - margin, 0.0)
        if length <= target:
            return x
        inside = offset * (target / length)
        return inside if self.center is None else inside + self.center.to(x)

    def _centered(self, x: Tensor) -> Tensor:
        return x if self.center is None else x - self.center.to(x)


class Halfspace(AbstractSet):
    """``{x : <normal, x> <= offset}``.

    Example:
        >>> half = Halfspace(torch.tensor([2.0, 0.0]), offset=2.0)
        >>> half.project(torch.tensor([4.0, 1.0])).tolist()
        [1.0, 1.0]
    """

    convex = True

    def __init__(self, normal: Tensor, offset: float) -> None:
        """Set the outward normal (any length but 0) and the offset."""
        length = float(torch.linalg.vector_norm(normal.detach().double()))
        if not 0 < length < math.inf or not math.isfinite(offset):
            message = (
                "A halfspace needs a finite, nonzero normal and a finite offset; got a "
                f"normal of length {length} and offset {offset}."
            )
            raise InvalidProblemError(message)
        self.normal = normal.detach().double() / length
        self.offset = float(offset) / length

    def check_shape(self, tensor: Tensor) -> None:
        """The normal must be shaped like the tensor."""
        if self.normal.shape != tensor.shape:
            message = (
                f"The halfspace's normal has shape {tuple(self.normal.shape)}, the "
                f"parameter {tuple(tensor.shape)}; they must agree."
            )
            raise InvalidProblemError(message)

    def residual(self, x: Tensor) -> Tensor:
        """``(<normal, x> - offset) / |normal|``."""
        return (self.normal.to(x) * x).sum() - self.offset

    @torch.no_grad()
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """Move along the normal."""
        excess = float(self.residual(x.double())) + margin
        return x if excess <= 0 else x - excess * self.normal.to(x)
