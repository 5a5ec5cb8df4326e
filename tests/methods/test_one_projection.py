"""Algorithm 1 against obvious re-implementations, trajectories zipped."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from oneproj import InvalidProblemError, NonFiniteError, OneProjection, OneprojWarning
from oneproj.parameters import project_ball_

Gradient = Callable[[Tensor, int], Tensor]


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
    optimizer = OneProjection(
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
    optimizer = OneProjection([w], 0.07, prox_weight=0.0, inner_steps=steps)
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
    optimizer = OneProjection(
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
    optimizer = OneProjection([w], 0.1, prox_weight=1.0, inner_steps=1)
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
        optimizer = OneProjection(
            [w],
            0.1,
            select="random",
            outer_steps=T,
            first_index=first_index,
            generator=torch.Generator().manual_seed(seed),
            **settings,
        )
        recorder, record = OneProjection([twin], 0.1, **settings), []
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
    optimizer = OneProjection(
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


@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_train_and_eval_switch_back_and_forth() -> None:
    gradient = noisy_quadratic(3, 6, torch.float64)
    (w,), (twin,) = (start(3, torch.float64, [(3,)]) for _ in range(2))
    plain = OneProjection([twin], 0.1, prox_weight=0.5, inner_steps=3)
    switching = OneProjection([w], 0.1, prox_weight=0.5, inner_steps=3)
    pairs = zip(
        run(switching, [w], gradient, 11), run(plain, [twin], gradient, 11), strict=True
    )
    for _ in pairs:
        held = w.detach().clone()
        switching.eval()
        switching.eval()
        switching.train()
        switching.train()
        assert torch.equal(w.detach(), held)
    assert torch.equal(w, twin)
    switching.eval()
    with pytest.raises(InvalidProblemError, match=r"Call train\(\) first"):
        switching.step()


def test_groups_share_one_ball_and_keep_their_own_rates() -> None:
    a = torch.tensor([3.0], requires_grad=True)
    b = torch.tensor([4.0], requires_grad=True)
    groups = [{"params": [a], "lr": 1.0}, {"params": [b], "lr": 0.0}]
    optimizer = OneProjection(groups, 0.5, prox_weight=0.0, inner_steps=9, radius=5.0)
    a.grad, b.grad = torch.tensor([-6.0]), torch.tensor([-6.0])
    optimizer.step()  # a moves to 9, b stays at 4; |(9, 4)| > 5
    expected = torch.tensor([9.0, 4.0]) * 5 / torch.tensor([9.0, 4.0]).norm()
    torch.testing.assert_close(torch.cat([a, b]).detach(), expected)


def test_missing_gradients_and_frozen_parameters() -> None:
    moving = torch.tensor([1.0], requires_grad=True)
    unused = torch.tensor([1.0], requires_grad=True)
    frozen = torch.tensor([7.0])
    groups = [{"params": [moving, unused]}, {"params": [frozen]}]
    optimizer = OneProjection(groups, 0.5, prox_weight=0.1, inner_steps=2, radius=2.0)
    for _ in range(6):
        moving.grad = torch.tensor([1.0])
        optimizer.step()
    assert moving.item() == 0.25  # each outer iteration averages 0 and -0.5 more
    assert unused.item() == 1.0
    assert frozen.item() == 7.0, "a frozen parameter is outside the ball's business"


def test_schedulers_drive_the_step_size() -> None:
    w = torch.tensor([0.0], requires_grad=True)
    optimizer = OneProjection([w], 1.0, prox_weight=0.0, inner_steps=100)
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


def test_closure_is_evaluated_at_the_inner_iterate() -> None:
    w = torch.tensor([2.0], requires_grad=True)
    optimizer = OneProjection([w], 0.25, prox_weight=0.0, inner_steps=10)

    def closure() -> float:
        optimizer.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 4.0
    assert w.item() == 1.0


def test_state_dict_copies_and_never_aliases() -> None:
    gradient = noisy_quadratic(3, 8, torch.float64)
    (w,) = start(3, torch.float64, [(3,)])
    optimizer = OneProjection([w], 0.1, prox_weight=0.5, inner_steps=4)
    list(run(optimizer, [w], gradient, 6))
    saved = optimizer.state_dict()
    before = [value.clone() for value in saved["state"][0].values()]
    list(run(optimizer, [w], gradient, 6))
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, saved["state"][0].values(), strict=True)
    )
    optimizer.load_state_dict(saved)
    list(run(optimizer, [w], gradient, 6))
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, saved["state"][0].values(), strict=True)
    )


def test_memory_is_two_copies_and_three_with_selection() -> None:
    for select, copies in (("last", 2), ("random", 3)):
        w = torch.zeros(10, requires_grad=True)
        optimizer = OneProjection(
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


def test_start_outside_the_ball_is_projected_and_said() -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    with pytest.warns(OneprojWarning, match=r"lies 4 outside the safeguard ball"):
        OneProjection([w], 0.1, prox_weight=0.1, inner_steps=5, radius=1.0)
    torch.testing.assert_close(w.detach(), torch.tensor([0.6, 0.8]))


def test_a_ball_with_another_centre() -> None:
    w = torch.tensor([10.0], requires_grad=True)
    optimizer = OneProjection(
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


def test_nan_is_named_with_its_step() -> None:
    w = torch.tensor([0.5], requires_grad=True)
    optimizer = OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2, radius=1.0)
    w.grad = torch.tensor([0.1])
    for _ in range(3):
        optimizer.step()
    w.grad = torch.tensor([math.nan])
    with pytest.raises(NonFiniteError, match=r"the iterate is NaN .* at update 4"):
        optimizer.step()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "either lr"),
        ({"lr": 0.1, "strong_convexity": 1.0}, "either lr"),
        ({"lr": -0.1}, "lr must be one finite number >= 0, got -0.1"),
        ({"strong_convexity": 0.0}, "strong_convexity must be one finite number > 0"),
        ({"lr": 0.1, "prox_weight": -1.0}, "prox_weight must be one finite number"),
        (
            {"lr": 0.1, "inner_steps": 0},
            "inner_steps must be a whole number >= 1, got 0",
        ),
        ({"lr": 0.1, "inner_steps": 2.5}, "inner_steps must be a whole .* got 2.5"),
        ({"lr": 0.1, "center": [torch.ones(3)]}, "one tensor per trainable"),
        ({"lr": 0.1, "first_index": 5}, "first_index must be 0 or 1"),
        ({"lr": 0.1, "radius": 0.0}, "radius must be one number > 0, got 0"),
        ({"lr": 0.1, "radius": math.nan}, "radius must be one number > 0, got nan"),
        ({"lr": 0.1, "late_weight": -1.0}, "late_weight must be one .* got -1.0"),
        ({"lr": 0.1, "select": "best"}, 'select must be "last" or "random"'),
        ({"lr": 0.1, "select": "random"}, "needs outer_steps >= 1 and"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    w = torch.zeros(1, requires_grad=True)
    with pytest.raises(InvalidProblemError, match=message):
        OneProjection([w], **({"prox_weight": 0.1, "inner_steps": 5} | settings))


def test_groups_cannot_be_added_after_the_start() -> None:
    w, late = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = OneProjection([w], 0.1, prox_weight=0.1, inner_steps=5)
    with pytest.raises(InvalidProblemError, match="cannot be added after the start"):
        optimizer.add_param_group({"params": [late]})


def test_an_infinite_gradient_is_named() -> None:
    w = torch.tensor([0.5, 0.0], requires_grad=True)
    optimizer = OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2, radius=1.0)
    w.grad = torch.tensor([math.inf, 0.0])
    with pytest.raises(NonFiniteError, match="at update 1"):
        optimizer.step()


def test_a_stale_gradient_does_not_move_a_frozen_parameter() -> None:
    w, v = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    v.grad = torch.ones(1)
    v.requires_grad_(requires_grad=False)
    optimizer = OneProjection([w, v], 0.1, prox_weight=0.0, inner_steps=2)
    w.grad = torch.ones(1)
    optimizer.step()
    assert v.item() == 0.0
    assert w.item() != 0.0


def test_a_state_of_other_settings_is_refused_before_anything_is_loaded() -> None:
    def make(**changed: object) -> OneProjection:
        w = torch.ones(2, requires_grad=True)
        return OneProjection(
            [w],
            0.1,
            **({"prox_weight": 0.1, "inner_steps": 20, "radius": 9.0} | changed),
        )

    optimizer = make()
    before = optimizer.state_dict()
    for other in (
        make(inner_steps=10).state_dict(),
        make(prox_weight=0.3).state_dict(),
        make(
            select="random", outer_steps=3, generator=torch.Generator().manual_seed(0)
        ).state_dict(),
        torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1).state_dict(),
    ):
        with pytest.raises(InvalidProblemError, match=r"own settings|lacks .run"):
            optimizer.load_state_dict(other)
    assert str(optimizer.state_dict()) == str(before)


def test_a_deep_copy_goes_on_like_the_original() -> None:
    gradient = noisy_quadratic(3, 9, torch.float64)
    (w,) = start(3, torch.float64, [(3,)])
    optimizer = OneProjection([w], 0.1, prox_weight=0.5, inner_steps=4, radius=5.0)
    list(run(optimizer, [w], gradient, 6))
    twin = copy.deepcopy(optimizer)
    (v,) = twin.param_groups[0]["params"]
    assert v is not w
    list(run(optimizer, [w], gradient, 7))
    list(run(twin, [v], gradient, 7))
    assert torch.equal(w, v)


def test_a_mean_that_the_precision_cannot_hold_is_said() -> None:
    w = torch.zeros(1, dtype=torch.bfloat16, requires_grad=True)
    with pytest.warns(OneprojWarning, match="later points would not count"):
        OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2000)


@pytest.mark.parametrize(
    ("K", "steps", "match"),
    [
        (1, 9, "nothing of 9 update.*inner_steps=1"),
        (25, 9, "nothing of 9 update.*none is"),
    ],
)
def test_updates_that_do_not_count_are_said(K: int, steps: int, match: str) -> None:
    (w,) = start(3, torch.float64, [(3,)])
    optimizer = OneProjection([w], 0.1, prox_weight=1.0, inner_steps=K)
    for _ in run(optimizer, [w], noisy_quadratic(3, 3, torch.float64), steps):
        pass
    with pytest.warns(OneprojWarning, match=match) as caught:
        optimizer.eval()
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("T", "steps"), [(None, 0), (None, 6), (1, 2)])
def test_a_start_that_is_meant_is_not_warned_of(T: int | None, steps: int) -> None:
    (w,) = start(3, torch.float64, [(3,)])
    settings = {} if T is None else {"select": "random", "outer_steps": T}
    optimizer = OneProjection(
        [w],
        0.1,
        prox_weight=1.0,
        inner_steps=5,
        first_index=0,
        generator=torch.Generator().manual_seed(0),
        **settings,
    )
    for _ in run(optimizer, [w], noisy_quadratic(3, 3, torch.float64), steps):
        pass
    optimizer.eval()  # a warning would be an error


def test_a_base_that_needs_a_closure_is_refused() -> None:
    (w,) = start(3, torch.float64, [(3,)])
    with pytest.raises(
        InvalidProblemError, match="without a closure, but it made a LB"
    ):
        OneProjection([w], 0.1, prox_weight=1, inner_steps=2, base=torch.optim.LBFGS)


# --- what a second run, another precision and other memory need ---------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_point_that_an_earlier_run_left_on_the_edge_is_no_news(
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        w = 9.0 * torch.randn(7, generator=generator, dtype=dtype)
        project_ball_([w], 3.0, None)
        w.requires_grad_()
        OneProjection([w], 0.1, prox_weight=0.1, inner_steps=2, radius=3.0)


def test_a_center_of_another_precision_is_converted() -> None:
    w = torch.zeros(2, requires_grad=True)
    center = [torch.ones(2, dtype=torch.float64)]
    made = OneProjection(
        [w], 9.0, prox_weight=0.1, inner_steps=2, radius=1.5, center=center
    )
    w.grad = torch.ones(2)
    made.step()
    assert (w - 1.0).norm().item() == pytest.approx(1.5)


def test_frozen_parameters_alone_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="nothing to optimise"):
        OneProjection([torch.zeros(2)], 0.1, prox_weight=0.1, inner_steps=2, radius=1.0)
