"""What every closed-form set promises, checked on random members of each kind.

A case draws a set and a way to draw its points without using the library. A new set
adds a case; ``test_every_set_has_a_case`` says so.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oneproj
from oneproj import Status, sets

DTYPES = [torch.float32, torch.float64]
Draw = Callable[..., Tensor]


@dataclass
class Case:
    """A set on a tensor of a shape; everything is of the size of ``scale``."""

    members: sets.AbstractSet
    shape: tuple[int, ...]
    member: Callable[[], Tensor]
    """Draws a point of the exact set, in float64."""
    scale: float = 10.0


def ball(draw: Draw) -> Case:
    c, r = draw(2, 3), math.exp(draw())
    return Case(sets.Ball(r, c), (2, 3), lambda: c + r * 0.4 * draw(2, 3).tanh())


def halfspace(draw: Draw) -> Case:
    a, b = draw(5), draw().item()

    def member() -> Tensor:
        y = 5 * draw(5)
        return y - max((a @ y).item() - b, 0.0) / (a @ a) * a

    return Case(sets.Halfspace(a, b), (5,), member)


def box(draw: Draw) -> Case:
    lower = draw(2, 3)
    width = draw(2, 3).abs()
    return Case(
        sets.Box(lower, lower + width),
        (2, 3),
        lambda: lower + width * (2 * draw(2, 3)).sigmoid(),
    )


def orthant(draw: Draw) -> Case:
    return Case(sets.Box(lower=0.0), (5,), lambda: draw(5).abs())


def affine(draw: Draw) -> Case:
    A, y0 = draw(2, 6), draw(6)
    away = torch.eye(6, dtype=torch.float64) - torch.linalg.pinv(A) @ A
    return Case(
        sets.Affine(A, A @ y0), (2, 3), lambda: (y0 + away @ draw(6)).reshape(2, 3)
    )


def simplex(draw: Draw) -> Case:
    total = math.exp(draw())
    return Case(sets.Simplex(total), (7,), lambda: total * (3 * draw(7)).softmax(0))


def l1_ball(draw: Draw) -> Case:
    r = math.exp(draw())

    def member() -> Tensor:
        y = draw(2, 4)
        return r * draw().sigmoid() * y / y.abs().sum()

    return Case(sets.L1Ball(r), (2, 4), member)


def cone(draw: Draw) -> Case:
    def member() -> Tensor:
        z = draw(4)
        return torch.cat([z.norm()[None] + draw(1).abs(), z])

    return Case(sets.SecondOrderCone(), (5,), member)


def nuclear(draw: Draw) -> Case:
    r = math.exp(draw())

    def member() -> Tensor:
        y = draw(4, 3)
        return r * draw().sigmoid() * y / torch.linalg.svdvals(y).sum()

    return Case(sets.NuclearBall(r), (4, 3), member)


def spectral(draw: Draw) -> Case:
    r = math.exp(draw())

    def member() -> Tensor:
        y = draw(3, 4)
        return r * draw().sigmoid() * y / torch.linalg.svdvals(y)[0]

    return Case(sets.SpectralBall(r), (3, 4), member)


def rank(draw: Draw) -> Case:
    return Case(sets.Rank(2), (5, 4), lambda: draw(5, 2) @ draw(2, 4))


CASES: dict[str, tuple[type[sets.AbstractSet], Callable[[Draw], Case]]] = {
    "ball": (sets.Ball, ball),
    "halfspace": (sets.Halfspace, halfspace),
    "box": (sets.Box, box),
    "orthant": (sets.Box, orthant),
    "affine": (sets.Affine, affine),
    "simplex": (sets.Simplex, simplex),
    "L1 ball": (sets.L1Ball, l1_ball),
    "second-order cone": (sets.SecondOrderCone, cone),
    "nuclear ball": (sets.NuclearBall, nuclear),
    "spectral ball": (sets.SpectralBall, spectral),
    "rank": (sets.Rank, rank),
}
CONVEX = [name for name, (cls, _) in CASES.items() if cls.convex]


def contract(names: list[str]) -> Callable[..., Callable[..., None]]:
    """Run a test over cases, dtypes and random instances."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        drawn = given(seed=st.integers(0, 2**31))(test)
        test = settings(derandomize=True, deadline=None, max_examples=15)(drawn)
        test = pytest.mark.parametrize("name", names)(test)
        return pytest.mark.parametrize("dtype", DTYPES, ids=str)(test)

    return decorate


