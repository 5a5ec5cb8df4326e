"""What a user without rates would do: tune a surrogate's cap, or move the threshold."""

from __future__ import annotations

import copy
import math
import warnings
from typing import NamedTuple

import torch

import oneproj
from benchmarks.rates.problems import Instance, RateProblem, build
from oneproj.problem.terms import Combination, Constraint, Weighted
from oneproj.rates import Rate, parts

TIGHTER = (-0.1, -0.03, 0.0, 0.01, 0.03, 0.1)
"""How much the cap of a surrogate is tightened; the best that is feasible counts."""


class Reference(NamedTuple):
    """The best objective among points whose counts are feasible; inf if none is."""

    threshold: float
    """Of the plain model with another threshold."""
    surrogate: float
    """Of models trained with caps on sigmoids of the score, the best of ``TIGHTER``."""

    @property
    def best(self) -> float:
        """The better of the two."""
        return min(self)


def refer(problem: RateProblem, *, steps: int = 500) -> Reference:
    """Compute both references."""
    return Reference(
        threshold_rule(build(problem), steps=steps), tuned_cap(problem, steps=steps)
    )


def threshold_rule(instance: Instance, *, steps: int = 500) -> float:
    """Train without bounds, then move the last bias to the best feasible place.

    Bounds on anything but rates are met by ``oneproj.project`` first.
    """
    _solve(instance.problem({}), steps)
    others = {n: c for n, c in instance.bounds.items() if not parts(c).rates}
    if others:
        oneproj.project(list(instance.model.parameters()), others)
    bias = list(instance.model.parameters())[-1]
    with torch.no_grad():
        scores = instance.model(instance.table.x)
        plain = float(bias)
        cuts = torch.quantile(scores[:100_000], torch.linspace(0, 1, 201))
        cuts = torch.cat([cuts, scores.max()[None] + 1.0, scores.min()[None] - 1.0])
        best = math.inf
        for cut in [0.0, *cuts.tolist()]:
            bias.fill_(plain - cut)
            if _is_feasible(instance):
                best = min(best, instance.objective.value())
    return best


def tuned_cap(problem: RateProblem, *, steps: int = 500) -> float:
    """Train with caps on sigmoids of the score; the best whose counts are feasible."""
    best, instance = math.inf, build(problem)
    start = copy.deepcopy(instance.model.state_dict())
    for tighter in TIGHTER:
        instance.model.load_state_dict(start)
        caps = {
            name: _smooth(c, tighter) if parts(c).rates else c
            for name, c in instance.bounds.items()
        }
        try:
            _solve(instance.problem(caps), steps)
        except oneproj.OneprojError:  # such a cap has no point
            continue
        if _is_feasible(instance):
            best = min(best, instance.objective.value())
    return best


def _solve(problem: oneproj.Problem, steps: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oneproj.OneprojWarning)
        oneproj.solve(problem, steps=steps, progress=False)


def _smooth(constraint: Constraint, tighter: float) -> Constraint:
    """The constraint with sigmoids of the score in place of decisions."""
    found = parts(constraint)
    smooth = tuple(
        Weighted(a, t.surrogate(width=1.0) if isinstance(t, Rate) else t)
        for a, t in found.weighted
    )
    return Constraint(Combination(smooth, found.constant), -tighter, sense=1)


def _is_feasible(instance: Instance) -> bool:
    return all(c.value() <= 0 for c in instance.bounds.values())
