"""What a set is: a residual that is <= 0 on it, and the nearest point.

Most sets compute their signed distance and its unit normal side by side, in
``AbstractDistanceSet``. Differentiating ``|x - P(x)|`` would lose the direction of the
normal near the boundary, where the two are nearly equal; each set knows ``x - P(x)`` in
a form without that cancellation.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from oneproj.arguments import check_number, is_number
from oneproj.errors import InvalidProblemError
from oneproj.problem.functions import function
from oneproj.problem.terms import Constraint

BAND_POWER = 0.75
"""A set without interior is eps^0.75 thick, relatively: 2e-12 in float64, 7e-6 in
float32. That is far above the rounding of its members, and far below what matters."""


class AbstractSet(ABC):
    """A closed set with a projection in closed form.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> oneproj.sets.Ball(1.0).on(w).value()
        4.0
        >>> oneproj.sets.Ball(1.0, center=[3.0, 3.0]), oneproj.sets.Box(lower=0.0)
        (Ball(radius=1, center of shape (2,)), Box(lower=0, upper=inf))
    """

    convex: bool
    """Whether the set, and with it the signed distance to it, is convex."""

    def __repr__(self) -> str:
        """The class with its public attributes, of tensors the shape."""
        parts = []
        for name, value in vars(self).items():
            if value is None or name.startswith("_"):
                continue
            number = (
                value.item() if isinstance(value, Tensor) and not value.dim() else value
            )
            if isinstance(number, Tensor):
                parts.append(f"{name} of shape {tuple(number.shape)}")
            elif isinstance(number, float):
                parts.append(f"{name}={number:g}")
            else:
                parts.append(f"{name}={number!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def on(self, tensor: Tensor) -> SetConstraint:
        """Require that ``tensor``, a parameter, lies in this set."""
        given = type(tensor).__name__
        if isinstance(tensor, Tensor):
            given = "" if tensor.is_leaf else "the result of a computation"
            given = given if tensor.is_floating_point() else f"dtype {tensor.dtype}"
        if given:
            message = (
                "A set constrains a parameter itself, a leaf tensor of real numbers, "
                f"but got {given}. Pass set.on(model.weight); of a slice or a product "
                "constrain an oneproj.function of the set's residual. Bounds on some "
                "entries are a Box with infinite bounds on the others."
            )
            raise InvalidProblemError(message)
        self.check_shape(tensor)
        return SetConstraint(self.rounded_to(tensor.dtype), tensor)

    def rounded_to(self, dtype: torch.dtype) -> Self:
        """This set for tensors of a dtype; most sets need no change."""
        del dtype
        return self

    def bare(self) -> Self:
        """This set without its tolerance, if it has one."""
        return self

    def depth(self, x: Tensor) -> float:
        """How deep inside the set a point near P(x) can be; limits the margin."""
        del x
        return math.inf

    @abstractmethod
    def check_shape(self, tensor: Tensor) -> None:
        """Refuse a tensor whose shape does not fit this set."""

    @abstractmethod
    def residual(self, x: Tensor) -> Tensor:
        """The signed distance to the boundary, differentiable; <= 0 on the set."""

    @abstractmethod
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """The nearest point, aimed ``margin`` inside against the rounding that follows.

        A set whose nearest point stays a member when it is rounded ignores the margin.

        Raises:
            InvalidProblemError: An entry of x is NaN or infinite.
        """


class SetConstraint(Constraint):
    """The constraint ``tensor in set``; made by ``AbstractSet.on``.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> constraint = oneproj.sets.Ball(1.0).on(w)
        >>> constraint.tensor is w, constraint.members.radius
        (True, 1.0)
        >>> constraint
        tensor of shape (2,) in Ball(radius=1)
    """

    always_float64 = True

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

    def __repr__(self) -> str:
        return f"tensor of shape {tuple(self.tensor.shape)} in {self.members!r}"


class AbstractDistanceSet(AbstractSet):
    """A set defined by ``_measure`` and ``_nearest``, both in float64."""

    def residual(self, x: Tensor) -> Tensor:
        """The signed distance to the boundary, differentiable; <= 0 on the set."""
        if not bool(torch.isfinite(x).all()):
            return (x * math.nan).sum()
        members = self._for(x)
        with torch.no_grad():
            value, normal = members._measure(x.detach().double())  # noqa: SLF001
        # x - x.detach() is 0: it leaves the value and adds the gradient.
        return value.to(x) + (normal.to(x) * (x - x.detach())).sum()

    @torch.no_grad()
    def project(self, x: Tensor, *, margin: float = 0.0) -> Tensor:
        """The nearest point, aimed ``margin`` inside against the rounding that follows.

        Computed in float64 and rounded to the dtype of x once, at the end.
        """
        x = x.detach()
        check_finite(self, x)
        wide = x.double()
        nearest = self._for(x)._nearest(wide, margin)  # noqa: SLF001
        return x if nearest is wide else nearest.to(x)

    def _for(self, x: Tensor) -> Self:
        self.check_shape(x)
        return self.rounded_to(x.dtype)

    @abstractmethod
    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The signed distance at x and its gradient, of norm 1 outside."""

    @abstractmethod
    def _nearest(self, x: Tensor, margin: float) -> Tensor:
        """The nearest point, or x itself if it is a member by the margin."""


