"""Choose a threshold or a cap so that the constraints hold on new data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from oneproj.arguments import TensorLike, as_tensor
from oneproj.errors import InvalidProblemError
from oneproj.rates.bounds import (
    as_error,
    check_share,
    neyman_pearson_rank,
    rows_needed,
)
from oneproj.rates.confirm import Confirmation, Constraints, Range, confirm
from oneproj.rates.rows import Training
from oneproj.results import Readable, Rows

Value = TypeVar("Value")
ALPHA = "It is the error rate that may not be exceeded: 0.05, for example."


@dataclass(frozen=True)
class Calibration(Readable, Generic[Value]):
    """What ``calibrate`` chose.

    Attributes:
        value: The last value that was confirmed; None if the first was not.
        confirmation: What was found for it; None likewise. Its bounds are those of
            this value as if it alone had been tried.
        tried: The values that were tested, in order; the last was not confirmed,
            unless all were.
        confidence: Of "the constraints of the chosen value hold on new data".

    Example:
        >>> nothing = Calibration(None, None, (0.5,), 0.95)
        >>> nothing.holds
        False
    """

    value: Value | None
    confirmation: Confirmation | None
    tried: tuple[Value, ...]
    confidence: float

    @property
    def holds(self) -> bool:
        """Whether a value was confirmed."""
        return self.confirmation is not None

    def to_dict(self) -> dict[str, Any]:
        """This calibration in plain JSON types, for ``json.dump``."""
        found = None if self.confirmation is None else self.confirmation.to_dict()
        return super().to_dict() | {"holds": self.holds, "confirmation": found}

    def _parts(self) -> list[Rows | str]:
        rows = [
            ("quantity", "value"),
            ("chosen", str(self.value) if self.holds else "none was confirmed"),
            ("tried", str(len(self.tried))),
            ("confidence", f"{self.confidence:g}"),
        ]
        below = [] if self.confirmation is None else self.confirmation._parts()  # noqa: SLF001 - our own
        return [rows, *below]


def calibrate(
    family: Callable[[Value], Constraints],
    values: Iterable[Value],
    confidence: float = 0.95,
    *,
    training: Training | None = None,
    range: Range | Mapping[str, Range] | None = None,  # noqa: A002 - as in confirm
    seed: int = 0,
) -> Calibration[Value]:
    """Choose the least conservative value whose constraints hold on new data.

    The values are tested in the order given, each at the whole confidence, up to the
    first whose constraints are not all confirmed. The last one before it is chosen.
    With probability at least ``confidence``, over the draw of the rows, the constraints
    of the chosen value hold on new data, all of them: to choose wrongly, the first
    value in the order that violates a constraint must have passed its own test
    (fixed-sequence testing; Angelopoulos et al. 2021, "Learn then test").

    Args:
        family: Takes a value and returns its constraints, name to constraint, over
            rows that training did not see.
        values: From the most to the least conservative. They must be chosen without
            looking at these rows: a grid, or quantiles of training scores. For a
            threshold among these rows' own scores use ``neyman_pearson_threshold``.
        confidence: The probability of the statement above; 0.95 by default.
        training: What the model was trained on, as in ``confirm``.
        range: Of the losses in means, as in ``confirm``.
        seed: As in ``confirm``.

    Example:
        >>> import oneproj
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(2000, 1, generator=generator)
        >>> y = x[:, 0] + 0.5 * torch.randn(2000, generator=generator) > 0
        >>> def family(threshold):
        ...     score = lambda rows: rows[:, 0]
        ...     fpr = oneproj.rates.false_positive_rate(
        ...         score, data=(x, y), threshold=threshold)
        ...     return {"fpr": fpr <= 0.06}
        >>> found = calibrate(family, [1.0, 0.8, 0.6, 0.4, 0.2])
        >>> found.value, len(found.tried)
        (0.4, 5)
    """
    error = as_error(confidence)
    chosen: Value | None = None
    found: Confirmation | None = None
    tried: list[Value] = []
    for value in values:
        tried.append(value)
        # Compared with the training rows once: all values are about the same rows.
        tested = confirm(
            family(value),
            confidence,
            training=training if len(tried) == 1 else None,
            range=range,
            correction="none",
            seed=seed,
        )
        if not tested.holds:
            break
        chosen, found = value, tested
    if not tried:
        message = "calibrate got no values to choose from. Pass at least one."
        raise InvalidProblemError(message)
    return Calibration(chosen, found, tuple(tried), 1.0 - error)


def neyman_pearson_threshold(
    scores: TensorLike, alpha: float, confidence: float = 0.95
) -> float:
    """Return the smallest threshold that keeps the false positive rate on new data.

    The decision is ``score > threshold``. With probability at least ``confidence``,
    over the draw of the rows, a new negative row is accepted with probability at most
    ``alpha``. The threshold is an order statistic of the scores, whose rank the exact
    binomial rule gives (the umbrella algorithm of Tong, Feng and Li 2018).

    Args:
        scores: Of negative rows (label 0) that training did not see, in any order.
        alpha: The false positive rate that may not be exceeded.
        confidence: The probability of the statement above; 0.95 by default.

    Raises:
        InvalidProblemError: There are too few rows for any threshold, or a score is not
            finite.

    Example:
        >>> scores = torch.arange(1000) / 1000
        >>> threshold = neyman_pearson_threshold(scores, alpha=0.05)
        >>> round(threshold, 4), int((scores > threshold).sum())
        (0.961, 38)
    """
    error, share = as_error(confidence), check_share("alpha", alpha, ALPHA)
    return _threshold("scores", scores, share, error)


class AbstentionThresholds(NamedTuple):
    """Two thresholds: say 0 below the first, 1 above the second, abstain between.

    Attributes:
        below: The decision is 0 if the score is smaller.
        above: The decision is 1 if the score is larger.

    Example:
        >>> AbstentionThresholds(-1.0, 2.0).decide([-3.0, 0.0, 3.0]).tolist()
        [0, -1, 1]
    """

    below: float
    above: float

    def decide(self, scores: TensorLike) -> torch.Tensor:
        """Return 0, 1, or -1 where it abstains, for each score."""
        given = as_tensor("scores", scores)
        decided = torch.where(given > self.above, 1, -1)
        return torch.where(given < self.below, 0, decided)


def abstention_thresholds(
    negative_scores: TensorLike,
    positive_scores: TensorLike,
    alpha: float | tuple[float, float],
    confidence: float = 0.95,
) -> AbstentionThresholds:
    """Return thresholds between which to abstain, so that both classes err rarely.

    With probability at least ``confidence``, over the draw of the rows, both hold on
    new data: a negative row is called 1 with probability at most ``alpha``, and a
    positive row is called 0 with probability at most ``alpha``. Each threshold is that
    of ``neyman_pearson_threshold`` at confidence ``confidence ** 0.5``: the classes
    have different rows, so the two are independent. If they leave no room to abstain,
    their midpoint is both.

    Args:
        negative_scores: Of rows with label 0 that training did not see.
        positive_scores: Of rows with label 1 likewise; high scores mean class 1.
        alpha: The error rate that no class may exceed; a pair for classes 0 and 1.
        confidence: The probability of the statement above; 0.95 by default.

    Raises:
        InvalidProblemError: A class has too few rows for any threshold, or a score is
            not finite.

    Example:
        >>> scores = torch.linspace(-1.0, 1.0, 1001)
        >>> found = abstention_thresholds(scores - 0.5, scores + 0.5, alpha=0.1)
        >>> round(found.below, 3), round(found.above, 3)
        (-0.338, 0.338)
        >>> abstention_thresholds(scores - 1.0, scores + 1.0, alpha=0.1)
        AbstentionThresholds(below=0.0, above=0.0)
    """
    error = as_error(confidence)
    each = -math.expm1(0.5 * math.log1p(-error))  # 1 - sqrt(confidence)
    pair = alpha if isinstance(alpha, tuple) else (alpha, alpha)
    if len(pair) != 2:  # noqa: PLR2004 - one for each class
        message = f"alpha must be a number, or a pair of them, got {alpha!r}."
        raise InvalidProblemError(message)
    shares = [check_share("alpha", share, ALPHA) for share in pair]
    above = _threshold("negative_scores", negative_scores, shares[0], each)
    mirrored = -as_tensor("positive_scores", positive_scores)
    below = -_threshold("positive_scores", mirrored, shares[1], each)
    if below > above:
        below = above = (below + above) / 2
    return AbstentionThresholds(below, above)


def _threshold(name: str, scores: TensorLike, alpha: float, error: float) -> float:
    given = as_tensor(name, scores).double().cpu()
    finite = torch.isfinite(given)
    if given.ndim != 1 or not finite.all():
        message = (
            f"{name} must be one finite number per row, but has shape "
            f"{tuple(given.shape)} with {int((~finite).sum())} NaN or infinite "
            "value(s)."
        )
        raise InvalidProblemError(message)
    least = order_statistic(given, alpha, error)
    if least is None:
        message = (
            f"{name} has {len(given)} rows, too few to bound an error rate by "
            f"{alpha:g} with error probability {error:.3g}: even if no row exceeded "
            f"the threshold, it takes {rows_needed(alpha, error)} rows. Hold out more "
            "rows of this class, or allow a larger alpha."
        )
        raise InvalidProblemError(message)
    return least.score


class OrderStatistic(NamedTuple):
    """One of some scores, by its rank."""

    score: float
    above: int
    """How many of them rank above it."""


def order_statistic(
    scores: Tensor, alpha: float, error: float
) -> OrderStatistic | None:
    """Return the least score that is a valid threshold; None if none of them is.

    A new score exceeds it with a probability that is above ``alpha`` for at most a
    share ``error`` of all draws of the scores: see ``neyman_pearson_rank``.

    Example:
        >>> order_statistic(torch.arange(100.0), 0.1, 0.05)
        OrderStatistic(score=95.0, above=4)
    """
    n, rank = len(scores), neyman_pearson_rank(len(scores), alpha, error)
    if rank is None:
        return None
    return OrderStatistic(float(scores.double().kthvalue(rank).values), n - rank)
