"""A list of tensors seen as one vector: against NumPy on the flattened copy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj.vectors import (
    assign,
    combine,
    difference,
    distance,
    dot,
    is_finite,
    norm,
    project_ball_,
    snapshot,
)

SHAPES = ((), (3,), (2, 2), (1, 2, 3))
SEEDS = st.integers(0, 2**31)
examples = settings(derandomize=True, deadline=None, max_examples=50)


def draw(seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Tensors of several shapes, one of them a transposed view."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(s, generator=generator, dtype=dtype) for s in SHAPES]
    tensors.append(torch.randn(4, 2, generator=generator, dtype=dtype).T)
    return tensors


def flat(vector: Sequence[Tensor]) -> npt.NDArray[np.float64]:
    return np.concatenate([t.detach().double().numpy().ravel() for t in vector])


# --- arithmetic ---------------------------------------------------------------


@examples
@given(seed=SEEDS, a=st.floats(-1e3, 1e3), b=st.floats(-1e3, 1e3))
def test_arithmetic_is_that_of_the_flat_vector(seed: int, a: float, b: float) -> None:
    u, v = draw(seed), draw(seed + 1)
    x, y = flat(u), flat(v)
    near = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(dot(u, v), x @ y, **near)
    np.testing.assert_allclose(norm(u), np.linalg.norm(x), **near)
    np.testing.assert_allclose(distance(u, v), np.linalg.norm(x - y), **near)
    np.testing.assert_array_equal(flat(difference(u, v)), x - y)
    np.testing.assert_allclose(
        flat(combine([a, b], [u, v])), a * x + b * y, rtol=1e-12, atol=1e-9
    )
    assert [t.shape for t in combine([a, b], [u, v])] == [t.shape for t in u]


def test_dot_forms_products_in_float64() -> None:
    # In float32 the 1 is lost beside 1e8.
    u = [torch.tensor([1e8, 1.0]), torch.tensor([-1e8])]
    assert dot(u, [torch.ones(2), torch.ones(1)]) == 1.0
    # 4097^2 needs 25 bits, one more than float32 has.
    assert dot([torch.tensor([4097.0])], [torch.tensor([4097.0])]) == 4097.0**2


@pytest.mark.parametrize("size", [2**16, 2**16 + 1, 2**18 + 7])
def test_dot_of_large_float32_tensors_is_that_of_their_float64_copies(
    size: int,
) -> None:
    generator = torch.Generator().manual_seed(size)
    u, v = (torch.randn(size, generator=generator) for _ in range(2))
    expected = float(u.double() @ v.double())
    assert dot([u], [v]) == pytest.approx(expected, rel=1e-13)
    assert dot([u[::2]], [v[::2]]) == pytest.approx(
        float(u[::2].double() @ v[::2].double()), rel=1e-13
    )


@pytest.mark.parametrize("scale", [2e38, 1e-30])
def test_norm_neither_overflows_nor_underflows_in_float32(scale: float) -> None:
    u = [torch.full((3,), scale / 2), torch.tensor([scale / 2])]
    assert norm(u) == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-14, 1.0, 1e30])
@pytest.mark.parametrize("size", [2**16, 2**16 + 1, 2**20 + 7])
def test_the_norm_of_a_large_float32_tensor_keeps_its_scale(
    size: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(size)
    z = scale * torch.randn(size, generator=generator)
    assert norm([z]) == pytest.approx(float(np.linalg.norm(flat([z]))), rel=1e-6)


def test_a_norm_of_float64_squares_that_overflow_is_finite_and_inf_stays() -> None:
    z = torch.tensor([3e200, 4e200], dtype=torch.float64)
    assert norm([z, torch.zeros(0)]) == pytest.approx(5e200, rel=1e-14)
    assert norm([z, torch.tensor([math.inf])]) == math.inf


def test_different_lengths_are_an_error_not_a_truncation() -> None:
    with pytest.raises(ValueError, match="zip"):
        dot([torch.ones(1)], [torch.ones(1), torch.ones(1)])


def test_results_are_plain_numbers_and_tensors_without_a_graph() -> None:
    w = torch.ones(2, requires_grad=True)
    for t in (*snapshot([w]), *difference([w], [w]), *combine([1.0], [[w]])):
        assert not t.requires_grad
    assert type(dot([w], [w])) is type(norm([w])) is float


def test_combine_leaves_its_vectors_alone() -> None:
    u, v = draw(0), draw(1)
    before = flat(u), flat(v)
    combine([2.0, 3.0], [u, v])
    np.testing.assert_array_equal(flat(u), before[0])
    np.testing.assert_array_equal(flat(v), before[1])


def test_snapshot_shares_no_storage_and_assign_restores_in_place() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    address = w.data_ptr()
    copy = snapshot([w])
    with torch.no_grad():
        w.zero_()
    assert copy[0].tolist() == [1.0, 2.0]
    assign([w], copy)
    assert w.tolist() == [1.0, 2.0]
    assert w.data_ptr() == address != copy[0].data_ptr()
    assert w.is_leaf
    assert w.requires_grad


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_is_finite_looks_at_every_tensor(bad: float) -> None:
    assert is_finite([torch.zeros(2), torch.ones(1)])
    assert not is_finite([torch.zeros(2), torch.tensor([0.0, bad])])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_numbers_whose_squares_are_not_finite_are(dtype: torch.dtype) -> None:
    assert is_finite([torch.full((3,), torch.finfo(dtype).max, dtype=dtype)])
    assert is_finite([])
    assert is_finite([torch.zeros(0)])


# --- the safeguard ball -------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centered", [True, False])
@examples
@given(seed=SEEDS, radius=st.floats(1e-2, 1e2))
def test_the_ball_is_one_for_all_tensors(
    seed: int, radius: float, *, centered: bool, dtype: torch.dtype
) -> None:
    point = draw(seed, dtype)
    center = draw(seed + 1, dtype) if centered else None
    c = flat(center) if center else np.zeros_like(flat(point))
    x = flat(point)
    length = float(np.linalg.norm(x - c))

    outside = project_ball_(point, radius, center)

    expected = c + min(1.0, radius / length) * (x - c)
    tolerance = 8 * torch.finfo(dtype).eps * (length + float(np.linalg.norm(c)))
    np.testing.assert_allclose(flat(point), expected, rtol=0, atol=tolerance)
    assert outside == pytest.approx(max(0.0, length - radius), abs=tolerance)
    assert all(t.dtype == dtype for t in point)
    if center:
        np.testing.assert_array_equal(flat(center), c)


@pytest.mark.parametrize("radius", [5.0, 6.0, math.inf])
def test_a_point_in_the_ball_keeps_its_bits(radius: float) -> None:
    z = torch.tensor([3.0, 4.0])
    assert project_ball_([z], radius, None) == 0.0
    assert z.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [5, 2**16 + 1, 2**20 + 7])
@pytest.mark.parametrize("inside", [0.9, 1.0 + 1e-9, 1.001, 1.1])
def test_the_cheap_look_never_misses_a_point_outside(
    dtype: torch.dtype, size: int, inside: float
) -> None:
    generator = torch.Generator().manual_seed(size)
    z = torch.rand(size, generator=generator, dtype=torch.float64).to(dtype)
    length = norm([z])
    center = torch.full_like(z, 0.5)
    outside = project_ball_([z], length / inside, None)
    assert outside == pytest.approx(max(0.0, length - length / inside), rel=1e-6)
    assert norm([z]) <= length / inside * (1 + 4 * torch.finfo(dtype).eps)
    apart = distance([z], [center])
    outside = project_ball_([z], apart / inside, [center])
    assert outside == pytest.approx(max(0.0, apart - apart / inside), rel=1e-6)


def test_a_finite_point_whose_squares_overflow_is_brought_back() -> None:
    z = torch.full((2**16 + 1,), 1e30)
    outside = project_ball_([z], 1.0, None)
    assert outside == pytest.approx(1e30 * math.sqrt(2**16 + 1), rel=1e-6)
    assert norm([z]) == pytest.approx(1.0, rel=1e-6)


def test_nan_is_reported_not_hidden_in_the_ball() -> None:
    z = torch.tensor([math.nan, 1.0])
    assert math.isnan(project_ball_([z], 1.0, None))
    assert z[1] == 1.0


def test_an_infinite_radius_costs_no_pass_over_the_parameters() -> None:
    assert project_ball_([torch.tensor([math.nan])], math.inf, None) == 0.0


def test_parameters_that_require_grad_can_be_projected() -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    assert project_ball_([w], 2.5, [torch.zeros(2)]) == 2.5
    assert w.tolist() == [1.5, 2.0]
    assert w.is_leaf
