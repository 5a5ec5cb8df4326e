"""Rates of decisions as terms: the value is a count, the gradient a surrogate's.

A rate is the share of some rows (its own: those of a class, of a group, or all) that
are counted (accepted, or decided wrongly). It is a term like ``oneproj.mean``: it can
be added, scaled and compared with a number to make a constraint. Its value is exact.
Minibatches are drawn from its own rows, so that a rare class is never missed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor
from oneproj.errors import InvalidProblemError
from oneproj.problem.data import Source
from oneproj.problem.float64 import FLOAT64_MODE
from oneproj.problem.functions import Call, Mean
from oneproj.problem.modes import evaluating
from oneproj.problem.terms import (
    AbstractExpression,
    AbstractTerm,
    Combination,
    Constraint,
    FullPass,
    Weighted,
)
from oneproj.rates.defaults import DEFAULTS
from oneproj.rates.surrogates import (
    count_derivatives,
    loss_derivatives,
    smooth_step,
    width_of,
)
from oneproj.vectors.arithmetic import Vector


class RateCounts(NamedTuple):
    """How many rows of a rate are counted, of how many.

    Example:
        >>> RateCounts(events=3, rows=4, weighted_events=1.5, weighted_rows=2.0).rate
        0.75
    """

    events: int
    """Rows that are counted: accepted, or decided wrongly, as the rate says."""
    rows: int
    """Rows that could be: those of the class and the group."""
    weighted_events: float
    """Sum of the counted rows' weights; equal to ``events`` without weights."""
    weighted_rows: float
    """Sum of all these rows' weights; equal to ``rows`` without weights."""

    @property
    def rate(self) -> float:
        """The weighted share: the value of the rate."""
        return self.weighted_events / self.weighted_rows


