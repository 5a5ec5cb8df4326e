"""The compiled twin of Algorithm 1: outer iterations for several trials at once.

It must make the same trajectory as the public optimiser ``oneproj.OneProjection`` on
the same noise; a test zips the two.
"""

from __future__ import annotations

import zlib

import numpy as np

from oneproj.theory import Schedule
from oneproj.vectors.arithmetic import Array
from oneproj_paper.laboratory import kernel
from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.kernel import Words, compile_inner_run


class Twin:
    """Lines 1-4 of Algorithm 1 on a laboratory problem, up to eight trials at once.

    Args:
        problem: f, g, noise.
        schedule: K, m, beta and the penalty; T is the caller's loop.
        x: the current outer iterate of each trial, shape (n, 2), n <= 8.
        words: the state of each trial's random bits, shape (2, n), one row per
            coordinate. With ``x`` it is all there is to resume from.

    Example:
        >>> from oneproj_paper.laboratory.problems import smooth_problem
        >>> problem = smooth_problem()
        >>> x, words = np.tile(problem.start_point, (3, 1)), trial_words(0, "demo", 3)
        >>> twin = Twin(problem, problem.schedule, x, words)
        >>> twin.x.shape, twin.words.shape
        ((3, 2), (2, 3))
    """

    def __init__(
        self,
        problem: AbstractLaboratoryProblem,
        schedule: Schedule,
        x: Array,
        words: Words,
    ) -> None:
        """Put the trials into the lanes of the compiled loop."""
        self._n = len(x)
        self._K = schedule.inner_steps
        lam, gamma = schedule.strength, schedule.smoothing
        self._settings = (
            float(schedule.strong_convexity),
            float(schedule.prox_weight),
            float(lam),
            0.0 if gamma is None else lam / gamma,
            float(problem.noise),
        )
        self._objective = problem.objective.parameters
        self._constraint = problem.set.parameters
        self._shape, self._penalty = problem.set.shape, schedule.penalty
        self._state = np.zeros(kernel.STATE_SIZE)
        self._state[kernel.X1 : kernel.X1 + self._n] = x[:, 0]
        self._state[kernel.X2 : kernel.X2 + self._n] = x[:, 1]
        self._words = np.zeros((2, kernel.LANES), dtype=np.uint64)
        self._words[:, : self._n] = words

    @property
    def x(self) -> Array:
        """The current outer iterate of each trial, a copy of shape (n, 2)."""
        S, n = self._state, self._n
        both = [S[kernel.X1 : kernel.X1 + n], S[kernel.X2 : kernel.X2 + n]]
        return np.stack(both, axis=-1)

    @property
    def words(self) -> Words:
        """The state of the random bits, a copy of shape (2, n)."""
        return self._words[:, : self._n].copy()

    def advance(self) -> Array:
        """Make one outer iteration in every lane and return the new x."""
        run = compile_inner_run(self._shape, self._penalty)
        run(
            self._state,
            self._words.reshape(-1),
            self._n,
            self._K,
            self._settings,
            self._objective,
            self._constraint,
        )
        return self.x


def trial_words(seed: int, key: str, trials: int, first: int = 0) -> Words:
    """Return independent streams of random bits, one per trial and coordinate.

    A trial's stream depends on the seed, the key and its number only, not on how many
    trials there are or in which lane it runs.

    Example:
        >>> bool((trial_words(1, "a", 3)[:, 2:] == trial_words(1, "a", 1, 2)).all())
        True
    """
    name = zlib.crc32(key.encode())
    states = [
        np.random.SeedSequence(seed, spawn_key=(name, first + i)).generate_state(
            2, np.uint64
        )
        for i in range(trials)
    ]
    return np.array(states, dtype=np.uint64).T


def draw_indices(seed: int, key: str, trials: int, indices: range) -> list[int]:
    """Draw J for each trial, uniformly from the index set, before the run (line 5).

    Example:
        >>> all(j in range(1, 4) for j in draw_indices(0, "a", 20, range(1, 4)))
        True
    """
    name = zlib.crc32(key.encode())
    drawn = []
    for i in range(trials):
        sequence = np.random.SeedSequence(seed, spawn_key=(name, i, 1))
        position = np.random.default_rng(sequence).integers(len(indices))
        drawn.append(indices[int(position)])
    return drawn
