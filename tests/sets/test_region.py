"""A product of sets: nearest points, and members in spite of rounding."""

from __future__ import annotations

import pytest
import torch

from oneproj import sets
from oneproj.sets.region import Region, region_of


def test_of_two_sets_on_a_tensor_the_one_without_interior_is_kept() -> None:
    w, b = torch.ones(3), torch.ones(2)
    constraints = {
        "plane": sets.Affine([[1.0, 1.0, 1.0]], [1.0]).on(w),
        "ball": sets.Ball(1.0).on(w),
        "box": sets.Box(0.0, 1.0).on(b),
        "small": sets.Ball(1.0).on(b),
        "elsewhere": sets.Ball(1.0).on(torch.ones(1)),
    }
    assert region_of([b, w], constraints).places == {"plane": 1, "box": 0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "members",
    [sets.Ball(1.0), sets.L1Ball(1.0), sets.Simplex(), sets.Box(-0.1, 0.3)],
)
def test_members_are_members_and_nearest(
    members: sets.AbstractSet, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(50, generator=generator).to(dtype)
    region = Region([w], {"set": members.on(w)})
    y = [2 * torch.randn(50, generator=generator, dtype=torch.float64)]
    (point,) = region.member(y, like=[w])
    constraint = members.on(point)
    assert point.dtype == dtype
    assert constraint.value() <= 0
    exact = region.nearest(y)[0]
    assert (point.double() - exact).norm() <= 20 * torch.finfo(dtype).eps


def test_a_tolerance_is_no_part_of_the_nearest_point() -> None:
    w = torch.zeros(2, dtype=torch.float64)
    region = Region([w], {"simplex": sets.Simplex(tolerance=0.5).on(w)})
    y = [torch.tensor([0.6, 0.6], dtype=torch.float64)]
    assert region.nearest(y)[0].tolist() == pytest.approx([0.5, 0.5])