class AbstractThinSet(AbstractDistanceSet):
    """A set without interior, thickened to a band so that membership is decidable.

    Hardly any point of such a set is a floating-point number. Its members are therefore
    the points within a relative tolerance of it, which is part of the set: by default
    eps^0.75 of the tensor's dtype. Projections aim at the middle of the band, the exact
    set, and need no margin.
    """

    tolerance: float | None
    """The relative thickness; None until the dtype is known."""

    def __init__(self, tolerance: float | None) -> None:
        """Refuse a band that nothing fits into, or that is as wide as the set."""
        if tolerance is not None and not (is_number(tolerance) and 0 < tolerance < 1):
            message = (
                f"The tolerance must be a number > 0 and < 1, got {tolerance!r}. It is "
                "the relative thickness of a set without interior, and with 0 hardly "
                "any floating-point number is a member; None fits it to the dtype."
            )
            raise InvalidProblemError(message)
        self.tolerance = None if tolerance is None else float(tolerance)

    def rounded_to(self, dtype: torch.dtype) -> Self:
        """This set with a tolerance."""
        if self.tolerance is not None:
            return self
        thick = copy.copy(self)
        thick.tolerance = torch.finfo(dtype).eps ** BAND_POWER
        return thick

    def bare(self) -> Self:
        """This set with the least tolerance that float64 can resolve."""
        thin = copy.copy(self)
        thin.tolerance = None
        return thin.rounded_to(torch.float64)

    @torch.no_grad()
    def depth(self, x: Tensor) -> float:
        """Half the thickness of the band, near P(x)."""
        return self._for(x)._half_thickness(x.detach().double())  # noqa: SLF001

    def _half_thickness(self, x: Tensor) -> float:
        """How far from the exact set members near P(x) may be."""
        return self._band * float(length(self._nearest(x, 0.0)))

    @property
    def _band(self) -> float:
        return self.rounded_to(torch.float64).tolerance or 0.0


def check_finite(members: AbstractSet, x: Tensor) -> None:
    """Refuse a point with NaN or infinite entries: it has no nearest point.

    Example:
        >>> import oneproj
        >>> check_finite(oneproj.sets.Ball(1.0), torch.tensor([3.0, 4.0]))
    """
    wrong = x.numel() - int(torch.isfinite(x).sum())
    if wrong:
        message = (
            f"{members!r} cannot project a point with NaN or infinite entries, and "
            f"{wrong} of the {x.numel()} given are: it has no nearest point. Look for "
            "where they come from, such as a learning rate that is too large, or "
            "replace them first: torch.nan_to_num(x)."
        )
        raise InvalidProblemError(message)


def check_same_shape(what: str, part: Tensor, tensor: Tensor) -> None:
    """Refuse a parameter shaped unlike a part of its set.

    Example:
        >>> check_same_shape("ball's center", torch.zeros(2), torch.ones(2))
    """
    if part.shape != tensor.shape:
        message = (
            f"The {what} has shape {tuple(part.shape)}, the parameter "
            f"{tuple(tensor.shape)}; they must agree."
        )
        raise InvalidProblemError(message)


def check_radius(what: str, radius: float) -> float:
    """Refuse a radius that is not a finite number > 0.

    Example:
        >>> check_radius("a ball", 2)
        2.0
    """
    why = "A radius of 0 leaves one point: freeze the parameter there instead."
    return check_number(f"The radius of {what}", radius, why)


def length(v: Tensor) -> Tensor:
    """The Euclidean norm, also of entries whose squares overflow or underflow.

    The entries are scaled by a power of 2, which is exact. Differentiable; at 0, where
    the norm is not, its gradient is 0.

    Example:
        >>> length(torch.tensor([3e-200, 4e-200], dtype=torch.float64)).item()
        5e-200
        >>> f"{length(torch.tensor([3e200, 4e200], dtype=torch.float64)).item():.6g}"
        '5e+200'
    """
    largest = float(v.detach().abs().max()) if v.numel() else 0.0
    unit = 1.0
    if 0 < largest < math.inf:
        unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)  # in (largest / 2, largest]
    scaled: Tensor = unit * torch.linalg.vector_norm(v / unit)
    return scaled


def directed(v: Tensor) -> tuple[Tensor, Tensor]:
    """The length of a vector and its direction, which is 0 for the vector 0.

    Example:
        >>> size, unit = directed(torch.tensor([0.0, -2.0]))
        >>> size.item(), unit.tolist()
        (2.0, [0.0, -1.0])
    """
    size = length(v)
    return size, v / size if size > 0 else torch.zeros_like(v)
