"""Terms: scalar quantities of the parameters; constraints are terms as well.

A term knows its value on all data, the gradient of that value, and its value on a
minibatch. ``averages.Mean`` is an average over data, ``functions.Function`` needs none;
``expressions`` adds, scales and compares them.

A constraint: a term that must not exceed a bound, or not fall below it.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal, NamedTuple, NoReturn, Self

import torch
from torch import Tensor

from oneproj.arguments import as_number
from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.problem.autograd import require_autograd
from oneproj.vectors.arithmetic import Vector, is_finite

Curvature = Literal["convex", "concave", "linear"]


class Survey(NamedTuple):
    """The value on all data, with the value of each example."""

    value: float
    gradient: list[Tensor] | None
    """None where it was not asked for."""
    each: Tensor | None
    """The value of each example, of which a minibatch has the mean; None for a term
    without data."""

    def examples(self, indices: Tensor) -> Tensor:
        """The values of these examples; of a term without data, its value."""
        if self.each is None:
            return torch.tensor(self.value, dtype=torch.float64, device="cpu")
        return self.each[indices]


class AbstractTerm(ABC):
    """A scalar quantity of the parameters, seen in full or on a minibatch."""

    name: str = "term"
    """How messages, residuals and certificates call it; ``Problem`` sets it."""

    curvature: Curvature | None = None
    """What is known of its shape as a function of the parameters; None for nothing."""

    size: int | None = None
    """The number of examples behind it; None for a term without data."""

    tabular: bool = True
    """Whether every example is a row of numbers in memory: many are as soon taken as
    few, while images, sequences of vectors and items of a ``Dataset`` add up."""

    always_float64: bool = False
    """Whether its value is computed in float64 whatever dtype the parameters have."""

    model: torch.nn.Module | None = None
    """In evaluation mode whenever the term is seen in full; ``Problem`` sets it."""

    copied_from: AbstractTerm | None = None
    """The term as it was made, of which this is a copy with another name or model."""

    @property
    def original(self) -> AbstractTerm:
        """The term as it was made: itself, unless it is a copy."""
        return self if self.copied_from is None else self.copied_from

    def named(self, name: str) -> Self:
        """A copy of this term under another name."""
        renamed = copy.copy(self)
        renamed.name, renamed.copied_from = name, self.original
        return renamed

    def judged_by(self, model: torch.nn.Module | None) -> Self:
        """A copy of this term that is seen in full with the model evaluating."""
        judged = copy.copy(self)
        judged.model, judged.copied_from = model, self.original
        return judged

    def precision(self) -> torch.dtype | None:
        """The dtype that its values were last computed in; None if that is not known.

        It may be less than that of the parameters.
        """
        return None

    def scale(self) -> float:
        """The size of the numbers that its value is the difference of, as last seen."""
        return 0.0

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        """Indices of a random minibatch; None where there is no data to sample."""
        del batch_size, generator
        return None

    @abstractmethod
    def batch_value(self, indices: Tensor | None) -> Tensor:
        """The differentiable value on a minibatch; exact where ``indices`` is None."""

    def examples(self, indices: Tensor) -> Tensor:
        """The differentiable value of each example, whose mean is ``batch_value``.

        A term without data repeats its value for each.
        """
        return self.batch_value(indices).expand(len(indices))

    @abstractmethod
    def value(self) -> float:
        """The value on all data, in a fixed order, accumulated in float64."""

    @abstractmethod
    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        """The value on all data and its gradient, from one pass."""

    def survey(self, parameters: Vector | None) -> Survey:
        """The value on all data with that of each example; a gradient if asked for."""
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


def accumulate(gradient: list[Tensor], value: Tensor, parameters: Vector) -> None:
    """Add the gradient of ``value``; a parameter it does not reach contributes 0."""
    if not value.requires_grad:
        require_autograd()  # a gradient that cannot be seen is not zero
        return
    parts = torch.autograd.grad(value, list(parameters), allow_unused=True)
    for total, part in zip(gradient, parts, strict=True):
        if part is not None:
            total.add_(part)


MIRRORED: dict[Curvature | None, Curvature | None] = {
    "convex": "concave",
    "concave": "convex",
}
"""The shape of minus a term; what is not here stays as it is."""


class Constraint(AbstractTerm):
    """A term that must be <= 0: ``c = sense * (term - bound)``.

    Made by ``term <= bound`` or ``term >= bound``. Its value is its residual.

    Example:
        >>> import oneproj
        >>> w = torch.ones(2, requires_grad=True)
        >>> at_most = oneproj.function(lambda: w.sum()) <= 1.5
        >>> at_most.value()
        0.5
        >>> at_most
        function of the parameters <= 1.5
    """

    def __init__(self, term: AbstractTerm, bound: float, *, sense: int) -> None:
        """Keep the term, the bound and the direction (+1 for <=, -1 for >=)."""
        self.term, self.bound, self.sense = term, _as_bound(bound), sense
        self.size, self.tabular = term.size, term.tabular
        shape = term.curvature
        self.curvature = shape if sense > 0 else MIRRORED.get(shape, shape)

    def __repr__(self) -> str:
        return f"{self.term!r} {'<=' if self.sense > 0 else '>='} {self.bound:g}"

    def __bool__(self) -> bool:
        """Refuse: a chained comparison would silently lose its first half."""
        message = (
            "A constraint has no truth value. For lower <= term <= upper write two "
            "constraints, each with its name; to ask whether it holds now, write "
            "constraint.value() <= 0."
        )
        raise InvalidProblemError(message)

    def __le__(self, bound: object) -> NoReturn:
        """Refuse: it is a comparison already."""
        message = (
            f"A constraint cannot be compared with {bound!r}: it says already what has "
            f"to hold, {self!r}. Compare the term, or choose the size of the set."
        )
        raise InvalidProblemError(message)

    __ge__ = __lt__ = __gt__ = __le__

    def named(self, name: str) -> Self:
        renamed = super().named(name)
        renamed.term = self.term.named(name)
        return renamed

    def judged_by(self, model: torch.nn.Module | None) -> Self:
        judged = super().judged_by(model)
        judged.term = self.term.judged_by(model)
        return judged

    def precision(self) -> torch.dtype | None:
        return self.term.precision()

    def scale(self) -> float:
        return abs(self.bound) + self.term.scale()

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        return self.term.draw(batch_size, generator)

    def batch_value(self, indices: Tensor | None) -> Tensor:
        return self._excess(self.term.batch_value(indices))

    def examples(self, indices: Tensor) -> Tensor:
        return self._excess(self.term.examples(indices))

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


def check_bounds(constraints: Iterable[AbstractTerm]) -> None:
    """Refuse a term that is to be above one number and below a smaller one.

    Example:
        >>> import oneproj
        >>> size = oneproj.function(lambda: torch.ones(1))
        >>> check_bounds([size >= 1.0, size <= 2.0])
    """
    stated = [c for c in constraints if isinstance(c, Constraint)]
    uppers = [c for c in stated if c.sense > 0]
    least: dict[int, Constraint] = {}
    for constraint in sorted(uppers, key=lambda c: c.bound, reverse=True):
        least[id(constraint.term.original)] = constraint
    for lower in (c for c in stated if c.sense < 0):
        upper = least.get(id(lower.term.original))
        if upper is not None and lower.bound > upper.bound:
            message = (
                f"{lower.name!r} and {upper.name!r} contradict each other: one and the "
                f"same term is to be >= {lower.bound:g} and <= {upper.bound:g}. No "
                "point satisfies both."
            )
            raise InvalidProblemError(message)


def _as_bound(bound: object) -> float:
    number = as_number(bound)
    if number is not None:
        return number
    message = (
        f"A constraint's bound must be a finite number or another term, got {bound!r}. "
        "To leave one side open, leave the constraint out; one that moves is a term, "
        "oneproj.function(lambda: bound)."
    )
    raise InvalidProblemError(message)
