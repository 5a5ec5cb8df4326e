"""``OneProjection`` in loops that others wrote: what they do to it between steps."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, StepLR

from oneproj import InvalidProblemError, NonFiniteError, OneProjection, OneprojWarning

SETTINGS = {"lr": 0.1, "prox_weight": 0.5, "inner_steps": 5}


def layers() -> torch.nn.Sequential:
    """Two layers, the same at every call."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))


def train(
    model: torch.nn.Module, optimizer: Optimizer, steps: int, first: float = 1.0
) -> None:
    """Steps on a loss that pulls the outputs to one; the first has another weight."""
    batch = torch.linspace(-1.0, 1.0, 20).reshape(5, 4)
    for k in range(steps):
        weight = 1.0 if k else first
        optimizer.zero_grad()
        (weight * (model(batch) - 1.0).square().mean()).backward()
        optimizer.step()


def held(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# --- copies -------------------------------------------------------------------


def test_copies_of_an_optimiser_with_a_scheduler_step_themselves() -> None:
    model = layers()
    optimizer = OneProjection(model.parameters(), **SETTINGS)
    scheduler = StepLR(optimizer, 50)
    train(model, optimizer, 3)
    scheduler.step()
    copies = [
        copy.deepcopy((model, optimizer)),
        pickle.loads(pickle.dumps((model, optimizer))),  # noqa: S301 - our own bytes
    ]
    before = held(model)
    for other, its_own in copies:
        train(other, its_own, 4)
        assert torch.equal(held(model), before), "the original stays"
    train(model, optimizer, 4)
    for other, _ in copies:
        assert torch.equal(held(other), held(model))


# --- parameters that are frozen or thawed -------------------------------------


@pytest.mark.parametrize("done", [3, 5, 8])
def test_a_layer_that_is_frozen_during_the_run_is_refused(done: int) -> None:
    model = layers()
    optimizer = OneProjection(model.parameters(), **SETTINGS)
    train(model, optimizer, done)
    model[0].requires_grad_(requires_grad=False)
    match = "frozen after the optimiser was built.*build a new optimiser"
    with pytest.raises(InvalidProblemError, match=match):
        train(model, optimizer, 5)
    before, state = held(model), str(optimizer.state_dict())
    with pytest.raises(InvalidProblemError, match=match):
        train(model, optimizer, 1)
    assert torch.equal(held(model), before), "a step that is refused changes nothing"
    assert str(optimizer.state_dict()) == state
    model[0].requires_grad_(requires_grad=True)
    train(model, optimizer, 5)
    assert not torch.equal(held(model), before)


def test_a_layer_that_is_thawed_during_the_run_is_told_of_once() -> None:
    model = layers()
    model[0].requires_grad_(requires_grad=False)
    optimizer = OneProjection(model.parameters(), **SETTINGS)
    train(model, optimizer, 3)
    model[0].requires_grad_(requires_grad=True)
    with pytest.warns(OneprojWarning, match=r"2 parameter\(s\).*do not move") as told:
        train(model, optimizer, 20)
    assert len(told) == 1
    assert told[0].filename == __file__


def test_steps_without_a_gradient_are_told_of_once() -> None:
    model = layers()
    optimizer = OneProjection(model.parameters(), **SETTINGS)
    state = copy.deepcopy(model.state_dict())
    model.load_state_dict(state, assign=True)  # other tensors from here on
    with pytest.warns(OneprojWarning, match=r"no parameter has a gradient") as told:
        train(model, optimizer, 20)
    assert len(told) == 1
    assert told[0].filename == __file__


# --- NaN ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("radius", "found", "quantity"),
    [(math.inf, 8, "the gradient"), (9.0, 8, "the gradient")],
)
@pytest.mark.parametrize("base", [SGD, partial(SGD, momentum=0.9), Adam])
def test_a_nan_batch_can_be_left_out(
    base: type[Optimizer], radius: float, found: int, quantity: str
) -> None:
    model, twin = layers(), layers()
    make = partial(OneProjection, base=base, radius=radius, **SETTINGS)
    optimizer, other = make(model.parameters()), make(twin.parameters())
    for m, o in ((model, optimizer), (twin, other)):
        train(m, o, 5)
    center = held(model)
    train(model, optimizer, 2)
    with pytest.raises(NonFiniteError, match=f"{quantity} is NaN") as caught:
        train(model, optimizer, 3, math.nan)
    assert caught.value.step == found
    assert torch.equal(held(model), center), "x_1, where the outer iteration began"
    assert optimizer.at_center
    train(model, optimizer, 10)
    train(twin, other, 10)
    optimizer.eval()
    assert bool(held(model).isfinite().all())
    assert optimizer.selected_index == 3
    if base is SGD:
        other.eval()
        assert torch.equal(held(model), held(twin)), "as if it had not been"


