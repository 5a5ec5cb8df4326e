"""What is written with terms: sums and multiples of them, and comparisons.

``risk_a - risk_b <= 0.05`` and ``loss + 0.01 * size`` mean what they say. An expression
is compared with a number, or with another expression, to make a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, Self

import torch
from torch import Tensor

from oneproj.arguments import as_number
from oneproj.errors import InvalidProblemError
from oneproj.problem.terms import MIRRORED, AbstractTerm, Constraint, Curvature, Survey
from oneproj.vectors.arithmetic import Vector


class AbstractExpression(AbstractTerm):
    """A term that can be added, scaled, and compared to make a constraint."""

    __array_ufunc__ = None  # a NumPy number on the left leaves the work to this class

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
            "number, so `if term`, `not term` and `a and b` mean nothing. Compare its "
            "value now, `term.value() <= 0.3`; two constraints are two entries of the "
            "dict that oneproj.Problem takes."
        )
        raise InvalidProblemError(message)

    def __lt__(self, bound: float | AbstractExpression) -> Constraint:
        """Refuse: a strict inequality has no nearest point."""
        message = (
            f"A strict comparison with {bound!r} makes no constraint: its set has no "
            "nearest points. Use <= or >=, with a margin in the bound if need be."
        )
        if isinstance(bound, AbstractExpression):
            message += " max(a, b) <= c is two constraints, each with its name."
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
        number = _as_factor(divisor)
        if number != 0:
            return self * (1.0 / number)
        message = "A term cannot be divided by 0: no parameters would give it a value."
        raise InvalidProblemError(message)

    def __rtruediv__(self, _: object) -> NoReturn:
        """Refuse: a ratio is no combination."""
        raise InvalidProblemError(_no_factor(self))

    def __pow__(self, _: object) -> NoReturn:
        """Refuse: a power of a mean is no mean."""
        message = (
            "A power of a term cannot be estimated on minibatches. If the term is >= "
            "0, bound it by the root of the bound: risk <= 0.3 for risk ** 2 <= 0.09. "
            "If it needs no data, take the power inside oneproj.function."
        )
        raise InvalidProblemError(message)

    def __abs__(self) -> NoReturn:
        """Refuse: its projection is that of two constraints."""
        message = (
            "The absolute value of a term is bounded by two constraints, each with "
            'its name: {"from above": gap <= 0.05, "from below": gap >= -0.05}.'
        )
        raise InvalidProblemError(message)


class Weighted(NamedTuple):
    """A part of a combination: a factor, and what it multiplies."""

    factor: float
    term: AbstractExpression


class Combination(AbstractExpression):
    """``sum_k a_k t_k + b`` of terms ``t_k``; written with ``+``, ``-``, ``*``, ``/``.

    On all data every term has its own pass. A minibatch has as many examples of each:
    with N the size of the largest data set, example i of the combination is made of
    example ``i n_k // N`` of the k-th, which is then met ``N / n_k`` times, rounded up
    or down. A weight makes up for the rounding, so that the mean over all N, and the
    expected mean over a minibatch, are exactly the combination of the means.

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
        self.curvature = _shape(terms)
        self._scale = abs(constant)

    def __repr__(self) -> str:
        """As it is written: factors, terms and the constant, each with its sign."""
        factors = [(a, f"{abs(a):g} * ", term) for a, term in self.terms]
        parts = [(a, f"{'' if abs(a) == 1 else by}{term!r}") for a, by, term in factors]
        if self.constant or not parts:
            parts.append((self.constant, f"{abs(self.constant):g}"))
        (a, first), *others = parts
        written = [f"-{first}" if a < 0 else first]
        written += [f"{'-' if a < 0 else '+'} {part}" for a, part in others]
        return " ".join(written)

    def named(self, name: str) -> Self:
        renamed = super().named(name)
        renamed.terms = tuple(Weighted(a, t.named(name)) for a, t in self.terms)
        return renamed

    def judged_by(self, model: torch.nn.Module | None) -> Self:
        judged = super().judged_by(model)
        judged.terms = tuple(Weighted(a, t.judged_by(model)) for a, t in self.terms)
        return judged

    def precision(self) -> torch.dtype | None:
        known = [term.precision() for _, term in self.terms]
        floats = [dtype for dtype in known if dtype is not None]
        return max(floats, key=lambda dtype: torch.finfo(dtype).eps, default=None)

    def scale(self) -> float:
        return self._scale

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        if self.size is None:
            return None
        return torch.randint(
            self.size, (batch_size,), generator=generator, device="cpu"
        )

    def batch_value(self, indices: Tensor | None) -> Tensor:
        if indices is not None:
            return self.examples(indices).mean()
        return self._weigh([term.batch_value(None) for _, term in self.terms])

    def examples(self, indices: Tensor) -> Tensor:
        return self._weigh(
            [self._meet(term, indices, term.examples) for _, term in self.terms]
        )

    def value(self) -> float:
        return self._total([term.value() for _, term in self.terms])

    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        found = [term.value_and_gradient(parameters) for _, term in self.terms]
        return self._total([v for v, _ in found]), self._slope([g for _, g in found])

    def survey(self, parameters: Vector | None) -> Survey:
        found = [term.survey(parameters) for _, term in self.terms]
        value = self._total([seen.value for seen in found])
        slopes = [seen.gradient for seen in found if seen.gradient is not None]
        gradient = None if parameters is None else self._slope(slopes)
        if self.size is None:
            return Survey(value, gradient, None)
        everyone = torch.arange(self.size, device="cpu")
        each = [
            self._meet(term, everyone, seen.examples)
            for (_, term), seen in zip(self.terms, found, strict=True)
        ]
        return Survey(value, gradient, self._weigh(each))

    def _meet(
        self,
        term: AbstractExpression,
        indices: Tensor,
        examples: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The values of the examples of a part that belong to those of the whole."""
        n, total = term.size, self.size
        if n is None or total is None or n == total:
            return examples(indices)
        own = indices * n // total
        values = examples(own)
        met = _ceil_ratio((own + 1) * total, n) - _ceil_ratio(own * total, n)
        return values * (total / n / met.double()).to(values)

    def _weigh(self, values: Sequence[Tensor]) -> Tensor:
        parts = [a * value for (a, _), value in zip(self.terms, values, strict=True)]
        total: Tensor = sum(parts[1:], parts[0])
        return total + self.constant if self.constant else total

    def _total(self, values: Sequence[float]) -> float:
        parts = [a * value for (a, _), value in zip(self.terms, values, strict=True)]
        self._scale = abs(self.constant) + sum(map(abs, parts))
        total = sum(parts) + self.constant
        self.check_finite(total)
        return total

    def _slope(self, gradients: Sequence[list[Tensor]]) -> list[Tensor]:
        """The combination of the parts' gradients, which it changes."""
        total = gradients[0]
        torch._foreach_mul_(total, self.terms[0].factor)
        for (a, _), gradient in zip(self.terms[1:], gradients[1:], strict=True):
            torch._foreach_add_(total, gradient, alpha=a)
        self.check_finite(0.0, total)
        return total


def _ceil_ratio(numerator: Tensor, denominator: int) -> Tensor:
    return -(-numerator // denominator)


def _shape(terms: Sequence[Weighted]) -> Curvature | None:
    """What a sum is known to be: convex if all of its parts are, or linear, or none."""
    shapes = {
        term.curvature if a > 0 else MIRRORED.get(term.curvature, term.curvature)
        for a, term in terms
        if a != 0
    }
    bent = shapes - {"linear"}
    if not bent:
        return "linear"
    return bent.pop() if len(bent) == 1 else None


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
        raise InvalidProblemError(_no_factor(given))
    return number


def _no_factor(given: object) -> str:
    return (
        f"A term can be multiplied or divided by a finite number, but got {given!r}. "
        "A ratio of terms is bounded without dividing, a / b <= r as a - r * b <= 0 "
        "where b > 0; other functions of several averages are oneproj.function."
    )


def _compare(
    mine: AbstractExpression, bound: float | AbstractExpression, *, sense: int
) -> Constraint:
    if isinstance(bound, AbstractExpression):
        return Constraint(mine - bound, 0.0, sense=sense)
    return Constraint(mine, bound, sense=sense)
