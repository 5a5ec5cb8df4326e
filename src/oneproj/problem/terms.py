"""Terms: scalar quantities of the parameters, their sums, and constraints on them.

A term knows its value on all data, the gradient of that value, and its value on a
minibatch. ``functions`` has the kinds that users write: ``mean``, ``largest`` and
``function``. All are expressions: ``risk_a - risk_b`` and ``loss + 0.01 * size`` are
expressions too, and an expression compared with a number or another expression is a
constraint.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, NoReturn, Self

import torch
from torch import Tensor

from oneproj.arguments import as_number
from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.problem.data import Source
from oneproj.problem.modes import evaluating_when_called
from oneproj.vectors.arithmetic import Vector, is_finite

Curvature = Literal["convex", "concave", "linear"]
MIRRORED: dict[Curvature | None, Curvature | None] = {
    "convex": "concave",
    "concave": "convex",
}
"""The curvature of minus a term; others do not change."""


class FullPass(NamedTuple):
    """The value on all data, with the value of each example."""

    value: float
    gradient: list[Tensor] | None
    """None if no parameters were given."""
    each: Tensor | None
    """The value of each example; ``value`` is their mean. None for a term without data,
    or if they were not asked for."""

    def examples(self, indices: Tensor) -> Tensor:
        """The values of these examples; of a term without data, its value."""
        if self.each is None:
            return torch.tensor(self.value, dtype=torch.float64, device="cpu")
        return self.each[indices]


class AbstractTerm(ABC):
    """A scalar quantity of the parameters, evaluated on all data or on a minibatch."""

    name: str = "term"
    """Its name in messages, residuals and certificates; ``Problem`` sets it."""

    curvature: Curvature | None = None
    """Its declared shape as a function of the parameters; None if unknown."""

    size: int | None = None
    """The number of examples; None for a term without data."""

    tabular: bool = True
    """Whether every example is a row of numbers in memory, so that taking many costs
    little more than taking few. False for images, sequences and items of a
    ``Dataset``."""

    chunk_size: int | None = None
    """Examples that one forward pass of a full evaluation sees; None for any number."""

    always_float64: bool = False
    """Whether its value is computed in float64 whatever the parameters' dtype is."""

    model: torch.nn.Module | None = None
    """Put into evaluation mode for evaluations on all data; ``Problem`` sets it."""

    copied_from: AbstractTerm | None = None
    """The term that the user made, if this is a copy with another name or model."""

    @property
    def original(self) -> AbstractTerm:
        """The term that the user made: itself, unless it is a copy."""
        return self if self.copied_from is None else self.copied_from

    def named(self, name: str, model: torch.nn.Module | None = None) -> Self:
        """A copy with another name, and with another model unless that is None."""
        renamed = copy.copy(self)
        renamed.name, renamed.copied_from = name, self.original
        renamed.model = self.model if model is None else model
        return renamed

    def read_rows(self) -> tuple[tuple[Source, Tensor | None], ...]:
        """The data that it reads, each with the rows that count; None for all."""
        return ()

    def precision(self) -> torch.dtype | None:
        """The dtype of the values computed last; None if unknown.

        It may be less precise than that of the parameters.
        """
        return None

    def scale(self) -> float:
        """The size of the numbers whose difference the last value was."""
        return 0.0

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        """Indices of a random minibatch, uniform with replacement; None without data.

        With replacement the estimate is unbiased for every batch size and the cost
        does not depend on the size of the data set.
        """
        if self.size is None:
            return None
        shape = (batch_size,)
        return torch.randint(self.size, shape, generator=generator, device="cpu")

    @abstractmethod
    def batch_value(self, indices: Tensor | None) -> Tensor:
        """The differentiable value on a minibatch; on all data if indices is None."""

    def examples(self, indices: Tensor) -> Tensor:
        """The differentiable value of each example, whose mean is ``batch_value``.

        A term without data repeats its value for each.
        """
        return self.batch_value(indices).expand(len(indices))

    @abstractmethod
    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        """The value on all data, in a fixed order, accumulated in float64, in one pass.

        Args:
            parameters: Whose gradient to compute; None for no gradient.
            each: Whether to keep the value of each example.
        """

    @property
    def has_data(self) -> bool:
        """Whether an evaluation goes through data, which is counted as a pass."""
        return self.size is not None

    def value(self) -> float:
        """The value on all data, in a fixed order, accumulated in float64.

        It is that of evaluation mode, also where the model is in training mode: dropout
        is off, and no batch norm updates its statistics.
        """
        with evaluating_when_called(enabled=self.copied_from is None):
            return self.full_pass(None, each=False).value

    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        """The value on all data and its gradient, from one pass."""
        found = self.full_pass(parameters, each=False)
        return found.value, found.gradient or []

    def check_finite(self, value: float, gradient: Vector = ()) -> None:
        """Raise if the value or the gradient is NaN or inf, with this term's name."""
        if not math.isfinite(value):
            quantity = f"the value of {self.name!r}"
            raise NonFiniteError(quantity)
        if not is_finite(gradient):
            quantity = f"the gradient of {self.name!r}"
            raise NonFiniteError(quantity)


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
        number = as_number(bound)
        if number is None:
            message = (
                "A constraint's bound must be a finite number or another term, got "
                f"{bound!r}. To leave one side open, leave the constraint out; one "
                "that moves is a term, oneproj.function(lambda: bound)."
            )
            raise InvalidProblemError(message)
        self.term, self.bound, self.sense = term, number, sense
        self.size, self.tabular = term.size, term.tabular
        self.chunk_size = term.chunk_size
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

    def named(self, name: str, model: torch.nn.Module | None = None) -> Self:
        renamed = super().named(name, model)
        renamed.term = self.term.named(name, model)
        return renamed

    @property
    def has_data(self) -> bool:
        return self.term.has_data

    def read_rows(self) -> tuple[tuple[Source, Tensor | None], ...]:
        return self.term.read_rows()

    def precision(self) -> torch.dtype | None:
        return self.term.precision()

    def scale(self) -> float:
        return abs(self.bound) + self.term.scale()

    def batch_value(self, indices: Tensor | None) -> Tensor:
        return self._excess(self.term.batch_value(indices))

    def examples(self, indices: Tensor) -> Tensor:
        return self._excess(self.term.examples(indices))

    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        value, gradient, values = self.term.full_pass(parameters, each=each)
        if self.sense < 0 and gradient is not None:
            torch._foreach_neg_(gradient)
        values = None if values is None else self._excess(values)
        return FullPass(self.sense * (value - self.bound), gradient, values)

    def _excess(self, value: Tensor) -> Tensor:
        # One operation where sense * (value - bound) takes two; the bits are the same.
        return value - self.bound if self.sense > 0 else self.bound - value