class Rate(AbstractExpression):
    """The share of rows that are counted; made by the functions of ``oneproj.rates``.

    ``sum_i w_i 1[row i is counted] / sum_i w_i`` over its own rows. A row is counted if
    its decision, ``score > threshold``, is the one that the rate counts for that row.

    Attributes:
        kind: What it is called in messages, such as ``"false positive rate"``.
        rows: Which rows of the data it is about, as indices.
        counted: For each of them, the decision that is counted.
        weights: Of each of them, nonnegative; None for 1.
        threshold: Above which a score means acceptance.

    Example:
        >>> import oneproj
        >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[1.0], [-2.0]])
        >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
        >>> accepted.value(), round(accepted.surrogate(width=1.0).value(), 4)
        (0.5, 0.4251)
        >>> value, gradient = accepted.value_and_gradient([w])
        >>> value, gradient[0].item() != 0
        (0.5, True)
    """

    limits = (0.0, 1.0)
    _dtype: torch.dtype | None = None
    _is_error: Tensor | None = None
    """Of each row, whether the counted decision is wrong; None for the gradient of the
    expected count."""

    def __init__(
        self,
        kind: str,
        score: Callable[[Any], Tensor],
        source: Source,
        *,
        rows: Tensor,
        counted: Tensor,
        weights: Tensor | None,
        threshold: float,
        chunk_size: int,
    ) -> None:
        """Keep the score, the rows and what is counted on each."""
        self.kind, self.rows, self.counted = kind, rows, counted
        self.weights, self.threshold = weights, threshold
        self.size, self.tabular = len(rows), source.tabular
        self._score, self._data, self._chunk_size = Call(score), source, chunk_size

    def __repr__(self) -> str:
        return f"{self.kind} over {self.size} row{'s' if self.size != 1 else ''}"

    def read_rows(self) -> tuple[tuple[Source, Tensor | None], ...]:
        return ((self._data, self.rows),)

    def precision(self) -> torch.dtype | None:
        return self._dtype

    def events(self) -> Tensor:
        """Return whether each of its rows is counted, in the order of ``rows``."""
        return self._evaluate_rows()[0]

    def counts(self) -> RateCounts:
        """Return how many rows are counted, of how many, on all data.

        Example:
            >>> import oneproj
            >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[1.0], [-2.0]])
            >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
            >>> accepted.counts()
            RateCounts(events=1, rows=2, weighted_events=1.0, weighted_rows=2.0)
        """
        return self._count(self.events())

    def _count(self, events: Tensor) -> RateCounts:
        k, n = int(events.sum()), len(events)
        if self.weights is None:
            return RateCounts(k, n, float(k), float(n))
        weights = self.weights.tolist()
        heavy = math.fsum(self.weights[events.to(self.weights.device)].tolist())
        return RateCounts(k, n, heavy, math.fsum(weights))

    def value(self) -> float:
        """The rate on all data: an exact count, divided once in float64."""
        return self.counts().rate

    def batch_value(self, indices: Tensor | None) -> Tensor:
        if indices is None:
            indices = torch.arange(len(self.rows), device="cpu")
        return self.examples(indices).mean()

    def examples(self, indices: Tensor) -> Tensor:
        scores = self._scores(indices)
        return self._straight_through(scores, indices, self._margins(scores, indices))

    def full_pass(self, parameters: Vector | None, *, each: bool = True) -> FullPass:
        events, margins = self._evaluate_rows()
        value, gradient = self._count(events).rate, None
        if parameters is not None:
            derivatives = self._derivatives(margins, slice(None))
            gradient = (
                self._mean(lambda margins, at: margins * derivatives[at].to(margins))
                .full_pass(parameters, each=False)
                .gradient
            )
        kept = self._weighed(events.to(self._dtype), slice(None)) if each else None
        return FullPass(value, gradient, kept)

    def excess(self) -> Tensor:
        """Return by how much each row's score exceeds the threshold, from one pass."""
        margins = self._evaluate_rows()[1]
        return torch.where(self.counted.to(margins.device), margins, -margins)

    def score_gradients(self, tensors: Vector, count: int) -> list[Tensor]:
        """Return the gradients of the scores of some rows, in float64.

        Args:
            tensors: By which the scores are differentiated.
            count: Of rows, evenly spaced among its own; all if there are fewer.

        Returns:
            For each tensor a matrix, with one row for each score and one column for
            each entry.
        """
        last = len(self.rows) - 1
        at = torch.linspace(0, last, min(count, last + 1), device="cpu").long()
        with torch.enable_grad(), evaluating(self.model):
            scores = self._scores(at)
            if not scores.requires_grad:
                return [torch.zeros(len(at), p.numel()).double() for p in tensors]
            each = [
                torch.autograd.grad(
                    score, tensors, retain_graph=True, materialize_grads=True
                )
                for score in scores
            ]
        columns = zip(*each, strict=True)
        return [
            torch.stack([g.flatten() for g in own]).double().cpu() for own in columns
        ]

    def doubt(self) -> float:
        """Return the share of rows whose decision rounding might change.

        Their score differs from the threshold by at most a few units of rounding of
        the largest one.
        """
        _, margins = self._evaluate_rows()
        eps = torch.finfo(self._dtype or margins.dtype).eps
        largest = float(margins.abs().max()) + abs(self.threshold)
        near = margins.abs().double() <= DEFAULTS.roundings * eps * largest
        return float(self._weighed(near.double(), slice(None)).mean())

    def width(self) -> float:
        """Return the width of the surrogates at the parameters, in units of score."""
        return width_of(self._evaluate_rows()[1])

    def _evaluate_rows(self) -> tuple[Tensor, Tensor]:
        """Which rows are counted, and their margins, from one pass."""
        with torch.no_grad(), evaluating(self.model):
            seen = [
                (self._events(s, at), self._margins(s, at)) for s, at in self._chunks()
            ]
        return (
            torch.cat([events for events, _ in seen]),
            torch.cat([margins for _, margins in seen]),
        )

    def with_loss_gradient(self, labels: TensorLike) -> Self:
        """Return the same count, with the gradient of the rows' logistic losses.

        For an objective that is the mean logistic loss of the same score, where few
        errors are wanted rather than a small loss. By default a rate's gradient is the
        derivative of its expected count: training then finds the least logistic loss
        at which the count holds, which may accept fewer rows than the fewest errors
        would. With this one a bound changes the weights of rows in the loss.

        Args:
            labels: 0 and 1, or bools, one per row of the data.

        Example:
            >>> import oneproj
            >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[1.0], [-2.0]])
            >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
            >>> errors = accepted.with_loss_gradient([0, 0])
            >>> errors.value(), errors.value_and_gradient([w])[1]
            (0.5, [tensor([0.2463])])
        """
        own = as_bools("labels", labels, self._data.size)[self.rows]
        other = copy.copy(self)
        other._is_error = own != self.counted  # noqa: SLF001 - a copy of itself
        return other

    def surrogate(self, *, width: float | None = None) -> Mean:
        """Return a smooth term in place of the count, over the same rows.

        It is the mean of ``sigmoid(margin / width)``, with the margin by which a row is
        counted.

        Args:
            width: In units of the score; None for the distance within which the rows
                nearest to the threshold lie at the current parameters.

        Example:
            >>> import oneproj
            >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[1.0], [-2.0]])
            >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
            >>> accepted.value(), round(accepted.surrogate(width=1.0).value(), 4)
            (0.5, 0.4251)
        """
        scale = self.width() if width is None else width
        return self._mean(lambda margins, _: smooth_step(margins, scale))

    def _mean(self, fn: Callable[[Tensor, Tensor], Tensor]) -> Mean:
        """The mean of a function of margins and places, over its own rows."""

        def values(batch: tuple[Tensor, Any]) -> Tensor:
            at, rows = batch
            scores = self._checked(self._score(self.name, rows), len(at))
            return fn(self._margins(scores, at), at)

        def read(at: Tensor | slice) -> tuple[Tensor, Any]:
            own = torch.arange(len(self.rows), device="cpu")[at]
            return own, self._data.read(self.rows[own])

        source = Source(len(self.rows), read, tabular=self.tabular)
        weights = self._own_weights(slice(None))
        smooth = Mean(values, source, weights, self._chunk_size, None)
        smooth.model, smooth.name = self.model, self.name
        return smooth

    def _straight_through(
        self, scores: Tensor, indices: Tensor, margins: Tensor
    ) -> Tensor:
        """The count of each row, with a gradient that estimates the whole count's."""
        smooth = margins * self._derivatives(margins, indices)
        events = self._events(scores, indices).to(smooth)
        return self._weighed(events + (smooth - smooth.detach()), indices)

    def _derivatives(self, margins: Tensor, at: Tensor | slice) -> Tensor:
        """What a unit of each margin adds to its count, for the gradient."""
        if self._is_error is None:
            return count_derivatives(margins, self._own_weights(at))
        return loss_derivatives(margins, self._is_error[at])

    def _weighed(self, values: Tensor, at: Tensor | slice) -> Tensor:
        """Values times weights, which average 1 over all rows."""
        weights = self._own_weights(at)
        return values if weights is None else values * weights.to(values)

    def _own_weights(self, at: Tensor | slice) -> Tensor | None:
        """Weights of rows, which average 1 over all of them; None for 1."""
        if self.weights is None:
            return None
        return self.weights[at] / self.weights.mean()

    def _events(self, scores: Tensor, at: Tensor) -> Tensor:
        accepted = scores.detach() > self.threshold
        return accepted == self.counted[at].to(accepted.device)

    def _margins(self, scores: Tensor, at: Tensor) -> Tensor:
        above = scores - self.threshold
        counted = self.counted[at].to(above.device)
        return torch.where(counted, above, -above)

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield scores of consecutive rows, with their places among its own."""
        everyone = torch.arange(len(self.rows), device="cpu")
        for start in range(0, len(everyone), self._chunk_size):
            at = everyone[start : start + self._chunk_size]
            yield self._scores(at), at

    def _scores(self, at: Tensor) -> Tensor:
        batch = self._data.read(self.rows[at])
        scores = self._checked(self._score(self.name, batch), len(at))
        if FLOAT64_MODE.get() is None:
            self._dtype = scores.dtype
        return scores

    def _checked(self, scores: object, count: int) -> Tensor:
        """Refuse scores that are not one finite number per row."""
        if not isinstance(scores, Tensor) or scores.shape != (count,):
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores)
            message = (
                f"The score of {self.name!r} ({self.kind}) must return one number per "
                f"row, shape ({count},) for {count} rows, but returned {got}. A row is "
                "accepted if its score exceeds the threshold: squeeze a trailing "
                "dimension, and of two classes return the difference of the logits."
            )
            raise InvalidProblemError(message)
        if not scores.is_floating_point():
            message = (
                f"The score of {self.name!r} ({self.kind}) returned dtype "
                f"{scores.dtype}, which has no gradient. Return the score itself, not "
                "the decision: the library compares it with the threshold."
            )
            raise InvalidProblemError(message)
        bad = int((~torch.isfinite(scores.detach())).sum())
        if bad:
            self.check_finite(math.nan)
        return scores


def as_bools(name: str, given: object, size: int) -> Tensor:
    """Return one bool per row; refuse what is neither 0 nor 1.

    Example:
        >>> as_bools("labels", [0, 1], 2)
        tensor([False,  True])
    """
    values = as_tensor(name, given).cpu()
    if values.shape != (size,):
        message = (
            f"{name} must have one entry per row, shape ({size},), but has shape "
            f"{tuple(values.shape)}."
        )
        raise InvalidProblemError(message)
    bad = ~((values == 0) | (values == 1))
    if bool(bad.any()):
        found = sorted(set(values[bad].tolist()))[:3]
        message = (
            f"{name} must be 0 and 1, or bools, but {int(bad.sum())} of {size} are "
            f"others, such as {', '.join(map(str, found))}. Of labels -1 and 1 pass "
            "y > 0; of several classes, y == c for the one that counts as positive."
        )
        raise InvalidProblemError(message)
    return values == 1


class Precision:
    """The share of accepted rows that are positive; it can only be bounded below.

    Made by ``oneproj.rates.precision``. ``TP / (TP + FP)`` is a ratio of two counts,
    which no minibatch estimates, but ``>= p`` is linear in them:
    ``(1 - p) TP - p FP >= 0``. A model that accepts no row satisfies it.

    Example:
        >>> import oneproj
        >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[1.0], [2.0]])
        >>> found = oneproj.rates.precision(lambda rows: rows @ w, data=(x, [0, 1]))
        >>> found.value(), (found >= 0.8).value() <= 0
        (0.5, False)
    """

    def __init__(self, hits: Rate, false_alarms: Rate) -> None:
        """Keep the true and the false positive rate."""
        self.hits, self.false_alarms = hits, false_alarms

    def __repr__(self) -> str:
        rows = len(self.hits.rows) + len(self.false_alarms.rows)
        return f"precision over {rows} rows"

    def counts(self) -> RateCounts:
        """Return the accepted rows that are positive, of all accepted rows."""
        tp, fp = self.hits.counts(), self.false_alarms.counts()
        return RateCounts(
            tp.events,
            tp.events + fp.events,
            tp.weighted_events,
            tp.weighted_events + fp.weighted_events,
        )

    def value(self) -> float:
        """The precision on all data; NaN where no row is accepted."""
        found = self.counts()
        return found.rate if found.weighted_rows > 0 else math.nan

    def __ge__(self, bound: float) -> Constraint:
        """Require ``precision >= bound``."""
        if not (isinstance(bound, int | float) and 0 < bound < 1):
            message = (
                f"A precision is bounded by a number between 0 and 1, got {bound!r}. "
                "It is a ratio of counts, so it cannot be compared with a term."
            )
            raise InvalidProblemError(message)
        return Constraint(PrecisionTerm(self, float(bound)), 0.0, sense=-1)

    def __le__(self, bound: object) -> Constraint:
        """Refuse: a model that accepts nothing has no precision to be too high."""
        message = (
            f"A precision can only be bounded from below, got <= {bound!r}. An upper "
            "bound would ask for false alarms. Write precision >= p, or bound the "
            "rates that you mean, such as true_positive_rate <= t."
        )
        raise InvalidProblemError(message)

    __lt__ = __gt__ = __le__

    def __add__(self, other: object) -> Combination:
        """Refuse: a ratio of counts is no combination of them."""
        message = (
            f"A precision cannot be added to or scaled with {other!r}: it is a ratio "
            "of two counts. Only precision >= p, with a number p, is linear in them."
        )
        raise InvalidProblemError(message)

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __add__


class PrecisionTerm(Combination):
    """``((1 - p) TP - p FP) / n``, which is >= 0 where the precision is at least p.

    Attributes:
        stated: The precision that it bounds.
        least: The bound p.
    """

    def __init__(self, stated: Precision, least: float) -> None:
        """Weigh the two rates by their classes' shares of the rows."""
        self.stated, self.least = stated, least
        sizes = [_total(rate) for rate in (stated.hits, stated.false_alarms)]
        shares = [size / sum(sizes) for size in sizes]
        terms = (
            Weighted((1.0 - least) * shares[0], stated.hits),
            Weighted(-least * shares[1], stated.false_alarms),
        )
        super().__init__(terms, 0.0)


