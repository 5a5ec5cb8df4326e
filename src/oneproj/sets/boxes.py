"""Sets given by linear inequalities and equations: box, halfspace, affine set."""

from __future__ import annotations

import copy
import math
from typing import Self

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_number, as_tensor
from oneproj.errors import InvalidProblemError
from oneproj.sets.base import (
    AbstractDistanceSet,
    AbstractSet,
    AbstractThinSet,
    check_finite,
    check_same_shape,
    directed,
    length,
)

INFINITY = torch.tensor(torch.inf, dtype=torch.float64, device="cpu")


class Box(AbstractDistanceSet):
    """``{x : lower <= x <= upper}``, entry by entry.

    The nearest point clamps each entry. It is exact to the last bit in every dtype:
    bounds that the tensor's dtype cannot hold are rounded inwards to ones that it can,
    and a bound of 0 yields 0. Outside, the
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
        beyond = bool(
            (self.lower == torch.inf).any() or (self.upper == -torch.inf).any()
        )
        finite = bool(self.lower.isfinite().any() or self.upper.isfinite().any())
        if beyond or not finite:
            message = "A box needs a finite bound, lower < inf and upper > -inf."
            raise InvalidProblemError(message)

    def check_shape(self, tensor: Tensor) -> None:
        """Bounds that are tensors must be shaped like the parameter."""
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound.dim():
                check_same_shape(f"box's {name} bound", bound, tensor)

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
        flat = normal.flatten()  # in the order of argmax, whatever the memory's is
        flat[i] = 1.0 if above.flatten()[i] >= below.flatten()[i] else -1.0
        return face.max(), flat.reshape(x.shape)

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


DEPENDENT = 1e-12
"""Equations are dependent, or contradict each other, up to this relative size."""


class Halfspace(AbstractSet):
    """``{x : <normal, x> <= offset}``.

    Example:
        >>> half = Halfspace(torch.tensor([2.0, 0.0]), offset=2.0)
        >>> half.project(torch.tensor([4.0, 1.0])).tolist()
        [1.0, 1.0]
    """

    convex = True

    def __init__(self, normal: TensorLike, offset: float) -> None:
        """Set the outward normal (any length but 0) and the offset."""
        direction = as_tensor("The normal of a halfspace", normal).double()
        size, unit = directed(direction)
        number = as_number(offset)
        if not 0 < float(size) < math.inf or number is None:
            message = (
                "A halfspace needs a finite, nonzero normal and a finite offset; got a "
                f"normal of length {float(size)} and offset {offset!r}."
            )
            raise InvalidProblemError(message)
        self.normal = unit
        self.offset = float(offset) / float(size)

    def check_shape(self, tensor: Tensor) -> None:
        """The normal must be shaped like the tensor."""
        check_same_shape("halfspace's normal", self.normal, tensor)

    def residual(self, x: Tensor) -> Tensor:
        """``(<normal, x> - offset) / |normal|``."""
        return (self.normal.to(x) * x).sum() - self.offset

    @torch.no_grad()
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """Move along the normal."""
        check_finite(self, x)
        excess = float(self.residual(x.double())) + margin
        return x if excess <= 0 else x - excess * self.normal.to(x)


class Affine(AbstractThinSet):
    """``{x : A x = b}``, the solutions of linear equations, x flattened.

    With the rows of A made orthonormal (a singular value decomposition, once, in the
    constructor), the distance is ``|A x - b|`` and the nearest point
    ``P(x) = x - A'(A x - b)``. Dependent rows are fine.

    An affine set has no interior, so its members are the points whose distance to it is
    at most ``tolerance |x|``. Projections aim at the exact set, those of the projector
    ``"cuts"`` included, whose ``lower_bound`` says how much nearer a point of that
    could be. The KKT certificate is about the exact set.

    Args:
        matrix: A, one row per equation and one column per entry of the tensor.
        offset: b, one entry per equation.
        tolerance: The relative thickness; None takes eps^0.75 of the tensor's dtype.

    Example:
        >>> plane = Affine(torch.tensor([[3.0, 4.0]]), torch.tensor([10.0]))
        >>> plane.project(torch.tensor([5.0, 5.0]))
        tensor([2., 1.])
        >>> plane.residual(torch.tensor([5.0, 5.0]))
        tensor(5.0000)
    """

    convex = True

    def __init__(
        self, matrix: TensorLike, offset: TensorLike, *, tolerance: float | None = None
    ) -> None:
        """Make the equations orthonormal; refuse those that contradict each other."""
        A = as_tensor("The matrix of an affine set", matrix, finite=True).double()
        b = as_tensor("The offset of an affine set", offset, finite=True).double()
        if A.dim() != 2 or b.shape != A.shape[:1] or not A.numel():  # noqa: PLR2004
            message = (
                "An affine set needs a matrix with one row per equation and an offset "
                "with one entry per equation; got shapes "
                f"{tuple(A.shape)} and {tuple(b.shape)}."
            )
            raise InvalidProblemError(message)
        U, s, Vh = torch.linalg.svd(A, full_matrices=False)
        kept = s > DEPENDENT * s[0]
        coefficients = U[:, kept].mT @ b
        gap = float(length(b - U[:, kept] @ coefficients))
        if gap > DEPENDENT * float(length(b)):
            message = (
                "The equations of an affine set contradict each other: no x comes "
                f"nearer to A x = b than {gap:.3e}. Remove one of those that disagree, "
                "or require A x <= b with halfspaces."
            )
            raise InvalidProblemError(message)
        self.matrix, self.offset = Vh[kept], coefficients / s[kept]
        super().__init__(tolerance)

    def check_shape(self, tensor: Tensor) -> None:
        """The matrix must have one column per entry of the tensor."""
        if self.matrix.shape[1] != tensor.numel():
            message = (
                f"The affine set's matrix has {self.matrix.shape[1]} columns, the "
                f"parameter of shape {tuple(tensor.shape)} has {tensor.numel()} "
                "entries; they must agree."
            )
            raise InvalidProblemError(message)

    def _excess(self, x: Tensor) -> Tensor:
        """``A'(A x - b)``, the difference from the nearest point to x."""
        A, b = self.matrix.to(x.device), self.offset.to(x.device)
        back: Tensor = A.mT @ (A @ x.flatten() - b)
        return back.reshape(x.shape)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        # The tolerance grows with |x|, slowly: the gradient takes it as a constant.
        distance, normal = directed(self._excess(x))
        return distance - self._band * length(x), normal

    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        del margin  # the band takes care of rounding
        if self._measure(x)[0] <= 0:
            return x
        nearest = x - self._excess(x)
        nearest = nearest - self._excess(nearest)  # what rounding left of it
        if self._measure(nearest)[0] <= 0:
            return nearest
        # Nothing but rounding is left: the nearest point is the shortest solution.
        shortest: Tensor = self.matrix.mT @ self.offset
        return shortest.to(x.device).reshape(x.shape)