class AbstractExpression(AbstractTerm):
    """A term that can be added, scaled, and compared to make a constraint."""

    __array_ufunc__ = None  # NumPy then leaves number * term to this class
    limits: tuple[float, float] = (-math.inf, math.inf)
    """The least and the largest value that it can have, whatever the parameters are."""

    def __le__(self, bound: float | AbstractExpression) -> Constraint:
        """Require ``term <= bound``."""
        return _compare(self, bound, sense=1)

    def __ge__(self, bound: float | AbstractExpression) -> Constraint:
        """Require ``term >= bound``."""
        return _compare(self, bound, sense=-1)

    def __bool__(self) -> NoReturn:
        """Refuse: a term is not a number, and ``if term`` would always be taken."""
        message = (
            "A term has no truth value: it is a quantity of the parameters, not a "
            "number. Compare its value now, `term.value() <= 0.3`; two constraints are "
            "two entries of the dict that oneproj.Problem takes."
        )
        raise InvalidProblemError(message)

    def __lt__(self, bound: float | AbstractExpression) -> Constraint:
        """Refuse: a strict inequality has no nearest point."""
        message = (
            f"A strict comparison with {bound!r} makes no constraint: its set has no "
            "nearest points. Use <= or >=, with a margin in the bound if need be. "
            "max(a, b) <= c is two constraints, each with its name."
        )
        raise InvalidProblemError(message)

    __gt__ = __lt__

    def __add__(self, other: float | AbstractExpression) -> Combination:
        """The sum with another expression, or with a number."""
        mine, theirs = _combination(self), _combination(other)
        return Combination(mine.terms + theirs.terms, mine.constant + theirs.constant)

    __radd__ = __add__

    def __sub__(self, other: float | AbstractExpression) -> Combination:
        """The difference to another expression, or to a number."""
        return self + -1.0 * _combination(other)

    def __rsub__(self, other: float) -> Combination:
        """A number minus this expression."""
        return -1.0 * self + other

    def __neg__(self) -> Combination:
        """Minus this expression."""
        return -1.0 * self

    def __mul__(self, factor: float) -> Combination:
        """This expression times a number."""
        number, mine = _as_factor(factor), _combination(self)
        terms = tuple(Weighted(number * a, term) for a, term in mine.terms)
        return Combination(terms, number * mine.constant)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Combination:
        """This expression divided by a number."""
        return self * (1.0 / _as_factor(divisor))

    def __abs__(self) -> NoReturn:
        """Refuse: its projection is that of two constraints."""
        message = (
            "The absolute value of a term is bounded by two constraints, each with "
            'its name: {"from above": gap <= 0.05, "from below": gap >= -0.05}.'
        )
        raise InvalidProblemError(message)


