"""A constraint: a term that must not exceed a bound, or not fall below it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, Self

import torch
from torch import Tensor

from oneproj.arguments import as_number
from oneproj.errors import InvalidProblemError
from oneproj.parameters import Vector
from oneproj.terms.base import AbstractTerm, Curvature, Survey

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