def test_an_iterate_that_overflows_is_noticed_at_once() -> None:
    w = torch.zeros(3, requires_grad=True)
    optimizer = OneProjection([w], **SETTINGS)
    w.grad = torch.tensor([0.0, 3e38, 0.0])
    optimizer.param_groups[0]["lr"] = 2.0
    with pytest.raises(NonFiniteError, match=r"the iterate is NaN.* at update 1"):
        optimizer.step()
    assert w.tolist() == [0.0, 0.0, 0.0]


# --- step sizes and their schedulers ------------------------------------------


@pytest.mark.parametrize("lr", [-1.0, math.nan, "a", None])
def test_the_step_size_of_a_group_is_checked(lr: object) -> None:
    model = layers()
    groups = [{"params": model[0].parameters(), "lr": lr}]
    match = "Give either lr" if lr is None else "lr must be one finite number >= 0"
    with pytest.raises(InvalidProblemError, match=match):
        OneProjection(groups, **SETTINGS)


def test_every_group_may_have_its_own_step_size_and_none_be_given() -> None:
    model = layers()
    groups = [{"params": model[k].parameters(), "lr": 0.1 / (k + 1)} for k in (0, 1)]
    own = {"prox_weight": 0.5, "inner_steps": 5}
    optimizer = OneProjection(groups, **own)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.05]
    for step in ({}, {"strong_convexity": 2.0}):
        given = [{"params": [torch.ones(1, requires_grad=True)]}, *groups]
        with pytest.raises(InvalidProblemError, match="Give either lr"):
            OneProjection(given, **own, **step)


@pytest.mark.parametrize("base", [SGD, partial(SGD, momentum=0.9), Adam])
@pytest.mark.parametrize(
    "cycle",
    [
        partial(OneCycleLR, max_lr=0.2, total_steps=40),
        partial(CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=7),
    ],
)
def test_schedulers_may_cycle_the_momentum_of_the_base(
    base: type[Optimizer], cycle: Callable[..., LRScheduler]
) -> None:
    # Without a pull and within one outer iteration it is the base alone.
    model, twin = layers(), layers()
    optimizer = OneProjection(
        model.parameters(), 0.1, prox_weight=0.0, inner_steps=99, base=base
    )
    alone = base(twin.parameters(), lr=0.1)
    schedulers = cycle(optimizer), cycle(alone)
    for _ in range(20):
        train(model, optimizer, 1)
        train(twin, alone, 1)
        for scheduler in schedulers:
            scheduler.step()
        assert torch.equal(held(model), held(twin))


def test_a_loop_that_looks_every_few_steps_is_told_once_that_it_sees_the_start() -> (
    None
):
    model = layers()
    optimizer = OneProjection(model.parameters(), 0.1, prox_weight=0.1, inner_steps=99)
    train(model, optimizer, 5)
    with pytest.warns(OneprojWarning, match="is the start: nothing of 5"):
        optimizer.eval()
    for _ in range(3):
        optimizer.train()
        train(model, optimizer, 5)
        optimizer.eval()  # a warning would be an error


# --- what is optimised, and by what -------------------------------------------


