"""The curvature estimate: BFGS that follows the multipliers, positive definite."""

from __future__ import annotations

import numpy as np
import pytest

from oneproj.projection.curvature import Curvature


def symmetric(size: int, seed: int, shift: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size))
    return A + A.T + shift * np.eye(size)


def test_without_moves_it_is_the_identity() -> None:
    curvature = Curvature(memory=3)
    assert curvature.inverse(np.array([5.0]), 3).tolist() == np.eye(3).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_it_satisfies_the_last_secant_equation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    H = [symmetric(4, seed, 8.0), symmetric(4, seed + 100, 8.0)]
    mu = rng.uniform(0.1, 2.0, size=2)
    curvature = Curvature(memory=10)
    for _ in range(6):
        s = rng.normal(size=4)
        curvature.add(s, np.array([h @ s for h in H]))
    y = s + sum(m * h @ s for m, h in zip(mu, H, strict=True))
    np.testing.assert_allclose(curvature.inverse(mu, 4) @ y, s, atol=1e-10)


def test_old_moves_count_for_the_present_multipliers() -> None:
    curvature = Curvature(memory=10)
    curvature.add(np.array([1.0]), np.array([[3.0], [5.0]]))
    for mu, expected in (((1.0, 0.0), 4.0), ((0.0, 1.0), 6.0), ((2.0, 0.4), 9.0)):
        inverse = curvature.inverse(np.array(mu), 1)
        assert inverse.item() == pytest.approx(1 / expected)


def test_conjugate_moves_give_the_hessian() -> None:
    H = np.diag([1.0, 3.0, 7.0])
    curvature = Curvature(memory=10)
    for s in np.eye(3):
        curvature.add(s, (H @ s)[None, :])
    found = np.linalg.inv(curvature.inverse(np.array([2.0]), 3))
    np.testing.assert_allclose(found, np.eye(3) + 2.0 * H, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_it_stays_positive_definite_where_the_constraints_bend_down(seed: int) -> None:
    rng = np.random.default_rng(seed)
    H = symmetric(5, seed, -6.0)
    curvature = Curvature(memory=12)
    for _ in range(12):
        s = rng.normal(size=5)
        curvature.add(s, (H @ s)[None, :])
    inverse = curvature.inverse(np.array([3.0]), 5)
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-8, atol=1e-12)
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0


def test_coordinates_from_before_the_frame_grew_are_padded() -> None:
    curvature = Curvature(memory=5)
    curvature.add(np.array([1.0]), np.array([[3.0]]))
    inverse = curvature.inverse(np.array([1.0]), 3)
    np.testing.assert_allclose(inverse, np.diag([0.25, 1.0, 1.0]))


@pytest.mark.parametrize(("memory", "kept"), [(0, 0), (1, 1), (2, 2), (9, 4)])
def test_only_the_most_recent_moves_are_kept(memory: int, kept: int) -> None:
    curvature = Curvature(memory)
    for k in range(4):
        s = np.zeros(4)
        s[k] = 1.0
        curvature.add(s, (3.0 * s)[None, :])
    expected = np.ones(4)
    expected[4 - kept :] = 0.25
    np.testing.assert_allclose(curvature.inverse(np.ones(1), 4), np.diag(expected))
