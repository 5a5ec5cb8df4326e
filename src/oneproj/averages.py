"""The average of a quantity over a data set, as a term."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from oneproj.batches import AbstractSource, DataLike, as_source
from oneproj.errors import InvalidProblemError
from oneproj.parameters import Vector
from oneproj.terms import (
    AbstractExpression,
    Curvature,
    accumulate,
    check_curvature,
    evaluating,
)

CHUNK_SIZE = 4096
"""Examples per forward pass of a full evaluation, unless the term says otherwise."""


class Mean(AbstractExpression):
    """The average ``(1/n) sum_i w_i fn(example_i)``; made by ``oneproj.mean``."""

    def __init__(
        self,
        fn: Callable[[Any], Tensor],
        source: AbstractSource,
        weights: Tensor | None,
        chunk_size: int,
        curvature: Curvature | None,
    ) -> None:
        """Keep the function and where its examples come from."""
        self.size = source.size
        self._fn = fn
        self._source = source
        self._weights = weights
        self._chunk_size = chunk_size
        self.curvature = check_curvature(curvature)

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
        with evaluating(self.model):
            value = self._average([float(self._span_sum(*span)) for span in spans])
        self.check_finite(value)
        return value

    @torch.enable_grad()
    def value_and_gradient(self, parameters: Vector) -> tuple[float, list[Tensor]]:
        total = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
        sums = []
        with evaluating(self.model):
            for span in self._source.spans(self._chunk_size):
                chunk = self._span_sum(*span)
                sums.append(float(chunk.detach()))
                accumulate(total, chunk / self._source.size, parameters)
        gradient = [t.to(p.dtype) for t, p in zip(total, parameters, strict=True)]
        value = self._average(sums)
        self.check_finite(value, gradient)
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


def mean(
    fn: Callable[[Any], Tensor],
    data: DataLike,
    *,
    weights: Tensor | None = None,
    chunk_size: int = CHUNK_SIZE,
    curvature: Curvature | None = None,
) -> Mean:
    """The average of ``fn`` over a data set: ``(1/n) sum_i w_i fn(example_i)``.

    Args:
        fn: Maps a batch to one value per example, shape ``(batch,)``.
        data: A tensor, a tuple or dict of tensors, a ``Dataset`` or a ``DataLoader``.
        weights: One weight per example, 1 when left out. With ``n/n_A`` on group A
            and ``-n/n_B`` on group B the average is a difference of group means.
        chunk_size: Examples per forward pass of a full evaluation.
        curvature: ``"convex"``, ``"concave"`` or ``"linear"`` in the parameters, where
            that is known (a convex loss of linear scores, for example): a constraint
            declared convex is projected onto exactly.

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
    return Mean(fn, source, weights, chunk_size, curvature)
