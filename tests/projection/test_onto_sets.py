"""Where the nearest point of the sets meets the functions, it is the answer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj

WIDE = torch.float64


def point(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=WIDE, requires_grad=True)


def test_a_point_clipped_to_its_box_is_the_answer_if_the_function_allows_it() -> None:
    w = point(-2.0, -2.0)
    done = oneproj.project(
        w,
        {
            "box": oneproj.sets.Box(0.0, 10.0).on(w),
            "curve": oneproj.function(lambda: w[1] - (1 - w[0]) ** 3) <= 0,
        },
    )
    assert w.tolist() == [0.0, 0.0]
    assert done.distance == pytest.approx(math.sqrt(8), rel=1e-12)
    assert done.lower_bound == pytest.approx(math.sqrt(8), rel=1e-12)
    assert done.multipliers["box"] == pytest.approx(math.sqrt(8), rel=1e-12)
    assert done.multipliers["curve"] == 0.0
    assert done.kkt_residual < 1e-12
    assert done.gradients == 2  # the start, and the values at the nearest point


def test_the_nearest_point_is_evaluated_without_a_gradient() -> None:
    w = point(3.0, 4.0)
    differentiated: list[list[float]] = []

    def curve() -> Tensor:
        value = w.prod().sin()
        if value.requires_grad:
            differentiated.append(w.detach().tolist())
        return value

    term = oneproj.function(curve)
    constraints = {"ball": oneproj.sets.Ball(1.0).on(w), "curve": term <= 0.9}
    done = oneproj.project(w, constraints)
    assert done.distance == pytest.approx(4.0)
    assert done.gradients == 2
    assert all(where == [3.0, 4.0] for where in differentiated)


@pytest.mark.parametrize("curvature", [None, "convex"])
@pytest.mark.parametrize("dtype", [torch.float32, WIDE])
def test_it_is_the_nearest_point_of_every_set(
    curvature: str | None, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(3)
    w, v, free = (
        torch.randn(6, generator=generator, dtype=WIDE).to(dtype).requires_grad_()
        for _ in range(3)
    )
    start = [x.detach().clone() for x in (w, v, free)]
    simplex, ball = oneproj.sets.Simplex(), oneproj.sets.Ball(0.5)
    nearest = [simplex.project(start[0].double()), ball.project(start[1].double())]
    size = oneproj.function(
        lambda: w.square().sum() + v.square().sum() + free.square().sum(),
        curvature=curvature,  # type: ignore[arg-type]
    )
    bound = float(sum(x.square().sum() for x in (*nearest, start[2]))) + 0.1
    done = oneproj.project(
        [w, v, free],
        {"simplex": simplex.on(w), "ball": ball.on(v), "size": size <= bound},
    )
    far = math.hypot(
        *(float((x - y.double()).norm()) for x, y in zip(nearest, start, strict=False))
    )
    assert done.distance == pytest.approx(far, rel=1e-6)
    assert done.lower_bound == pytest.approx(far, rel=1e-6)
    assert done.lower_bound is not None
    assert done.lower_bound <= done.distance
    assert done.gradients == 2
    assert torch.equal(free, start[2])
    assert max(done.residuals.values()) <= 0
    assert done.kkt_residual < 1e-3


def test_a_set_that_is_not_convex_has_its_lower_bound_as_well() -> None:
    w = torch.diag(torch.tensor([3.0, 2.0], dtype=WIDE)).requires_grad_()
    done = oneproj.project(
        w,
        {
            "rank": oneproj.sets.Rank(1).on(w),
            "trace": oneproj.function(lambda: w.trace().sin()) <= 0.5,
        },
    )
    assert w.detach().tolist() == [[3.0, 0.0], [0.0, 0.0]]
    assert done.distance == pytest.approx(2.0)
    assert done.lower_bound == pytest.approx(2.0)
    assert done.multipliers == {"rank": pytest.approx(2.0), "trace": 0.0}


def test_a_tensor_that_lies_in_its_set_stays_where_it_is() -> None:
    w, v = point(0.5, 0.52), point(3.0, 4.0)
    done = oneproj.project(
        [w, v],
        {
            "thick": oneproj.sets.Simplex(tolerance=0.1).on(w),
            "ball": oneproj.sets.Ball(1.0).on(v),
            "curve": oneproj.function(lambda: (w * v).sum().sin()) <= 0.99,
        },
    )
    assert w.tolist() == [0.5, 0.52]
    assert done.distance == pytest.approx(4.0)


def test_two_sets_on_one_tensor_are_both_met() -> None:
    w = point(3.0, 0.1)
    done = oneproj.project(
        w,
        {
            "box": oneproj.sets.Box(-1.0, 1.0).on(w),
            "ball": oneproj.sets.Ball(2.0).on(w),
            "curve": oneproj.function(lambda: w.prod().sin()) <= 0.5,
        },
    )
    assert w.tolist() == [1.0, 0.1]
    assert done.lower_bound == pytest.approx(2.0)


def test_where_it_violates_a_function_the_search_goes_on() -> None:
    w = point(3.0, 0.0)
    done = oneproj.project(
        w,
        {
            "box": oneproj.sets.Box(-1.0, 1.0).on(w),
            "curve": oneproj.function(lambda: torch.exp(w[0] - 0.5)) <= 1.0,
        },
    )
    assert w.tolist() == pytest.approx([0.5, 0.0], abs=1e-6)
    assert done.distance == pytest.approx(2.5, abs=1e-6)


def test_a_function_without_a_value_there_is_no_error() -> None:
    w = point(-2.0, 3.0)
    done = oneproj.project(
        w,
        {
            "box": oneproj.sets.Box(0.0, 9.0).on(w),
            # inf at the nearest point of the box, (0, 3)
            "barrier": oneproj.function(lambda: -(w[0].abs().log()) + w[1]) <= 4.0,
        },
    )
    assert done.status.ok
    assert max(done.residuals.values()) <= 0


def test_a_face_along_which_nothing_falls_is_left() -> None:
    # Where w[2] = 0, the distance from the cone has no slope along it.
    w = point(-3.0, -2.0, -1.0)
    done = oneproj.project(
        w,
        {
            "box": oneproj.sets.Box(0.0, 5.0).on(w),
            "cone": oneproj.function(lambda: w[:2].square().sum() - w[2] ** 2) <= 0.0,
            "outside": oneproj.function(lambda: 4.0 - w.square().sum()) <= 0.0,
        },
    )
    assert done.status.ok
    assert max(done.residuals.values()) <= 0
