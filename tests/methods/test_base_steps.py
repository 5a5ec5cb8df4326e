"""Base steps and decays: torch's own, zipped with what Algorithm 1 makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import lr_scheduler as schedulers
from torch.optim.lr_scheduler import LRScheduler

import oneproj
from oneproj import InvalidProblemError, NonFiniteError, OneProjection
from oneproj.methods.base_steps import (
    BaseLike,
    choose_base,
    follow_edge_,
    schedule_lr,
)

NEVER = 10**9
"""Inner steps, so that no outer iteration ends and nothing is averaged."""
STEPS = 30
TWINS: dict[str, tuple[BaseLike, Callable[..., Optimizer]]] = {
    "sgd": ("sgd", SGD),
    "momentum": ("momentum", lambda p, lr: SGD(p, lr=lr, momentum=0.9)),
    "adam": ("adam", lambda p, lr: Adam(p, lr=lr, betas=(0.9, 0.95), fused=True)),
    "one of the user's": (
        lambda groups: AdamW(groups, weight_decay=0.1),
        lambda p, lr: AdamW(p, lr=lr, weight_decay=0.1),
    ),
}
DECAYS: dict[str, Callable[[Optimizer], LRScheduler]] = {
    "step": lambda o: schedulers.StepLR(o, step_size=7, gamma=0.5),
    "exponential": lambda o: schedulers.ExponentialLR(o, gamma=0.9),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, T_max=STEPS),
    "warm restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, T_0=8),
    "polynomial": lambda o: schedulers.PolynomialLR(o, total_iters=STEPS, power=2.0),
    "one cycle": lambda o: schedulers.OneCycleLR(
        o, max_lr=0.1, total_steps=STEPS + 1, cycle_momentum=False
    ),
    "one cycle, of momentum too": lambda o: schedulers.OneCycleLR(
        o, max_lr=0.1, total_steps=STEPS + 1
    ),
    "warm-up, then decay": lambda o: schedulers.SequentialLR(
        o,
        [
            schedulers.LinearLR(o, start_factor=0.1, total_iters=5),
            schedulers.ExponentialLR(o, gamma=0.9),
        ],
        milestones=[5],
    ),
}


class Walk:
    """Minimises a fixed smooth function with an optimiser, one step at a time."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        wide = {"generator": generator, "dtype": torch.float64}
        self.a = torch.randn(3, **wide).requires_grad_()
        self.b = torch.randn(2, 2, **wide).requires_grad_()
        self.parameters = [self.a, self.b]

    def step(self, optimizer: Optimizer, scheduler: LRScheduler | None = None) -> None:
        optimizer.zero_grad()
        ((self.a**4).sum() + (self.a[:2] @ self.b).square().sum()).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def walks(
    base: BaseLike, twin: Callable[..., Optimizer], lr: float = 0.03
) -> tuple[tuple[Walk, Optimizer], tuple[Walk, Optimizer]]:
    """The same walk by OneProjection, with nothing of its own, and by torch alone."""
    ours, theirs = Walk(), Walk()
    plain = {"prox_weight": 0.0, "inner_steps": NEVER}
    optimizer = OneProjection(ours.parameters, lr, base=choose_base(base), **plain)
    return (ours, optimizer), (theirs, twin(theirs.parameters, lr=lr))


@pytest.mark.parametrize(("base", "twin"), TWINS.values(), ids=TWINS)
def test_without_prox_and_average_it_is_torchs_own(
    base: BaseLike, twin: Callable[..., Optimizer]
) -> None:
    (ours, optimizer), (theirs, reference) = walks(base, twin)
    for _ in range(STEPS):
        ours.step(optimizer)
        theirs.step(reference)
        assert torch.equal(ours.a, theirs.a)
        assert torch.equal(ours.b, theirs.b)


