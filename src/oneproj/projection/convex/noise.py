"""An answer that stays feasible when it is computed in another order.

A function may be the difference of large numbers, and nothing tells how large: what it
says near 0 is then rounding. That shows in its values nearby, which should be what the
gradient says. An answer that is nearer to the boundary than this is taken inside, by
the shortest step.
"""

from __future__ import annotations

import math

from oneproj.errors import NonFiniteError
from oneproj.projection.convex.bundle import Bundle
from oneproj.projection.evaluator import Evaluator
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import norm

NEAR = 100.0
"""In margins: functions that are farther inside are not in question."""
SAFE = 4.0
"""How many times the noise that was seen an answer is to be inside."""
STEPS = 8
"""To take it there, at most: at the kinks of a maximum each finds one more."""
BEYOND = 1.5
"""By how much a step aims beyond that, and the next one beyond it."""


def secure(evaluator: Evaluator) -> None:
    """Take a feasible best point inside by the noise of its functions, if it is not.

    Functions with a bound have their size from it. Averages are added up in float64,
    and sets computed in it: these need no more than their margins. A point that cannot
    be taken there stays as it is.

    Example:
        >>> import torch
        >>> from oneproj.problem.functions import function
        >>> w = torch.tensor([2.0], requires_grad=True)
        >>> low = {"low": function(lambda: (w + 30.0 - 31.0).sum()) <= 0.0}
        >>> evaluator = Evaluator([w], low, differentiate_all=True)
        >>> _ = evaluator.move([torch.tensor([-1.0])]); secure(evaluator)
        >>> evaluator.best.values["low"] < -2e-6
        True
    """
    near = [name for name in evaluator.best.gradients if _is_near(evaluator, name)]
    if evaluator.best.worst > 0 or evaluator.best is evaluator.first or not near:
        return
    noise = {
        name: _rounding_of(evaluator, name, seen)
        for name, seen in evaluator.noise(near).items()
    }
    wanted = {name: SAFE * noise.get(name, 0.0) for name in evaluator.constraints}
    aim = {name: BEYOND * width for name, width in wanted.items()}
    bundle = Bundle(STEPS * len(evaluator.best.gradients) + 1)
    seen, pack, best = evaluator.best, evaluator.space.pack, evaluator.displacement()
    there, at = best, best.times(0.0)
    for _ in range(STEPS):
        if all(c <= -wanted[name] for name, c in seen.values.items()):
            break
        for name, gradient in seen.gradients.items():
            bundle.add(name, seen.values[name], pack(gradient), at)
        if not bundle.solve(aim):
            return
        at = bundle.displacement(at)
        there = best.minus(at.times(-1.0))
        try:
            seen = evaluator.move(there)
        except NonFiniteError:
            return
    if seen is not evaluator.best and all(
        c <= -wanted[n] for n, c in seen.values.items()
    ):
        evaluator.prefer(seen, there)


def _is_near(evaluator: Evaluator, name: str) -> bool:
    constraint, value = evaluator.constraints[name], evaluator.best.values[name]
    plain = constraint.size is None and not isinstance(constraint, SetConstraint)
    unknown = plain and constraint.scale() == 0.0
    return unknown and value > -NEAR * evaluator.margins[name]


def _rounding_of(evaluator: Evaluator, name: str, noise: float) -> float:
    """The noise; 0 if it is so large that the function is random, and not rounded."""
    slope = norm(evaluator.best.gradients[name])
    unit = evaluator.rounding(name, evaluator.best.values[name], slope) / evaluator.eps
    return noise if noise <= math.sqrt(evaluator.eps) * unit else 0.0
