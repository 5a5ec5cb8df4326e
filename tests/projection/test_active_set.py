"""The quick solution: optimal where it is given, and given where it is easy."""

from __future__ import annotations

import numpy as np
import pytest

from oneproj.projection.active_set import settled_minimiser


def gram(count: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    N = rng.normal(size=(count, size))
    N /= np.linalg.norm(N, axis=1, keepdims=True)
    return N @ N.T, rng.normal(size=count)


@pytest.mark.parametrize("seed", range(20))
def test_it_satisfies_the_optimality_conditions(seed: int) -> None:
    P, b = gram(6, 10, seed)
    guess = np.random.default_rng(seed).random(6) > 0.5
    z = settled_minimiser(P, b, guess)
    assert z is not None
    slope = P @ z - b
    assert (z >= 0).all()
    assert slope.min() >= -1e-12
    np.testing.assert_allclose(z * slope, 0.0, atol=1e-12)


def test_nothing_to_gain_is_nothing_done() -> None:
    P, _ = gram(3, 5, 0)
    z = settled_minimiser(P, -np.ones(3), np.ones(3, dtype=bool))
    assert z is not None
    assert z.tolist() == [0.0, 0.0, 0.0]
    none = settled_minimiser(np.zeros((0, 0)), np.zeros(0), np.zeros(0, dtype=bool))
    assert none is not None
    assert len(none) == 0


@pytest.mark.parametrize("apart", [0.0, 1e-9, 1e-5])
def test_nearly_equal_normals_are_left_to_others(apart: float) -> None:
    normals = np.array([[1.0, 0.0], [np.cos(apart), np.sin(apart)]])
    both = np.ones(2, dtype=bool)
    assert settled_minimiser(normals @ normals.T, np.array([1.0, 1.0]), both) is None


def test_a_contradiction_is_left_to_others() -> None:
    # d <= -1 and -d <= -1 have no minimiser: the value falls without end.
    P = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert settled_minimiser(P, np.ones(2), np.zeros(2, dtype=bool)) is None
