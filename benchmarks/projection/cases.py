"""What a problem of the suite is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oneproj.problem.functions import function
from oneproj.problem.terms import AbstractTerm, Constraint

KEPT_ASIDE = 3
"""Every third seed is kept aside for the final table."""

Pieces = Callable[[Tensor], Tensor]
"""A flat point in float64 to the smooth functions that must all be <= 0 there."""


@dataclass(frozen=True)
class Case:
    """Parameters that hold the start, constraints on them, and what is known."""

    parameters: Sequence[Tensor]
    constraints: Mapping[str, AbstractTerm]
    best: float | None = None
    """The distance to the nearest feasible point in closed form, if there is one."""
    pieces: Pieces | None = None
    """The constraints as smooth functions, for a reference solver."""
    program: Callable[[], float] | None = None
    """Solves the same problem with cvxpy and returns the distance."""
    empty: bool = False
    """Whether no point is feasible."""


@dataclass(frozen=True)
class Instance:
    """One problem of the suite."""

    family: str
    name: str
    seed: int
    make: Callable[[], Case]

    @property
    def key(self) -> str:
        """What a record calls it."""
        return f"{self.family}/{self.name}/{self.seed}"

    @property
    def kept_aside(self) -> bool:
        """Whether it is left for the final table."""
        return self.seed % KEPT_ASIDE == KEPT_ASIDE - 1


def numbers(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    """Normal random numbers in float64.

    Example:
        >>> numbers(0, 2).shape
        torch.Size([2])
    """
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def leaf(start: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """A parameter that holds a start.

    Example:
        >>> leaf(torch.zeros(2)).requires_grad
        True
    """
    return start.detach().clone().to(dtype).requires_grad_()


def below_zero(w: Tensor, f: Callable[[Tensor], Tensor]) -> Constraint:
    """``f(w) <= 0`` without a declared curvature.

    Example:
        >>> below_zero(leaf(torch.ones(2)), torch.sum).value()
        2.0
    """
    return function(lambda: f(w)) <= 0.0


def convex_below(w: Tensor, f: Callable[[Tensor], Tensor], bound: float) -> Constraint:
    """``f(w) <= bound``, declared convex.

    Example:
        >>> convex_below(leaf(torch.ones(2)), torch.sum, 1.0).value()
        1.0
    """
    return function(lambda: f(w), curvature="convex") <= bound
