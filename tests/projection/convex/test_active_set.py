"""The quick solution: optimal where it is given, and given where it is easy."""

from __future__ import annotations

import numpy as np
import pytest

from oneproj.projection.convex.active_set import settled_minimiser


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


def nearly_equal(apart: float) -> np.ndarray:
    normals = np.array([[1.0, 0.0], [np.cos(apart), np.sin(apart)]])
    return np.asarray(normals @ normals.T)


@pytest.mark.parametrize("apart", [0.0, 1e-9, 1e-5])
@pytest.mark.parametrize("offset", [1.0, 1.0 - 1e-6])
def test_of_nearly_equal_normals_the_last_is_believed(
    apart: float, offset: float
) -> None:
    P, b, both = nearly_equal(apart), np.array([offset, 1.0]), np.ones(2, dtype=bool)
    z = settled_minimiser(P, b, both)
    if apart == 1e-5 and offset == 1.0:
        assert z is None, "both are needed, which takes more care"
    else:
        assert z is not None
        assert z.tolist() == [0.0, 1.0]


def test_the_last_one_is_believed_only_where_that_is_optimal() -> None:
    P, b = nearly_equal(1e-5), np.array([1.0 + 1e-6, 1.0])
    z = settled_minimiser(P, b, np.array([True, False]))
    assert z is not None
    assert z.tolist() == [1.0 + 1e-6, 0.0]
    assert settled_minimiser(P, b, np.ones(2, dtype=bool)) is None


def test_a_contradiction_is_left_to_others() -> None:
    # d <= -1 and -d <= -1 have no minimiser: the value falls without end.
    P = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert settled_minimiser(P, np.ones(2), np.zeros(2, dtype=bool)) is None
