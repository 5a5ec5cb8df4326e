"""Projecting onto bounds on counts: surrogate bounds, searched until the counts hold.

A count is a staircase, which no projector can follow. So the projection is onto a
smooth set, ``s(z) <= cap``, with s the surrogate in place of every rate. What the
cap should be is found by a fixed-point iteration. At the point y of the last round,
with the count c and the surrogate s relative to the least value L that rates can give
the constraint,

    ``cap = L + (s(y) - L) (-a - L) / (c(y) - L)``:

the surrogate has to change by the factor by which the count has to, from c to -a. The
aim a is half a row. Where the count is -a already, the cap is s(y): the point is kept,
and no slack is left. Where it is lower, the cap is looser than s(y), and the point
returns towards the start. Every projection is from the start, so that the answer is
near it.

Where a count is missed, a move of the thresholds is tried (``ThresholdMover``), from
the start and from where each round ends: if it meets the counts, so does the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from oneproj.errors import InvalidProblemError, warn
from oneproj.problem.terms import (
    AbstractExpression,
    AbstractTerm,
    Combination,
    Constraint,
    Weighted,
)
from oneproj.rates.defaults import DEFAULTS
from oneproj.rates.functions import PrecisionTerm
from oneproj.rates.terms import Parts, Rate, parts
from oneproj.rates.thresholds import ThresholdMover
from oneproj.results import Projection, Status
from oneproj.vectors.arithmetic import (
    Vector,
    assign,
    combine,
    distance,
    relative_distance,
    snapshot,
)

Project = Callable[[Vector, Mapping[str, AbstractTerm]], Projection]
"""``AbstractProjector.project``."""


def has_rates(constraint: AbstractTerm) -> bool:
    """Return whether a constraint bounds a rate of decisions.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1, requires_grad=True)
        >>> has_rates(oneproj.function(w.sum) <= 1.0)
        False
    """
    return bool(parts(constraint).rates)


def replace_rates(
    constraint: AbstractTerm, replacement: Callable[[float, Rate], AbstractExpression]
) -> Constraint:
    """Return the constraint with another term in place of each of its rates.

    Args:
        constraint: With rates.
        replacement: Takes the factor of a rate in ``constraint <= 0``, and the rate.
    """
    found = parts(constraint)
    terms = tuple(
        Weighted(a, replacement(a, t) if isinstance(t, Rate) else t)
        for a, t in found.weighted
    )
    bound = Constraint(Combination(terms, 0.0), -found.constant, sense=1)
    if constraint.copied_from is None:  # the user's own, in no problem yet
        return bound
    return bound.named(constraint.name, constraint.model)


def smooth(constraint: AbstractTerm, widest: Sequence[float] = ()) -> Constraint:
    """Return the constraint with smooth surrogates in place of its rates.

    Their widths are those of the scores at the current parameters.

    Args:
        constraint: With rates.
        widest: A limit on the width of each of them; empty for none.

    Example:
        >>> import oneproj, torch
        >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[3.0], [-1.0]])
        >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
        >>> (accepted <= 0.5).value(), smooth(accepted <= 0.5).value() > 0
        (0.0, True)
    """
    limits = iter(widest)
    return replace_rates(
        constraint,
        lambda _, rate: rate.surrogate(width=min(rate.width(), next(limits, math.inf))),
    )


def upper_surrogate(
    constraint: AbstractTerm, *, width: float | None = None, linear: bool = False
) -> Constraint:
    """Return a constraint with gradients which implies the one on the counts.

    Every rate is replaced by a bound: one that is never below it where it has a
    positive factor in ``constraint <= 0``, one that is never above it where it has a
    negative one. Where the result is satisfied the counts are. It is convex in the
    scores, so for a linear score theorems on convex constraints hold, and ``project``
    proves how near its answer is. The price: fewer rows are counted than could be. Of a
    gap between two rates the bound is too loose to be of use: it is at least 1 where
    both groups have the same scores.

    Args:
        constraint: Of rates, as for ``Problem``; terms that are no rates stay.
        width: Of the surrogates, in units of the score: a row adds to the bound from
            this far on the right side of the threshold. None for the distance within
            which the rows nearest to the threshold lie at the current parameters.
        linear: Whether the score is linear in the parameters, up to a constant: the
            result is then declared convex.

    Example:
        >>> import oneproj, torch
        >>> w, x = torch.ones(1, requires_grad=True), torch.tensor([[3.0], [-1.0]])
        >>> accepted = oneproj.rates.positive_rate(lambda rows: rows @ w, data=x)
        >>> implied = upper_surrogate(accepted <= 0.5, width=2.0, linear=True)
        >>> (accepted <= 0.5).value(), implied.value(), implied.curvature
        (0.0, 1.0, 'convex')
    """
    if not has_rates(constraint):
        message = (
            "upper_surrogate takes a constraint on rates, such as false_positive_rate "
            f"<= 0.05, got {constraint!r}. Others have a gradient already."
        )
        raise InvalidProblemError(message)
    return replace_rates(
        constraint,
        lambda factor, rate: rate.surrogate(
            "upper" if factor > 0 else "lower", width=width, linear=linear
        ),
    )


class _Bound:
    """A constraint with rates, and the surrogate bounds that stand in for it."""

    def __init__(self, name: str, constraint: AbstractTerm) -> None:
        """Take the constraint apart."""
        self.name, self.constraint = name, constraint
        self._parts: Parts = parts(constraint)
        self._row = _row(self._parts)
        self._least = _least(self._parts, self._row)
        self._widths: list[float] = []

    def stand_in(self) -> Constraint:
        """The surrogate bound that fits the count at the parameters."""
        if not self._widths:  # else scores and widths could grow without end
            self._widths = [rate.width() for rate in self._parts.rates]
        bound = smooth(self.constraint, self._widths)
        count = self.constraint.value()
        cap = self._cap(count, bound.value())
        tuned = Constraint(bound.term, bound.bound + cap, sense=1)
        return tuned.named(self.name, self.constraint.model)

    def doubt(self) -> float:
        """How much rows at the threshold could add to the constraint by rounding."""
        pairs = self._parts.weighted
        return sum(abs(a) * t.doubt() for a, t in pairs if isinstance(t, Rate))

    def _cap(self, count: float, surrogate: float) -> float:
        """The bound on the surrogate under which the count is expected to hold."""
        least, aim = self._least, self._row / 2
        if least is None or least >= 0 or surrogate <= least or count <= least:
            return surrogate - count - aim
        wanted = max(-aim, least / 2)
        return least + (surrogate - least) * (wanted - least) / (count - least)


def _row(found: Parts) -> float:
    """What one row adds to a constraint, where it adds least."""
    pairs = [(a, t) for a, t in found.weighted if a != 0 and isinstance(t, Rate)]
    return min((abs(a) / len(t.rows) for a, t in pairs), default=0.0)


def _least(found: Parts, row: float) -> float | None:
    """The least value of a constraint whose terms are rates, minus a row.

    Minus a row: where no row may be counted, a sum of sigmoids is still positive.
    None where a term is no rate, for it may have any value.
    """
    if any(not isinstance(t, Rate) for _, t in found.weighted):
        return None
    return found.constant + sum(min(a, 0.0) for a, _ in found.weighted) - row


def project_counts(
    parameters: Vector, constraints: Mapping[str, AbstractTerm], project: Project
) -> Projection:
    """Move parameters to a near point where the counts satisfy their bounds, in place.

    Args:
        parameters: They hold the point to begin with.
        constraints: Name to constraint; at least one of them with rates.
        project: Of the projector that is used for surrogate bounds and the rest.

    Returns:
        A projection whose residuals are those of the counts. Its gradients are those
        of all rounds, and the passes over the data that evaluated counts. Counts have
        no gradients, so nothing says how near the nearest point is: the KKT residual
        is infinite if the point moved. The multipliers are those of the surrogates.
    """
    found = _Search(parameters, constraints, project).run()
    for name, constraint in constraints.items():
        term = constraint.term if isinstance(constraint, Constraint) else None
        if isinstance(term, PrecisionTerm) and term.stated.counts().rows == 0:
            warn(
                f"{name!r} holds since no row is accepted: a precision of nothing is "
                "undefined, and meets every bound. Add a bound on what must be found, "
                "such as true_positive_rate >= 0.3, or ask for less precision."
            )
    return found


class _Search:
    """The rounds of one correction, and the nearest point whose counts hold."""

    def __init__(
        self,
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        project: Project,
    ) -> None:
        """Count at the start."""
        self._parameters, self._constraints = parameters, constraints
        self._project, self._gradients = project, 0
        self._start = snapshot(parameters)
        self._bounds = [
            _Bound(name, c) for name, c in constraints.items() if has_rates(c)
        ]
        self._before = self._residuals()
        nothing, met = dict.fromkeys(constraints, 0.0), Status.FEASIBLE
        status = met if max(self._before.values()) <= 0 else Status.INFEASIBLE
        start = Projection(status, 0.0, self._before, nothing, 1, 0.0, self._before)
        self._best: tuple[Projection, list[Tensor]] = start, self._start
        self._mover: ThresholdMover | None = None

    def run(self) -> Projection:
        """Search, and leave the parameters at the best point."""
        if self._best[0].status.ok:
            return self._best[0]
        rated = {bound.name: bound.constraint for bound in self._bounds}
        self._mover = ThresholdMover(self._parameters, rated)
        self._gradients += 1  # of some scores, to find the offsets
        self._move_thresholds(self._best[0])
        rounds = 1
        while self._round() and rounds < DEFAULTS.rounds:
            rounds += 1
        found, point = self._best
        assign(self._parameters, point)
        if found.status.ok:
            found = self._return_along_line(found)
        moved = distance(self._start, self._parameters)
        return replace(
            found,
            distance=moved,
            relative_distance=relative_distance(moved, self._start),
            residuals_before=self._before,
            gradients=self._gradients,
            kkt_residual=math.inf if moved > 0 else 0.0,
            lower_bound=None,
            remark=f"{found.remark} {self._remark(rounds)}".strip(),
        )

    def _remark(self, rounds: int) -> str:
        """What the search did, in words."""
        times = "once" if rounds == 1 else f"{rounds} times"
        done = (
            "The residuals are those of the counts; surrogate bounds were projected "
            f"onto {times} to meet them."
        )
        best = self._best[0]
        if best.status.ok:
            return done
        over = {name: c for name, c in best.residuals.items() if c > 0}
        enough = ", ".join(f"{name!r} by {c:.3g}" for name, c in over.items())
        if self._mover is not None and self._mover.offsets:
            moves = "No move of the thresholds, from there or from the start, does."
            bias = ""
        else:
            moves = "No parameter moves all scores alike, as a bias would."
            bias = ", (d) a score with a bias, such as torch.nn.Linear has"
        return (
            f"{done} {moves} Try: (a) looser bounds: enough, at the best point, is "
            f"{enough}; (b) a start that was trained for few errors, (c) a larger "
            f"model or more columns, if the classes overlap too much{bias}."
        )

    def _residuals(self) -> dict[str, float]:
        """The value of every constraint; one pass over the data."""
        self._gradients += 1
        return {name: c.value() for name, c in self._constraints.items()}

    def _round(self) -> bool:
        """Project from the start onto new surrogate bounds; whether to go on."""
        stand_ins = {bound.name: bound.stand_in() for bound in self._bounds}
        self._gradients += 1  # counts and surrogates where the last round ended
        assign(self._parameters, self._start)
        found = self._project(self._parameters, {**self._constraints, **stand_ins})
        self._gradients += found.gradients
        best = self._best[0]
        found = self._judge(found)
        if not found.status.ok:
            self._move_thresholds(found)
        now = self._best[0]
        if not best.status.ok:
            return True
        if now is best:
            return False
        return now.distance < (1.0 - DEFAULTS.gain) * best.distance

    def _judge(self, found: Projection) -> Projection:
        """Count at the parameters, and keep that point if it is the best so far."""
        residuals = self._residuals()
        met = max(residuals.values()) <= 0
        here = replace(
            found,
            status=Status.FEASIBLE if met else Status.INFEASIBLE,
            distance=distance(self._start, self._parameters),
            residuals=residuals,
        )
        if self._is_better(here):
            self._best = here, snapshot(self._parameters)
        return here

    def _move_thresholds(self, found: Projection) -> None:
        """Try the best move of thresholds from the parameters, which then return."""
        here = snapshot(self._parameters)
        if self._mover is not None and self._mover.move(found.residuals):
            self._gradients += 1  # the scores, from which the move was found
            self._judge(found)
            assign(self._parameters, here)

    def _is_better(self, found: Projection) -> bool:
        best = self._best[0]
        if found.status.ok != best.status.ok:
            return found.status.ok
        if found.status.ok:
            return found.distance < best.distance
        return max(found.residuals.values()) < max(best.residuals.values())

    def _return_along_line(self, found: Projection) -> Projection:
        """Go back towards the start as far as the counts hold."""
        far, near, end = 1.0, 0.0, snapshot(self._parameters)
        residuals = found.residuals
        for _ in range(DEFAULTS.halvings):
            middle = (far + near) / 2
            self._go(end, middle)
            here = self._residuals()
            doubt = {bound.name: bound.doubt() for bound in self._bounds}
            if max(c + doubt.get(name, 0.0) for name, c in here.items()) <= 0:
                far, residuals = middle, here
            else:
                near = middle
        self._go(end, far)
        return replace(found, residuals=residuals)

    def _go(self, end: Vector, share: float) -> None:
        point = combine([1.0 - share, share], [self._start, end])
        assign(self._parameters, end if share == 1.0 else point)
