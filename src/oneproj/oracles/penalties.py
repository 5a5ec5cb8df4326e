"""Penalties p(c): the weight of each constraint and, for your own loop, the value.

By the chain rule the gradient of ``p(c_1, ..., c_m)`` is ``sum_j w_j grad c_j``. The
weights need the constraint values only, however these were estimated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oneproj.arguments import check_number
from oneproj.errors import InvalidProblemError

Combine = Literal["max", "sum"]


class AbstractPenalty(ABC):
    """A nondecreasing convex function of the constraint values, by its gradient.

    Example:
        >>> import oneproj
        >>> class Linear(oneproj.oracles.AbstractPenalty):
        ...     def weigh(self, values): return [2.0] * len(values)
        >>> Linear().weigh([0.1, -0.3])
        [2.0, 2.0]
    """

    @abstractmethod
    def weigh(self, values: Sequence[float]) -> list[float]:
        """Return the weight of each constraint: a (sub)gradient at these values."""


class UniformPenalty(AbstractPenalty):
    """A function of one number, of the same strength for all constraints.

    It is taken of the largest constraint value (``"max"``), or of each (``"sum"``).
    """

    strength: float
    combine: Combine

    def value(self, c: Tensor) -> Tensor:
        """Return the penalty of the constraint values ``c``, a scalar or a vector."""
        c = c.detach().reshape(-1)
        if c.numel() == 0:
            return c.new_zeros(())
        self._check_range(c.dtype)
        if self.combine == "max":
            return self._value(c.max())
        return self._value(c).sum()

    def weights(self, c: Tensor) -> Tensor:
        """Return the (sub)gradient of ``value`` with respect to ``c``, of its shape.

        Of several constraints that attain the maximum the first gets the weight: the
        gradient of any maximiser is a subgradient of the maximum.
        """
        flat = c.detach().reshape(-1)
        self._check_range(c.dtype)
        if flat.numel() == 0 or self.combine == "sum":
            return self._slope(flat).reshape(c.shape)
        weights = torch.zeros_like(flat)
        worst = int(flat.argmax())
        weights[worst] = self._slope(flat[worst])
        return weights.reshape(c.shape)

    def weigh(self, values: Sequence[float]) -> list[float]:
        """Return the same weights, from plain numbers to plain numbers."""
        weights: list[float] = self.weights(
            torch.tensor(values, dtype=torch.float64, device="cpu")
        ).tolist()
        return weights

    def __call__(self, c: Tensor) -> Tensor:
        """Return the penalty as a differentiable scalar, for your own loop.

        Its value is ``value(c)`` and its gradient is exactly ``weights(c)``.
        """
        if not isinstance(c, Tensor):
            message = (
                f"A penalty takes the constraint values as a tensor, but got a "
                f"{type(c).__name__}, through which no gradient passes. Pass risk - "
                "bound as a tensor, such as losses(batch).mean() - 0.1, torch.stack"
                "([...]) for several; no float() or .item(). Terms, made by "
                "oneproj.mean, are for oneproj.solve."
            )
            raise InvalidProblemError(message)
        # The second term is zero; it carries the gradient.
        return self.value(c) + (self.weights(c) * (c - c.detach())).sum()

    def _check_range(self, dtype: torch.dtype) -> None:
        """Refuse a weight that overflows in the dtype of the constraint values."""
        if not dtype.is_floating_point or self.strength <= torch.finfo(dtype).max:
            return
        message = (
            f"A penalty of strength {self.strength:.3g} overflows in "
            f"{str(dtype).removeprefix('torch.')}, whose largest number is "
            f"{torch.finfo(dtype).max:.5g}: its value or gradient would be infinite or "
            "NaN. Compute the constraint in float32 (c.float()) or bfloat16, or give a "
            "smaller strength."
        )
        raise InvalidProblemError(message)

    @abstractmethod
    def _value(self, u: Tensor) -> Tensor:
        """Return the penalty of each entry."""

    @abstractmethod
    def _slope(self, u: Tensor) -> Tensor:
        """Return the derivative at each entry."""


@dataclass(frozen=True)
class Hinge(UniformPenalty):
    """The exact penalty ``p(u) = strength * max(u, 0)`` of the nonconvex setting.

    Several constraints combine by ``"max"``, the paper's g_max, or by ``"sum"``.

    At ``u = 0`` the weight is 0, the paper's selection (section "Nonconvex Objective
    with a Nonconvex Constraint Set").

    Example:
        >>> penalty = Hinge(5.0)
        >>> penalty.weights(torch.tensor([-1.0, 0.0, 2.0])).tolist()
        [0.0, 0.0, 5.0]
        >>> float(penalty(torch.tensor(2.0)))
        10.0
    """

    strength: float
    combine: Combine = "max"

    def __post_init__(self) -> None:
        """Refuse a strength that cannot penalise."""
        object.__setattr__(self, "strength", _check(self.strength, self.combine))

    def _value(self, u: Tensor) -> Tensor:
        return self.strength * u.clamp(min=0)

    def _slope(self, u: Tensor) -> Tensor:
        return self.strength * (u > 0).to(u.dtype)


@dataclass(frozen=True)
class Hinges(AbstractPenalty):
    """One hinge per constraint, each rounded: ``p(c) = sum_j strengths[j] r_j(c_j)``.

    With w its width, ``r(u)`` is 0 up to -w, u from w on, and ``(u + w)^2 / (4 w)``
    between, at most w/4 above ``max(u, 0)``. Sharp ones (w = 0) are exact where each
    strength exceeds its constraint's multiplier. A rounded one of twice the multiplier
    balances the objective at the bound itself, where its weight is half its strength.
    ``methods.strength`` chooses strengths and widths.

    Example:
        >>> Hinges((5.0, 2.0)).weigh([-1.0, 3.0])
        [0.0, 2.0]
        >>> Hinges((5.0, 2.0), widths=(4.0, 0.0)).weigh([0.0, 3.0])
        [2.5, 2.0]
    """

    strengths: tuple[float, ...]
    widths: tuple[float, ...] | None = None
    """None if all are sharp."""

    def weigh(self, values: Sequence[float]) -> list[float]:
        """Return the weights, without the cost of tensors for a few numbers."""
        hinges = zip(self.strengths, values, self._widths(), strict=True)
        return [strength * _share(c, w) for strength, c, w in hinges]

    def value(self, values: Sequence[float]) -> float:
        """Return the penalty of these values.

        Example:
            >>> Hinges((5.0, 2.0), widths=(4.0, 0.0)).value([0.0, 3.0])
            11.0
        """
        hinges = zip(self.strengths, values, self._widths(), strict=True)
        return sum(strength * _rounded(c, w) for strength, c, w in hinges)

    def _widths(self) -> tuple[float, ...]:
        return self.widths or (0.0,) * len(self.strengths)


def _rounded(c: float, width: float) -> float:
    """A hinge that is rounded between -width and width."""
    if not abs(c) < width:
        return max(c, 0.0)
    return (c + width) ** 2 / (4.0 * width)


def _share(c: float, width: float) -> float:
    """The slope of a hinge that is rounded: from 0 to 1 between -width and width."""
    if not abs(c) < width:  # also where both are zero, or one is no number
        return 1.0 if c > 0 else 0.0
    return 0.5 + 0.5 * (c / width)


@dataclass(frozen=True)
class Softplus(UniformPenalty):
    """The smooth penalty ``gamma log(1 + exp(strength u / gamma))``.

    It is the penalty of eq. convex-penalty; gamma is the ``smoothing``. It lies between
    ``strength [u]_+`` and that plus ``gamma log 2``. The weight is finite for every
    finite argument, and so is the value wherever ``strength * u`` is.

    Example:
        >>> penalty = Softplus(2.0, smoothing=0.5)
        >>> penalty.weights(torch.tensor([0.0, 1e30])).tolist()
        [0.0, 2.0]
        >>> round(float(penalty(torch.tensor(0.0, dtype=torch.float64))), 6)
        0.346574
    """

    strength: float
    smoothing: float
    combine: Combine = "max"

    def __post_init__(self) -> None:
        """Refuse a strength or smoothing that cannot penalise."""
        object.__setattr__(self, "strength", _check(self.strength, self.combine))
        why = "Use oneproj.Hinge for the penalty without smoothing."
        smoothing = check_number("The smoothing", self.smoothing, why)
        object.__setattr__(self, "smoothing", smoothing)

    def _value(self, u: Tensor) -> Tensor:
        # lam [u]_+ + gamma log(1 + exp(-|t|)): no term can overflow into inf * 0.
        t = (self.strength / self.smoothing) * u
        tail = torch.log1p(torch.exp(-t.abs()))
        return self.strength * u.clamp(min=0) + self.smoothing * tail

    def _slope(self, u: Tensor) -> Tensor:
        return self.strength * torch.sigmoid((self.strength / self.smoothing) * u)


def _check(strength: float, combine: str) -> float:
    why = "It has to exceed the constraint's multiplier, and is the same for all."
    strength = check_number("The penalty strength", strength, why)
    if combine not in ("max", "sum"):
        message = (
            f'combine must be "max" (penalise the worst constraint) or "sum" '
            f"(penalise each), got {combine!r}."
        )
        raise InvalidProblemError(message)
    return strength
