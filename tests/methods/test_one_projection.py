"""Algorithm 1 against obvious re-implementations, trajectories zipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.optim import SGD

from oneproj import OneProjection

Gradient = Callable[[Tensor, int], Tensor]
paper_step = partial(OneProjection, base=SGD, late_weight=0.0)
"""The optimiser with the paper's step and the paper's mean."""


def noisy_quadratic(dim: int, seed: int, dtype: torch.dtype) -> Gradient:
    """A stochastic gradient of a nonconvex quadratic; noise is fixed by the step."""
    generator = torch.Generator().manual_seed(seed)
    curvature = torch.linspace(-0.5, 2.0, dim, dtype=dtype)
    shift = torch.randn(dim, generator=generator, dtype=dtype)
    noise = torch.randn(4096, dim, generator=generator, dtype=dtype)
    return lambda z, k: curvature * (z - shift) + 0.3 * noise[k]


def naive(
    x: Tensor,
    gradient: Gradient,
    *,
    T: int,
    K: int,
    beta: float,
    eta: Callable[[int], float],
    radius: float,
) -> tuple[list[Tensor], list[Tensor]]:
    """Algorithm 1 as the paper prints it; returns all outer and inner iterates."""
    outer, inner, k = [x], [], 0
    for _ in range(T):
        z, zs = x, []
        for s in range(1, K + 1):
            zs.append(z)
            h = gradient(z, k) + beta * (z - x)
            z = z - eta(s) * h
            length = float(z.norm())
            z = z * (radius / length) if length > radius else z
            k += 1
        inner += zs
        x = torch.stack(zs).mean(0)
        outer.append(x)
    return outer, inner


def run(
    optimizer: OneProjection, parameters: list[Tensor], gradient: Gradient, steps: int
) -> Iterator[Tensor]:
    """Drive the optimiser with a gradient of the flat vector; yield z_s before it."""
    for k in range(steps):
        flat = torch.cat([p.detach().flatten() for p in parameters])
        yield flat
        parts = gradient(flat, k).split([p.numel() for p in parameters])
        for p, part in zip(parameters, parts, strict=True):
            p.grad = part.reshape(p.shape).clone()
        optimizer.step()


def start(dim: int, dtype: torch.dtype, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    flat = torch.linspace(-0.4, 0.6, dim, dtype=dtype)
    sizes = [math.prod(shape) for shape in shapes]
    parts = flat.split(sizes)
    return [
        part.reshape(shape).clone().requires_grad_()
        for part, shape in zip(parts, shapes, strict=True)
    ]


SHAPES = pytest.mark.parametrize("shapes", [[(6,)], [(2, 2), (1,), (1, 1)]])
DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)]
)


@SHAPES
@DTYPES
@pytest.mark.parametrize("theorem_step", [True, False])
@pytest.mark.parametrize("radius", [0.9, 50.0])
def test_follows_the_pseudocode(
    shapes: list[tuple[int, ...]],
    dtype: torch.dtype,
    tolerance: float,
    theorem_step: bool,  # noqa: FBT001 - a parametrised case
    radius: float,
) -> None:
    gradient, m, T, K, beta = noisy_quadratic(6, 1, dtype), 1.5, 7, 5, 2.0
    parameters = start(6, dtype, shapes)
    x0 = torch.cat([p.detach().flatten() for p in parameters])
    outer, inner = naive(
        x0,
        gradient,
        T=T,
        K=K,
        beta=beta,
        eta=(lambda s: 2 / (m * (s + 1))) if theorem_step else (lambda _: 0.1),
        radius=radius,
    )
    optimizer = paper_step(
        parameters,
        None if theorem_step else 0.1,
        strong_convexity=m if theorem_step else None,
        prox_weight=beta,
        inner_steps=K,
        radius=radius,
    )
    for z, expected in zip(
        run(optimizer, parameters, gradient, T * K), inner, strict=True
    ):
        torch.testing.assert_close(z, expected, rtol=0, atol=tolerance)
    optimizer.eval()
    answer = torch.cat([p.detach().flatten() for p in parameters])
    torch.testing.assert_close(answer, outer[T], rtol=0, atol=tolerance)
    if radius < 1:
        assert max(float(z.norm()) for z in inner) > radius - 1e-6, "the ball must act"


def test_without_constraint_prox_and_ball_it_is_averaged_sgd() -> None:
    gradient = noisy_quadratic(4, 2, torch.float64)
    (w,), steps = start(4, torch.float64, [(4,)]), 50
    twin = w.detach().clone().requires_grad_()
    sgd, average = torch.optim.SGD([twin], lr=0.07), torch.zeros(4, dtype=torch.float64)
    optimizer = paper_step([w], 0.07, prox_weight=0.0, inner_steps=steps)
    for k, z in enumerate(run(optimizer, [w], gradient, steps)):
        average += twin.detach() / steps
        if k < steps:
            assert torch.equal(z, twin.detach()), "the same bits as torch's own SGD"
        twin.grad = gradient(twin.detach(), k)
        sgd.step()
    optimizer.eval()
    torch.testing.assert_close(w.detach(), average, rtol=0, atol=1e-14)


@pytest.mark.parametrize("q", [0, 1, 3])
def test_late_weight_weighs_the_inner_iterates_as_it_says(q: int) -> None:
    gradient = noisy_quadratic(4, 2, torch.float64)
    (w,), K = start(4, torch.float64, [(4,)]), 12
    optimizer = paper_step(
        [w], 0.07, prox_weight=0.5, inner_steps=K, late_weight=float(q)
    )
    inner = list(run(optimizer, [w], gradient, K))[:K]
    optimizer.eval()
    # s (s + 1) ... (s + q - 1): 1 for the mean, s for q = 1, about s^q.
    weights = torch.tensor(
        [math.prod(range(s, s + q)) for s in range(1, K + 1)], dtype=torch.float64
    )
    expected = (weights / weights.sum()) @ torch.stack(inner)
    torch.testing.assert_close(w.detach(), expected, rtol=0, atol=1e-14)


def test_a_single_inner_step_leaves_the_centre_in_place() -> None:
    # The average is over z_1..z_K, before each step, so K = 1 averages x_t alone.
    gradient = noisy_quadratic(3, 3, torch.float64)
    (w,) = start(3, torch.float64, [(3,)])
    x0 = w.detach().clone()
    optimizer = paper_step([w], 0.1, prox_weight=1.0, inner_steps=1)
    for z in run(optimizer, [w], gradient, 9):
        assert torch.equal(z, x0)
    assert torch.equal(w.detach(), x0)


@pytest.mark.parametrize("first_index", [0, 1])
def test_random_selection_returns_the_iterate_a_full_record_would(
    first_index: int,
) -> None:
    gradient, T, K = noisy_quadratic(3, 4, torch.float64), 6, 4
    seen = set()
    for seed in range(40):
        (w,) = start(3, torch.float64, [(3,)])
        (twin,) = start(3, torch.float64, [(3,)])
        settings = {"prox_weight": 0.5, "inner_steps": K, "radius": 5.0}
        optimizer = paper_step(
            [w],
            0.1,
            select="random",
            outer_steps=T,
            first_index=first_index,
            generator=torch.Generator().manual_seed(seed),
            **settings,
        )
        recorder, record = paper_step([twin], 0.1, **settings), []
        pairs = zip(
            run(optimizer, [w], gradient, T * K),
            run(recorder, [twin], gradient, T * K),
            strict=True,
        )
        for k, _ in enumerate(pairs):
            if k % K == 0:
                record.append(twin.detach().clone())  # z_1 = x_t
        record.append(twin.detach().clone())
        optimizer.eval()
        J = optimizer.selected_index
        assert torch.equal(w.detach(), record[J])
        seen.add(J)
    assert seen == set(range(first_index, first_index + T)), "J covers its index set"


def test_interrupted_before_the_drawn_iterate_shows_the_last_complete_one() -> None:
    gradient = noisy_quadratic(3, 5, torch.float64)
    (w,) = start(3, torch.float64, [(3,)])
    generator = torch.Generator().manual_seed(0)
    optimizer = paper_step(
        [w],
        0.1,
        prox_weight=0.5,
        inner_steps=2,
        select="random",
        outer_steps=10**6,
        generator=generator,
    )
    record = [z for k, z in enumerate(run(optimizer, [w], gradient, 7)) if k % 2 == 0]
    optimizer.eval()
    assert optimizer.selected_index == 3
    assert torch.equal(w.detach(), record[3])


def test_groups_share_one_ball_and_keep_their_own_rates() -> None:
    a = torch.tensor([3.0], requires_grad=True)
    b = torch.tensor([4.0], requires_grad=True)
    groups = [{"params": [a], "lr": 1.0}, {"params": [b], "lr": 0.0}]
    optimizer = paper_step(groups, 0.5, prox_weight=0.0, inner_steps=9, radius=5.0)
    a.grad, b.grad = torch.tensor([-6.0]), torch.tensor([-6.0])
    optimizer.step()  # a moves to 9, b stays at 4; |(9, 4)| > 5
    expected = torch.tensor([9.0, 4.0]) * 5 / torch.tensor([9.0, 4.0]).norm()
    torch.testing.assert_close(torch.cat([a, b]).detach(), expected)


def test_missing_gradients_and_frozen_parameters() -> None:
    moving = torch.tensor([1.0], requires_grad=True)
    unused = torch.tensor([1.0], requires_grad=True)
    frozen = torch.tensor([7.0])
    groups = [{"params": [moving, unused]}, {"params": [frozen]}]
    optimizer = paper_step(groups, 0.5, prox_weight=0.1, inner_steps=2, radius=2.0)
    for _ in range(6):
        moving.grad = torch.tensor([1.0])
        optimizer.step()
    assert moving.item() == 0.25  # each outer iteration averages 0 and -0.5 more
    assert unused.item() == 1.0
    assert frozen.item() == 7.0, "a frozen parameter is outside the ball's business"


def test_schedulers_drive_the_step_size() -> None:
    w = torch.tensor([0.0], requires_grad=True)
    optimizer = paper_step([w], 1.0, prox_weight=0.0, inner_steps=100)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    positions = []
    for _ in range(4):
        w.grad = torch.tensor([-1.0])
        optimizer.step()
        scheduler.step()
        positions.append(w.item())
    assert positions == [1.0, 1.5, 1.75, 1.875]


def test_a_base_optimiser_keeps_its_own_state() -> None:
    def momentum(groups: list[dict[str, object]]) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, momentum=0.9)

    gradient = noisy_quadratic(3, 7, torch.float64)
    (w,), (twin,) = (start(3, torch.float64, [(3,)]) for _ in range(2))
    reference = torch.optim.SGD([twin], lr=0.05, momentum=0.9)
    optimizer = OneProjection(
        [w], 0.05, prox_weight=0.0, inner_steps=100, base=momentum
    )
    for k, z in enumerate(run(optimizer, [w], gradient, 30)):
        assert torch.equal(z, twin.detach())
        twin.grad = gradient(twin.detach(), k)
        reference.step()


def test_memory_is_two_copies_and_three_with_selection() -> None:
    for select, copies in (("last", 2), ("random", 3)):
        w = torch.zeros(10, requires_grad=True)
        optimizer = paper_step(
            [w],
            0.1,
            prox_weight=0.1,
            inner_steps=1,
            select=select,
            outer_steps=1,
            generator=torch.Generator().manual_seed(0),
        )
        w.grad = torch.ones(10)
        optimizer.step()
        held = sum(
            value.numel()
            for state in (optimizer.state, optimizer.base.state)
            for entry in state.values()
            for value in entry.values()
            if isinstance(value, Tensor)
        )
        assert held == copies * w.numel()


def test_a_ball_with_another_centre() -> None:
    w = torch.tensor([10.0], requires_grad=True)
    optimizer = paper_step(
        [w],
        1.0,
        prox_weight=0.0,
        inner_steps=5,
        radius=2.0,
        center=[torch.tensor([9.0])],
    )
    w.grad = torch.tensor([-100.0])
    optimizer.step()
    assert w.item() == pytest.approx(11.0, rel=1e-6)


def test_a_stale_gradient_does_not_move_a_frozen_parameter() -> None:
    w, v = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    v.grad = torch.ones(1)
    v.requires_grad_(requires_grad=False)
    optimizer = paper_step([w, v], 0.1, prox_weight=0.0, inner_steps=2)
    w.grad = torch.ones(1)
    optimizer.step()
    assert v.item() == 0.0
    assert w.item() != 0.0
