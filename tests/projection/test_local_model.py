"""The curvature of the local search, in a basis that runs out of room."""

from __future__ import annotations

import numpy as np

from oneproj.projection.local_model import QuasiNewton


def test_reducing_the_span_keeps_the_estimate_in_it() -> None:
    random = np.random.default_rng(0)
    size, kept = 8, 5
    root = random.normal(size=(size, size))
    bends = [root @ root.T / size, np.diag(np.arange(size) / size)]
    mu = np.array([0.7, 0.4])
    curvature = QuasiNewton(memory=100)
    for _ in range(4):
        move = random.normal(size=size)
        curvature.add(move, np.array([bend @ move for bend in bends]))
    before = np.linalg.inv(curvature.solve(np.eye(size), mu))
    turn = np.zeros((size, size))
    turn[:kept] = np.linalg.qr(random.normal(size=(size, kept)))[0].T
    curvature.reduce(turn, mu)
    after = np.linalg.inv(curvature.solve(np.eye(size), mu))
    expected = turn[:kept] @ before @ turn[:kept].T
    np.testing.assert_allclose(after[:kept, :kept], expected, atol=1e-12)
    np.testing.assert_allclose(after[kept:, kept:], np.eye(size - kept), atol=1e-12)


def test_reducing_without_multipliers_forgets_all_moves() -> None:
    curvature = QuasiNewton(memory=5)
    curvature.add(np.array([2.0, 0.0]), np.array([[6.0, 0.0]]))
    curvature.reduce(np.eye(2), np.zeros(1))
    assert not curvature.moves
