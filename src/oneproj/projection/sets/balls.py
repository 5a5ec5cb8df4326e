"""The Euclidean ball."""

from __future__ import annotations

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor
from oneproj.errors import InvalidProblemError
from oneproj.projection.sets.base import AbstractSet, check_finite
from oneproj.projection.sets.distance import check_radius, directed, length


class Ball(AbstractSet):
    """``{x : |x - center| <= radius}`` in the Euclidean (Frobenius) norm.

    Example:
        >>> Ball(2.5).project(torch.tensor([3.0, 4.0])).tolist()
        [1.5, 2.0]
    """

    convex = True

    def __init__(self, radius: float, center: TensorLike | None = None) -> None:
        """Set radius and center; a center of None is the origin."""
        self.radius = check_radius("a ball", radius)
        self.center: Tensor | None = None
        if center is not None:
            self.center = as_tensor("The center of a ball", center).clone()
        if self.center is not None and not bool(torch.isfinite(self.center).all()):
            message = "A ball needs a finite center, got one with NaN or inf."
            raise InvalidProblemError(message)

    def check_shape(self, tensor: Tensor) -> None:
        """The center must be shaped like the tensor."""
        if self.center is not None and self.center.shape != tensor.shape:
            message = (
                f"The ball's center has shape {tuple(self.center.shape)}, the "
                f"parameter {tuple(tensor.shape)}; they must agree."
            )
            raise InvalidProblemError(message)

    def depth(self, x: Tensor) -> float:
        """The center is deepest."""
        del x
        return self.radius

    def residual(self, x: Tensor) -> Tensor:
        """``|x - center| - radius``."""
        return length(self._centered(x)) - self.radius

    @torch.no_grad()
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """Shrink towards the center, and not beyond it, whatever the margin."""
        check_finite(self, x)
        far, direction = directed(self._centered(x.double()))
        target = max(self.radius - margin, 0.0)
        if far <= target:
            return x
        inside = target * direction
        if self.center is not None:
            inside = inside + self.center.to(inside)
        return inside.to(x)

    def _centered(self, x: Tensor) -> Tensor:
        return x if self.center is None else x - self.center.to(x)
