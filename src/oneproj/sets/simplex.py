"""The simplex and the L1 ball: thresholds, found by sorting."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneproj.arguments import check_number
from oneproj.errors import InvalidProblemError
from oneproj.sets.base import (
    AbstractDistanceSet,
    AbstractThinSet,
    check_radius,
    directed,
)


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
        i = int(x.argmin())
        value = max(-float(x.view(-1)[i]), above, below)
        normal = torch.zeros_like(x)
        if value in {above, below}:
            normal.fill_(math.copysign(x.numel() ** -0.5, above - below))
        else:
            normal.view(-1)[i] = -1.0
        return x.new_tensor(value), normal

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
