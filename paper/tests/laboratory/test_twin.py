"""The compiled twin makes the trajectory of the public optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from oneproj.methods.one_projection import OneProjection
from oneproj.oracles.penalties import Hinge, Softplus
from oneproj.theory import Schedule
from oneproj_paper.laboratory import kernel, lanes
from oneproj_paper.laboratory.base import AbstractLaboratoryProblem
from oneproj_paper.laboratory.bridge import constraint_value, objective_value
from oneproj_paper.laboratory.problems import all_problems
from oneproj_paper.laboratory.twin import Twin, trial_words

PROBLEMS = all_problems()
NAMES = [problem.key for problem in PROBLEMS]
OUTER = 3


def sharp(problem: AbstractLaboratoryProblem, K: int) -> Schedule:
    """The theorem's own parameters with another K; 1/K is still the smoothing.

    Near the boundary the softplus bends by lambda^2 K / 4, and the first steps, of size
    1/m, multiply a rounding error by that: two correct programs part after some 100
    steps. So K is small here.
    """
    full = problem.schedule
    smoothing = None if full.smoothing is None else 1.0 / K
    return replace(full, outer_steps=OUTER, inner_steps=K, smoothing=smoothing)


def gentle(problem: AbstractLaboratoryProblem, K: int) -> Schedule:
    """Smaller steps and a wider softplus: rounding errors shrink, K may be large."""
    full = sharp(problem, K)
    smoothing = None if full.smoothing is None else 0.5
    return replace(full, strong_convexity=60.0, smoothing=smoothing)


def noise_signs(words: np.ndarray, steps: int) -> np.ndarray:
    """The signs that one inner run uses, shape (steps, 2, n), without a compiler.

    An inner run takes a new word for every 64 steps and drops the bits left over.
    """
    blocks = -(-steps // kernel.BLOCK)
    count = np.arange(1, blocks + 1, dtype=np.uint64)[:, None, None]
    word = words[None] + count * np.uint64(lanes.GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(lanes.MIX_1)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(lanes.MIX_2)
    word = word ^ (word >> np.uint64(31))
    bit = np.arange(kernel.BLOCK, dtype=np.uint64)[None, :, None, None]
    plus = (word[:, None] >> bit) & np.uint64(1)
    signs = np.where(plus == 1, 1.0, -1.0)
    return signs.reshape(-1, *words.shape)[:steps]


def public_path(
    problem: AbstractLaboratoryProblem,
    schedule: Schedule,
    x: np.ndarray,
    words: np.ndarray,
) -> list[np.ndarray]:
    """x_1..x_T of one trial by ``OneProjection``, on the twin's noise."""
    w = torch.tensor(x, requires_grad=True)
    optimizer = OneProjection(
        [w],
        strong_convexity=schedule.strong_convexity,
        prox_weight=schedule.prox_weight,
        inner_steps=schedule.inner_steps,
        radius=1.0,
    )
    lam, gamma = schedule.strength, schedule.smoothing
    penalty = Hinge(lam) if gamma is None else Softplus(lam, gamma)
    path, word = [], words[:, None].copy()
    blocks = -(-schedule.inner_steps // 64)
    for _ in range(schedule.outer_steps):
        for sign in noise_signs(word, schedule.inner_steps)[:, :, 0]:
            optimizer.zero_grad()
            noise = torch.from_numpy(problem.noise * sign)
            g = constraint_value(problem, w)
            (objective_value(problem, w) + penalty(g) + noise @ w).backward()
            optimizer.step()
        optimizer.eval()
        path.append(w.detach().numpy().copy())
        optimizer.train()
        word += np.full_like(word, blocks) * np.uint64(lanes.GOLDEN)  # wraps
    return path


@pytest.mark.filterwarnings("ignore:The selected iterate is the start")  # K = 1
@pytest.mark.parametrize(("make", "K"), [(sharp, 1), (sharp, 64), (gentle, 200)])
@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_twin_and_public_optimiser_zip(
    problem: AbstractLaboratoryProblem,
    make: Callable[[AbstractLaboratoryProblem, int], Schedule],
    K: int,
) -> None:
    schedule = make(problem, K)
    starts = np.stack([problem.start_point, problem.solutions[0]])
    words = trial_words(3, problem.key, len(starts))
    twin = Twin(problem, schedule, starts, words)
    twin_path = np.array([twin.advance() for _ in range(OUTER)])
    for i, x in enumerate(starts):
        public = public_path(problem, schedule, x, words[:, i])
        np.testing.assert_allclose(twin_path[:, i], public, rtol=0, atol=1e-10)
    if K > 1:
        assert np.abs(twin_path[-1] - starts).max() > 1e-3
    else:  # the average is taken before the step, so x stays where it is
        np.testing.assert_array_equal(twin_path[-1], starts)
