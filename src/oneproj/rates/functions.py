"""The rates that users write: of a class, of a group, above a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict, Unpack

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_number, as_tensor, check_count
from oneproj.errors import InvalidProblemError
from oneproj.problem.data import DataLike, Source, as_source
from oneproj.problem.functions import CHUNK_SIZE
from oneproj.problem.terms import Combination, Constraint, Weighted
from oneproj.rates.terms import Rate, RateCounts, as_bools

Score = Callable[[Any], Tensor]
"""Takes a batch of rows and returns one number for each, shape ``(n,)``."""


Labelled: TypeAlias = tuple[DataLike, TensorLike]
"""The pair ``(rows, labels)``; labels are 0 and 1, or bools."""


class RateOptions(TypedDict, total=False):
    """What all rates take beside a score and data; see ``positive_rate``."""

    where: TensorLike | None
    threshold: float
    weights: TensorLike | None
    chunk_size: int


def positive_rate(score: Score, data: DataLike, **options: Unpack[RateOptions]) -> Rate:
    """The share of rows whose score exceeds the threshold.

    Args:
        score: Takes a batch of rows, made like the data, and returns one number for
            each, shape ``(n,)``.
        data: The rows: a tensor or array, a tuple or dict of them, a ``Dataset`` or a
            ``DataLoader``, as for ``oneproj.mean``.
        **options: ``where``: one bool per row; only rows with True are part of the
            rate, all by default. ``threshold``: a row is accepted if its score is above
            it, 0 by default. ``weights``: one nonnegative weight per row, 1 by default;
            the rate is the weighted share, so they need not average 1.
            ``chunk_size``: rows per forward pass of a full evaluation.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> x = torch.tensor([[1.0], [2.0], [-3.0], [4.0]])
        >>> accepted = positive_rate(lambda rows: rows @ w, data=x)
        >>> accepted.value(), accepted <= 0.5
        (0.75, positive rate over 4 rows <= 0.5)
        >>> last = positive_rate(lambda rows: rows @ w, data=x, where=[0, 0, 1, 1])
        >>> last.value(), (accepted - last).value()
        (0.5, 0.25)
    """
    source = as_source(data)
    everyone = torch.ones(source.size, dtype=torch.bool, device="cpu")
    return _rate("positive rate", score, source, everyone, everyone, **options)


def false_positive_rate(
    score: Score, data: Labelled, **options: Unpack[RateOptions]
) -> Rate:
    """The share of negative rows (label 0) whose score exceeds the threshold.

    Args:
        score: Takes a batch of rows, without labels, and returns one number for each,
            shape ``(n,)``.
        data: The pair ``(rows, labels)``. Rows are what ``positive_rate`` takes; labels
            are 0 and 1, or bools.
        **options: As for ``positive_rate``.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> x, y = torch.tensor([[1.0], [2.0], [-3.0], [4.0]]), [0, 1, 0, 1]
        >>> fpr = false_positive_rate(lambda rows: rows @ w, data=(x, y))
        >>> fpr.value(), fpr.counts().events, fpr.counts().rows
        (0.5, 1, 2)
    """
    source, labels = _labelled(data)
    return _rate("false positive rate", score, source, ~labels, ~labels, **options)


def true_positive_rate(
    score: Score, data: Labelled, **options: Unpack[RateOptions]
) -> Rate:
    """The share of positive rows (label 1) whose score exceeds the threshold.

    It takes what ``false_positive_rate`` takes.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> x, y = torch.tensor([[1.0], [2.0], [-3.0], [4.0]]), [0, 1, 0, 1]
        >>> true_positive_rate(lambda rows: rows @ w, data=(x, y)).value()
        1.0
    """
    source, labels = _labelled(data)
    return _rate("true positive rate", score, source, labels, labels, **options)


def false_negative_rate(
    score: Score, data: Labelled, **options: Unpack[RateOptions]
) -> Rate:
    """The share of positive rows (label 1) whose score is at most the threshold.

    It takes what ``false_positive_rate`` takes.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> x, y = torch.tensor([[1.0], [2.0], [-3.0], [4.0]]), [1, 1, 1, 0]
        >>> round(false_negative_rate(lambda rows: rows @ w, data=(x, y)).value(), 4)
        0.3333
    """
    source, labels = _labelled(data)
    return _rate("false negative rate", score, source, labels, ~labels, **options)


def true_negative_rate(
    score: Score, data: Labelled, **options: Unpack[RateOptions]
) -> Rate:
    """The share of negative rows (label 0) whose score is at most the threshold.

    It takes what ``false_positive_rate`` takes.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> x, y = torch.tensor([[1.0], [2.0], [-3.0], [4.0]]), [0, 1, 0, 1]
        >>> true_negative_rate(lambda rows: rows @ w, data=(x, y)).value()
        0.5
    """
    source, labels = _labelled(data)
    return _rate("true negative rate", score, source, ~labels, labels, **options)


def error_rate(score: Score, data: Labelled, **options: Unpack[RateOptions]) -> Rate:
    """The share of rows whose decision, score above threshold, is not their label.

    It takes what ``false_positive_rate`` takes.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> x, y = torch.tensor([[1.0], [2.0], [-3.0], [4.0]]), [0, 1, 0, 1]
        >>> error_rate(lambda rows: rows @ w, data=(x, y)).value()
        0.25
    """
    source, labels = _labelled(data)
    return _rate(
        "error rate", score, source, torch.ones_like(labels), ~labels, **options
    )


def precision(
    score: Score, data: Labelled, **options: Unpack[RateOptions]
) -> Precision:
    """The share of accepted rows that are positive, to be bounded from below.

    Only ``precision(...) >= p`` can be stated, with a number p between 0 and 1: it
    reads ``(1 - p) TP >= p FP``, which is linear in the counts. A model that accepts
    no row satisfies it; a warning says so. It takes what ``false_positive_rate`` takes.

    Example:
        >>> w = torch.ones(1, requires_grad=True)
        >>> x, y = torch.tensor([[1.0], [2.0], [-3.0], [4.0]]), [0, 1, 0, 1]
        >>> found = precision(lambda rows: rows @ w, data=(x, y))
        >>> round(found.value(), 4), (found >= 0.5).value() <= 0
        (0.6667, True)
    """
    source, labels = _labelled(data)
    hits = _rate("true positive rate", score, source, labels, labels, **options)
    alarms = _rate("false positive rate", score, source, ~labels, ~labels, **options)
    return Precision(hits, alarms)


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


def _rate(
    kind: str,
    score: Score,
    source: Source,
    own: Tensor,
    counted: Tensor,
    *,
    where: TensorLike | None = None,
    threshold: float = 0.0,
    weights: TensorLike | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Rate:
    """Check the options that all rates share, and make the rate.

    Args:
        kind: Its name.
        score: Of a batch.
        source: The rows.
        own: Whether each row is part of the rate, before ``where``.
        counted: Whether each row is counted when it is accepted; else when not.
        where: See ``positive_rate``, as for the others.
        threshold: Above which a score means acceptance.
        weights: Of the rows.
        chunk_size: Rows per forward pass.
    """
    number = as_number(threshold)
    if number is None:
        message = (
            f"threshold must be a finite number, got {threshold!r}: a row is accepted "
            "if its score is above it. One that is to be learned is part of the score: "
            "lambda rows: model(rows) - cut."
        )
        raise InvalidProblemError(message)
    why = "It is the number of rows per forward pass: fewer take less memory."
    chunk = check_count("chunk_size", chunk_size, why)
    mask = None if where is None else as_bools("where", where, source.size)
    rows = (own if mask is None else own & mask).nonzero().flatten()
    each = None if weights is None else _as_weights(weights, source.size)[rows]
    if len(rows) == 0 or (each is not None and not bool(each.any())):
        none, both = "no row", "none is both"
        if len(rows):
            none, both = "no row with a positive weight", f"{len(rows)} are both"
        group = "" if mask is None else f", {int(mask.sum())} inside where=, and {both}"
        message = (
            f"A {kind} has {none} to be about: of {len(own)} rows, "
            f"{int(own.sum())} are of its class{group}. A share of nothing is "
            "undefined. Check labels, mask and weights, or leave the constraint out."
        )
        raise InvalidProblemError(message)
    return Rate(
        kind,
        score,
        source,
        rows=rows,
        counted=counted[rows],
        weights=each,
        threshold=number,
        chunk_size=chunk,
    )


def _labelled(data: object) -> tuple[Source, Tensor]:
    """The rows and their labels, as bools; refuse what is no such pair."""
    if not (isinstance(data, tuple | list) and len(data) == 2):  # noqa: PLR2004 - a pair
        message = (
            "data must be the pair (rows, labels), got a "
            f"{type(data).__name__}. The score is called with rows alone; labels say "
            "which decision is right."
        )
        raise InvalidProblemError(message)
    source = as_source(data[0])
    return source, as_bools("labels", data[1], source.size)


def _as_weights(given: object, size: int) -> Tensor:
    weights = as_tensor("weights", given).cpu().double()
    fits = weights.shape == (size,) and bool(torch.isfinite(weights).all())
    if fits and not bool((weights < 0).any()):
        return weights
    message = (
        f"weights must be {size} finite numbers >= 0, one per row, but got shape "
        f"{tuple(weights.shape)} with {int((~(weights >= 0)).sum())} negative or NaN "
        "value(s). A negative weight has no meaning in a share."
    )
    raise InvalidProblemError(message)
