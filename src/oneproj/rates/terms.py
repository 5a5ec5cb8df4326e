"""Rates of decisions as terms: the value is a count, the gradient a surrogate's.

A rate is the share of some rows (its own: those of a class, of a group, or all) that
are counted (accepted, or decided wrongly). It is a term like ``oneproj.mean``: it can
be added, scaled and compared with a number to make a constraint. Its value is exact.
Minibatches are drawn from its own rows, so that a rare class is never missed.

As a function of the parameters a count is a staircase without a gradient. With ``m``
the margin by which a row is counted (``score - threshold`` for rows that count when
they are accepted, minus that for rows that count when they are not), it adds up
``1[m > 0]``. Training follows one of two gradients:

- ``count_derivatives``, of the expected count, estimated from the rows near the
  threshold: for the least objective at which the count holds;
- ``loss_derivatives``, of the rows' logistic losses: for the fewest errors at which the
  count holds, where the objective is a logistic loss.

A projection follows a function of ``m / width`` in place of the step, see ``STEPS``.
The width is the distance within which the rows nearest to the threshold lie, so that
neither small nor saturated scores make the gradient zero.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor, check_number
from oneproj.errors import InvalidProblemError
from oneproj.problem.data import Source
from oneproj.problem.float64 import FLOAT64_MODE
from oneproj.problem.functions import Call, Mean
from oneproj.problem.modes import evaluating, evaluating_when_called
from oneproj.problem.terms import (
    AbstractExpression,
    AbstractTerm,
    Combination,
    Constraint,
    FullPass,
    Weighted,
)
from oneproj.rates.defaults import DEFAULTS
from oneproj.vectors.arithmetic import Vector

Surrogate = Literal["near", "upper", "lower"]
STEPS: dict[Surrogate, Callable[[Tensor], Tensor]] = {
    "near": torch.sigmoid,
    "upper": lambda m: (1.0 + m).clamp(min=0.0),
    "lower": lambda m: m.clamp(max=1.0),
}
"""Functions of margin over width in place of ``1[margin > 0]``: one that is near, one
that is never below and convex, and one that is never above and concave."""


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
        in_no_problem = self.copied_from is None  # its model is unknown
        unknown_modules = evaluating_when_called(enabled=in_no_problem)
        with torch.no_grad(), evaluating(self.model), unknown_modules:
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

    def surrogate(
        self,
        kind: Surrogate = "near",
        *,
        width: float | None = None,
        linear: bool = False,
    ) -> Mean:
        """Return a term with a gradient in place of the count, over the same rows.

        Args:
            kind: With m the margin by which a row is counted, over the width: the mean
                of ``sigmoid(m)`` for ``"near"``, of ``max(0, 1 + m)`` for ``"upper"``,
                which is never below the count, and of ``min(1, m)`` for ``"lower"``,
                which is never above it.
            width: In units of the score; None for the distance within which the rows
                nearest to the threshold lie at the current parameters.
            linear: Whether the score is linear in the parameters, up to a constant. An
                upper surrogate is then declared convex, a lower one concave.

        Example:
            >>> import oneproj
            >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[1.0], [-2.0]])
            >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
            >>> accepted.value(), round(accepted.surrogate(width=1.0).value(), 4)
            (0.5, 0.4251)
        """
        if kind not in STEPS:
            message = (
                f"A surrogate is {', '.join(map(repr, STEPS))}, got {kind!r}: a "
                "sigmoid near the count, or a bound that is never below or above it."
            )
            raise InvalidProblemError(message)
        scale = self.width()
        if width is not None:
            scale = check_number("width", width, "It is in units of the score.")
        smooth = self._mean(lambda margins, _: STEPS[kind](margins / scale))
        if linear and kind != "near":
            smooth.curvature = "convex" if kind == "upper" else "concave"
        return smooth

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


def width_of(margins: Tensor) -> float:
    """Return the distance within which a share of the rows lies from the threshold.

    Where every row lies on the threshold, as in a model of zeros, it is 1.

    Args:
        margins: Of the rows, in units of the score.

    Example:
        >>> width_of(torch.linspace(-1.0, 1.0, 101)), width_of(torch.zeros(5))
        (0.1..., 1.0)
    """
    distances = margins.detach().abs().double()
    n = len(distances)
    k = min(n, max(DEFAULTS.near_rows, math.ceil(DEFAULTS.near_share * n)))
    nearest = float(distances.kthvalue(k).values)
    width = max(nearest, DEFAULTS.least_width * float(distances.mean()))
    return width if width > 0 else 1.0


def count_derivatives(margins: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return how fast the count of each row grows with its margin, on average.

    The derivative of a count with respect to the parameters is the density of the
    margins at 0, times the mean gradient of a margin that is 0. The density is that of
    a logistic kernel of the rows' width. The mean gradient is a local linear regression
    at 0: with kernel weights ``K``, a row gets ``K (S2 - S1 m) / (S0 S2 - S1^2)``, with
    ``S_k = sum K m^k``. The derivative of the sigmoid, a mean over the rows
    around 0, is biased where most of them are on one side, as for small rates: it
    grows the scores, which changes no decision. These weights leave the sum of
    ``derivative * m`` at 0, but for a ridge that keeps them from extrapolating when
    all rows are far away.

    Args:
        margins: Of the rows, in units of the score.
        weights: Of the rows, nonnegative; None for 1.

    Example:
        >>> margins = torch.linspace(-4.0, 1.0, 101)
        >>> found, width = count_derivatives(margins), width_of(margins)
        >>> plain = torch.sigmoid(margins / width)
        >>> plain = plain * (1.0 - plain) / width
        >>> abs(float(found @ margins)) < 0.1 * abs(float(plain @ margins))
        True
    """
    m, h = margins.detach().double(), width_of(margins)
    step = torch.sigmoid(m / h)
    kernel = step * (1.0 - step) / h
    mass = kernel if weights is None else kernel * weights.to(kernel)
    s0, s1, s2 = mass.sum(), (mass * m).sum(), (mass * m.square()).sum()
    s2 = s2 + DEFAULTS.ridge * h**2 * s0
    found = kernel * s0 * (s2 - s1 * m) / (s0 * s2 - s1.square())
    return found.to(margins.dtype)


def loss_derivatives(margins: Tensor, is_error: Tensor) -> Tensor:
    """Return how fast the logistic loss of each row changes with its margin.

    A row that is counted if it is decided wrongly counts ``1[m > 0]``, which becomes
    its loss ``log(1 + exp(m))``; one that is counted if it is decided rightly counts
    ``1 - 1[-m > 0]``, which becomes ``1 - log(1 + exp(-m))``. A multiple of the count,
    added to a logistic loss, then changes the weights of its rows: the reduction of
    Agarwal et al. (2018), "A reductions approach to fair classification".

    Args:
        margins: Of the rows, in units of the score.
        is_error: Whether the decision that is counted is wrong for the row.

    Example:
        >>> margins, is_error = torch.tensor([5.0, 5.0]), torch.tensor([True, False])
        >>> loss_derivatives(margins, is_error)
        tensor([0.9933, 0.0067])
    """
    m = margins.detach()
    return torch.sigmoid(torch.where(is_error.to(m.device), m, -m))


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
