"""The second-order cone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.projection.sets.distance import AbstractDistanceSet, directed, length

FEWEST_ENTRIES = 2


class SecondOrderCone(AbstractDistanceSet):
    """``{(t, z) : |z| <= t}``: t is the first entry of the tensor, z are the others.

    Seen along z the cone is a wedge of two right angles' halves, and three cases give
    the nearest point: x itself inside; the apex 0 where ``|z| <= -t``; elsewhere the
    foot on the ray nearest to x, ``((|z| + t) / 2) (1, z / |z|)``. The residual is the
    signed distance, ``(|z| - t) / sqrt(2)``, or ``|x|`` behind the apex.

    The apex is a corner with many normals; elsewhere the boundary is smooth.

    Example:
        >>> SecondOrderCone().project(torch.tensor([1.0, 3.0, 4.0])).tolist()
        [3.0, 1.7999999523162842, 2.4000000953674316]
    """

    convex = True

    def check_shape(self, tensor: Tensor) -> None:
        """There must be a t and a z."""
        if tensor.numel() < FEWEST_ENTRIES:
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