@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
@pytest.mark.parametrize("base", ["momentum", "adam"])
def test_schedulers_of_torch_do_the_same_to_it(
    base: str, decay: Callable[[Optimizer], LRScheduler]
) -> None:
    (ours, optimizer), (theirs, reference) = walks(*TWINS[base])
    schedulers = schedule_lr(decay, optimizer, STEPS), decay(reference)
    rates = set()
    for _ in range(STEPS):
        ours.step(optimizer, schedulers[0])
        theirs.step(reference, schedulers[1])
        assert schedulers[0].get_last_lr() == schedulers[1].get_last_lr()
        assert torch.equal(ours.a, theirs.a)
        rates.update(schedulers[0].get_last_lr())
    assert len(rates) > 3, "the rate changes"


@pytest.mark.parametrize("steps", [1, 7, 500])
def test_linear_decay_reaches_zero_with_the_last_step_and_stays(steps: int) -> None:
    optimizer = SGD(Walk().parameters, lr=0.2)
    scheduler = schedule_lr("linear", optimizer, steps)
    for k in range(steps):
        expected = 0.2 * (1 - k / steps)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-12)
        assert expected > 0, "every planned step moves"
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.0
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.0


@pytest.mark.parametrize("steps", [1, 7, 500])
def test_cosine_decay_warms_up_and_reaches_zero_with_the_last_step(steps: int) -> None:
    optimizer = SGD(Walk().parameters, lr=0.2)
    scheduler = schedule_lr("cosine", optimizer, steps)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert min(rates) > 0, "every planned step moves"
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-12)
    top = rates.index(max(rates))
    assert top <= 0.05 * steps, "the warm-up is a twentieth"
    assert rates == sorted(rates[: top + 1]) + sorted(rates[top + 1 :], reverse=True)
    if steps == 500:
        assert rates[0] == pytest.approx(0.2 / 25, rel=1e-3)
        assert rates[250] == pytest.approx(0.1, rel=1e-9), "half at half time"


def test_constant_stays() -> None:
    optimizer = SGD(Walk().parameters, lr=0.2)
    scheduler = schedule_lr("constant", optimizer, 3)
    for _ in range(5):
        optimizer.step()
        scheduler.step()
        assert scheduler.get_last_lr() == [0.2]


def test_each_group_decays_from_its_own_rate() -> None:
    walk = Walk()
    groups = [{"params": [walk.a], "lr": 0.4}, {"params": [walk.b], "lr": 0.2}]
    optimizer = OneProjection(groups, 0.1, prox_weight=0.0, inner_steps=2)
    scheduler = schedule_lr("linear", optimizer, 4)
    walk.step(optimizer, scheduler)
    assert scheduler.get_last_lr() == pytest.approx([0.3, 0.15])


def test_a_name_or_a_maker_chooses_the_base() -> None:
    assert choose_base("sgd") is SGD
    assert choose_base(AdamW) is AdamW
    groups = [{"params": [torch.ones(1, requires_grad=True)], "lr": 0.1}]
    made = {name: choose_base(name)(groups) for name in ("sgd", "momentum", "adam")}
    assert [type(optimizer) for optimizer in made.values()][:2] == [SGD, SGD]
    assert isinstance(made["adam"], Adam)


@pytest.mark.parametrize("base", ["newton", None, 3])
def test_an_unknown_base_is_refused(base: object) -> None:
    with pytest.raises(InvalidProblemError, match=r"no base step.*'sgd', 'momentum'"):
        choose_base(base)


@pytest.mark.parametrize("decay", ["exponential", None, 0.5])
def test_an_unknown_decay_is_refused(decay: object) -> None:
    optimizer = SGD(Walk().parameters, lr=0.2)
    with pytest.raises(
        InvalidProblemError, match=r'"linear", "cosine", "constant" or a '
    ):
        schedule_lr(decay, optimizer, 3)


