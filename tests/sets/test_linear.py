"""The affine set: orthonormal equations and a band of rounding around them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oneproj
from oneproj import InvalidProblemError
from oneproj.sets import Affine

examples = settings(derandomize=True, deadline=None, max_examples=50)
DTYPES = [torch.float32, torch.float64]


@examples
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 6), repeated=st.booleans())
def test_agrees_with_the_pseudoinverse(seed: int, rows: int, repeated: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(seed)
    A, x = rng.normal(size=(rows, 6)), 5 * rng.normal(size=6)
    A = np.vstack([A, A.sum(axis=0)]) if repeated else A
    b = A @ rng.normal(size=6)
    affine = Affine(torch.tensor(A), torch.tensor(b))
    p = x - np.linalg.pinv(A) @ (A @ x - b)
    found = affine.project(torch.tensor(x)).numpy()
    scale = np.linalg.cond(A[:rows])
    np.testing.assert_allclose(found, p, atol=1e-13 * scale, rtol=0)
    band = np.finfo(float).eps ** 0.75 * np.linalg.norm(x)
    expected = np.linalg.norm(x - p) - band
    residual = affine.residual(torch.tensor(x)).item()
    assert residual == pytest.approx(expected, abs=1e-13 * scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_members_lie_within_the_tolerance_and_others_do_not(dtype: torch.dtype) -> None:
    x = torch.tensor([3.0, 4.0], dtype=dtype)
    band = torch.finfo(dtype).eps ** 0.75
    for tolerance, width in ((None, band), (1e-3, 1e-3)):
        off = torch.tensor([1.0, 0.0], dtype=dtype) * 5.0 * width
        line = Affine(
            torch.tensor([[2.0, 0.0]]), torch.tensor([6.0]), tolerance=tolerance
        )
        assert line.residual(x).item() == pytest.approx(-5 * width, rel=1e-4)
        assert line.residual(x + 0.9 * off).item() < 0 < line.residual(x + 1.1 * off)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [0.0, 1e-8, 1.0, 1e6])
def test_a_projection_is_a_member_at_every_scale(
    dtype: torch.dtype, shift: float
) -> None:
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        A = torch.randn(3, 50, generator=g, dtype=torch.float64)
        b = shift * torch.randn(3, generator=g, dtype=torch.float64)
        w = torch.randn(5, 10, generator=g, dtype=dtype, requires_grad=True)
        done = oneproj.project(w, {"plane": Affine(A, b).on(w)})
        assert done.residuals["plane"] <= 0
        excess = (A @ w.detach().double().flatten() - b).norm()
        unit = 10 * torch.finfo(dtype).eps * A.norm() * w.detach().double().norm()
        assert excess <= unit, "on the set up to rounding, not at the edge of the band"


def test_a_far_start_does_not_fall_back_to_the_shortest_solution() -> None:
    g = torch.Generator().manual_seed(0)
    a = torch.randn(50, generator=g, dtype=torch.float64)
    along = torch.randn(50, generator=g, dtype=torch.float64)
    along -= (a @ along) / (a @ a) * a
    affine = Affine(a[None], torch.zeros(1))
    p = affine.project(1e8 * a + along)
    torch.testing.assert_close(p, along, atol=1e-6, rtol=0)
    assert affine.residual(p) <= 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_single_point_is_an_affine_set(dtype: torch.dtype) -> None:
    for target in ([0.0, 0.0], [0.1, -7.0]):
        point = Affine(
            torch.tensor([[1.0, 2.0], [3.0, -0.3]], dtype=torch.float64),
            torch.tensor([[1.0, 2.0], [3.0, -0.3]], dtype=torch.float64)
            @ torch.tensor(target, dtype=torch.float64),
        )
        w = torch.tensor([0.3, 0.7], dtype=dtype, requires_grad=True)
        done = oneproj.project(w, {"point": point.on(w)})
        assert done.residuals["point"] <= 0
        assert w.tolist() == pytest.approx(target, rel=1e-6)


@pytest.mark.parametrize(
    ("matrix", "offset", "message"),
    [
        (torch.ones(2), torch.ones(2), r"got shapes \(2,\) and \(2,\)"),
        (torch.ones(2, 3), torch.ones(3), r"got shapes \(2, 3\) and \(3,\)"),
        (torch.ones(0, 3), torch.ones(0), r"got shapes \(0, 3\)"),
        (torch.full((1, 2), math.nan), torch.ones(1), "must be finite"),
        (torch.ones(1, 2), torch.full((1,), math.inf), "must be finite"),
        (torch.ones(2, 2), torch.tensor([1.0, 2.0]), "contradict .* 7.071e-01"),
        (torch.zeros(1, 2), torch.ones(1), "contradict"),
    ],
)
def test_what_is_no_affine_set_is_refused(
    matrix: torch.Tensor, offset: torch.Tensor, message: str
) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        Affine(matrix, offset)


def test_equations_for_another_size_are_refused() -> None:
    affine = Affine(torch.ones(1, 3), torch.ones(1))
    with pytest.raises(InvalidProblemError, match=r"3 columns, .* has 4 entries"):
        affine.on(torch.zeros(2, 2, requires_grad=True))


@pytest.mark.parametrize("tolerance", [0.0, -1.0, 1.0, math.nan, math.inf])
def test_a_tolerance_is_a_share(tolerance: float) -> None:
    with pytest.raises(InvalidProblemError, match=f"> 0 and < 1, got {tolerance}"):
        Affine(torch.ones(1, 2), torch.ones(1), tolerance=tolerance)
