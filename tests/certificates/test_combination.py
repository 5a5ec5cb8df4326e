"""The shortest combination of gradients: least squares with signs, hulls and cones."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj.certificates.multipliers import Combiner, shortest_combination

FEW = settings(max_examples=25, derandomize=True, deadline=None, database=None)


def vector(row: np.ndarray) -> list[Tensor]:
    """As two tensors, so that nothing relies on a flat one."""
    half = len(row) // 2
    return [torch.tensor(row[:half]), torch.tensor(row[half:]).reshape(1, -1)]


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 8),
    k=st.integers(0, 6),
    e=st.integers(-6, 6),
)
def test_is_nonnegative_least_squares(seed: int, n: int, k: int, e: int) -> None:
    rng = np.random.default_rng(seed)
    f, J = rng.normal(size=n), rng.normal(size=(k, n)) * 10.0**e
    found = shortest_combination([vector(f)], [vector(row) for row in J])
    residual = np.linalg.norm(f)
    if k:
        mu, residual = scipy.optimize.nnls(J.T, -f)
        if k <= n:
            assert found.weights[1:] == pytest.approx(mu, rel=1e-8, abs=1e-9 * 10.0**-e)
    assert found.norm == pytest.approx(residual, rel=1e-9, abs=1e-12)
    assert min(found.weights) >= 0


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(2, 5), k=st.integers(1, 6))
def test_is_the_distance_from_hull_plus_cone(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    H, C = rng.normal(size=(k, n)) + 0.5, rng.normal(size=(2, n))
    found = shortest_combination([vector(h) for h in H], [vector(c) for c in C])
    a, t = cp.Variable(k, nonneg=True), cp.Variable(2, nonneg=True)
    length = cp.norm(H.T @ a + C.T @ t)
    reference = cp.Problem(cp.Minimize(length), [cp.sum(a) == 1]).solve(cp.CLARABEL)
    assert found.norm == pytest.approx(reference, abs=1e-6)


def test_nearly_parallel_gradients_are_told_apart() -> None:
    # f = (-1, 3e-7) is balanced by a and b, which are parallel to 1e-6. The Gram matrix
    # alone, of condition 1e12, leaves 1e-8 or so; the gradients themselves decide.
    f, a, b = np.array([-1.0, 3e-7]), np.array([1.0, 1e-6]), np.array([1.0, -1e-6])
    found = shortest_combination([vector(f)], [vector(a), vector(b)])
    assert found.norm <= 1e-15
    assert found.weights == pytest.approx([1.0, 0.35, 0.65], abs=1e-8)


def test_refinement_knows_the_prices() -> None:
    # As above, with 1e-13 to pay for each unit of a: v.a = -1e-13 and v.b = 0 decide.
    f, a, b = np.array([-1.0, 3e-7]), np.array([1.0, 1e-6]), np.array([1.0, -1e-6])
    program = Combiner([vector(f)])
    program.add(dict(enumerate(vector(a))), price=1e-13)
    program.add(dict(enumerate(vector(b))))
    found = program.solve()
    v = np.concatenate([part.flatten().numpy() for part in found.vector])
    assert [v @ a, v @ b] == pytest.approx([-1e-13, 0.0], abs=1e-16)


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), k=st.integers(1, 6))
def test_a_growing_cone_is_solved_as_a_whole(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    f, J, price = rng.normal(size=n), rng.normal(size=(k, n)), rng.uniform(size=k)
    grown, whole = Combiner([vector(f)]), Combiner([vector(f)])
    for row, p in zip(J, price.tolist(), strict=True):
        grown.add(dict(enumerate(vector(row))), p)
        grown.solve()
        whole.add(dict(enumerate(vector(row))), p)
    z = np.array(grown.solve().weights[1:])
    slope = J @ (f + z @ J) + price
    assert (slope >= -1e-9).all()
    assert z * slope == pytest.approx(np.zeros(k), abs=1e-9)
    assert grown.solve().norm == pytest.approx(whole.solve().norm, rel=1e-9, abs=1e-12)


def test_zero_gradients_do_no_harm() -> None:
    nothing, one = vector(np.zeros(2)), vector(np.array([3.0, 4.0]))
    assert shortest_combination([one], [nothing]).norm == pytest.approx(5.0)
    assert shortest_combination([nothing], [one]).norm == 0.0
