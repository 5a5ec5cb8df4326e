"""A scalar function of the parameters, as a term without data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from oneproj.autograd import check_real
from oneproj.errors import InvalidProblemError
from oneproj.parameters import Vector
from oneproj.terms.base import Curvature, accumulate, check_curvature
from oneproj.terms.calls import Call
from oneproj.terms.expressions import AbstractExpression
from oneproj.terms.modes import evaluating


class Function(AbstractExpression):
    """A scalar function of the parameters alone; made by ``oneproj.function``."""

    def __init__(
        self, fn: Callable[[], Tensor], curvature: Curvature | None = None
    ) -> None:
        """Keep the function and what is known of it."""
        self._call = Call(fn)
        self.curvature = check_curvature(curvature)

    def __repr__(self) -> str:
        return "function of the parameters"

    def batch_value(self, indices: Tensor | None) -> Tensor:
        del indices  # there is nothing to sample: every evaluation is exact
        value = self._call(self.name)
        if isinstance(value, Tensor) and value.numel() == 1:
            return check_real(self.name, value).reshape(())
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value)
        message = (
            f"The function of {self.name!r} must return a scalar tensor, but returned "
            f"{got}. Use oneproj.mean for a quantity averaged over data."
        )
        raise InvalidProblemError(message)

    @torch.no_grad()
    def value(self) -> float:
        with evaluating(self.model):
            value = float(self.batch_value(None).double())
        self.check_finite(value)
        return value

    @torch.enable_grad()
    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        with evaluating(self.model):
            value = self.batch_value(None)
        gradient = [torch.zeros_like(p) for p in parameters]
        accumulate(gradient, value, parameters)
        self.check_finite(float(value.detach()), gradient)
        return float(value.detach().double()), gradient


def function(
    fn: Callable[[], Tensor], *, curvature: Curvature | None = None
) -> Function:
    """A scalar function of the parameters, evaluated without data.

    Args:
        fn: Returns a scalar tensor.
        curvature: ``"convex"``, ``"concave"`` or ``"linear"`` in the parameters, where
            that is known: a constraint declared convex is projected onto exactly.

    Example:
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> size = function(lambda: w.norm())
        >>> size.value(), (size <= 4.0).value(), (size >= 4.0).value()
        (5.0, 1.0, -1.0)
        >>> size
        function of the parameters
    """
    return Function(fn, curvature)