def test_a_scheduler_that_cannot_be_driven_is_refused_in_words() -> None:
    w = torch.zeros(2, requires_grad=True)
    own = OneProjection([w], lr=0.1, prox_weight=0.1, inner_steps=2, radius=1.0)
    with pytest.raises(InvalidProblemError, match="metric at every step"):
        schedule_lr(schedulers.ReduceLROnPlateau, own, STEPS)
    with pytest.raises(ValueError, match="total_steps"):  # the user's own mistake
        schedule_lr(lambda o: schedulers.OneCycleLR(o, 0.1), own, STEPS)


def test_adam_stays_in_the_memory_of_a_strided_parameter() -> None:
    memory = torch.zeros(10, dtype=torch.float64)
    w = memory[::2].requires_grad_()
    target = torch.arange(5.0, dtype=torch.float64)
    apart = oneproj.function(lambda: (w - target).square().sum())
    problem = oneproj.Problem(w, apart, {})
    oneproj.solve(problem, steps=300)
    assert w.tolist() == pytest.approx(target.tolist(), abs=0.01)
    assert memory[1::2].tolist() == [0.0] * 5


@pytest.mark.parametrize("dtypes", [(torch.float32,) * 2, (torch.float32, torch.half)])
@pytest.mark.parametrize("own", [{}, {"weight_decay": 0.2}, {"amsgrad": True}])
def test_adam_is_torch_s_own_bit_for_bit(
    dtypes: tuple[torch.dtype, ...], own: dict[str, Any]
) -> None:
    fill = torch.Generator().manual_seed(0)
    sizes = dict(zip((3, 40), dtypes, strict=True))
    mine, its = (
        [torch.ones(n, dtype=t, requires_grad=True) for n, t in sizes.items()]
        for _ in range(2)
    )
    base = choose_base("adam")([{"params": mine, "lr": 0.1} | own])
    kept = {name: base.param_groups[0][name] for name in ("betas", "eps")}
    twin = Adam(its, lr=0.1, fused=True, **kept, **own)
    for k in range(6):
        for p, q in zip(mine, its, strict=True):
            p.grad = torch.randn(p.shape, generator=fill).to(p.dtype)
            q.grad = p.grad.clone()
        if k in (0, 3):  # nothing reached the first parameter: its state stays
            mine[0].grad = its[0].grad = None
        base.param_groups[0]["lr"] = twin.param_groups[0]["lr"] = 0.1 / (k + 1)
        base.step()
        twin.step()
        assert all(map(torch.equal, mine, its))
    assert base.state_dict()["state"][0]["step"] == 4
    assert str(base.state_dict()["state"]) == str(twin.state_dict()["state"])


RADIUS = 0.5


def quadratic(seed: int = 0, dim: int = 6) -> tuple[Tensor, Tensor]:
    """H and t of ``f(x) = (x - t)' H (x - t) / 2``, ill-conditioned, not diagonal."""
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-1, 1, dim, dtype=torch.float64)
    H = torch.linalg.qr(A)[0] * scales @ torch.linalg.qr(A)[0].T
    return H, torch.randn(dim, generator=generator, dtype=torch.float64)


def minimum(H: Tensor, t: Tensor, center: Tensor) -> Tensor:
    """``argmin f`` in the ball: ``H (x - t) + nu (x - c) = 0``, nu by bisection."""

    def offset(nu: float) -> Tensor:
        found: Tensor = torch.linalg.solve(H + nu * torch.eye(len(t)), H @ (t - center))
        return found

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        outside = float(offset(middle).norm()) > RADIUS
        low, high = (middle, high) if outside else (low, middle)
    return center + offset(high)


