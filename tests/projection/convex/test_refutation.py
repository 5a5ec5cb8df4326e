"""A declaration that what is seen contradicts is refused; what is true is not."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.errors import InvalidProblemError
from oneproj.projection.cuts import Cuts


def test_a_concave_function_that_is_declared_convex_is_refused() -> None:
    w = torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True)
    outside = oneproj.function(lambda: 1 - w.square().sum(), curvature="convex")
    with pytest.raises(
        InvalidProblemError, match="'outside' is declared convex"
    ) as bad:
        oneproj.project(w, {"outside": outside <= 0.0})
    assert "its value is -4.5125" in str(bad.value)
    assert "Leave the term's curvature out" in str(bad.value)
    assert w.tolist() == [0.1, 0.2]


def test_a_curved_function_that_is_declared_linear_is_refused() -> None:
    w = torch.tensor([0.1, 0.2], requires_grad=True)
    outside = oneproj.function(lambda: 1 - w.square().sum(), curvature="linear")
    with pytest.raises(InvalidProblemError, match="'outside' is declared linear"):
        oneproj.project(w, {"outside": outside <= 0.0})


@pytest.mark.parametrize("shift", [0.0, 1e4, 1e7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_refutes_nothing(dtype: torch.dtype, shift: float) -> None:
    """Terms of the size of the shift cancel; what is left is mostly rounding."""
    generator = torch.Generator().manual_seed(0)
    center = shift * torch.ones(50, dtype=dtype)
    w = (center + torch.randn(50, generator=generator).to(dtype)).requires_grad_()
    square = oneproj.function(
        lambda: (w - center).square().sum() + shift, curvature="convex"
    )
    total = oneproj.function(lambda: (w - center).sum() + shift, curvature="linear")
    constraints = {"square": square <= 2.0 + shift, "total": total <= shift - 1.0}
    projector = Cuts(max_evaluations=15)
    oneproj.project(w, constraints, projector=projector, on_failure="return")


def test_an_infimum_that_is_not_attained_is_no_balance() -> None:
    w = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    risk = oneproj.function(lambda: (-w).exp().sum(), curvature="convex")
    done = oneproj.project(w, {"risk": risk <= 0.0})
    # It underflows to 0: feasible, and the gradient there is 0 and balances nothing.
    assert done.status.ok
    assert done.kkt_residual == 1.0
    assert done.lower_bound is not None
    assert done.lower_bound < 1e3
    assert "A nearer feasible point probably exists" in done.remark


@pytest.mark.filterwarnings("ignore:Rounding decides")  # it does, for some seeds
@pytest.mark.parametrize("seed", range(4))
def test_what_cancels_inside_a_function_refutes_nothing(seed: int) -> None:
    """Pressures in pascal: a hundredth is the rounding of each in float32."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(200, 5, generator=generator)
    base = 101325.0 + 3.0 * torch.randn(200, generator=generator)
    w = torch.randn(5, generator=generator).requires_grad_()
    excess = oneproj.function(
        lambda: (base + x @ w * 3.0).mean() - 101325.0, curvature="linear"
    )
    done = oneproj.project(w, {"excess": excess <= -0.5})
    assert done.residuals["excess"] <= 0
    assert done.evaluations < 20
