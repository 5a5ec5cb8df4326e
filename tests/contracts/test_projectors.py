"""What every projector promises, checked through every convex case that it accepts.

A case draws parameters, constraints on them and a way to draw feasible points. A new
set adds a case; a new projector is picked up from the registry and meets them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj import sets
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.projection.closed_form import ClosedForm
from oneproj.projection.cuts import Cuts
from oneproj.projection.margins import MARGIN_POWER
from oneproj.results import Projection, Status
from oneproj.vectors.arithmetic import (
    combine,
    difference,
    distance,
    dot,
    norm,
    snapshot,
)
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian
from oneproj_paper.projectors.dual_bisection import DualBisection

PROJECTORS: dict[str, type[AbstractProjector]] = {
    make.name: make for make in (ClosedForm, Cuts, AugmentedLagrangian, DualBisection)
}

DTYPES = [torch.float32, torch.float64]
ACCURACY: dict[type[AbstractProjector], Callable[[float], float]] = {
    ClosedForm: lambda eps: 20 * eps,
    Cuts: lambda eps: 4 * eps**MARGIN_POWER,
    AugmentedLagrangian: lambda _: 3e-3,
    DualBisection: lambda _: 1e-4,
}
"""How near to the exact answer each projector comes, in units of the problem's scale:
a few roundings, the margin that it keeps, or what the paper's settings reach."""
SETTINGS: dict[type[AbstractProjector], dict[str, float]] = {
    AugmentedLagrangian: {"lr": 0.1}  # with 0.01 it could not come from this far away
}
EXAMPLES: dict[type[AbstractProjector], int] = {
    AugmentedLagrangian: 2,  # some 900 gradients each
    DualBisection: 10,
}
"""Random instances per case where 40 would take long."""
SHAPES = [(1,), (5,), (2, 3), (40,)]
Draw = Callable[..., Tensor]


@dataclass
class Instance:
    """A projection problem; every number of it is of the size of ``scale``."""

    parameters: list[Tensor]
    constraints: Mapping[str, AbstractTerm]
    member: Callable[[], list[Tensor]]
    """Draws a feasible point, in float64, without using the library."""
    violation: Callable[[list[Tensor]], float]
    """The worst residual of a point, in float64, without using the library."""
    scale: float
    bend: float = 0.0
    """The largest curvature of a boundary: how fast the normal turns."""


def ball(
    draw: Draw, size: tuple[int, ...], dtype: torch.dtype, *, at: float
) -> Instance:
    x = (5 * draw(size)).to(dtype).requires_grad_()
    radius = math.exp(draw(()).item())
    center = at * draw(size) if at else None
    c = torch.zeros(size, dtype=torch.float64) if center is None else center

    def member() -> list[Tensor]:
        direction = draw(size)
        reach = radius * torch.sigmoid(4 * draw(())) * (1 - 1e-15)
        return [c + reach * direction / direction.norm()]

    return Instance(
        [x],
        {"ball": sets.Ball(radius, center).on(x)},
        member,
        lambda p: (p[0] - c).norm().item() - radius,
        scale=x.detach().double().norm().item() + c.norm().item() + radius,
        bend=1 / radius,
    )


def halfspace(draw: Draw, size: tuple[int, ...], dtype: torch.dtype) -> Instance:
    x = (5 * draw(size)).to(dtype).requires_grad_()
    normal, offset = math.exp(draw(()).item()) * draw(size), 3 * draw(()).item()
    length = normal.norm().item()

    def member() -> list[Tensor]:
        y = 5 * draw(size)
        excess = (normal * y).sum().item() - offset
        return [y - max(excess, 0.0) / length**2 * normal]

    return Instance(
        [x],
        {"half": sets.Halfspace(normal, offset).on(x)},
        member,
        lambda p: ((normal * p[0]).sum().item() - offset) / length,
        scale=x.detach().double().norm().item() + abs(offset) / length,
    )


def product(draw: Draw, size: tuple[int, ...], dtype: torch.dtype) -> Instance:
    """Two sets on two tensors, with a third tensor that is free to stay."""
    one, two = ball(draw, size, dtype, at=1.0), halfspace(draw, (3,), dtype)
    free = draw((2,)).to(dtype).requires_grad_()
    return Instance(
        [*one.parameters, free, *two.parameters],
        {**one.constraints, **two.constraints},
        lambda: [*one.member(), draw((2,)), *two.member()],
        lambda p: max(one.violation([p[0]]), two.violation([p[2]])),
        scale=one.scale + two.scale,
        bend=one.bend,
    )


