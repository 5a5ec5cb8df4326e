"""Sets of matrices against numpy's singular values and clarabel."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oneproj
from oneproj import InvalidProblemError
from oneproj.sets import AbstractSet, NuclearBall, Rank, SpectralBall

examples = settings(derandomize=True, deadline=None, max_examples=50)
SEEDS = st.integers(0, 2**31)
SHAPES = st.sampled_from([(1, 1), (1, 4), (3, 3), (5, 3), (2, 6)])
DTYPES = [torch.float32, torch.float64]


def by_hand(X: np.ndarray, members: AbstractSet) -> np.ndarray:
    """Move the singular values, one at a time, and multiply out again."""
    U, s, Vh = np.linalg.svd(X, full_matrices=False)
    if isinstance(members, SpectralBall):
        s = np.array([min(v, members.radius) for v in s])
    elif isinstance(members, NuclearBall) and s.sum() > members.radius:
        low, high = 0.0, s.max()
        for _ in range(200):
            theta = (low + high) / 2
            too_low = sum(max(v - theta, 0) for v in s) > members.radius
            low, high = (theta, high) if too_low else (low, theta)
        s = np.array([max(v - high, 0) for v in s])
    elif isinstance(members, Rank):
        s = np.array([v if i < members.rank else 0.0 for i, v in enumerate(s)])
    return sum(v * np.outer(U[:, i], Vh[i]) for i, v in enumerate(s))


@examples
@given(seed=SEEDS, shape=SHAPES, radius=st.floats(0.1, 10.0))
def test_the_balls_agree_with_the_svd_by_hand(
    seed: int, shape: tuple[int, int], radius: float
) -> None:
    X = 2 * np.random.default_rng(seed).normal(size=shape)
    s = np.linalg.svd(X, compute_uv=False)
    for members, inside in (
        (NuclearBall(radius), (s.sum() - radius) / math.sqrt(len(s))),
        (SpectralBall(radius), s[0] - radius),
    ):
        P = by_hand(X, members)
        found = members.project(torch.tensor(X)).numpy()
        np.testing.assert_allclose(found, P, atol=1e-12)
        value = members.residual(torch.tensor(X)).item()
        expected = np.linalg.norm(X - P) if inside > 0 else inside
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-11)


@examples
@given(seed=SEEDS, rank=st.integers(1, 3))
def test_rank_agrees_with_the_svd_by_hand(seed: int, rank: int) -> None:
    X = np.random.default_rng(seed).normal(size=(5, 4))
    P = by_hand(X, Rank(rank))
    found = Rank(rank).project(torch.tensor(X)).numpy()
    np.testing.assert_allclose(found, P, atol=1e-13)
    assert np.linalg.matrix_rank(found) == rank
    value = Rank(rank).residual(torch.tensor(X)).item()
    assert value == pytest.approx(np.linalg.norm(X - P), abs=1e-10)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("norm", ["nuc", 2])
def test_the_balls_agree_with_clarabel(seed: int, norm: object) -> None:
    X = np.random.default_rng(seed).normal(size=(3, 4))
    V = cp.Variable((3, 4))
    apart = cp.Minimize(cp.sum_squares(V - X))
    cp.Problem(apart, [cp.norm(V, norm) <= 1.0]).solve(solver=cp.CLARABEL)
    members = NuclearBall(1.0) if norm == "nuc" else SpectralBall(1.0)
    found = members.project(torch.tensor(X)).numpy()
    np.testing.assert_allclose(found, V.value, atol=1e-5)


def test_inside_the_normal_points_to_the_boundary() -> None:
    X = torch.diag(torch.tensor([0.5, 0.25], dtype=torch.float64)).requires_grad_()
    for members, expected, direction in (
        (NuclearBall(1.0), -0.25 / math.sqrt(2), [math.sqrt(0.5)] * 2),
        (SpectralBall(1.0), -0.5, [1.0, 0.0]),
    ):
        residual = members.residual(X)
        (gradient,) = torch.autograd.grad(residual, X)
        assert residual.item() == pytest.approx(expected)
        torch.testing.assert_close(
            gradient.diagonal(), torch.tensor(direction).double()
        )
        # It is where the boundary is nearest: there, as far as the residual says.
        edge = X - residual * gradient
        assert members.residual(edge).item() == pytest.approx(0.0, abs=1e-15)


def test_a_margin_is_kept() -> None:
    X = torch.diag(torch.tensor([3.0, 2.0, 0.1], dtype=torch.float64))
    for members in (NuclearBall(1.5), SpectralBall(1.5)):
        p = members.project(X, margin=0.25)
        assert members.residual(p).item() == pytest.approx(-0.25)
        assert members.project(X, margin=9.0).abs().max() < 1e-15


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 7), (8, 5), (60, 80)])
def test_projections_are_members_and_tight(
    dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        start = torch.randn(*shape, generator=g, dtype=dtype)
        for members, order in ((NuclearBall(1.0), "nuc"), (SpectralBall(0.5), 2)):
            w = start.clone().requires_grad_()
            done = oneproj.project(w, {"size": members.on(w)})
            size = np.linalg.norm(w.detach().double().numpy(), order)
            assert done.residuals["size"] <= 0
            assert size == pytest.approx(
                members.radius, rel=100 * torch.finfo(dtype).eps
            )
            assert size <= members.radius * (1 + 1e-15)


# --- rank ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_of_low_rank_is_a_member_after_rounding(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    w = (1e-4 * torch.randn(40, 30, generator=g, dtype=dtype)).requires_grad_()
    x = w.detach().clone().double().numpy()
    done = oneproj.project(w, {"rank": Rank(4).on(w)}, projector="closed-form")
    s = np.linalg.svd(w.detach().double().numpy(), compute_uv=False)
    assert done.residuals["rank"] <= 0
    assert np.linalg.norm(s[4:]) <= torch.finfo(dtype).eps * np.linalg.norm(s)
    kept = np.linalg.svd(x, compute_uv=False)
    assert done.distance == pytest.approx(np.linalg.norm(kept[4:]), rel=1e-5)
    again = oneproj.project(w, {"rank": Rank(4).on(w)})
    assert again.distance == 0.0


def test_the_tolerance_of_rank_is_relative_and_decides() -> None:
    for scale in (1e-30, 1.0, 1e30):
        X = scale * torch.diag(torch.tensor([1.0, 1e-4], dtype=torch.float64))
        assert Rank(1, tolerance=1.01e-4).residual(X) <= 0
        assert Rank(1, tolerance=0.99e-4).residual(X) > 0
        assert Rank(1).residual(X) > 0
        assert torch.equal(Rank(1, tolerance=1.01e-4).project(X), X)
    assert Rank(1).residual(torch.zeros(2, 2)) == 0.0


def test_rank_is_the_only_set_here_that_is_not_convex() -> None:
    assert [s.convex for s in (Rank, NuclearBall, SpectralBall)] == [False, True, True]
    w = torch.eye(3, requires_grad=True)
    assert Rank(1).on(w).curvature is None
    assert NuclearBall(1.0).on(w).curvature == "convex"


def test_the_rank_of_a_product_is_constrained_through_its_residual() -> None:
    g = torch.Generator().manual_seed(3)
    A = torch.randn(5, 3, generator=g, dtype=torch.float64, requires_grad=True)
    B = torch.randn(3, 6, generator=g, dtype=torch.float64, requires_grad=True)
    low = oneproj.function(lambda: Rank(2).residual(A @ B)) <= 0.0
    value, gradients = low.value_and_gradient([A, B])
    s = np.linalg.svd((A @ B).detach().numpy(), compute_uv=False)
    assert value == pytest.approx(s[2], abs=1e-10)
    for parameter, gradient in zip((A, B), gradients, strict=True):
        step = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
        with torch.no_grad():
            parameter.add_(step, alpha=1e-6)
            ahead = low.value()
            parameter.add_(step, alpha=-2e-6)
            slope = (ahead - low.value()) / 2e-6
            parameter.add_(step, alpha=1e-6)
        assert slope == pytest.approx((gradient * step).sum().item(), rel=1e-6)


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, -1, 1.5, math.nan])
def test_a_rank_is_a_number_of_columns(rank: float) -> None:
    with pytest.raises(InvalidProblemError, match=f">= 1, got {rank}"):
        Rank(rank)  # type: ignore[arg-type]


def test_a_rank_that_every_matrix_has_is_refused() -> None:
    w = torch.zeros(3, 5, requires_grad=True)
    with pytest.raises(InvalidProblemError, match=r"\(3, 5\) has rank <= 3"):
        Rank(3).on(w)
    Rank(2).on(w)


@pytest.mark.parametrize("members", [NuclearBall(1.0), SpectralBall(1.0), Rank(1)])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4), (0, 3)])
def test_what_is_no_matrix_is_refused(
    members: AbstractSet, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidProblemError, match="is a set of matrices, but"):
        members.on(torch.zeros(shape, requires_grad=True))


@pytest.mark.parametrize("make", [NuclearBall, SpectralBall])
@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf])
def test_a_ball_needs_a_radius(make: type, radius: float) -> None:
    with pytest.raises(InvalidProblemError, match=f"-norm ball .* > 0, got {radius}"):
        make(radius)
