"""Sets that compute their signed distance and its unit normal side by side.

Differentiating ``|x - P(x)|`` would lose the direction of the normal near the boundary,
where the two are nearly equal. Each set here knows ``x - P(x)`` in a form without that
cancellation, and hands over the normal instead of leaving it to autograd.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from typing import Self

import torch
from torch import Tensor

from oneproj.arguments import check_number, is_number
from oneproj.errors import InvalidProblemError
from oneproj.sets.base import AbstractSet, check_finite

BAND_POWER = 0.75
"""A set without interior is eps^0.75 thick, relatively: 2e-12 in float64, 7e-6 in
float32. That is far above the rounding of its members, and far below what matters."""


class AbstractDistanceSet(AbstractSet):
    """A set in terms of ``_measure`` and ``_nearest``, both in float64."""

    def residual(self, x: Tensor) -> Tensor:
        """The signed distance to the boundary, differentiable; <= 0 on the set."""
        if not bool(torch.isfinite(x).all()):
            return (x * math.nan).sum()
        members = self._for(x)
        with torch.no_grad():
            value, normal = members._measure(x.detach().double())  # noqa: SLF001
        # x - x.detach() is 0: the value stays what it is and gets its gradient.
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

    def rounded_to(self, dtype: torch.dtype) -> Self:
        """This set: aiming a margin inside is all that rounding needs."""
        del dtype
        return self

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

    def rounded_to(self, dtype: torch.dtype) -> Self:
        """This set with a tolerance."""
        if self.tolerance is not None:
            return self
        thick = copy.copy(self)
        thick.tolerance = torch.finfo(dtype).eps ** BAND_POWER
        return thick

    def bare(self) -> Self:
        """This set as thin as float64 can tell, whatever the tolerance."""
        thin = copy.copy(self)
        thin.tolerance = None
        return thin.rounded_to(torch.float64)

    @torch.no_grad()
    def depth(self, x: Tensor) -> float:
        """Half the thickness of the band, near P(x)."""
        return self._for(x)._half_thickness(x.detach().double())  # noqa: SLF001

    @abstractmethod
    def _half_thickness(self, x: Tensor) -> float:
        """How far from the exact set members near P(x) may lie."""

    @property
    def _band(self) -> float:
        return self.rounded_to(torch.float64).tolerance or 0.0


def check_tolerance(tolerance: float | None) -> float | None:
    """Refuse a band that nothing fits into, or that swallows the scale of its set.

    Example:
        >>> check_tolerance(1e-9), check_tolerance(None)
        (1e-09, None)
    """
    if tolerance is None:
        return None
    if is_number(tolerance) and 0 < tolerance < 1:
        return float(tolerance)
    message = (
        f"The tolerance must be a number between 0 and 1, got {tolerance!r}. It is the "
        "relative thickness of a set without interior; None fits it to the dtype."
    )
    raise InvalidProblemError(message)


def check_radius(what: str, radius: float) -> float:
    """Refuse a radius that leaves nothing, or everything.

    Example:
        >>> check_radius("a ball", 2)
        2.0
    """
    why = "A radius of 0 leaves one point: freeze the parameter there instead."
    return check_number(f"The radius of {what}", radius, why)


def length(v: Tensor) -> Tensor:
    """The Euclidean norm, also of entries whose squares overflow or underflow.

    The entries are scaled by a power of 2, which is exact. Differentiable but at 0,
    where its gradient is 0.

    Example:
        >>> length(torch.tensor([3e-200, 4e-200], dtype=torch.float64)).item()
        5e-200
        >>> f"{length(torch.tensor([3e200, 4e200], dtype=torch.float64)).item():.6g}"
        '5e+200'
    """
    largest = float(v.detach().abs().max()) if v.numel() else 0.0
    if not 0 < largest < math.inf:
        plain: Tensor = torch.linalg.vector_norm(v)
        return plain
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
