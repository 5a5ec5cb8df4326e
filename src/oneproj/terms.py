"""Terms: scalar quantities of the parameters, and the constraints made from them.

A term knows its value on all data, the gradient of that value, and its value on a
minibatch. ``averages.Mean`` is an average over data; a function needs no data.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from oneproj.autograd import check_real, require_autograd
from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.modes import evaluating
from oneproj.parameters import Vector, is_finite

Curvature = Literal["convex", "concave", "linear"]
MIRRORED: dict[Curvature | None, Curvature | None] = {
    "convex": "concave",
    "concave": "convex",
}
"""The shape of minus a term; what is not here stays as it is."""


class Survey(NamedTuple):
    """A look at all data that remembers the examples."""

    value: float
    gradient: list[Tensor] | None
    """None where it was not asked for."""
    each: Tensor | None
    """The value of each example, of which a minibatch has the mean; None for a term
    without data."""


class AbstractTerm(ABC):
    """A scalar quantity of the parameters, seen in full or on a minibatch."""

    name: str = "term"
    """How messages, residuals and certificates call it; ``Problem`` sets it."""

    curvature: Curvature | None = None
    """What is known of its shape as a function of the parameters; None for nothing."""

    size: int | None = None
    """The number of examples behind it; None for a term without data."""

    model: torch.nn.Module | None = None
    """In evaluation mode whenever the term is seen in full; ``Problem`` sets it."""

    def named(self, name: str) -> Self:
        """A copy of this term under another name."""
        renamed = copy.copy(self)
        renamed.name = name
        return renamed

    def judged_by(self, model: torch.nn.Module | None) -> Self:
        """A copy of this term that is seen in full with the model evaluating."""
        judged = copy.copy(self)
        judged.model = model
        return judged

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        """Indices of a random minibatch; None where there is no data to sample."""
        del batch_size, generator
        return None

    @abstractmethod
    def batch_value(self, indices: Tensor | None) -> Tensor:
        """The differentiable value on a minibatch; exact where ``indices`` is None."""

    @abstractmethod
    def value(self) -> float:
        """The value on all data, in a fixed order, accumulated in float64."""

    @abstractmethod
    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        """The value on all data and its gradient, from one pass."""

    def survey(self, parameters: Vector | None) -> Survey:
        """The same, with the value of each example; None asks for no gradient."""
        if parameters is None:
            return Survey(self.value(), None, None)
        return Survey(*self.value_and_gradient(parameters), None)

    def check_finite(self, value: float, gradient: Vector = ()) -> None:
        """Raise if the value or the gradient is NaN or inf, with this term's name."""
        if not math.isfinite(value):
            quantity = f"the value of {self.name!r}"
            raise NonFiniteError(quantity)
        if not is_finite(gradient):
            quantity = f"the gradient of {self.name!r}"
            raise NonFiniteError(quantity)


class AbstractExpression(AbstractTerm):
    """A term that becomes a constraint by comparison with a number."""

    def __le__(self, bound: float) -> Constraint:
        """Require ``term <= bound``."""
        return Constraint(self, bound, sense=1)

    def __ge__(self, bound: float) -> Constraint:
        """Require ``term >= bound``."""
        return Constraint(self, bound, sense=-1)

    def __lt__(self, bound: float) -> Constraint:
        """Refuse: a strict inequality has no nearest point."""
        message = (
            f"A strict comparison with {bound!r} makes no constraint: its set has no "
            "nearest points. Use <= or >=, with a margin in the bound if need be."
        )
        raise InvalidProblemError(message)

    __gt__ = __lt__


class Function(AbstractExpression):
    """A scalar function of the parameters alone; made by ``oneproj.function``."""

    def __init__(
        self, fn: Callable[[], Tensor], curvature: Curvature | None = None
    ) -> None:
        """Keep the function and what is known of it."""
        self._fn = check_callable(fn)
        self.curvature = check_curvature(curvature)

    def batch_value(self, indices: Tensor | None) -> Tensor:
        del indices  # there is nothing to sample: every evaluation is exact
        value: object = self._fn()
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


