"""``oneproj.confirm``: do the constraints hold on new data, with what confidence?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from oneproj.arguments import as_number, check_count
from oneproj.distributed import Fact, agreeing, compares_ranks, setting_facts
from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.problem.functions import Function, Mean
from oneproj.problem.modes import evaluating_when_called
from oneproj.problem.problem import named_constraints
from oneproj.problem.terms import AbstractExpression, AbstractTerm, Constraint
from oneproj.rates.bounds import (
    AbstractEstimate,
    Average,
    Count,
    Known,
    Part,
    as_error,
    upper_of_sum,
)
from oneproj.rates.defaults import DEFAULTS
from oneproj.rates.functions import PrecisionTerm
from oneproj.rates.rows import RowSet, Training, check_untouched, rows_in_common
from oneproj.rates.terms import Rate, parts
from oneproj.results import Readable, Rows

Range: TypeAlias = tuple[float, float]
Correction: TypeAlias = Literal["holm", "fixed-sequence", "none"]
Constraints: TypeAlias = Mapping[str, AbstractTerm] | Iterable[tuple[str, AbstractTerm]]

CORRECTIONS: dict[str, str] = {
    "holm": (
        "With probability {at_least}, all confidence bounds are right together, and "
        "no constraint is said to hold that does not."
    ),
    "fixed-sequence": (
        "With probability {at_least}, all confidence bounds are right together, and "
        "no constraint is said to hold that does not. They were tested in this order, "
        "up to the first that could not be confirmed."
    ),
    "none": (
        "With probability {at_least} for each bound by itself, it is right. That all "
        "constraints hold is said wrongly with probability {at_most}; which of them "
        "hold, where not all do, is not confirmed together."
    ),
}
STATEMENTS = CORRECTIONS | {
    "independent": (
        "With probability {at_least}, all confidence bounds are right together: each "
        "is from rows of its own. An order statistic was chosen among these rows, and "
        "its bound holds by that choice."
    )
}
"""What the bounds of a ``Confirmation`` mean; ``confirm`` makes the first three."""
MOST_ROWS = 20
"""Constraints that are printed; of more, the worst ``WORST_ROWS`` are."""
WORST_ROWS = 10
OWN_BOUND = (
    "A confidence bound that equals the bound itself says that the constraint holds, "
    "and no more: a tighter one would not be right together with all the others."
)


@dataclass(frozen=True)
class ConstraintCheck(Readable):
    """What new data says about one constraint.

    Attributes:
        observed: The value of its term on the rows.
        sense: ``"<="`` or ``">="``.
        bound: What the term must not exceed, or must reach.
        confidence_bound: The true value is at most this for ``<=``, at least this for
            ``>=``; see ``Confirmation`` for how sure that is.
        rows: The number of rows behind it, summed over its rates and means; 0 for a
            term without data.
        holds: Whether the confidence bound is on the right side of the bound.
        method: Where the confidence bound comes from.
        rows_each: The rows of each of its rates and means, if there are several.

    Example:
        >>> ConstraintCheck(0.003, "<=", 0.01, 0.0077, 1000, True, "binomial").holds
        True
    """

    observed: float
    sense: str
    bound: float
    confidence_bound: float
    rows: int
    holds: bool
    method: str
    rows_each: tuple[int, ...] = ()

    def _excess(self) -> float:
        """By how much the confidence bound is on the wrong side of the bound."""
        excess = self.confidence_bound - self.bound
        return excess if self.sense == "<=" else -excess

    def _cells(self) -> tuple[str, ...]:
        bound, confidence_bound = _told_apart(self.bound, self.confidence_bound)
        return (
            f"{self.observed:.5g}",
            f"{self.sense} {bound}",
            f"{self.sense} {confidence_bound}",
            " + ".join(map(str, self.rows_each or (self.rows,)))
            if self.rows
            else "none",
            "yes" if self.holds else "NO",
            self.method,
        )

    def _parts(self) -> list[Rows | str]:
        return [[HEADING[1:], self._cells()]]


def _told_apart(bound: float, other: float) -> tuple[str, str]:
    """Both numbers, with more digits than usual if they would read alike."""
    for digits in range(5, 18):  # 17 digits distinguish any two floats
        texts = f"{bound:.{digits}g}", f"{other:.{digits}g}"
        if texts[0] != texts[1] or bound == other:
            break
    return texts


HEADING = (
    "constraint",
    "observed",
    "must be",
    "confidence bound",
    "rows",
    "holds",
    "method",
)


@dataclass(frozen=True)
class Confirmation(Readable):
    """What ``oneproj.confirm`` found: a confidence bound for every constraint.

    With ``correction="holm"`` or ``"fixed-sequence"``: with probability at least
    ``confidence``, over the draw of the rows, all confidence bounds are right together,
    and every constraint that is said to hold does. With ``"none"``: each bound by
    itself is right with that probability, and ``holds``, which says that all
    constraints hold, is wrong with probability at most ``1 - confidence``.

    Attributes:
        checks: Name to what was found about that constraint.
        confidence: The probability that the statement above is right.
        correction: How several constraints share the error; ``"independent"`` for
            thresholds that an estimator chose, each on rows of its own.

    Of more than 20 constraints the worst 10 are printed; ``checks`` has all.

    Example:
        >>> check = ConstraintCheck(0.003, "<=", 0.01, 0.0077, 1000, True, "binomial")
        >>> found = Confirmation({"fpr": check}, 0.95, "holm")
        >>> found.holds, found["fpr"].confidence_bound
        (True, 0.0077)
    """

    checks: Mapping[str, ConstraintCheck]
    confidence: float
    correction: str

    def __getitem__(self, name: str) -> ConstraintCheck:
        """What was found about the constraint of that name."""
        if name in self.checks:
            return self.checks[name]
        message = f"No constraint {name!r} was checked, only: {', '.join(self.checks)}."
        raise KeyError(message)

    @property
    def holds(self) -> bool:
        """Whether all constraints hold together, at the confidence."""
        return all(check.holds for check in self.checks.values())

    def to_dict(self) -> dict[str, Any]:
        """This confirmation in plain JSON types, for ``json.dump``."""
        return super().to_dict() | {"holds": self.holds}

    def _shown(self) -> tuple[Sequence[str], list[str]]:
        """The constraints to print, and a sentence about the others."""
        names = list(self.checks)
        if len(names) <= MOST_ROWS or self.correction == "fixed-sequence":
            return names, []  # a fixed sequence is read in its order
        names.sort(key=lambda name: self.checks[name]._excess(), reverse=True)  # noqa: SLF001 - our own
        others = [self.checks[name] for name in names[WORST_ROWS:]]
        held = sum(check.holds for check in others)
        share = {0: "none of which is confirmed", len(others): "all of which hold"}
        which = share.get(held, f"{held} of which hold")
        said = (
            f"and {len(others)} more, {which}: shown are the {WORST_ROWS} whose "
            "confidence bound is worst, compared with what it must be. All are in "
            "`checks`."
        )
        return names[:WORST_ROWS], [said]

    def _parts(self) -> list[Rows | str]:
        names, others = self._shown()
        rows = [(name, *self.checks[name]._cells()) for name in names]  # noqa: SLF001 - our own
        said = STATEMENTS[self.correction].format(
            at_least=f"at least {self.confidence:g}",
            at_most=f"at most {1 - self.confidence:.6g}",
        )
        if self.correction in ("holm", "fixed-sequence") and any(
            c.holds and c.rows and c.confidence_bound == c.bound
            for c in self.checks.values()
        ):
            said += " " + OWN_BOUND
        verdict = "All hold together." if self.holds else "Not all are confirmed."
        return [[HEADING, *rows], *others, said, verdict]


def confirm(
    constraints: Constraints,
    confidence: float = 0.95,
    *,
    training: Training | None = None,
    range: Range | Mapping[str, Range] | None = None,  # noqa: A002 - the field's word
    correction: Correction = "holm",
    seed: int = 0,
) -> Confirmation:
    """Bound every constraint on new data, from rows that training did not see.

    A constraint is said to hold if its confidence bound satisfies it. Three things must
    be true for that: the rows are independent draws of the data that the model will
    meet; the model and the constraints were fixed before these rows were looked at; and
    none of them was used for training.

    Args:
        constraints: Name to constraint, as for ``Problem``, over held-out rows.
        confidence: The probability, over the draw of the rows, with which the
            statement of ``Confirmation`` is right; 0.95 by default.
        training: What the model was trained on: the ``Problem``, its constraints, a
            term, or the data itself. Rows that are in it are refused, as far as that
            can be told: rows in the same memory; and rows with equal numbers, if there
            are more than duplicates explain. Scaled, rounded or augmented copies are
            not recognised. Terms that were part of a ``Problem``, or of a projection,
            are refused also without this argument.
        range: The smallest and the largest value that a loss in ``oneproj.mean`` can
            have on any example, weights included; or a dict from the constraint's name
            to that pair. A mean has no confidence bound without it.
        correction: How several constraints share the error. ``"holm"``: all bounds are
            right together (Holm 1979; bounds of Guilbaud 2008). Where some constraints
            hold and others are not confirmed, the bound of those that hold is the
            constraint's own. ``"fixed-sequence"``: in the order given, each with the
            whole error, up to the first that is not confirmed: put first what is most
            likely to hold. ``"none"``: each with the whole error. ``holds`` is still
            right with the confidence, since it takes a wrong bound of a constraint that
            is violated (Berger 1982): the most powerful choice if only "all hold" is
            of interest.
        seed: Of the order in which the betting bound sees the values of a mean.

    The bounds, each valid for every number of rows:

    - a rate: exact binomial (Clopper and Pearson 1934), given the rows of its class;
    - ``precision >= p``: the same, given the accepted rows;
    - ``a r + b s`` of two rates over different rows, such as a gap between groups: the
      inverted exact test of both counts (Buehler 1957). Rows count as different if they
      are different rows of one table in memory, chosen by ``where``: of two tables one
      may hold the rows of the other, changed;
    - other sums: the bounds of the parts, which share the error (the union bound, valid
      whatever the rows have in common);
    - ``oneproj.mean``: betting (Waudby-Smith and Ramdas 2024);
    - ``oneproj.function`` and sets: no data, no error. If a function reads data by
      itself, this is wrong: state it as a mean.

    Raises:
        InvalidProblemError: Rows were trained on; a rate has weights, so that its count
            is not binomial; a mean has no range, or a value outside of it; an argument
            does not make sense; or the ranks of a process group have different rows.

    Example:
        >>> import oneproj
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(2000, 1, generator=generator)
        >>> y = x[:, 0] + 0.5 * torch.randn(2000, generator=generator) > 0
        >>> score = lambda rows: rows[:, 0] - 0.5          # was trained on other rows
        >>> fpr = oneproj.rates.false_positive_rate(score, data=(x, y))
        >>> found = confirm({"fpr": fpr <= 0.04}, confidence=0.95)
        >>> found.holds, found["fpr"].rows
        (True, 1012)
        >>> round(found["fpr"].observed, 4), round(found["fpr"].confidence_bound, 4)
        (0.0257, 0.0355)
    """
    with agreeing("oneproj.confirm") as facts:
        error = as_error(confidence)
        named = named_constraints(constraints)
        if correction not in CORRECTIONS:
            known = ", ".join(map(repr, CORRECTIONS))
            message = (
                f"correction must be one of {known}, got {correction!r}. It says how "
                "several constraints share the error."
            )
            raise InvalidProblemError(message)
        if not named:
            message = (
                "There is no constraint to confirm. Pass a dict: {'fpr': fpr <= 0.1}."
            )
            raise InvalidProblemError(message)
        check_untouched(named, training)
        evidence = gather(named, error, range, seed)
        found = _judge(evidence, error, correction, float(confidence))
        if compares_ranks():
            facts.update(setting_facts({"confidence": confidence, "seed": seed}))
            facts.update(_facts(found))
    return found


def _facts(found: Confirmation) -> dict[str, Fact]:
    """What all ranks of a process group must agree on."""
    facts = setting_facts({"correction": found.correction})
    for name, check in found.checks.items():
        room = DEFAULTS.range_rounding * (1.0 + abs(check.observed))
        facts[f"the number of rows of {name!r}"] = Fact(str(check.rows), "data")
        facts[f"the observed value of {name!r}"] = Fact(check.observed, "data", room)
        facts[f"the bound of {name!r}"] = Fact(check.bound, "data")
    return facts


class Claim:
    """One constraint and the estimates of its parts: ``sum_k a_k t_k + b <= 0``."""

    def __init__(
        self,
        constraint: AbstractTerm,
        estimates: Sequence[Part],
        constant: float,
        *,
        different_rows: bool,
    ) -> None:
        """Keep the parts, and whether no row is in two of them."""
        self.sign, self.bound = 1, 0.0
        if isinstance(constraint, Constraint):
            self.sign, self.bound = constraint.sense, constraint.bound
            if isinstance(constraint.term, PrecisionTerm):
                self.bound = constraint.term.least
        self._parts, self._constant = estimates, constant
        self._different_rows = different_rows
        self.is_exact = all(isinstance(t, Known) for _, t in estimates)

    def upper(self, error: float) -> float:
        """An upper confidence bound on the residual; it holds if that is <= 0."""
        different = self._different_rows
        total = upper_of_sum(self._parts, error, different_rows=different)
        return total + self._constant

    def check(self, residual: float, *, holds: bool) -> ConstraintCheck:
        """What is reported, if this is the upper bound on the residual."""
        offset = self.bound + self.sign * self._constant  # 0 for a term by itself
        observed = math.fsum(a * t.observed for a, t in self._parts)
        rows = tuple(t.rows for _, t in self._parts if t.rows)
        return ConstraintCheck(
            observed=self.sign * observed + offset,
            sense="<=" if self.sign > 0 else ">=",
            bound=self.bound,
            confidence_bound=self.bound + self.sign * residual,
            rows=sum(rows),
            holds=holds,
            method=self._method(),
            rows_each=rows if len(rows) > 1 else (),
        )

    def _method(self) -> str:
        kinds = [type(t) for _, t in self._parts if not isinstance(t, Known)]
        if not kinds:
            return "no data, no error"
        if len(kinds) > 1:
            pair = self._different_rows and len(self._parts) == 2  # noqa: PLR2004
            return "exact, two binomials" if pair else "union bound"
        return "exact binomial" if kinds[0] is Count else "betting"


def gather(
    constraints: Mapping[str, AbstractTerm],
    error: float,
    values_range: Range | Mapping[str, Range] | None,
    seed: int,
) -> dict[str, Claim]:
    """Evaluate every term once, on all of its rows.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1)
        >>> size = oneproj.function(lambda: w.norm())
        >>> gather({"size": size <= 2.0}, 0.05, None, 0)["size"].upper(0.05)
        -1.0
    """
    ranges = _as_ranges(values_range, constraints)
    why = "It draws the order of the rows."
    order = check_count("seed", seed, why, least=0)
    known: dict[tuple[int, Range | None], AbstractEstimate] = {}

    def estimate(name: str, term: AbstractExpression) -> AbstractEstimate:
        at = id(term.original), ranges[name]
        if at not in known:
            known[at] = _estimate(name, term, ranges[name], error, order)
        return known[at]

    with torch.no_grad(), evaluating_when_called():
        return {name: _claim(name, c, estimate) for name, c in constraints.items()}


def _claim(
    name: str,
    constraint: AbstractTerm,
    estimate: Callable[[str, AbstractExpression], AbstractEstimate],
) -> Claim:
    """A constraint with the estimates of its parts; a term that comes twice, once."""
    if not isinstance(constraint, Constraint):  # a set: no data
        return Claim(constraint, [], constraint.value(), different_rows=False)
    if isinstance(constraint.term, PrecisionTerm):
        return _precision_claim(constraint, constraint.term)
    weighted, constant = parts(constraint)
    terms = {id(term.original): term for _, term in weighted}
    factors = dict.fromkeys(terms, 0.0)
    for factor, term in weighted:
        factors[id(term.original)] += factor
    found = [Part(factors[key], estimate(name, term)) for key, term in terms.items()]
    different = _have_different_rows(list(terms.values()))
    return Claim(constraint, found, constant, different_rows=different)


def _precision_claim(constraint: Constraint, term: PrecisionTerm) -> Claim:
    hits, alarms = (rate for _, rate in term.terms)
    for rate in (hits, alarms):
        _check_unweighted(constraint.name, rate)
    tp, fp = (rate.counts().events for rate in (hits, alarms) if isinstance(rate, Rate))
    count = Part(-1.0, Count(tp, tp + fp))
    return Claim(constraint, [count], term.least, different_rows=False)


def _estimate(
    name: str,
    term: AbstractExpression,
    values_range: Range | None,
    error: float,
    seed: int,
) -> AbstractEstimate:
    """What the rows say about one term."""
    if isinstance(term, Rate):
        _check_unweighted(name, term)
        counts = term.counts()
        return Count(counts.events, counts.rows)
    if isinstance(term, Function):
        return Known(term.value())
    if isinstance(term, Mean):
        return _average(name, term, values_range, error, seed)
    message = (
        f"{name!r} has a term of type {type(term).__name__}, for which no confidence "
        "bound is known. Rates, oneproj.mean and oneproj.function have one."
    )
    raise InvalidProblemError(message)


def _check_unweighted(name: str, rate: object) -> None:
    if not (isinstance(rate, Rate) and rate.weights is not None):
        return
    message = (
        f"{name!r} has a weighted rate ({rate!r}): its count is not binomial, and "
        "the exact bound would be wrong for it. Confirm the rate without weights, or "
        "the mean of the weighted excess with a range that the weights cannot leave: "
        "oneproj.mean(lambda batch: w(batch) * (decision(batch) - bound), data) <= 0, "
        "range=(-bound * largest_weight, (1 - bound) * largest_weight)."
    )
    raise InvalidProblemError(message)


def _average(
    name: str, term: Mean, values_range: Range | None, error: float, seed: int
) -> Average:
    """The values of a mean in a random order, checked against their range."""
    if values_range is None:
        message = (
            f"{name!r} is a mean of losses, and needs their range: a value that was "
            "never seen, however rare, may be so large that no bound on the mean holds "
            'without it. Pass range=(0, 1), or range={"risk": (0, 4)} by name. Of a '
            "loss without a largest value confirm a rate, or the loss clamped."
        )
        raise InvalidProblemError(message)
    each = term.full_pass(None).each
    if each is None or not bool(torch.isfinite(each).all()):
        quantity = f"the value of {name!r}"
        raise NonFiniteError(quantity)
    values = each.double().cpu().numpy()
    low, high = values_range
    room = DEFAULTS.range_rounding * (high - low)
    if values.min() < low - room or values.max() > high + room:
        message = (
            f"{name!r} was observed between {values.min():.6g} and {values.max():.6g}, "
            f"outside of its range ({low:g}, {high:g}). The bound holds only if no "
            "example, weights included, can leave the range. Widen it, or clamp the "
            "loss."
        )
        raise InvalidProblemError(message)
    shuffled = np.random.default_rng(seed).permutation(np.clip(values, low, high))
    return Average(shuffled, low, high, error)


def _have_different_rows(terms: Sequence[AbstractExpression]) -> bool:
    """Whether two rates are known to be over different rows."""
    if len(terms) != 2 or not all(isinstance(term, Rate) for term in terms):  # noqa: PLR2004 - a pair
        return False
    return rows_in_common(*(RowSet(*t.read_rows()[0]) for t in terms)) == 0


def _judge(
    claims: Mapping[str, Claim], error: float, correction: str, confidence: float
) -> Confirmation:
    """Decide which constraints hold, and the bounds that may be stated together.

    "holm": the step-down test of Holm (1979). Its simultaneous bounds (Guilbaud 2008;
    Strassburger and Bretz 2008): constraints that hold, while others do not, get their
    own bound; the others share the error. If all hold, all share the error, and the
    smaller of that bound and the constraint's counts. "fixed-sequence" likewise.
    """
    exact = {name: c.upper(error) for name, c in claims.items() if c.is_exact}
    tested = [name for name in claims if name not in exact]
    held, uppers = {name: value <= 0 for name, value in exact.items()}, dict(exact)
    if correction == "none":
        uppers |= {name: claims[name].upper(error) for name in tested}
        held |= {name: uppers[name] <= 0 for name in tested}
    else:
        step_down = _holm if correction == "holm" else _fixed_sequence
        confirmed, left = step_down({name: claims[name] for name in tested}, error)
        held |= {name: name in confirmed for name in tested}
        uppers |= dict.fromkeys(confirmed, 0.0) | left
        if not left:
            for name in tested:
                uppers[name] = min(0.0, claims[name].upper(error / len(tested)))
    checks = {n: c.check(uppers[n], holds=held[n]) for n, c in claims.items()}
    return Confirmation(checks, confidence, correction)


def _holm(
    claims: Mapping[str, Claim], error: float
) -> tuple[list[str], dict[str, float]]:
    """The constraints that hold, and the bounds on the residuals of the others."""
    confirmed: list[str] = []
    while len(confirmed) < len(claims):
        left = [name for name in claims if name not in confirmed]
        uppers = {name: claims[name].upper(error / len(left)) for name in left}
        more = [name for name in left if uppers[name] <= 0]
        if not more:
            return confirmed, uppers
        confirmed += more
    return confirmed, {}


def _fixed_sequence(
    claims: Mapping[str, Claim], error: float
) -> tuple[list[str], dict[str, float]]:
    """The same, tested in order; after the first failure nothing can be said."""
    confirmed: list[str] = []
    for name, claim in claims.items():
        upper = claim.upper(error)
        if upper > 0:
            later = list(claims)[len(confirmed) + 1 :]
            return confirmed, {name: upper} | dict.fromkeys(later, math.inf)
        confirmed.append(name)
    return confirmed, {}


def _as_ranges(
    given: Range | Mapping[str, Range] | None, names: Iterable[str]
) -> dict[str, Range | None]:
    """The range of every constraint's losses, checked."""
    wanted = list(names)
    if not isinstance(given, Mapping):
        return dict.fromkeys(wanted, None if given is None else _as_range(given))
    unknown = [name for name in given if name not in wanted]
    if unknown:
        message = (
            f"range names {unknown[0]!r}, which is no constraint; there are: "
            f"{', '.join(map(repr, wanted))}."
        )
        raise InvalidProblemError(message)
    return {n: _as_range(given[n]) if n in given else None for n in wanted}


def _as_range(given: object) -> Range:
    pair = list(given) if isinstance(given, Sequence) else []
    ends = [as_number(end) for end in pair]
    if len(ends) == 2:  # noqa: PLR2004 - a pair
        low, high = ends
        if low is not None and high is not None and low < high:
            return low, high
    message = (
        f"range must be a pair of finite numbers, the smaller first, got {given!r}. No "
        "loss of any example may be outside: (0, 1), for example."
    )
    raise InvalidProblemError(message)
