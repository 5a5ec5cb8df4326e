"""Terms: scalar quantities of the parameters, and the constraints made from them.

A term is an average over data or a plain function. It knows its value on all data,
the gradient of that value, and its value on a minibatch.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor

from oneproj.batches import AbstractSource, DataLike, as_source
from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.parameters import Vector, is_finite

CHUNK_SIZE = 4096
"""Examples per forward pass of a full evaluation, unless the term says otherwise."""


class AbstractTerm(ABC):
    """A scalar quantity of the parameters, seen in full or on a minibatch."""

    name: str = "term"
    """How messages, residuals and certificates call it; ``Problem`` sets it."""

    size: int | None = None
    """The number of examples behind it; None for a term without data."""

    def named(self, name: str) -> Self:
        """A copy of this term under another name."""
        renamed = copy.copy(self)
        renamed.name = name
        return renamed

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

    def _finite(self, value: float, gradient: Vector = ()) -> None:
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


class Mean(AbstractExpression):
    """The average ``(1/n) sum_i w_i fn(example_i)``; made by ``oneproj.mean``."""

    def __init__(
        self,
        fn: Callable[[Any], Tensor],
        source: AbstractSource,
        weights: Tensor | None,
        chunk_size: int,
    ) -> None:
        """Keep the function and where its examples come from."""
        self.size = source.size
        self._fn = fn
        self._source = source
        self._weights = weights
        self._chunk_size = chunk_size

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        return self._source.draw(batch_size, generator)

    def batch_value(self, indices: Tensor | None) -> Tensor:
        if indices is None:
            indices = torch.arange(self._source.size)
        values = self._check_shape(self._fn(self._source.take(indices)), len(indices))
        if self._weights is not None:
            values = values * self._weights[indices].to(values)
        return values.mean()

    @torch.no_grad()
    def value(self) -> float:
        spans = self._source.spans(self._chunk_size)
        value = self._average([float(self._span_sum(*span)) for span in spans])
        self._finite(value)
        return value

    @torch.enable_grad()
    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        total = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
        sums = []
        for span in self._source.spans(self._chunk_size):
            chunk = self._span_sum(*span)
            sums.append(float(chunk.detach()))
            _accumulate(total, chunk / self._source.size, parameters)
        gradient = [t.to(p.dtype) for t, p in zip(total, parameters, strict=True)]
        value = self._average(sums)
        self._finite(value, gradient)
        return value, gradient

    def _average(self, sums: list[float]) -> float:
        try:
            return math.fsum(sums) / self._source.size
        except (OverflowError, ValueError):  # how fsum says inf, and inf - inf
            return math.nan

    def _span_sum(self, start: int, stop: int) -> Tensor:
        values = self._fn(self._source.span(start, stop))
        values = self._check_shape(values, stop - start).double()
        if self._weights is not None:
            values = values * self._weights[start:stop].to(values)
        return values.sum()

    def _check_shape(self, values: object, count: int) -> Tensor:
        if isinstance(values, Tensor) and values.shape == (count,):
            return values
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values)
        message = (
            f"The function of {self.name!r} must return one value per example, shape "
            f"({count},) for a batch of {count}, but returned {got}. Return "
            'per-example losses (reduction="none", squeeze a trailing dimension): '
            "the library takes the mean itself, so that chunks can be added exactly."
        )
        raise InvalidProblemError(message)


class Function(AbstractExpression):
    """A scalar function of the parameters alone; made by ``oneproj.function``."""

    def __init__(self, fn: Callable[[], Tensor]) -> None:
        """Keep the function."""
        self._fn = fn

    def batch_value(self, indices: Tensor | None) -> Tensor:
        del indices  # there is nothing to sample: every evaluation is exact
        value: object = self._fn()
        if isinstance(value, Tensor) and value.numel() == 1:
            return value.reshape(())
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value)
        message = (
            f"The function of {self.name!r} must return a scalar tensor, but returned "
            f"{got}. Use oneproj.mean for a quantity averaged over data."
        )
        raise InvalidProblemError(message)

    @torch.no_grad()
    def value(self) -> float:
        value = float(self.batch_value(None).double())
        self._finite(value)
        return value

    @torch.enable_grad()
    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        value = self.batch_value(None)
        gradient = [torch.zeros_like(p) for p in parameters]
        _accumulate(gradient, value, parameters)
        self._finite(float(value.detach()), gradient)
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
        if isinstance(bound, Tensor) and bound.numel() == 1:
            bound = bound.item()
        if not (isinstance(bound, Real) and math.isfinite(bound)):
            message = (
                f"A constraint's bound must be a finite number, got {bound!r}. To compare "
                "two terms, make one term of their difference."
            )
            raise InvalidProblemError(message)
        self.term, self.bound, self.sense = term, float(bound), sense
        self.size = term.size

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

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor | None:
        return self.term.draw(batch_size, generator)

    def batch_value(self, indices: Tensor | None) -> Tensor:
        return self.sense * (self.term.batch_value(indices) - self.bound)

    def value(self) -> float:
        return self.sense * (self.term.value() - self.bound)

    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        value, gradient = self.term.value_and_gradient(parameters)
        if self.sense < 0:
            torch._foreach_neg_(gradient)
        return self.sense * (value - self.bound), gradient


def mean(
    fn: Callable[[Any], Tensor],
    data: DataLike,
    *,
    weights: Tensor | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Mean:
    """The average of ``fn`` over a data set: ``(1/n) sum_i w_i fn(example_i)``.

    Args:
        fn: Maps a batch to one value per example, shape ``(batch,)``.
        data: A tensor, a tuple or dict of tensors, a ``Dataset`` or a ``DataLoader``.
        weights: One weight per example, 1 when left out. With ``n/n_A`` on group A
            and ``-n/n_B`` on group B the average is a difference of group means.
        chunk_size: Examples per forward pass of a full evaluation.

    Example:
        >>> x, w = torch.tensor([1.0, 2.0, 6.0]), torch.tensor(2.0, requires_grad=True)
        >>> mean(lambda batch: w * batch, data=x).value()
        6.0
        >>> gap = torch.tensor([3 / 2, 3 / 2, -3.0])     # mean of two minus the third
        >>> mean(lambda batch: w * batch, data=x, weights=gap).value()
        -9.0
    """
    source = as_source(data)
    if chunk_size < 1:
        message = f"chunk_size must be at least 1, got {chunk_size}."
        raise InvalidProblemError(message)
    if weights is not None:
        weights = torch.as_tensor(weights).detach()
        if weights.shape != (source.size,) or not bool(torch.isfinite(weights).all()):
            bad = int((~torch.isfinite(weights)).sum())
            message = (
                f"weights must be {source.size} finite numbers, one per example, but "
                f"got shape {tuple(weights.shape)} with {bad} NaN or infinite value(s)."
            )
            raise InvalidProblemError(message)
    return Mean(fn, source, weights, chunk_size)


def function(fn: Callable[[], Tensor]) -> Function:
    """A scalar function of the parameters, evaluated without data.

    Example:
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> size = function(lambda: w.norm())
        >>> size.value(), (size <= 4.0).value(), (size >= 4.0).value()
        (5.0, 1.0, -1.0)
    """
    return Function(fn)


def _accumulate(gradient: list[Tensor], value: Tensor, parameters: Vector) -> None:
    """Add the gradient of ``value``; a parameter it does not reach contributes 0."""
    if not value.requires_grad:
        return
    parts = torch.autograd.grad(value, list(parameters), allow_unused=True)
    for total, part in zip(gradient, parts, strict=True):
        if part is not None:
            total.add_(part)
