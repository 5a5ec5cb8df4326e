"""The curvature estimate: BFGS that follows the multipliers, positive definite."""

from __future__ import annotations

import numpy as np
import pytest

from oneproj.projection.nonconvex.curvature import LEAST, Curvature


def symmetric(size: int, seed: int, shift: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size))
    return A + A.T + shift * np.eye(size)


def inverse(curvature: Curvature, mu: np.ndarray, size: int) -> np.ndarray:
    return curvature.divide(np.eye(size), mu)


def test_without_moves_it_is_the_identity() -> None:
    curvature = Curvature(memory=3)
    assert inverse(curvature, np.array([5.0]), 3).tolist() == np.eye(3).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_all_moves_at_once_are_the_moves_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    H = symmetric(6, seed, 2.0)
    curvature, M = Curvature(memory=20), np.eye(6)
    for _ in range(9):
        s = rng.normal(size=6)
        curvature.add(s, (H @ s)[None, :])
        bent = s @ H @ s / (s @ s)
        share = 1.0 if 1.0 + 0.7 * bent >= LEAST else (LEAST - 1.0) / (0.7 * bent)
        y = s + share * 0.7 * H @ s
        Ms = M @ s
        M += np.outer(y, y) / (s @ y) - np.outer(Ms, Ms) / (s @ Ms)
    found = inverse(curvature, np.array([0.7]), 6)
    np.testing.assert_allclose(found @ M, np.eye(6), atol=1e-8)


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
    np.testing.assert_allclose(inverse(curvature, mu, 4) @ y, s, atol=1e-10)


def test_old_moves_count_for_the_present_multipliers() -> None:
    curvature = Curvature(memory=10)
    curvature.add(np.array([1.0]), np.array([[3.0], [5.0]]))
    for mu, expected in (((1.0, 0.0), 4.0), ((0.0, 1.0), 6.0), ((2.0, 0.4), 9.0)):
        found = inverse(curvature, np.array(mu), 1)
        assert found.item() == pytest.approx(1 / expected)


def test_conjugate_moves_give_the_hessian() -> None:
    H = np.diag([1.0, 3.0, 7.0])
    curvature = Curvature(memory=10)
    for s in np.eye(3):
        curvature.add(s, (H @ s)[None, :])
    found = np.linalg.inv(inverse(curvature, np.array([2.0]), 3))
    np.testing.assert_allclose(found, np.eye(3) + 2.0 * H, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_it_stays_positive_definite_where_the_constraints_bend_down(seed: int) -> None:
    rng = np.random.default_rng(seed)
    H = symmetric(5, seed, -6.0)
    curvature = Curvature(memory=12)
    for _ in range(12):
        s = rng.normal(size=5)
        curvature.add(s, (H @ s)[None, :])
    found = inverse(curvature, np.array([3.0]), 5)
    np.testing.assert_allclose(found, found.T, rtol=1e-8, atol=1e-8)
    assert np.linalg.eigvalsh((found + found.T) / 2).min() > 0


def test_the_length_of_a_move_does_not_matter() -> None:
    short, long = Curvature(memory=5), Curvature(memory=5)
    for k, length in ((0, 1e-8), (1, 1e5)):
        s = np.eye(2)[k] + 0.5
        short.add(s, 3.0 * s[None, :])
        long.add(length * s, 3.0 * length * s[None, :])
    mu = np.array([1.0])
    np.testing.assert_allclose(inverse(short, mu, 2), inverse(long, mu, 2))


@pytest.mark.parametrize(("memory", "kept"), [(0, 0), (1, 1), (2, 2), (9, 4)])
def test_only_the_most_recent_moves_are_kept(memory: int, kept: int) -> None:
    curvature = Curvature(memory)
    for k in range(4):
        s = np.zeros(4)
        s[k] = 1.0
        curvature.add(s, (3.0 * s)[None, :])
    expected = np.ones(4)
    expected[4 - kept :] = 0.25
    np.testing.assert_allclose(inverse(curvature, np.ones(1), 4), np.diag(expected))
