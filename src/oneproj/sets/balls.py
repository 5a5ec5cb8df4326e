"""The Euclidean ball and the second-order cone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor
from oneproj.errors import InvalidProblemError
from oneproj.sets.base import (
    AbstractDistanceSet,
    AbstractSet,
    check_finite,
    check_radius,
    check_same_shape,
    directed,
    length,
)


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
            if not bool(torch.isfinite(self.center).all()):
                message = "A ball needs a finite center, got one with NaN or inf."
                raise InvalidProblemError(message)

    def check_shape(self, tensor: Tensor) -> None:
        """The center must be shaped like the tensor."""
        if self.center is not None:
            check_same_shape("ball's center", self.center, tensor)

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


class SecondOrderCone(AbstractDistanceSet):
    """``{(t, z) : |z| <= t}``: t is the first entry of the tensor, z are the others.

    The nearest point is x itself inside; the apex 0 where ``|z| <= -t``; elsewhere the
    nearest point of the ray along z, ``((|z| + t) / 2) (1, z / |z|)``. The residual is
    the signed distance, ``(|z| - t) / sqrt(2)``, or ``|x|`` behind the apex.

    The apex is a corner with many normals; elsewhere the boundary is smooth.

    Example:
        >>> SecondOrderCone().project(torch.tensor([1.0, 3.0, 4.0])).tolist()
        [3.0, 1.7999999523162842, 2.4000000953674316]
    """

    convex = True

    def check_shape(self, tensor: Tensor) -> None:
        """There must be a t and a z."""
        if tensor.numel() <= 1:
            message = (
                "A second-order cone needs a tensor with two entries or more, the "
                f"first being the bound on the others; got {tuple(tensor.shape)}."
            )
            raise InvalidProblemError(message)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        t, z = x.flatten()[0], x.flatten()[1:]
        size, direction = directed(z)
        if size <= -t and size > t:
            return directed(x)
        if size == 0:  # on the axis every side is equally near
            direction[0] = 1.0
        normal = torch.cat([-torch.ones_like(direction[:1]), direction])
        return (size - t) / math.sqrt(2), (normal / math.sqrt(2)).reshape(x.shape)

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        # The points by the margin inside are the same cone with its apex at (shift, 0).
        shift = math.sqrt(2) * margin
        t, z = x.flatten()[0] - shift, x.flatten()[1:]
        size = length(z)
        if size <= t:
            return x
        if size <= -t:
            nearest = torch.zeros_like(x.flatten())
        else:
            height = (size + t) / 2
            nearest = torch.cat([height[None], height * (z / size)])
        nearest[0] += shift
        return nearest.reshape(x.shape)
