"""Lemma 1 (lem:inner) measured: how far one inner run stays from the minimum of H.

The subproblem is that of Theorem 3, H(z) = f(z) + lambda [g(z)]_+ + beta/2 |z - x|^2,
whose minimiser `penalized_prox` knows to machine precision. The gap H(average) - min H
is nonnegative and the lemma bounds its (1 - delta)-quantile by U_K, which is
(log K)/K up to constants. The rate to expect is 1/K: exactly so where H is smooth
around its minimiser, and with the logarithm where the minimiser sits on a kink, because
there each z_s overshoots by its own step 2/(m (s + 1)), and these sum to log K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from oneproj.theory import inner_bound
from oneproj.vectors.arithmetic import Array
from oneproj_paper.laboratory.kernel import LANES
from oneproj_paper.laboratory.nonconvex import NonconvexProblem
from oneproj_paper.laboratory.twin import Twin, trial_words

RESAMPLES = 400


@dataclass(frozen=True)
class InnerGaps:
    """Gaps of independent inner runs.

    Attributes:
        inner_steps: the values of K, shape (k,).
        gaps: H(average) - min H, shape (k, trials).
        strong_convexity: m.
        gradient_bound: G_H.
    """

    inner_steps: npt.NDArray[np.int64]
    gaps: Array
    strong_convexity: float
    gradient_bound: float

    def quantiles(self, delta: float) -> Array:
        """The (1 - delta)-quantile for each K, rounded up to an observed gap."""
        return np.quantile(self.gaps, 1.0 - delta, axis=1, method="higher")

    def bounds(self, delta: float) -> Array:
        """U_K(m, G_H, delta) for each K (eq. inner-bound)."""
        m, G = self.strong_convexity, self.gradient_bound
        return np.array([inner_bound(int(K), m, G, delta) for K in self.inner_steps])

    def slope(
        self, delta: float, rng: np.random.Generator, *, logarithm: bool = False
    ) -> tuple[float, float, float]:
        """Fit log(quantile) against log(K): the slope and a 95 % bootstrap interval.

        Args:
            delta: which quantile.
            rng: resamples the trials.
            logarithm: divide the quantile by log(K + 1) first, as U_K has it.
        """
        x = np.log(self.inner_steps)
        divisor = np.log(self.inner_steps + 1.0)[:, None] if logarithm else 1.0
        scaled = self.gaps / divisor
        trials = scaled.shape[1]

        def fit(sample: Array) -> float:
            y = np.log(np.quantile(sample, 1.0 - delta, axis=1, method="higher"))
            return float(np.polyfit(x, y, 1)[0])

        drawn = [
            fit(np.stack([row[rng.integers(trials, size=trials)] for row in scaled]))
            for _ in range(RESAMPLES)
        ]
        low, high = np.quantile(drawn, [0.025, 0.975])
        return fit(scaled), float(low), float(high)


def measure_inner_gaps(
    problem: NonconvexProblem,
    center: Array,
    inner_steps: Sequence[int],
    *,
    trials: int,
    seed: int,
) -> InnerGaps:
    """Run the inner loop with the twin, from the centre, for each K.

    Args:
        problem: the problem of Theorem 3.
        center: x_t, where the inner run starts as well.
        inner_steps: the values of K.
        trials: independent runs per K.
        seed: of the noise.

    Example:
        >>> from oneproj_paper.laboratory.problems import nonconvex_problem
        >>> problem = nonconvex_problem()
        >>> found = measure_inner_gaps(
        ...     problem, problem.start_point, [10, 1000], trials=8, seed=0
        ... )
        >>> bool((found.gaps >= 0).all()), found.gaps.shape
        (True, (2, 8))
    """
    schedule = problem.schedule
    lam, beta = schedule.strength, schedule.prox_weight

    def subproblem(z: Array) -> Array:
        penalty = lam * np.maximum(problem.set.value(z), 0.0)
        pull: Array = 0.5 * beta * ((z - center) ** 2).sum(-1)
        return problem.objective.value(z) + penalty + pull

    least = subproblem(problem.witness(center[None]).y)
    gaps = np.empty((len(inner_steps), trials))
    for k, K in enumerate(inner_steps):
        short = replace(schedule, inner_steps=K)
        for first in range(0, trials, LANES):
            n = min(LANES, trials - first)
            words = trial_words(seed, f"lemma-1-{K}", n, first)
            average = Twin(problem, short, np.tile(center, (n, 1)), words).advance()
            gaps[k, first : first + n] = subproblem(average) - least
    G = problem.constants.subproblem_gradient_bound(lam, beta)
    return InnerGaps(np.array(inner_steps), gaps, schedule.strong_convexity, G)
