"""The Euclidean ball, the second-order cone, the L1 ball and the simplex.

The last two are thresholds, found by sorting.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor, check_number
from oneproj.errors import InvalidProblemError
from oneproj.sets.base import (
    AbstractDistanceSet,
    AbstractSet,
    AbstractThinSet,
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
            given = as_tensor("The center of a ball", center, finite=True)
            self.center = given.clone()

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


class Sorted:
    """The entries of a tensor in falling order, to find thresholds with one sort.

    Everything is computed from the differences to the largest entry: where the entries
    are so large that adding the total to them changes nothing, the result of
    ``lowered`` still sums to the total.

    Example:
        >>> entries = Sorted(torch.tensor([0.0, 3.0, 2.0]))
        >>> entries.threshold(3.0).item(), entries.lowered(3.0).tolist()
        (1.0, [0.0, 2.0, 1.0])
        >>> huge = torch.tensor([1e17, 1e17, 0.0], dtype=torch.float64)
        >>> Sorted(huge).lowered(1.0).tolist()
        [0.5, 0.5, 0.0]
    """

    def __init__(self, x: Tensor) -> None:
        """Sort the entries."""
        self._x, self._largest = x, x.max()
        self._below = (x - self._largest).flatten().sort(descending=True).values

    def threshold(self, total: float) -> Tensor:
        """The number theta for which ``sum_i max(x_i - theta, 0) = total > 0``."""
        return self._largest + self._shift(total)

    def lowered(self, total: float) -> Tensor:
        """The entries above the threshold, less the threshold; 0 for the others."""
        return (self._x - self._largest - self._shift(total)).clamp(min=0)

    def _shift(self, total: float) -> Tensor:
        """The threshold minus the largest entry, in [-total, 0].

        If the k largest entries are the ones above the threshold, it is the sum of
        their differences to the largest, minus the total, divided by k; k is the last
        place at which the entry exceeds that quotient. Entries lower by the total or
        more are below the threshold.
        """
        u = self._below.clamp(min=-total)
        k = torch.arange(1, u.numel() + 1, device=u.device, dtype=u.dtype)
        candidates = (u.cumsum(0) - total) / k
        last = int((u > candidates).sum()) - 1
        return candidates[max(last, 0)]


class Simplex(AbstractThinSet):
    """``{x : x >= 0, sum x = total}``, probability vectors for a total of 1.

    The nearest point lowers all entries by one threshold and cuts off at zero,
    ``P(x)_i = max(x_i - theta, 0)``; sorting finds theta. Zeros are exact.

    The simplex has no interior. Its members are the x >= 0, exactly, whose sum is
    within ``tolerance * total`` of the total; the residual is the signed distance to
    that slab, and projections aim at its middle, the exact simplex.

    Among convex functions the projector ``"cuts"`` aims at the exact simplex, too, and
    its ``lower_bound`` says how much nearer a point of that could be. The KKT
    certificate is about the exact simplex.

    Args:
        total: What the entries of the tensor sum to, > 0.
        tolerance: The relative thickness; None takes eps^0.75 of the tensor's dtype.

    Example:
        >>> Simplex().project(torch.tensor([0.25, 1.25, -3.0])).tolist()
        [0.0, 1.0, 0.0]
    """

    convex = True

    def __init__(self, total: float = 1.0, *, tolerance: float | None = None) -> None:
        """Set the total and the tolerance."""
        why = "Entries that sum to 0 are all 0: freeze the parameter there instead."
        self.total = check_number("The total of a simplex", total, why)
        super().__init__(tolerance)

    def _half_thickness(self, x: Tensor) -> float:
        # In a thick slab the entries bound the depth of the middle.
        return self.total * min(self._band / math.sqrt(x.numel()), 1 / x.numel())

    def check_shape(self, tensor: Tensor) -> None:
        """Refuse a tensor without entries; they are summed over all dimensions."""
        check_not_empty(tensor)

    def _bounds(self) -> tuple[float, float]:
        """The least and the largest sum of a member."""
        return self.total * (1 - self._band), self.total * (1 + self._band)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        least, most = self._bounds()
        size, n = float(x.clamp(min=0).sum()), x.numel()
        theta = 0.0
        # Summed in another order, the threshold may come out at 0: it is at least this.
        if size > most:
            theta = max(float(Sorted(x).threshold(most)), (size - most) / n)
        elif size < least:
            theta = min(float(Sorted(x).threshold(least)), (size - least) / n)
        value, normal = directed(x.clamp(max=theta))  # x - P(x)
        if theta != 0 or bool((x < 0).any()):
            return value, normal
        return self._inside(x, (size - most) / n**0.5, (least - size) / n**0.5)

    @staticmethod
    def _inside(x: Tensor, above: float, below: float) -> tuple[Tensor, Tensor]:
        """Minus the distance to the nearest of the faces, and the normal there."""
        flat = x.flatten()
        i = int(flat.argmin())
        value = max(-float(flat[i]), above, below)
        normal = torch.zeros_like(flat)
        if value in {above, below}:
            normal.fill_(math.copysign(x.numel() ** -0.5, above - below))
        else:
            normal[i] = -1.0
        return x.new_tensor(value), normal.reshape(x.shape)

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        del margin  # zeros are exact, and the slab takes care of the sum
        least, most = self._bounds()
        if least <= float(x.sum()) <= most and not bool((x < 0).any()):
            return x
        return Sorted(x).lowered(self.total)


class L1Ball(AbstractDistanceSet):
    """``{x : sum |x_i| <= radius}``, which makes parameters sparse.

    The nearest point of an x outside shrinks every entry towards zero by one threshold,
    ``P(x)_i = sign(x_i) max(|x_i| - theta, 0)``: the simplex of the absolute values,
    with the signs put back. Outside, the residual is the distance; inside, minus the
    distance to the nearest face, ``(sum |x_i| - radius) / sqrt(n)``.

    It has corners, where the sparse points are, and a corner has many normals. The KKT
    certificate finds the one that counts. Among convex functions the projector
    ``"cuts"`` projects onto the ball itself, and cuts the functions only.

    Example:
        >>> L1Ball(2.0).project(torch.tensor([3.0, -2.0, 0.5])).tolist()
        [1.5, -0.5, 0.0]
    """

    convex = True

    def __init__(self, radius: float) -> None:
        """Set the radius."""
        self.radius = check_radius("an L1 ball", radius)

    def depth(self, x: Tensor) -> float:
        """The origin is deepest."""
        return self.radius / math.sqrt(x.numel())

    def check_shape(self, tensor: Tensor) -> None:
        """Refuse a tensor without entries."""
        check_not_empty(tensor)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        excess, n = x.abs().sum() - self.radius, x.numel()
        if excess > 0:
            theta = torch.maximum(Sorted(x.abs()).threshold(self.radius), excess / n)
            return directed(x.sign() * x.abs().clamp(max=theta))  # x - P(x)
        side = torch.where(x < 0, -1.0, 1.0).to(x)
        return excess / n**0.5, side / n**0.5

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        size, entries = x.abs().sum(), Sorted(x.abs())

        def shrunk(radius: float) -> Tensor:
            if radius <= 0:
                return torch.zeros_like(x)
            return x if size <= radius else x.sign() * entries.lowered(radius)

        # Rounding moves the entries that are not zero: only they need the margin.
        moved = int(shrunk(self.radius).count_nonzero())
        return shrunk(self.radius - margin * math.sqrt(moved))


def check_not_empty(tensor: Tensor) -> None:
    """Refuse a tensor without entries.

    Example:
        >>> check_not_empty(torch.ones(2))
    """
    if not tensor.numel():
        message = (
            f"A tensor of shape {tuple(tensor.shape)} has no entries to constrain."
        )
        raise InvalidProblemError(message)