class Weighted(NamedTuple):
    """A part of a combination: a factor, and the term that it multiplies."""

    factor: float
    term: AbstractExpression


class Combination(AbstractExpression):
    """``sum_k a_k t_k + b`` of terms ``t_k``; written with ``+``, ``-``, ``*``, ``/``.

    On all data every term has its own pass. A minibatch has equally many examples of
    each: with N the size of the largest data set, example i of the combination uses
    example ``i n_k // N`` of the k-th, so each of those is used ``N / n_k`` times,
    rounded up or down. A weight corrects for the rounding, so that the mean over all N,
    and the expected mean over a minibatch, are exactly the combination of the means.

    Example:
        >>> import oneproj
        >>> w = torch.tensor(2.0, requires_grad=True)
        >>> large, small = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 3.0])
        >>> a, b = (oneproj.mean(lambda x: w * x, data) for data in (large, small))
        >>> gap = a - b / 2
        >>> gap
        mean over 3 examples - 0.5 * mean over 2 examples
        >>> gap.value(), gap.batch_value(torch.arange(3)).item()
        (4.0, 4.0)
        >>> (gap <= 1.0).value(), (a <= b).value()
        (3.0, 2.0)
    """

    def __init__(self, terms: tuple[Weighted, ...], constant: float) -> None:
        """Keep the factors, the terms and the constant b."""
        self.terms, self.constant = terms, constant
        self.size = max((t.size for _, t in terms if t.size is not None), default=None)
        self.tabular = all(term.tabular for _, term in terms)
        chunks = [t.chunk_size for _, t in terms if t.chunk_size is not None]
        self.chunk_size = min(chunks, default=None)
        self._scale = abs(constant)
        ends = [sorted((a * t.limits[0], a * t.limits[1])) for a, t in terms if a != 0]
        self.limits = (
            constant + sum(low for low, _ in ends),
            constant + sum(high for _, high in ends),
        )
        shapes = {
            t.curvature if a > 0 else MIRRORED.get(t.curvature, t.curvature)
            for a, t in terms
            if a != 0
        }
        curved = shapes - {"linear"}
        if len(curved) <= 1:
            self.curvature = curved.pop() if curved else "linear"

    def __repr__(self) -> str:
        """The factors, terms and constant, each with its sign, as the user wrote it."""
        parts = [
            (a, f"{'' if abs(a) == 1 else f'{abs(a):g} * '}{term!r}")
            for a, term in self.terms
        ]
        if self.constant or not parts:
            parts.append((self.constant, f"{abs(self.constant):g}"))
        (a, first), *others = parts
        written = [f"-{first}" if a < 0 else first]
        written += [f"{'-' if a < 0 else '+'} {part}" for a, part in others]
        return " ".join(written)

    def named(self, name: str, model: torch.nn.Module | None = None) -> Self:
        renamed = super().named(name, model)
        renamed.terms = tuple(Weighted(a, t.named(name, model)) for a, t in self.terms)
        return renamed

    @property
    def has_data(self) -> bool:
        return any(term.has_data for _, term in self.terms)

    def read_rows(self) -> tuple[tuple[Source, Tensor | None], ...]:
        return tuple(rows for _, term in self.terms for rows in term.read_rows())

    def precision(self) -> torch.dtype | None:
        known = [term.precision() for _, term in self.terms]
        floats = [dtype for dtype in known if dtype is not None]
        return max(floats, key=lambda dtype: torch.finfo(dtype).eps, default=None)

    def scale(self) -> float:
        return self._scale

    def batch_value(self, indices: Tensor | None) -> Tensor:
        if indices is not None:
            return self.examples(indices).mean()
        return self._weigh([term.batch_value(None) for _, term in self.terms])

    def examples(self, indices: Tensor) -> Tensor:
        return self._weigh(
            [self._share(term, indices, term.examples) for _, term in self.terms]
        )

    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        found = [term.full_pass(parameters, each=each) for _, term in self.terms]
        scaled = [a * one.value for (a, _), one in zip(self.terms, found, strict=True)]
        self._scale = abs(self.constant) + sum(map(abs, scaled))
        value = sum(scaled) + self.constant
        self.check_finite(value)
        gradient = None
        gradients = [one.gradient for one in found if one.gradient is not None]
        if gradients:
            gradient = gradients[0]
            torch._foreach_mul_(gradient, self.terms[0].factor)
            for (a, _), slope in zip(self.terms[1:], gradients[1:], strict=True):
                torch._foreach_add_(gradient, slope, alpha=a)
            self.check_finite(0.0, gradient)
        if self.size is None or not each:
            return FullPass(value, gradient, None)
        all_indices = torch.arange(self.size, device="cpu")
        shares = [
            self._share(term, all_indices, one.examples)
            for (_, term), one in zip(self.terms, found, strict=True)
        ]
        return FullPass(value, gradient, self._weigh(shares))

    def _share(
        self,
        term: AbstractExpression,
        indices: Tensor,
        examples: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """What a term contributes to these examples of the combination."""
        n, total = term.size, self.size
        if n is None or total is None or n == total:
            return examples(indices)
        own = indices * n // total
        values = examples(own)
        # Rounded up: the examples of the combination that use one below own, or own.
        first, after = -(-(own * total) // n), -(-((own + 1) * total) // n)
        return values * (total / n / (after - first).double()).to(values)

    def _weigh(self, values: Sequence[Tensor]) -> Tensor:
        parts = [a * value for (a, _), value in zip(self.terms, values, strict=True)]
        total: Tensor = sum(parts[1:], parts[0])
        return total + self.constant if self.constant else total


def _combination(given: object) -> Combination:
    """An expression or a number, as a combination."""
    if isinstance(given, Combination):
        return given
    if isinstance(given, AbstractExpression):
        return Combination((Weighted(1.0, given),), 0.0)
    number = as_number(given)
    if number is not None:
        return Combination((), number)
    message = (
        "A term can be added to a term or to a finite number, but got "
        f"{given!r}. A constraint is made last: (a - b) <= bound."
    )
    raise InvalidProblemError(message)


def _as_factor(given: object) -> float:
    number = as_number(given)
    if number is None:
        message = (
            "A term can be multiplied or divided by a finite number, but got "
            f"{given!r}. A ratio of terms is bounded without dividing, a / b <= r as "
            "a - r * b <= 0 where b > 0; others are oneproj.function."
        )
        raise InvalidProblemError(message)
    return number


def _compare(
    mine: AbstractExpression, bound: float | AbstractExpression, *, sense: int
) -> Constraint:
    if isinstance(bound, AbstractExpression):
        return Constraint(mine - bound, 0.0, sense=sense)
    low, high = mine.limits
    number = as_number(bound)
    if number is not None and not low <= number <= high:
        message = (
            f"{mine!r} is between {low:g} and {high:g}, but its bound is {number:g}: "
            "it would hold always, or never. Give a bound in between: 5 % is 0.05."
        )
        raise InvalidProblemError(message)
    return Constraint(mine, bound, sense=sense)


def mark_trained(terms: Iterable[AbstractTerm]) -> None:
    """Mark the data of terms as trained on, so that ``confirm`` can refuse it.

    Example:
        >>> import oneproj
        >>> risk = oneproj.mean(lambda x: x, data=torch.ones(2))
        >>> mark_trained([risk <= 1.0])
        >>> [source.trained_on for source, _ in risk.read_rows()]
        [True]
    """
    for term in terms:
        for source, _ in term.read_rows():
            source.trained_on = True
