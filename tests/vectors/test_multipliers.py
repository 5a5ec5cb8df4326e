"""Multipliers against SciPy's and CVXPY's, and inner products in pieces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor

from oneproj.vectors import qp as module
from oneproj.vectors.qp import GrowingCone, estimate_multipliers, gram

examples = settings(derandomize=True, deadline=None, max_examples=100)
SEEDS = st.integers(0, 2**31)


def multipliers(f: list[Tensor], c: list[list[Tensor]]) -> np.ndarray:
    return estimate_multipliers(gram([f, *c]))


def wide(*values: float) -> list[Tensor]:
    return [torch.tensor(values, dtype=torch.float64)]


def rows(seed: int, m: int, d: int) -> list[list[Tensor]]:
    """Vectors of two tensors each: the objective's and m of constraints."""
    generator = np.random.default_rng(seed)
    drawn = torch.from_numpy(generator.normal(size=(m + 1, d)))
    return [[row[:1], row[1:]] for row in drawn]


def flat(vector: list[Tensor]) -> np.ndarray:
    return torch.cat(vector).numpy()


@examples
@given(seed=SEEDS, m=st.integers(1, 6), spare=st.integers(1, 6))
def test_multipliers_are_those_of_scipys_nonnegative_least_squares(
    seed: int, m: int, spare: int
) -> None:
    f, *c = rows(seed, m, m + spare)
    expected, _ = nnls(np.stack([flat(row) for row in c], axis=1), -flat(f))
    np.testing.assert_allclose(multipliers(f, c), expected, rtol=1e-8, atol=1e-10)


@examples
@given(seed=SEEDS, m=st.integers(2, 8), d=st.integers(2, 4), scale=st.floats(-8, 8))
def test_more_constraints_than_dimensions_leave_the_same_residual(
    seed: int, m: int, d: int, scale: float
) -> None:
    # The multipliers are not unique then; what is left of the objective is.
    f, *c = rows(seed, m, d)
    c = [[10**scale * part for part in row] for row in c]
    A = np.stack([flat(row) for row in c], axis=1)
    _, least = nnls(A, -flat(f))
    mu = multipliers(f, c)
    assert mu.min() >= 0
    left = float(np.linalg.norm(flat(f) + A @ mu))
    assert left == pytest.approx(least, abs=1e-7 * np.linalg.norm(flat(f)))


@examples
@given(seed=SEEDS, angle=st.floats(-9, 0), scale=st.floats(-6, 6))
def test_two_constraints_at_any_angle_leave_the_least_residual(
    seed: int, angle: float, scale: float
) -> None:
    f, first, other = rows(seed, 2, 4)
    second = [
        10**scale * (a + 10**angle * b) for a, b in zip(first, other, strict=True)
    ]
    A = np.stack([flat(first), flat(second)], axis=1)
    _, least = nnls(A, -flat(f))
    mu = multipliers(f, [first, second])
    assert mu.min() >= 0
    left = float(np.linalg.norm(flat(f) + A @ mu))
    assert left == pytest.approx(least, abs=1e-7 * np.linalg.norm(flat(f)))


def test_no_constraint_and_a_flat_one_have_no_multiplier() -> None:
    assert multipliers(wide(1.0, 2.0), []).tolist() == []
    assert multipliers(wide(1.0, 2.0), [wide(0.0, 0.0)]).tolist() == [0.0]
    assert multipliers(wide(0.0, 0.0), [wide(1.0, 0.0)]).tolist() == [0.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("m", [1, 2])
def test_products_that_are_not_finite_give_no_multiplier(m: int, bad: float) -> None:
    c = [wide(1.0, 0.0), wide(1.0, 1.0)][:m]
    assert multipliers(wide(-1.0, bad), c).tolist() == [0.0] * m


def test_duplicates_share_the_multiplier() -> None:
    c = wide(2.0, 1.0)
    mu = multipliers(wide(-4.0, -2.0), [c, c, c])
    assert mu.min() >= 0
    assert mu.sum() == pytest.approx(2.0, rel=1e-12)


def test_of_opposite_constraints_one_holds() -> None:
    mu = multipliers(wide(-4.0), [wide(2.0), wide(-2.0)])
    assert mu == pytest.approx([2.0, 0.0], abs=1e-14)


@pytest.mark.parametrize("small", [1, 4, 100])
def test_inner_products_do_not_depend_on_how_vectors_are_cut(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL", small)
    drawn = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 12)))
    cut = [[r[:2], r[2:3].reshape(()), r[3:12].reshape(3, 3)] for r in drawn]
    cut[1][0] = cut[1][0].float()
    drawn[1, :2] = drawn[1, :2].float().double()
    np.testing.assert_allclose(gram(cut), drawn @ drawn.T, rtol=1e-13)


