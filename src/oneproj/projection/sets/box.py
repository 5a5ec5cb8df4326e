"""The box: bounds on every entry."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor
from oneproj.errors import InvalidProblemError
from oneproj.projection.sets.distance import AbstractDistanceSet, directed

INFINITY = torch.tensor(torch.inf, dtype=torch.float64, device="cpu")


class Box(AbstractDistanceSet):
    """``{x : lower <= x <= upper}``, entry by entry.

    The entries do not know of each other, so the nearest point clamps each. It is exact
    to the last bit in every dtype: bounds that the tensor's dtype cannot hold are
    rounded inwards to ones that it can, and a bound of 0 yields 0. Outside, the
    residual is the distance; inside, minus the distance to the nearest face.

    A box has corners, and a corner has many normals. The KKT certificate finds the one
    that counts. Among convex functions the projector ``"cuts"`` projects onto the box
    itself, and cuts the functions only.

    Args:
        lower: A number, a tensor or list shaped like the parameter, or None for no
            bound; single entries may be -inf.
        upper: Likewise; at least lower everywhere.

    Example:
        >>> Box(0.0, 1.0).project(torch.tensor([-3.0, 0.25, 7.0])).tolist()
        [0.0, 0.25, 1.0]
    """

    convex = True

    def __init__(
        self, lower: TensorLike | None = None, upper: TensorLike | None = None
    ) -> None:
        """Check the bounds and keep them in float64."""
        self.lower = -INFINITY if lower is None else _as_bound("lower", lower)
        self.upper = INFINITY if upper is None else _as_bound("upper", upper)
        shapes = {tuple(b.shape) for b in (self.lower, self.upper) if b.dim()}
        if len(shapes) > 1:
            message = (
                f"The lower bound has shape {tuple(self.lower.shape)}, the upper "
                f"{tuple(self.upper.shape)}; they must agree, or be numbers."
            )
            raise InvalidProblemError(message)
        if not bool((self.lower <= self.upper).all()):
            gap = float((self.lower - self.upper).max())
            message = (
                f"A box needs lower <= upper, but a lower bound is {gap:.3e} above its "
                "upper bound, so no point meets both."
            )
            raise InvalidProblemError(message)
        if bool((self.lower == torch.inf).any() or (self.upper == -torch.inf).any()):
            message = "A box needs lower < inf and upper > -inf: no number is beyond."
            raise InvalidProblemError(message)
        if not bool(self.lower.isfinite().any() or self.upper.isfinite().any()):
            message = "A box without any finite bound constrains nothing; give one."
            raise InvalidProblemError(message)

    def check_shape(self, tensor: Tensor) -> None:
        """Bounds that are tensors must be shaped like the parameter."""
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound.dim() and bound.shape != tensor.shape:
                message = (
                    f"The box's {name} bound has shape {tuple(bound.shape)}, the "
                    f"parameter {tuple(tensor.shape)}; they must agree."
                )
                raise InvalidProblemError(message)

    def depth(self, x: Tensor) -> float:
        """Half the narrowest side."""
        del x
        return 0.5 * float((self.upper - self.lower).min())

    def rounded_to(self, dtype: torch.dtype) -> Self:
        """This box with its bounds rounded inwards to numbers of the dtype."""
        if dtype == torch.float64:
            return self
        rounded = copy.copy(self)
        rounded.lower = -_round_down(-self.lower, dtype)
        rounded.upper = _round_down(self.upper, dtype)
        if bool((rounded.lower > rounded.upper).any()):
            message = (
                f"No {dtype} number lies between the bounds of this box, which are "
                f"nearer to each other than its rounding. Use a bound that {dtype} can "
                "hold, or a wider dtype."
            )
            raise InvalidProblemError(message)
        return rounded

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        below, above = self.lower.to(x.device) - x, x - self.upper.to(x.device)
        value, normal = directed(above.clamp(min=0) - below.clamp(min=0))
        if value > 0:
            return value, normal
        face = torch.maximum(below, above)
        i = int(face.argmax())
        normal.view(-1)[i] = 1.0 if above.view(-1)[i] >= below.view(-1)[i] else -1.0
        return face.max(), normal

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        del margin  # the bounds are numbers of the dtype: nothing is rounded
        clamped = torch.maximum(x, self.lower.to(x.device))
        return torch.minimum(clamped, self.upper.to(x.device))


def _as_bound(name: str, bound: TensorLike) -> Tensor:
    found = as_tensor(f"The {name} bound of a box", bound).double().clone()
    if bool(found.isnan().any()):
        message = f"The {name} bound of a box holds NaN; use inf for no bound."
        raise InvalidProblemError(message)
    return found


def _round_down(bound: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of the dtype that are at most the bound."""
    nearest = bound.to(dtype)
    below = torch.nextafter(nearest, torch.full_like(nearest, -torch.inf))
    return torch.where(nearest.double() > bound, below, nearest).double()