def start(name: str, seed: int, dtype: torch.dtype) -> tuple[Case, Tensor, Draw]:
    """A case with a parameter at a random point, mostly outside."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    case = CASES[name][1](draw)
    w = (case.scale * draw(*case.shape) / 3).to(dtype).requires_grad_()
    return case, w, draw


def unit(case: Case, w: Tensor) -> float:
    """What rounding explains: the band of a thin set is eps^0.75 wide."""
    eps = float(torch.finfo(w.dtype).eps)
    return 100 * eps * (case.scale + w.detach().double().norm().item())


def test_every_set_has_a_case() -> None:
    named = vars(sets).values()
    public = {s for s in named if inspect.isclass(s) and not inspect.isabstract(s)}
    assert public - {sets.SetConstraint} == {cls for cls, _ in CASES.values()}


@contract(list(CASES))
def test_the_answer_is_a_member_and_stays(
    name: str, seed: int, dtype: torch.dtype
) -> None:
    case, w, _ = start(name, seed, dtype)
    shape, address = w.shape, w.data_ptr()
    constraint = case.members.on(w)
    done = oneproj.project(w, {"set": constraint}, projector="closed-form")
    assert done.status is Status.FEASIBLE
    assert constraint.value() == done.residuals["set"] <= 0
    assert (w.dtype, w.shape, w.data_ptr()) == (dtype, shape, address)
    once = w.detach().clone()
    again = oneproj.project(w, {"set": constraint}, projector="closed-form")
    assert torch.equal(w, once)
    assert again.distance == 0.0


@contract(list(CASES))
def test_members_are_recognised_and_left_alone(
    name: str, seed: int, dtype: torch.dtype
) -> None:
    case, w, _ = start(name, seed, dtype)
    with torch.no_grad():
        w.copy_(case.member())
    before = w.detach().clone()
    constraint = case.members.on(w)
    assert constraint.value() <= unit(case, w)  # the boundary may be rounded across
    if constraint.value() <= 0:
        p = constraint.members.project(w)
        assert torch.equal(p, before)
    if isinstance(case.members, sets.Affine | sets.Simplex | sets.Rank):
        assert constraint.value() <= 0, "the band absorbs the rounding of a member"


@contract(CONVEX)
def test_the_answer_is_the_nearest_point(
    name: str, seed: int, dtype: torch.dtype
) -> None:
    # Of a convex set, p is the projection of x iff <x - p, y - p> <= 0 for all y in it.
    case, w, _ = start(name, seed, dtype)
    x = w.detach().double().clone()
    done = oneproj.project(w, {"set": case.members.on(w)}, projector="closed-form")
    p = w.detach().double()
    assert done.distance == pytest.approx((x - p).norm().item(), rel=1e-5)
    for _ in range(5):
        y = case.member()
        inner = ((x - p) * (y - p)).sum().item()
        assert inner <= unit(case, w) * ((x - p).norm() + (y - p).norm()).item()


@contract(CONVEX)
def test_no_two_points_move_apart(name: str, seed: int, dtype: torch.dtype) -> None:
    case, w, draw = start(name, seed, dtype)
    v = (w.detach().double() + draw(*case.shape)).to(dtype)
    p, q = (case.members.project(point).double() for point in (w, v))
    apart = (w.detach().double() - v.double()).norm()
    assert (p - q).norm() <= apart + unit(case, w)


@contract(["rank"])
def test_no_member_is_nearer(name: str, seed: int, dtype: torch.dtype) -> None:
    case, w, _ = start(name, seed, dtype)
    x, p = w.detach().double(), case.members.project(w).double()
    for _ in range(5):
        near = case.members.project((x + 0.1 * case.member()).to(dtype)).double()
        for y in (case.member(), near):
            assert (x - p).norm() <= (x - y).norm() + unit(case, w)


@contract(list(CASES))
def test_the_residual_is_the_distance_with_a_unit_gradient(
    name: str, seed: int, dtype: torch.dtype
) -> None:
    case, w, _ = start(name, seed, dtype)
    value, (gradient,) = case.members.on(w).value_and_gradient([w])
    if value <= 1e-3:
        return
    band = 10 * case.scale * float(torch.finfo(dtype).eps) ** 0.75
    assert gradient.norm().item() == pytest.approx(1.0, abs=10 * torch.finfo(dtype).eps)
    p = case.members.project(w)
    assert (p.dtype, p.device, p.requires_grad) == (dtype, w.device, False)
    moved = w.detach() - p
    assert moved.norm().item() == pytest.approx(value, abs=band)
    torch.testing.assert_close(moved, value * gradient, atol=2 * band, rtol=0)


@contract(list(CASES))
def test_no_member_lies_deeper_than_the_depth(
    name: str, seed: int, dtype: torch.dtype
) -> None:
    case, w, _ = start(name, seed, dtype)
    with torch.no_grad():
        w.copy_(case.member())
    constraint = case.members.on(w)
    depth = constraint.members.depth(w)
    assert depth >= -constraint.value() - 1e-15 * case.scale
    if isinstance(case.members, sets.Affine | sets.Simplex | sets.Rank):
        assert depth < 1e-4 * case.scale
        assert depth == case.members.depth(w), "the same before it was bound to a dtype"


@contract(CONVEX)
def test_cuts_are_valid(name: str, seed: int, dtype: torch.dtype) -> None:
    # The linearisation of a convex residual is <= 0 at every member, also when it is
    # taken at a point that is outside by rounding only.
    case, w, draw = start(name, seed, dtype)
    constraint = case.members.on(w)
    oneproj.project(w, {"set": constraint}, projector="closed-form")
    p = w.detach().clone()
    for step in (1.0, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15):
        with torch.no_grad():
            w.copy_(p.double() + step * draw(*case.shape))
        value, (gradient,) = constraint.value_and_gradient([w])
        if value > 0:
            y = case.member()
            ahead = (gradient.double() * (y - w.detach().double())).sum().item()
            assert value + ahead <= unit(case, w)


@contract(list(CASES))
def test_a_point_that_is_not_a_number_is_no_member(
    name: str, seed: int, dtype: torch.dtype
) -> None:
    case, w, _ = start(name, seed, dtype)
    with torch.no_grad():
        w.view(-1)[0] = math.nan
    with pytest.raises(oneproj.NonFiniteError):
        case.members.on(w).value()


@pytest.mark.parametrize("name", CASES)
def test_it_constrains_a_problem(name: str) -> None:
    case, w, _ = start(name, 1, torch.float64)
    target = w.detach().clone()
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: 0.5 * (w - target).square().sum()),
        constraints={"set": case.members.on(w)},
    )
    solution = oneproj.solve(problem, steps=50, seed=0)
    assert solution.feasible
    assert solution.residuals["set"] <= 0
    assert solution.counts.projections == 1


IMAGES = (2, 3, 2, 2)
"""A shape that has a layout of its own: channels last."""


def image_sets(draw: Draw) -> dict[str, sets.AbstractSet]:
    """The sets that take tensors of any dimension."""
    lower = draw(*IMAGES)
    return {
        "ball": sets.Ball(1.0, draw(*IMAGES)),
        "halfspace": sets.Halfspace(draw(*IMAGES), 0.5),
        "box": sets.Box(lower, lower + 0.1),
        "numbers": sets.Box(0.0, 0.1),
        "affine": sets.Affine(draw(2, 24), draw(2)),
        "simplex": sets.Simplex(),
        "L1 ball": sets.L1Ball(1.0),
        "second-order cone": sets.SecondOrderCone(),
    }


def dense(x: Tensor) -> Tensor:
    return x.contiguous()


def transposed(x: Tensor) -> Tensor:
    backwards = tuple(reversed(range(x.dim())))
    return x.permute(backwards).contiguous().permute(backwards)


def every_other(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, 9.0)], dim=-1)[..., 0]


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


LAYOUTS = [transposed, every_other, channels_last]


def layout_cases() -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    images = image_sets(lambda *shape: torch.ones(shape, dtype=torch.float64))
    names = [*CASES, *(f"images in {name}" for name in images)]
    return [
        (name, layout)
        for name in names
        for layout in LAYOUTS
        if layout is not channels_last or name.startswith("images")
    ]


def set_and_shape(name: str) -> tuple[sets.AbstractSet, tuple[int, ...], Draw]:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    if name in CASES:
        case = CASES[name][1](draw)
        return case.members, case.shape, draw
    return image_sets(draw)[name.removeprefix("images in ")], IMAGES, draw


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "layout"), layout_cases())
def test_the_layout_in_memory_changes_nothing(
    name: str, layout: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    members, shape, draw = set_and_shape(name)
    fitted = members.rounded_to(dtype)
    outside, *others = (draw(*shape).to(dtype) for _ in range(20))
    middle = torch.stack([fitted.project(other) for other in others]).mean(0)
    thin = isinstance(members, sets.Affine | sets.Simplex | sets.Rank)
    for point in (outside, middle):
        # Sums in another order differ by rounding.
        close = 100 * float(torch.finfo(dtype).eps) * (1 + float(point.norm()))
        found = []
        for arranged in (dense(point.clone()), layout(point.clone())):
            w = arranged.requires_grad_()
            strides = w.stride()
            constraint = members.on(w)
            value, (gradient,) = constraint.value_and_gradient([w])
            done = oneproj.project(w, {"set": constraint})
            assert done.status is Status.FEASIBLE
            assert constraint.value() == done.residuals["set"] <= 0
            assert w.stride() == strides
            found.append((value, gradient, w.detach()))
        (value, gradient, answer), (value_, gradient_, answer_) = found
        assert value_ == pytest.approx(value, abs=close)
        torch.testing.assert_close(answer_, answer, atol=close, rtol=0)
        if value > close or (value < -close and not thin):
            torch.testing.assert_close(gradient_, gradient, atol=close, rtol=0)


@pytest.mark.parametrize(("name", "layout"), layout_cases())
def test_solve_takes_every_layout(
    name: str, layout: Callable[[Tensor], Tensor]
) -> None:
    members, shape, draw = set_and_shape(name)
    target = draw(*shape)
    w = layout(members.project(draw(*shape))).requires_grad_()
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: 0.5 * (w - target).square().sum()),
        constraints={"set": members.on(w), "half": oneproj.function(w.sum) <= 50.0},
    )
    solution = oneproj.solve(problem, steps=20, seed=0)
    assert solution.feasible