def test_names_go_with_their_parameters() -> None:
    model = layers()
    model[0].requires_grad_(requires_grad=False)
    optimizer = OneProjection(model.named_parameters(), **SETTINGS)
    (group,) = optimizer.state_dict()["param_groups"]
    assert group["params"] == [0, 1]
    assert group["param_names"] == ["1.weight", "1.bias"]


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with dup")
def test_a_parameter_that_is_given_twice_moves_once() -> None:
    steps = []
    for times in (1, 2):
        w = torch.ones(2, requires_grad=True)
        optimizer = OneProjection([w] * times, **SETTINGS)
        w.grad = torch.ones(2)
        for _ in range(7):
            optimizer.step()
        steps.append(w.tolist())
    assert steps[0] == steps[1]


@pytest.mark.parametrize(
    ("start", "match"),
    [
        ([1.0 + 1.0j], "only real floating-point"),
        ([1.0, math.nan], "holds NaN or inf at the start"),
        ([], "frozen or empty"),
    ],
)
def test_a_start_that_cannot_be_optimised(start: list[float], match: str) -> None:
    w = torch.tensor(start, requires_grad=True)
    with pytest.raises(InvalidProblemError, match=match):
        OneProjection([w], **SETTINGS)


def test_a_base_must_make_an_optimiser_of_the_groups_it_is_given() -> None:
    model, other = layers(), layers()
    for base, match in (
        (SGD(model.parameters(), lr=0.1), "but got one that is made: it is a SGD"),
        (lambda _: SGD(other.parameters(), lr=0.1), "made a SGD of other parameter"),
        (lambda g: SGD(g[0]["params"], lr=0.1), "made a SGD of other parameter"),
    ):
        with pytest.raises(InvalidProblemError, match=match):
            OneProjection(model.parameters(), base=base, **SETTINGS)


def test_a_step_size_that_the_base_was_given_is_not_used_in_silence() -> None:
    model = layers()
    with pytest.warns(OneprojWarning, match=r"base has lr=0.001, which is not used"):
        OneProjection(model.parameters(), base=partial(Adam, lr=1e-3), **SETTINGS)
    OneProjection(model.parameters(), base=partial(Adam, lr=0.1), **SETTINGS)


# --- parameters and gradients of other kinds ----------------------------------


def test_a_model_that_is_converted_after_the_optimiser_was_built_is_told_so() -> None:
    model = layers()
    optimizer = OneProjection(model.parameters(), **SETTINGS)
    train(model, optimizer, 2)
    model.double()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    match = r"is torch.float64 on cpu, \(3, 4\) by now, and was torch.float32"
    with pytest.raises(InvalidProblemError, match=match):
        optimizer.step()


@pytest.mark.parametrize("base", [SGD, Adam])
def test_sparse_gradients_are_taken_like_dense_ones(base: type[Optimizer]) -> None:
    ends = []
    for sparse in (False, True):
        torch.manual_seed(0)
        table = torch.nn.Embedding(6, 2, sparse=sparse)
        optimizer = OneProjection(table.parameters(), base=base, **SETTINGS)
        for k in range(12):
            optimizer.zero_grad()
            table(torch.tensor([k % 6, 2])).square().sum().backward()
            optimizer.step()
        ends.append(held(table))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-6, atol=1e-7)


def test_a_gradient_may_be_sparse_from_the_second_step_on() -> None:
    table = torch.nn.Embedding(6, 2, sparse=True)
    optimizer = OneProjection(table.parameters(), base=Adam, **SETTINGS)
    before = held(table)
    optimizer.step()  # no gradient yet
    table(torch.tensor([3])).square().sum().backward()
    optimizer.step()
    assert (held(table) != before).reshape(6, 2).any(dim=1).tolist() == [
        row == 3 for row in range(6)
    ]


def test_nan_in_a_sparse_momentum_is_forgotten() -> None:
    torch.manual_seed(0)
    table = torch.nn.Embedding(6, 2, sparse=True)
    base = partial(SGD, momentum=0.9)
    optimizer = OneProjection(table.parameters(), base=base, radius=9.0, **SETTINGS)
    for k in range(4):
        optimizer.zero_grad()
        weight = math.nan if k == 2 else 1.0
        (weight * table(torch.tensor([k, 5])).square().sum()).backward()
        if k == 2:
            with pytest.raises(NonFiniteError):
                optimizer.step()
        else:
            optimizer.step()
    assert bool(held(table).isfinite().all())