def problem(w: Tensor, H: Tensor, t: Tensor, center: Tensor) -> oneproj.Problem:
    objective = oneproj.function(lambda: (w - t) @ H @ (w - t) / 2)
    return oneproj.Problem(w, objective, {}, radius=RADIUS, center=[center])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "options",
    [{}, {"method": "penalty-sgd", "base": "adam", "lr": 0.1, "decay": "cosine"}],
)
def test_adam_finds_the_minimum_over_the_ball(
    seed: int, options: dict[str, Any]
) -> None:
    H, t = quadratic(seed)
    center = 0.1 * torch.ones_like(t)
    w = torch.zeros_like(t, requires_grad=True)
    oneproj.solve(problem(w, H, t, center), steps=500, **options)
    x = minimum(H, t, center)
    assert float((x - center).norm()) == pytest.approx(RADIUS)
    # Without the edge's own gradients it ends 0.1 to 0.2 away.
    assert float((w.detach() - x).norm()) < 0.02


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_keeps_its_gradients(momentum: float) -> None:
    w = torch.tensor([0.0, RADIUS], requires_grad=True)
    optimizer = OneProjection(
        [w],
        0.1,
        prox_weight=0.0,
        inner_steps=4,
        radius=RADIUS,
        base=lambda groups: SGD(groups, momentum=momentum),
    )
    for _ in range(3):
        w.grad = torch.tensor([0.5, -3.0])
        optimizer.step()
        assert w.grad.tolist() == [0.5, -3.0]


def run_along_the_edge(optimizer: OneProjection, w: Tensor, steps: int) -> list[float]:
    seen = []
    for k in range(steps):
        w.grad = torch.tensor([1.0, -3.0]) + 0.1 * k * torch.ones(2)
        optimizer.step()
        seen += w.tolist()
    return seen


def at_the_edge() -> tuple[OneProjection, Tensor]:
    w = torch.tensor([0.0, RADIUS], requires_grad=True)
    settings: dict[str, Any] = {"prox_weight": 0.1, "inner_steps": 3, "base": Adam}
    return OneProjection([w], 0.05, radius=RADIUS, **settings), w


def test_a_resumed_run_knows_that_it_was_at_the_edge() -> None:
    first, w = at_the_edge()
    run_along_the_edge(first, w, 4)
    second, v = at_the_edge()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        v.copy_(w)
    assert run_along_the_edge(first, w, 5) == run_along_the_edge(second, v, 5)


def test_an_edge_that_is_not_reached_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(*_: object) -> None:
        message = "the edge was looked at"
        raise AssertionError(message)

    monkeypatch.setattr("oneproj.methods.base_steps.follow_edge_", look)
    optimizer, w = at_the_edge()
    with torch.no_grad():
        w.zero_()
    run_along_the_edge(optimizer, w, 5)
    with torch.no_grad():
        w.fill_(RADIUS)
    with pytest.raises(AssertionError, match="looked at"):
        run_along_the_edge(optimizer, w, 2)


@pytest.mark.parametrize(
    ("point", "gradient", "expected"),
    [
        ([0.0, 0.5], [2.0, -3.0], [2.0, 0.0]),  # out: what is left runs along
        ([0.0, 0.5], [2.0, 3.0], [2.0, 3.0]),  # in: nothing is in the way
        ([0.0, 0.4], [2.0, -3.0], [2.0, -3.0]),  # inside
        ([0.3, 0.4], [-3.0, -4.0], [0.0, 0.0]),  # a minimum over the ball
    ],
)
def test_the_pull_outwards_is_taken_out(
    point: list[float], gradient: list[float], expected: list[float]
) -> None:
    w = torch.tensor(point, requires_grad=True)
    unseen = torch.zeros(3, requires_grad=True)
    w.grad = torch.tensor(gradient)
    follow_edge_([w, unseen], RADIUS, None)
    assert w.grad.tolist() == pytest.approx(expected, abs=1e-6)
    assert unseen.grad is None


def test_an_infinite_gradient_at_the_edge_is_named() -> None:
    optimizer, w = at_the_edge()
    run_along_the_edge(optimizer, w, 2)
    w.grad = torch.tensor([math.inf, -math.inf])
    with pytest.raises(NonFiniteError, match="the gradient"):
        optimizer.step()