CASES: dict[str, Callable[[Draw, tuple[int, ...], torch.dtype], Instance]] = {
    "ball": lambda *a: ball(*a, at=0.0),
    "ball elsewhere": lambda *a: ball(*a, at=3.0),
    "halfspace": halfspace,
    "product": product,
}
COVERED = {sets.Ball, sets.Halfspace}

everywhere = [
    pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"]),
    pytest.mark.parametrize("case", CASES.values(), ids=CASES),
    pytest.mark.parametrize("make", PROJECTORS.values(), ids=PROJECTORS),
]


def contract(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test over every projector, case and dtype, and many random instances."""
    drawn = given(seed=st.integers(0, 2**31), size=st.sampled_from(SHAPES))
    runs = {
        make: settings(
            derandomize=True, deadline=None, max_examples=EXAMPLES.get(make, 40)
        )(drawn(test))
        for make in PROJECTORS.values()
    }

    def run(make: type[AbstractProjector], case: object, dtype: torch.dtype) -> None:
        runs[make](make=make, case=case, dtype=dtype)

    for mark in everywhere:
        run = mark(run)
    return run


@dataclass
class Run:
    """A point before and after, in float64, with what the projector said."""

    instance: Instance
    x: list[Tensor]
    p: list[Tensor]
    done: Projection
    tolerance: float


def double(point: list[Tensor]) -> list[Tensor]:
    """Copy a point into float64; a float64 point is copied too."""
    return [t.double() for t in snapshot(point)]


def build(
    make: type[AbstractProjector], case: object, seed: int, *arguments: object
) -> tuple[AbstractProjector, Instance]:
    generator = torch.Generator().manual_seed(seed)

    def draw(size: tuple[int, ...]) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    projector = make(**SETTINGS.get(make, {}))
    instance = case(draw, *arguments)  # type: ignore[operator]
    refusal = projector.accepts(instance.constraints)
    if refusal is not None:
        pytest.skip(refusal)
    return projector, instance


def project(*arguments: object) -> Run:
    projector, instance = build(*arguments)  # type: ignore[arg-type]
    x = double(instance.parameters)
    done = projector.project(instance.parameters, instance.constraints)
    eps = max(torch.finfo(t.dtype).eps for t in instance.parameters)
    p = double(instance.parameters)
    accuracy = ACCURACY[type(projector)](eps)
    return Run(instance, x, p, done, tolerance=accuracy * instance.scale)


def test_every_projector_says_how_accurate_it_is() -> None:
    assert set(PROJECTORS.values()) == set(ACCURACY)


def test_every_set_has_a_case() -> None:
    # Smooth sets, here, meet every projector; test_sets.py has a case for every set.
    known = {s for s in vars(sets).values() if isinstance(s, type)}
    assert known >= COVERED


@contract
def test_the_answer_is_in_the_set_exactly(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    run = project(make, case, seed, size, dtype)
    assert run.done.status is Status.FEASIBLE
    assert list(run.done.residuals) == list(run.instance.constraints)
    assert max(run.done.residuals.values()) <= 0
    assert run.instance.violation(run.p) <= 0
    for name, constraint in run.instance.constraints.items():
        assert constraint.value() == run.done.residuals[name]


@contract
def test_it_is_the_nearest_point(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    # Of a convex set, p is the projection of x iff <x - p, y - p> <= 0 for all y in it.
    run = project(make, case, seed, size, dtype)
    for _ in range(5):
        y = run.instance.member()
        assert run.instance.violation(y) <= 1e-12 * run.instance.scale
        inner = dot(difference(run.x, run.p), difference(y, run.p))
        assert inner <= run.tolerance * (distance(run.x, run.p) + distance(y, run.p))


@contract
def test_projecting_again_changes_no_bit(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    projector, instance = build(make, case, seed, size, dtype)  # type: ignore[arg-type]
    projector.project(instance.parameters, instance.constraints)
    once = snapshot(instance.parameters)
    again = projector.project(instance.parameters, instance.constraints)
    assert all(
        torch.equal(a, b) for a, b in zip(once, instance.parameters, strict=True)
    )
    assert again.distance == 0.0
    assert set(again.multipliers.values()) == {0.0}


@contract
def test_a_feasible_point_stays(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    projector, instance = build(make, case, seed, size, dtype)  # type: ignore[arg-type]
    y = instance.member()
    with torch.no_grad():
        for parameter, value in zip(instance.parameters, y, strict=True):
            parameter.copy_(value)
    start = snapshot(instance.parameters)
    done = projector.project(instance.parameters, instance.constraints)
    moved = distance(start, instance.parameters)
    accuracy = ACCURACY[type(projector)](torch.finfo(dtype).eps)
    assert moved <= accuracy * (instance.scale + norm(y))
    if max(done.residuals_before.values()) <= 0:
        assert moved == done.distance == 0.0


@contract
def test_no_two_points_move_apart(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    first = project(make, case, seed, size, dtype)
    # The same sets again, from another start.
    projector, instance = build(make, case, seed, size, dtype)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in instance.parameters:
            shape = parameter.shape
            parameter.add_(torch.randn(shape, generator=generator, dtype=dtype))
    x = double(instance.parameters)
    projector.project(instance.parameters, instance.constraints)
    p = double(instance.parameters)
    assert distance(p, first.p) <= distance(x, first.x) + 2 * first.tolerance


@contract
def test_the_multipliers_balance_the_move(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    run = project(make, case, seed, size, dtype)
    multipliers = run.done.multipliers
    assert list(multipliers) == list(run.instance.constraints)
    gradients = [
        double(c.value_and_gradient(run.instance.parameters)[1])
        for c in run.instance.constraints.values()
    ]
    # x_hat - x + sum_j mu_j grad c_j(x_hat) = 0
    left = combine([1.0, *multipliers.values()], [difference(run.p, run.x), *gradients])
    moved = distance(run.x, run.p)
    turn = 1 + run.instance.bend * moved
    assert norm(left) <= run.tolerance * turn
    for name, mu in multipliers.items():
        assert mu >= 0
        if mu > 0:  # complementarity: it touches what holds it
            assert run.done.residuals[name] >= -run.tolerance
    assert run.done.distance == pytest.approx(moved, rel=1e-5)
    assert run.done.kkt_residual * moved <= run.tolerance * turn


@contract
def test_nothing_else_is_touched(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    projector, instance = build(make, case, seed, size, dtype)  # type: ignore[arg-type]
    before = [(t.data_ptr(), t.shape, t.device) for t in instance.parameters]
    for t in instance.parameters:
        t.grad = torch.full_like(t, 7.0)
    random_state = torch.get_rng_state()
    held = [t for t in instance.parameters if not _constrained(t, instance)]
    kept = snapshot(held)

    projector.project(instance.parameters, instance.constraints)

    assert [(t.data_ptr(), t.shape, t.device) for t in instance.parameters] == before
    for t in instance.parameters:
        assert t.dtype == dtype
        assert t.is_leaf
        assert t.requires_grad
        assert t.grad is not None
        assert bool((t.grad == 7.0).all())
    assert all(torch.equal(a, b) for a, b in zip(held, kept, strict=True))
    assert torch.equal(torch.get_rng_state(), random_state)


def _constrained(tensor: Tensor, instance: Instance) -> bool:
    constraints = instance.constraints.values()
    return any(
        isinstance(c, sets.SetConstraint) and c.tensor is tensor for c in constraints
    )


@contract
def test_gradients_are_counted(
    make: object, case: object, seed: int, size: object, dtype: torch.dtype
) -> None:
    projector, instance = build(make, case, seed, size, dtype)  # type: ignore[arg-type]
    calls: list[str] = []
    for name, constraint in instance.constraints.items():
        original = constraint.value_and_gradient

        def counted(
            parameters: list[Tensor],
            name: str = name,
            original: Callable[..., tuple[float, list[Tensor]]] = original,
        ) -> tuple[float, list[Tensor]]:
            calls.append(name)
            return original(parameters)

        constraint.value_and_gradient = counted  # type: ignore[method-assign,assignment]
    done = projector.project(instance.parameters, instance.constraints)
    # An evaluation is a point at which every constraint is seen, and where a gradient
    # of each is taken at most once.
    assert 1 <= done.gradients
    assert set(calls) <= set(instance.constraints)
    assert all(calls.count(name) <= done.gradients for name in calls)
    violated = [name for name, r in done.residuals_before.items() if r > 0]
    assert set(violated) <= set(calls), "what was violated was differentiated"