@examples
@given(seed=SEEDS, m=st.integers(1, 6), d=st.integers(2, 8), e=st.integers(-6, 6))
def test_prices_lower_the_multipliers(seed: int, m: int, d: int, e: int) -> None:
    # The conditions of optimality: no slope is negative, none where mu > 0.
    f, *c = rows(seed, m, d)
    c = [[10.0**e * part for part in row] for row in c]
    prices = 10.0**e * np.random.default_rng(seed).uniform(size=m)
    mu = estimate_multipliers(gram([f, *c]), prices)
    A = np.stack([flat(row) for row in c])
    slope = (A @ (flat(f) + mu @ A) + prices) / 10.0**e
    assert mu.min() >= 0
    assert slope.min() >= -1e-9
    assert (10.0**e * mu * slope) == pytest.approx(np.zeros(m), abs=1e-9)


def cone(f: list[Tensor], c: list[list[Tensor]], *prices: float) -> GrowingCone:
    program = GrowingCone(f)
    for row, price in zip(c, prices or [0.0] * len(c), strict=True):
        program.add(dict(enumerate(row)), price)
    return program


def test_nearly_parallel_gradients_are_distinguished() -> None:
    # f = (-1, 3e-7) is balanced by a and b, which are parallel to 1e-6. The Gram matrix
    # alone, of condition 1e12, leaves 1e-8 or so; the gradients themselves decide.
    f, a, b = wide(-1.0, 3e-7), wide(1.0, 1e-6), wide(1.0, -1e-6)
    found = cone(f, [a, b]).solve()
    assert found.norm <= 1e-15
    assert found.multipliers == pytest.approx([0.35, 0.65], abs=1e-8)


def test_refinement_uses_the_prices() -> None:
    # As above, with 1e-13 to pay for each unit of a: v.a = -1e-13 and v.b = 0 decide.
    f, a, b = wide(-1.0, 3e-7), wide(1.0, 1e-6), wide(1.0, -1e-6)
    v = flat(cone(f, [a, b], 1e-13, 0.0).solve().vector)
    products = [v @ flat(a), v @ flat(b)]
    assert products == pytest.approx([-1e-13, 0.0], abs=1e-15)  # v is rounded at 2e-16


@examples
@given(seed=SEEDS, m=st.integers(1, 6), d=st.integers(2, 6))
def test_a_growing_cone_is_solved_as_a_whole(seed: int, m: int, d: int) -> None:
    f, *c = rows(seed, m, d)
    grown = cone(f, [])
    for row in c:
        grown.add(dict(enumerate(row)))
        grown.solve()
    found = grown.solve()
    _, least = nnls(np.stack([flat(row) for row in c], axis=1), -flat(f))
    assert found.norm == pytest.approx(least, rel=1e-9, abs=1e-12)
    assert found.norm == pytest.approx(np.linalg.norm(flat(found.vector)), rel=1e-12)


def test_a_normal_of_one_tensor_leaves_the_others_alone() -> None:
    program = GrowingCone([*wide(1.0), *wide(-2.0, 0.0)])
    program.add({1: wide(1.0, 0.0)[0]})
    found = program.solve()
    assert found.multipliers == pytest.approx([2.0])
    assert flat(found.vector) == pytest.approx([1.0, 0.0, 0.0], abs=1e-15)


def test_zero_gradients_do_no_harm() -> None:
    nothing, one = wide(0.0, 0.0), wide(3.0, 4.0)
    assert cone(one, [nothing]).solve().norm == pytest.approx(5.0)
    assert cone(nothing, [one]).solve().norm == 0.0
