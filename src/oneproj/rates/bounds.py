"""Confidence bounds on rates, means and their sums: arithmetic, without tensors.

Every bound is one-sided and holds for every sample size: ``upper(error)`` is exceeded
by the true value with probability at most ``error``, over the draw of the rows. The
rows must be independent draws, and what is counted on them must have been fixed before.

- ``Count``: the exact binomial bound of Clopper and Pearson (1934).
- ``Average``: the betting bound of Waudby-Smith and Ramdas (2024) for bounded values.
- ``upper_of_sum``: of a weighted sum of those. For two counts of different rows, an
  exact test of every pair of rates, inverted; otherwise the bounds of the parts, which
  share the error equally (the union bound, valid however the parts depend).
- ``neyman_pearson_rank``: which order statistic of the scores is a valid threshold
  (Tong, Feng and Li 2018).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import special

from oneproj.arguments import as_number
from oneproj.errors import InvalidProblemError
from oneproj.rates.defaults import DEFAULTS

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class AbstractEstimate(ABC):
    """A quantity of the population, known from a sample of rows."""

    rows: int = 0
    """The number of rows that it was observed on."""
    observed: float
    """Its value on those rows."""

    @abstractmethod
    def upper(self, error: float) -> float:
        """Return a number that the true value exceeds with at most this probability."""

    @abstractmethod
    def lower(self, error: float) -> float:
        """Return a number below which the true value is with at most this chance."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The largest standard error that ``observed`` can have, whatever the data."""


class Known(AbstractEstimate):
    """A quantity without data, such as the norm of the weights: no error at all.

    Example:
        >>> Known(0.3).upper(0.05)
        0.3
    """

    spread = 0.0

    def __init__(self, value: float) -> None:
        """Keep the value."""
        self.observed = value

    def upper(self, error: float) -> float:
        del error
        return self.observed

    def lower(self, error: float) -> float:
        del error
        return self.observed


class Count(AbstractEstimate):
    """A rate of which ``successes`` of ``rows`` were observed: exact binomial bounds.

    Example:
        >>> rate = Count(3, 1000)
        >>> round(rate.upper(0.05), 6), round(rate.lower(0.05), 6)
        (0.007735, 0.000818)
    """

    def __init__(self, successes: int, rows: int) -> None:
        """Keep the counts."""
        self.successes, self.rows = successes, rows
        self.observed = successes / rows if rows else math.nan

    def upper(self, error: float) -> float:
        failures = self.rows - self.successes
        if failures <= 0:
            return 1.0
        return float(special.betainccinv(self.successes + 1, failures, error))

    def lower(self, error: float) -> float:
        if self.successes <= 0:
            return 0.0
        failures = self.rows - self.successes
        return float(special.betaincinv(self.successes, failures + 1, error))

    @property
    def spread(self) -> float:
        return 0.5 / math.sqrt(max(self.rows, 1))


class Average(AbstractEstimate):
    """The mean of values in a known range: bounds by betting.

    To test whether the mean is as large as m, bet on every row that its value is below
    m, by an amount that only earlier rows determine. If the mean is m or more, no
    betting multiplies the capital by 1/error, except with probability
    ``error`` (Ville's inequality). The bound is the smallest m at which it does
    (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
    betting").

    Args:
        values: One per row. Their order must not depend on them: shuffle first.
        low: No value can be smaller.
        high: No value can be larger.
        error: The bets are sized for a bound with this error; others hold too.

    Example:
        >>> values = np.tile([0.1, 0.2], 500)
        >>> mean = Average(values, 0.0, 1.0, error=0.05)
        >>> mean.observed < mean.upper(0.05) < 0.17
        True
    """

    def __init__(self, values: Array, low: float, high: float, error: float) -> None:
        """Size the bets; they do not depend on the error asked for later."""
        self.rows = len(values)
        self.observed = math.fsum(values) / self.rows
        self._low, self._width = low, high - low
        self._unit = (np.asarray(values, dtype=np.float64) - low) / self._width
        self._bets = _bets(self._unit, error)
        self._mirrored = 1.0 - self._unit

    def upper(self, error: float) -> float:
        return self._low + self._width * _betting_bound(self._unit, self._bets, error)

    def lower(self, error: float) -> float:
        most = _betting_bound(self._mirrored, self._bets, error)
        return self._low + self._width * (1.0 - most)

    @property
    def spread(self) -> float:
        return 0.5 * self._width / math.sqrt(self.rows)