def _total(rate: Rate) -> float:
    """The sum of a rate's weights."""
    if rate.weights is None:
        return float(len(rate.rows))
    return math.fsum(rate.weights.tolist())


class Parts(NamedTuple):
    """A constraint as ``sum_k a_k t_k + b <= 0``.

    Attributes:
        weighted: The pairs of a factor ``a_k`` and a term ``t_k``, rates or not.
        constant: ``b``.

    Example:
        >>> Parts((), 1.0).rates
        ()
    """

    weighted: tuple[Weighted, ...]
    constant: float

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates among the terms."""
        return tuple(term for _, term in self.weighted if isinstance(term, Rate))


def parts(constraint: AbstractTerm) -> Parts:
    """Return the terms of a constraint with their factors, so that it reads ``<= 0``.

    A constraint that is no comparison of terms, such as a set, has no parts.

    Example:
        >>> import oneproj
        >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[1.0], [-2.0]])
        >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
        >>> parts(2.0 * accepted >= 0.5)
        Parts(weighted=(Weighted(factor=-2.0, term=positive rate over 2 rows),),
              constant=0.5)
    """
    if not isinstance(constraint, Constraint):
        return Parts((), 0.0)
    term, sign = constraint.term, float(constraint.sense)
    if isinstance(term, Combination):
        weighted = tuple(Weighted(sign * a, t) for a, t in term.terms)
        return Parts(weighted, sign * (term.constant - constraint.bound))
    if isinstance(term, AbstractExpression):
        return Parts((Weighted(sign, term),), -sign * constraint.bound)
    return Parts((), 0.0)
