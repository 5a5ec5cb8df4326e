"""Maximising concave functions of a few nonnegative numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from oneproj.projection.within_sets import DualValue, ascend
from oneproj.vectors.arithmetic import Array


@pytest.mark.parametrize("seed", range(10))
def test_a_concave_quadratic_is_maximised_as_by_least_squares(seed: int) -> None:
    generator = np.random.default_rng(seed)
    A, b = generator.standard_normal((6, 4)), generator.standard_normal(6)
    H = A.T @ A

    def dual(z: Array) -> DualValue:
        return DualValue(float(b @ A @ z - 0.5 * z @ H @ z), A.T @ b - H @ z)

    enough = np.full(4, 1e-12)
    z = ascend(dual, H, np.zeros(4), enough=enough, far=np.inf, unit=1.0)
    np.testing.assert_allclose(z, nnls(A, b)[0], atol=1e-9)
    assert (z >= 0).all()


def test_pieces_of_different_curvature_take_few_heights() -> None:
    """Slopes 1 - z up to 0.9, then a hundredth of that: a Newton step overshoots."""
    seen = []

    def dual(z: Array) -> DualValue:
        seen.append(z)
        over = np.maximum(z - 0.9, 0.0)
        gradient = 1.0 - np.minimum(z, 0.9) - 0.01 * over
        below = np.minimum(z, 0.9)
        value = below - 0.5 * below**2 + 0.1 * over - 0.005 * over**2
        return DualValue(float(value[0]), gradient)

    one = np.ones((1, 1))
    enough = np.array([1e-12])
    z = ascend(dual, one, np.zeros(1), enough=enough, far=np.inf, unit=1.0)
    assert z[0] == pytest.approx(10.9, abs=1e-9)
    assert len(seen) <= 20


def test_it_stops_where_enough_is_proven() -> None:
    def dual(z: Array) -> DualValue:
        return DualValue(float(z[0]), np.ones(1), proof=float(z[0]))

    one, zero = np.ones((1, 1)), np.zeros(1)
    z = ascend(dual, one, zero, enough=zero, far=1e6, unit=1.0)
    assert 1e6 < z[0] < np.inf