class Constraint(AbstractTerm):
    """A term that must be <= 0: ``c = sense * (term - bound)``.

    Made by ``term <= bound`` or ``term >= bound``. Its value is its residual.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> at_most = function(lambda: w.sum()) <= 1.5
        >>> at_most.value()
        0.5
    """

    def __init__(self, term: AbstractTerm, bound: float, *, sense: int) -> None:
        """Keep the term, the bound and the direction (+1 for <=, -1 for >=)."""
        self.term, self.bound, self.sense = term, _as_bound(bound), sense
        self.size = term.size
        shape = term.curvature
        self.curvature = shape if sense > 0 else MIRRORED.get(shape, shape)

    def __bool__(self) -> bool:
        """Refuse: a chained comparison would silently lose its first half."""
        message = (
            "A constraint has no truth value. For lower <= term <= upper write two "
            "constraints, each with its name."
        )
        raise InvalidProblemError(message)

    def named(self, name: str) -> Self:
        renamed = super().named(name)
        renamed.term = self.term.named(name)
        return renamed

    def judged_by(self, model: torch.nn.Module | None) -> Self:
        judged = super().judged_by(model)
        judged.term = self.term.judged_by(model)
        return judged

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        return self.term.draw(batch_size, generator)

    def batch_value(self, indices: Tensor | None) -> Tensor:
        return self._excess(self.term.batch_value(indices))

    def value(self) -> float:
        return self.sense * (self.term.value() - self.bound)

    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        value, gradient = self.term.value_and_gradient(parameters)
        if self.sense < 0:
            torch._foreach_neg_(gradient)
        return self.sense * (value - self.bound), gradient

    def survey(self, parameters: Vector | None) -> Survey:
        value, gradient, each = self.term.survey(parameters)
        if self.sense < 0 and gradient is not None:
            torch._foreach_neg_(gradient)
        each = None if each is None else self._excess(each)
        return Survey(self.sense * (value - self.bound), gradient, each)

    def _excess(self, value: Tensor) -> Tensor:
        # One operation where sense * (value - bound) takes two; the bits are the same.
        return value - self.bound if self.sense > 0 else self.bound - value


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
    """
    return Function(fn, curvature)


def check_curvature(curvature: Curvature | None) -> Curvature | None:
    """Refuse a shape that has no meaning here.

    Example:
        >>> check_curvature("convex")
        'convex'
    """
    if curvature in (None, "convex", "concave", "linear"):
        return curvature
    message = (
        'curvature must be "convex", "concave", "linear" or None, got '
        f"{curvature!r}. It declares the shape of the term in the parameters."
    )
    raise InvalidProblemError(message)


def _as_bound(bound: object) -> float:
    number = bound.item() if isinstance(bound, Tensor) and not bound.dim() else bound
    if isinstance(number, Real) and math.isfinite(number):
        return float(number)
    message = (
        f"A constraint's bound must be a finite number, got {bound!r}. To bound a "
        "difference of two terms, write one: oneproj.function of both where the data "
        "is small, or oneproj.mean over all examples with weights=, n/n_A on those of "
        "the first and -n/n_B on those of the second."
    )
    raise InvalidProblemError(message)


def check_callable(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Refuse what cannot be called, before a run tries to.

    Example:
        >>> check_callable(abs) is abs
        True
    """
    if callable(fn):
        return fn
    message = (
        f"A term is made of a function that returns a tensor, but got a "
        f"{type(fn).__name__}. Pass the function: oneproj.mean(losses, data=...)."
    )
    raise InvalidProblemError(message)


def accumulate(gradient: list[Tensor], value: Tensor, parameters: Vector) -> None:
    """Add the gradient of ``value``; a parameter it does not reach contributes 0."""
    if not value.requires_grad:
        require_autograd()  # a gradient that cannot be seen is not zero
        return
    parts = torch.autograd.grad(value, list(parameters), allow_unused=True)
    for total, part in zip(gradient, parts, strict=True):
        if part is not None:
            total.add_(part)
