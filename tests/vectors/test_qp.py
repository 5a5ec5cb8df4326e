"""The tiny quadratic program against clarabel, on regular and degenerate instances."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneproj.vectors.qp import _solve_bordered, solve_simplex_qp

FEW = settings(max_examples=40, derandomize=True, deadline=None, database=None)


def optimality(
    P: np.ndarray, w: np.ndarray, simplex: np.ndarray, z: np.ndarray
) -> tuple[float, float]:
    """The most negative slope along the simplex, and the complementarity."""
    slope = P @ z + w
    slope[simplex] -= slope[simplex] @ z[simplex]
    scale = 1.0 + np.abs(slope).max()
    return float(min(slope.min(), 0.0) / scale), float(np.abs(z @ slope) / scale)


def rows(rng: np.random.Generator, n: int, d: int, how: str) -> np.ndarray:
    A = rng.normal(size=(n, d))
    if how == "duplicates":
        A = A[rng.integers(0, max(1, n // 2), size=n)]
    if how == "integers":
        A = np.round(A)
    return A


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 20),
    d=st.integers(1, 8),
    how=st.sampled_from(["regular", "duplicates", "integers"]),
    flat=st.booleans(),
)
def test_agrees_with_clarabel(
    seed: int, n: int, d: int, how: str, *, flat: bool
) -> None:
    rng = np.random.default_rng(seed)
    A, k = rows(rng, n, d, how), int(rng.integers(1, n + 1))
    w = np.zeros(n) if flat else np.round(rng.normal(size=n), 1)
    w[k:] = np.abs(w[k:])  # bounded: no ray
    simplex = np.arange(n) < k
    P = A @ A.T
    found = solve_simplex_qp(P, w, simplex)
    assert found.ray is None
    assert found.z.min() >= 0.0
    assert found.z[simplex].sum() == pytest.approx(1.0, abs=1e-14)
    slope, complementarity = optimality(P, w, simplex, found.z)
    assert slope >= -1e-12
    assert complementarity <= 1e-12
    z = cp.Variable(n)
    value = 0.5 * cp.sum_squares(A.T @ z) + w @ z
    reference = cp.Problem(cp.Minimize(value), [z >= 0, cp.sum(z[:k]) == 1])
    reference.solve(solver=cp.CLARABEL)
    mine = 0.5 * found.z @ P @ found.z + w @ found.z
    assert mine <= reference.value + 1e-6 * (1 + abs(reference.value))


@pytest.mark.parametrize("how", ["regular", "duplicates", "integers"])
def test_every_minimiser_satisfies_its_conditions(how: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        n, d = int(rng.integers(10, 40)), int(rng.integers(1, 12))
        A, k = rows(rng, n, d, how), int(rng.integers(1, n))
        w, simplex = 0.1 * np.abs(rng.normal(size=n)), np.arange(n) < k
        P = A @ A.T
        z = solve_simplex_qp(P, w, simplex).z
        assert z.min() >= 0.0
        slope, complementarity = optimality(P, w, simplex, z)
        assert slope >= -1e-12
        assert complementarity <= 1e-12


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(3, 15), d=st.integers(1, 6))
def test_a_warm_start_reaches_the_same_value(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    A, w = rng.normal(size=(n, d)), np.abs(rng.normal(size=n))
    simplex = np.arange(n) % 2 == 0
    P = A @ A.T
    k = n - 1
    start = solve_simplex_qp(P[:k, :k], w[:k], simplex[:k]).z
    warm = solve_simplex_qp(P, w, simplex, np.append(start, 0.0)).z
    cold = solve_simplex_qp(P, w, simplex).z
    values = [0.5 * z @ P @ z + w @ z for z in (warm, cold)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_of_two_equal_rows_the_lower_takes_all() -> None:
    P = np.ones((3, 3))
    found = solve_simplex_qp(P, np.array([3.0, 1.0, 2.0]), np.array([True] * 3))
    assert found.z.tolist() == [0.0, 1.0, 0.0]


def test_the_minimum_norm_point_of_a_segment() -> None:
    # From (1, 2) to (1, -1) the point nearest to 0 is (1, 0), a third of the way up.
    A = np.array([[1.0, 2.0], [1.0, -1.0]])
    z = solve_simplex_qp(A @ A.T, np.zeros(2), np.array([True, True])).z
    assert z == pytest.approx([1 / 3, 2 / 3], abs=1e-15)


@pytest.mark.parametrize("seed", range(10))
def test_an_unbounded_program_returns_its_ray(seed: int) -> None:
    # Three constraint cuts that exclude each other: they balance, up to rounding, and
    # ask for less than nothing. The curvature along the ray is rounding, not zero.
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 3))
    A = np.array([np.zeros(3), a, b, -(0.3 * a + 0.7 * b)])
    w = np.array([0.0, -1.0, -1.0, 0.5])
    ray = solve_simplex_qp(A @ A.T, w, np.array([True, False, False, False])).ray
    assert ray is not None
    assert ray[0] == 0.0
    assert (ray >= 0).all()
    assert A.T @ ray == pytest.approx(np.zeros(3), abs=1e-12)
    assert w @ ray < 0


def test_nothing_free_is_a_system_without_unknowns() -> None:
    none = np.zeros(0)
    found = _solve_bordered(np.zeros((0, 0)), none.astype(bool), none, 0.0)
    assert found.shape == (0,)