def _bets(values: Array, error: float) -> Array:
    """The size of every bet, from the variance of the rows before it.

    The same for values and for one minus values: it bets on either side.
    """
    count = np.arange(1, len(values) + 1)
    means = (0.5 + np.cumsum(values)) / (count + 1)
    variances = (0.25 + np.cumsum((values - means) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    bets: Array = np.sqrt(2 * math.log(1 / error) / (len(values) * before))
    return bets


def _betting_bound(values: Array, bets: Array, error: float) -> float:
    """The smallest mean in [0, 1] that the bets reject; 1 if they reject none.

    The capital grows with the mean that is tested, so bisection finds the bound.
    """
    enough = -math.log(error)
    low, high = 0.0, 1.0
    for _ in range(DEFAULTS.bisections):
        middle = (low + high) / 2
        sizes = np.minimum(bets, DEFAULTS.largest_bet / (1.0 - middle))
        capital = np.cumsum(np.log1p(sizes * (middle - values)))
        if float(capital.max()) >= enough:
            high = middle
        else:
            low = middle
    return high


class Part(NamedTuple):
    """A part of a sum: a factor, and the estimate that it multiplies."""

    factor: float
    estimate: AbstractEstimate


def upper_of_sum(
    parts: Sequence[Part], error: float, *, different_rows: bool = False
) -> float:
    """Return an upper bound on ``sum_k a_k t_k``; error is its probability to fail.

    Args:
        parts: The factors and the estimates.
        error: The probability with which the true sum may exceed the bound.
        different_rows: Whether no row is in two parts: two counts are then
            independent, and their bound is exact and tighter. Others share the error.

    Example:
        >>> gap = [Part(1.0, Count(30, 1000)), Part(-1.0, Count(25, 1000))]
        >>> round(upper_of_sum(gap, 0.05), 4)
        0.0263
        >>> 0.017 < upper_of_sum(gap, 0.05, different_rows=True) < 0.018
        True
    """
    kept = [part for part in parts if part.factor]
    counts = [(a, t) for a, t in kept if isinstance(t, Count)]
    if different_rows and len(counts) == len(kept) == 2:  # noqa: PLR2004 - a pair
        return _upper_of_two(counts[0], counts[1], error)
    share = error / max(sum(t.spread > 0 for _, t in kept), 1)
    return math.fsum(a * (t.upper(share) if a > 0 else t.lower(share)) for a, t in kept)


def _upper_of_two(
    first: tuple[float, Count], second: tuple[float, Count], error: float
) -> float:
    """Return the bound on ``a p + b q`` of two independent rates.

    Outcomes are ranked by an approximate upper limit (Wilson's limits of the two rates,
    combined), so that a high rank means a large sum. A pair of rates (p, q) is
    rejected if outcomes that rank as low as the observed one have probability at most
    ``error - g`` under it, or if q is outside its own exact interval of error g. The
    bound is the largest ``a p + b q`` that is not rejected (Buehler 1957; for the
    interval, Berger and Boos 1994). With signs made positive the rank grows with both
    counts, so the probability falls in p and in q: a cell of q's is bounded by its two
    ends, and the search for the largest can only err upwards.
    """
    # The part with the larger spread is searched by bisection, the other by cells.
    (b, nuisance), (a, main) = sorted(
        (first, second), key=lambda part: abs(part[0]) * part[1].spread
    )
    pair = _Pair(_positive(abs(a), a, main), _positive(abs(b), b, nuisance))
    constant = min(a, 0.0) + min(b, 0.0)
    return constant + pair.upper(error)


def _positive(size: float, factor: float, count: Count) -> tuple[float, Count]:
    """A part with a positive factor: ``-p`` is the rate of failures minus 1."""
    if factor > 0:
        return size, count
    return size, Count(count.rows - count.successes, count.rows)


class _Pair:
    """Two independent counts, and the test of whether a pair of rates explains them."""

    def __init__(
        self, main: tuple[float, Count], nuisance: tuple[float, Count]
    ) -> None:
        """Keep the factors, which are positive, and the counts."""
        (self._a, self._p), (self._b, self._q) = main, nuisance

    def upper(self, error: float) -> float:
        """Return the largest ``a p + b q`` that is not rejected, rounded up."""
        spent = error * DEFAULTS.nuisance_share
        lowest, highest = self._q.lower(spent / 2), self._q.upper(spent / 2)
        self._enumerate(lowest, highest)
        self._error, self._step = error - spent, DEFAULTS.step * (highest - lowest)
        edges = np.linspace(lowest, highest, DEFAULTS.cells + 1)
        rates = self._largest(edges, np.zeros_like(edges), np.ones_like(edges))
        # The largest p falls in q, so those of a cell lie between those of its ends.
        inner = np.linspace(edges[:-1], edges[1:], DEFAULTS.split + 1, axis=-1)
        left, right = inner[:, :-1].ravel(), inner[:, 1:].ravel()
        low = np.repeat(np.maximum(rates[1:], 0.0), DEFAULTS.split)
        high = np.repeat(rates[:-1], DEFAULTS.split)
        kept = np.isfinite(high)
        tops = self._largest(left[kept], low[kept], high[kept])
        return float(np.max(self._a * tops + self._b * right[kept]))

    def _enumerate(self, lowest: float, highest: float) -> None:
        """Keep the counts of the nuisance that can occur, and what each allows."""
        n, rows, tail = self._p.rows, self._q.rows, DEFAULTS.tail
        first = int(special.bdtrik(tail, rows, lowest)) if lowest > 0 else 0
        last = rows
        if highest < 1:
            last = rows - int(special.bdtrik(tail, rows, 1.0 - highest))
        self._counts = np.arange(max(first - 1, 0), min(last + 1, rows) + 1)
        self._most = self._as_small()
        low, high = int(self._most.min()), int(self._most.max())
        self._range = np.arange(max(low, 0), max(high, 0) + 1)
        self._choices = _log_choose(n, self._range)
        self._count_choices = _log_choose(rows, self._counts)

    def _as_small(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """For each count of the nuisance, the largest of the other that ranks as small.

        -1 if none does. Ties count as small: rounding must not leave them out.
        """
        n = self._p.rows
        observed = self._rank(np.array([self._p.successes]), self._q.successes)
        limit = float(observed[0]) + 1e-9 * (self._a + self._b)
        low = np.full(len(self._counts), -1)
        high = np.full(len(self._counts), n + 1)
        while np.any(high - low > 1):
            middle = (low + high) // 2
            inside = self._rank(np.clip(middle, 0, n), self._counts) <= limit
            small = (middle < 0) | ((middle <= n) & inside)
            low, high = np.where(small, middle, low), np.where(small, high, middle)
        return low

    def _rank(self, k: np.ndarray[Any, Any], j: np.ndarray[Any, Any] | int) -> Array:
        """An approximate upper limit on the sum, by which outcomes are ranked."""
        p, p_room = _wilson(k, self._p.rows)
        q, q_room = _wilson(np.asarray(j), self._q.rows)
        rank: Array = self._a * p + self._b * q
        return rank + np.hypot(self._a * p_room, self._b * q_room)

    def _largest(self, q: Array, low: Array, high: Array) -> Array:
        """The largest p that is not rejected beside each q; minus infinity if none.

        It is between low and high, and rounded up.
        """
        masses = _probabilities(self._counts, self._q.rows, q, self._count_choices)
        possible = (low > 0) | (self._chance(low, masses) > self._error)
        while float(np.max(high - low)) > self._step:
            middle = (low + high) / 2
            kept = self._chance(middle, masses) > self._error
            low, high = np.where(kept, middle, low), np.where(kept, high, middle)
        return np.where(possible, high, -math.inf)

    def _chance(self, p: Array, masses: Array) -> Array:
        """The probability of sums as small as the observed one."""
        n, first = self._p.rows, self._range[0]
        below = special.bdtr(first - 1, n, p) if first else np.zeros_like(p)
        each = _probabilities(self._range, n, p, self._choices)
        cumulated = below[:, None] + np.cumsum(each, axis=1)
        index = np.clip(self._most - first, 0, None)
        reached = np.where(self._most >= 0, cumulated[:, index], 0.0)
        chance: Array = (masses * reached).sum(axis=1) + 2 * DEFAULTS.tail
        return chance


def _wilson(k: np.ndarray[Any, Any], n: int) -> tuple[Array, Array]:
    """The observed rate, and how far Wilson's upper limit is above it."""
    z = DEFAULTS.ranking_quantile
    rate = k / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return rate, middle + half - rate


def _log_choose(n: int, k: np.ndarray[Any, Any]) -> Array:
    """The logarithm of the binomial coefficient."""
    found: Array = (
        special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    )
    return found


def _probabilities(
    counts: np.ndarray[Any, Any], rows: int, rates: Array, log_choose: Array
) -> Array:
    """The binomial probability of every count (columns) at every rate (rows)."""
    rate = rates[:, None]
    logs = special.xlogy(counts, rate) + special.xlog1py(rows - counts, -rate)
    found: Array = np.exp(logs + log_choose)
    return found


def neyman_pearson_rank(rows: int, alpha: float, error: float) -> int | None:
    """Return the rank of the score that is a valid threshold; None if there is none.

    Of ``rows`` independent scores in ascending order, let the threshold be the k-th. A
    new score exceeds it with a probability that is itself random, and above ``alpha``
    with probability ``P(Binomial(rows, 1 - alpha) >= k)``, exactly for continuous
    scores and at most that with ties. The rank is the smallest k for which this is at
    most ``error`` (Tong, Feng and Li 2018, the umbrella algorithm).

    Example:
        >>> neyman_pearson_rank(1000, 0.05, 0.05), neyman_pearson_rank(58, 0.05, 0.05)
        (962, None)
        >>> neyman_pearson_rank(59, 0.05, 0.05)
        59
    """
    # At rank k, rows - k scores lie above: the chance that Binomial(rows, alpha) is at
    # most that must be at most the error.
    above = np.arange(rows)
    chance = special.bdtr(above, rows, alpha)
    allowed = int(np.count_nonzero(chance <= error))
    return rows - allowed + 1 if allowed else None


def rows_needed(alpha: float, error: float) -> int:
    """Return how many rows an observed rate of 0 needs, to confirm ``rate <= alpha``.

    Example:
        >>> rows_needed(0.05, 0.05), rows_needed(0.01, 0.05)
        (59, 299)
    """
    count = max(math.ceil(math.log(error) / math.log1p(-alpha)), 1)
    return count if (1.0 - alpha) ** count <= error else count + 1


def as_error(confidence: object) -> float:
    """Return one minus the confidence: the probability that a statement is wrong.

    Example:
        >>> round(as_error(0.95), 6)
        0.05
    """
    why = "It is the probability with which the bounds are right: 0.95, for example."
    return 1.0 - check_share("confidence", confidence, why)


def check_share(name: str, value: object, why: str, *, zero: bool = False) -> float:
    """Return a number between 0 and 1, both excluded, as Python's own float.

    Args:
        name: Of the argument.
        value: Of the argument.
        why: What it is for.
        zero: Whether 0 is allowed as well.

    Example:
        >>> check_share("alpha", 5, "It caps a rate.")
        Traceback (most recent call last):
        ...
        oneproj.errors.InvalidProblemError: alpha must be a number between 0 and 1,
        got 5. It caps a rate.
    """
    share = as_number(value)
    if share is not None and (0 < share < 1 or (zero and share == 0)):
        return share
    message = f"{name} must be a number between 0 and 1, got {value!r}. {why}"
    raise InvalidProblemError(message)
