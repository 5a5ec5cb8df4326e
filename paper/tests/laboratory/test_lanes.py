"""The scalar pieces of the compiled loop, against independent versions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from oneproj_paper.laboratory import lanes
from oneproj_paper.laboratory.problems import all_problems

POINTS = np.random.default_rng(0).uniform(-1, 1, (200, 2))


def test_logistic_equals_the_library_function_to_rounding() -> None:
    u = np.concatenate([np.linspace(-39.9, 39.9, 4001), [1e-300, -1e-300]])
    ours = np.array([lanes.logistic(float(v)) for v in u])
    np.testing.assert_allclose(ours, expit(u), rtol=5e-14, atol=0)


def test_logistic_beyond_saturation_is_within_5e_18() -> None:
    for u in (40.0, 41.0, 700.0, 1e9, math.inf):
        assert lanes.logistic(u) == expit(u) == 1.0
        assert abs(lanes.logistic(-u) - expit(-u)) < 5e-18


@pytest.mark.parametrize("problem", all_problems(), ids=lambda p: p.key)
def test_lane_functions_equal_the_array_versions(problem) -> None:  # noqa: ANN001
    set_ = problem.set
    g_at = lanes.disc_constraint if set_.shape == "disc" else lanes.dent_constraint
    points = np.concatenate([POINTS, [[problem.objective.center, 0.3]]])
    v = [lanes.saddle_gradient(*x, problem.objective.parameters) for x in points]
    g = np.array([g_at(*x, set_.parameters) for x in points])
    np.testing.assert_allclose(v, problem.objective.gradient(points), atol=1e-15)
    np.testing.assert_allclose(g[:, 0], set_.value(points), atol=1e-15)
    np.testing.assert_allclose(g[:, 1:], set_.gradient(points), atol=1e-14)
