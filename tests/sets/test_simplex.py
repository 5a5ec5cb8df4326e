"""The simplex and the L1 ball against bisection, clarabel and each other."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oneproj
from oneproj import InvalidProblemError
from oneproj.sets import L1Ball, Simplex

examples = settings(derandomize=True, deadline=None, max_examples=50)
SEEDS = st.integers(0, 2**31)
SCALES = st.sampled_from([1e-3, 0.1, 1.0, 100.0])
DTYPES = [torch.float32, torch.float64]
Array = npt.NDArray[np.float64]


def bisected(x: Array, total: float) -> float:
    """The threshold by bisection: the naive twin of sorting."""
    low, high = x.min() - total, x.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(x - middle, 0).sum() > total else (low, middle)
        )
    return float(high)


@examples
@given(seed=SEEDS, scale=SCALES, n=st.integers(1, 30))
def test_sorting_finds_what_bisection_finds(seed: int, scale: float, n: int) -> None:
    x = scale * np.random.default_rng(seed).normal(size=n)
    found = Simplex(1.5).project(torch.tensor(x)).numpy()
    exact = np.maximum(x - bisected(x, 1.5), 0.0)
    assert found == pytest.approx(exact, abs=1e-13 * (1 + scale))


# --- the simplex --------------------------------------------------------------


@examples
@given(seed=SEEDS, scale=SCALES)
def test_the_simplex_agrees_with_clarabel(seed: int, scale: float) -> None:
    x = scale * np.random.default_rng(seed).normal(size=8)
    v = cp.Variable(8)
    apart = cp.Minimize(cp.sum_squares(v - x))
    cp.Problem(apart, [v >= 0, cp.sum(v) == 2.0]).solve(solver=cp.CLARABEL)
    simplex = Simplex(2.0)
    p = simplex.project(torch.tensor(x))
    np.testing.assert_allclose(p.numpy(), v.value, atol=1e-5)
    assert simplex.residual(torch.tensor(x)).item() == pytest.approx(
        np.linalg.norm(x - p.numpy()), rel=1e-9, abs=1e-11
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 20_000])
def test_members_are_nonnegative_exactly_and_sum_up(n: int, dtype: torch.dtype) -> None:
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        w = torch.randn(n, generator=g, dtype=dtype, requires_grad=True)
        done = oneproj.project(w, {"p": Simplex(3.0).on(w)})
        assert done.residuals["p"] <= 0
        assert w.min().item() >= 0
        total = math.fsum(w.detach().double().tolist())
        assert total == pytest.approx(3.0, rel=20 * torch.finfo(dtype).eps), "exact"


def test_who_is_a_member_and_how_far_are_others() -> None:
    simplex = Simplex(1.0, tolerance=0.1)  # the slab 0.9 <= sum <= 1.1
    root = math.sqrt(2)
    for x, expected, normal in (
        ([0.5, 0.5], -0.1 / root, None),
        ([0.5, 0.55], -0.05 / root, [1 / root, 1 / root]),
        ([0.5, 0.45], -0.05 / root, [-1 / root, -1 / root]),
        ([0.98, 0.02], -0.02, [0.0, -1.0]),
        ([1.0, 0.0], 0.0, [0.0, -1.0]),
        ([0.6, 0.7], 0.2 / root, [1 / root, 1 / root]),
        ([0.2, 0.3], 0.4 / root, [-1 / root, -1 / root]),
        ([1.0, -1e-30], 1e-30, [0.0, -1.0]),
        ([2.1, -5.0], math.hypot(1.0, 5.0), [1 / 26**0.5, -5 / 26**0.5]),
    ):
        point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        residual = simplex.residual(point)
        (gradient,) = torch.autograd.grad(residual, point)
        assert residual.item() == pytest.approx(expected, rel=1e-12, abs=1e-16)
        if normal is not None:
            assert gradient.tolist() == pytest.approx(normal, abs=1e-15)
        moved = simplex.project(point.detach())
        assert moved.sum().item() == pytest.approx(1.0) or torch.equal(moved, point)


def test_a_member_stays_and_others_get_exact_zeros() -> None:
    inside = torch.tensor([0.25, 0.75, 0.0])
    assert torch.equal(Simplex().project(inside, margin=0.1), inside)
    p = Simplex().project(torch.tensor([9.0, 8.5, -1.0]), margin=0.1)
    assert p.tolist() == [0.75, 0.25, 0.0]


@pytest.mark.parametrize("total", [0.0, -1.0, math.nan, math.inf])
def test_a_simplex_needs_a_total(total: float) -> None:
    with pytest.raises(
        InvalidProblemError, match=f"one finite number > 0, got {total}"
    ):
        Simplex(total)


# --- the L1 ball --------------------------------------------------------------


@examples
@given(seed=SEEDS, scale=SCALES)
def test_the_l1_ball_agrees_with_clarabel(seed: int, scale: float) -> None:
    x = scale * np.random.default_rng(seed).normal(size=(2, 4))
    v = cp.Variable((2, 4))
    apart = cp.Minimize(cp.sum_squares(v - x))
    cp.Problem(apart, [cp.sum(cp.abs(v)) <= 1.5]).solve(solver=cp.CLARABEL)
    p = L1Ball(1.5).project(torch.tensor(x))
    np.testing.assert_allclose(p.numpy(), v.value, atol=1e-5)
    outside = np.linalg.norm(x - p.numpy())
    expected = outside if outside > 0 else (np.abs(x).sum() - 1.5) / math.sqrt(8)
    found = L1Ball(1.5).residual(torch.tensor(x)).item()
    assert found == pytest.approx(expected, rel=1e-9)


@examples
@given(seed=SEEDS)
def test_outside_it_is_the_simplex_with_signs(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(9, generator=generator, dtype=torch.float64)
    p = L1Ball(1.0).project(x)
    torch.testing.assert_close(
        p, x.sign() * Simplex().project(x.abs()), atol=1e-15, rtol=0
    )


def test_the_margin_is_kept_within_the_face() -> None:
    x = torch.tensor([3.0, -2.0, 0.25, 0.0], dtype=torch.float64)
    p = L1Ball(2.0).project(x, margin=0.1)  # two entries are left
    assert p.abs().sum().item() == pytest.approx(2.0 - 0.1 * math.sqrt(2))
    assert L1Ball(1.0).project(x, margin=5.0).tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_answers_are_exactly_sparse_and_on_the_boundary(
    dtype: torch.dtype,
) -> None:
    g = torch.Generator().manual_seed(0)
    w = torch.randn(30_000, generator=g, dtype=dtype, requires_grad=True)
    done = oneproj.project(w, {"l1": L1Ball(2.0).on(w)})
    x = w.detach().double()
    assert done.residuals["l1"] <= 0
    assert 0 < x.count_nonzero() < 100
    assert math.fsum(x.abs().tolist()) == pytest.approx(
        2.0, rel=30 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf])
def test_an_l1_ball_needs_a_radius(radius: float) -> None:
    with pytest.raises(InvalidProblemError, match=f"L1 ball .* > 0, got {radius}"):
        L1Ball(radius)


@pytest.mark.parametrize("members", [Simplex(), L1Ball(1.0)])
def test_no_entries_no_set(members: Simplex | L1Ball) -> None:
    with pytest.raises(InvalidProblemError, match=r"\(0, 3\) has no entries"):
        members.on(torch.zeros(0, 3, requires_grad=True))
