"""How far to go along a planned step."""

from __future__ import annotations

import math

from oneproj.projection.nonconvex.chart import Chart
from oneproj.projection.nonconvex.model import Place, Plan
from oneproj.vectors.arithmetic import Array

SHORTER, SHORTENINGS, SHORTEST = 0.4, 8, 1e-3
"""By how much a step is shortened, how many lengths are tried at most, and the share
of a step with which the next search begins at least."""
CORRECTED = 0.25
"""A correction is small beside the step: what moves the end by a larger share of it
says that the step led to where the model errs by more than it corrects."""
ROUNDING = 1e-13
"""Changes of the merit below this share are rounding."""

Tries = list[tuple[float, Place]]


class LineSearch:
    """Tries a step, its second-order correction if that is small, then shorter ones.

    It begins with the share of a step that the last search came to; with more, if that
    did not have to shorten. Without this memory, steps far from the feasible set take
    four gradients each: twice as many on tight caps, and the answers are no nearer.
    """

    def __init__(self, chart: Chart) -> None:
        """Begin with whole steps."""
        self._chart = chart
        self.share = 1.0
        """Of a step, with which the next search begins."""

    def search(self, start: Place, plan: Plan, rho: float, limit: float) -> Tries:
        """What was tried, each with its merit, until one is at most the limit."""
        tries: Tries = []
        limit += ROUNDING * abs(limit)
        share = self.share
        for _ in range(SHORTENINGS):
            if self._try(start, share * plan.p, plan, rho, tries) <= limit:
                break
            if share == 1.0 and tries:
                # The linear model was off by this much; aim at the true residuals.
                error = tries[-1][1].c - start.J.dot(plan.p)
                corrected, _ = plan.model.step(rho, error + plan.aim)
                change = math.hypot(*(corrected - plan.p))
                small = change <= CORRECTED * math.hypot(*plan.p)
                if small and self._try(start, corrected, plan, rho, tries) <= limit:
                    break
            share *= SHORTER
        if len(tries) <= 1:  # nothing was rejected; a place without a value is no hint
            share /= SHORTER
        self.share = min(max(share, SHORTEST), 1.0)
        return tries

    def _try(
        self, start: Place, step: Array, plan: Plan, rho: float, tries: Tries
    ) -> float:
        """Evaluate after a step and learn from it; the merit, inf if there is none."""
        trial = self._chart.visit(start.d + step)
        if trial is None:
            return math.inf
        self._chart.remember(start, trial)
        tries.append((trial.merit(rho, plan.aim), trial))
        return tries[-1][0]
