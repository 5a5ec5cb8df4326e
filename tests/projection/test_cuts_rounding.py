"""Margins and bounds, against rounding: of the start, and of values near the answer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oneproj

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


# --- the bound on the distance ------------------------------------------------


@DTYPES
@pytest.mark.parametrize("linear", [True, False])
def test_no_bound_is_above_the_distance_for_the_rounding_of_a_value(
    dtype: torch.dtype,
    linear: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    # The start is so near that the rounding of its value is a part of the distance.
    near = torch.finfo(dtype).eps ** 0.5
    for seed in range(10):
        a = normal(1000, seed=seed, dtype=dtype)
        w = (3.0 + normal(1000, seed=seed + 10, dtype=dtype)).requires_grad_()
        start, g = w.detach().double(), a.double() + 0.1
        value = g @ start if linear else start.norm()
        steepness = g.norm() if linear else torch.tensor(1.0)
        bound = (value - near * steepness).to(dtype).double()
        nearest = float((value - bound) / steepness)

        def fn(a: Tensor = a, w: Tensor = w) -> Tensor:
            return (a * w).sum() + 100.0 * w.mean() if linear else w.norm()

        capped = oneproj.function(fn, curvature="convex") <= float(bound)
        done = oneproj.project(w, {"capped": capped})
        assert done.lower_bound is not None
        assert done.lower_bound <= nearest * (1.0 + 1e-9)
        assert done.lower_bound >= 0.5 * nearest
