"""Every option of every method: nonsense is refused, and so is what has no effect."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import pytest
import torch

import oneproj
from oneproj.methods import METHODS
from oneproj.oracles import ORACLES
from oneproj.theory import ConvexConstants, convex_schedule

NONSENSE: dict[str, object] = {
    "a nonsense string": "banana",
    "a negative number": -1,
    "NaN": math.nan,
    "a bool": True,
    "a list": [0.1],
}
NUMBERS = ("lr", "dual_lr", "prox_weight", "inner_steps", "late_weight", "strength")
NUMBERS += ("smoothing", "clip", "tolerance")
WORDS = ("base", "decay", "combine", "select")
COMMON = ("steps", "seed", "schedule", "projector", "oracle", "batch_size")
COMMON += ("anchor_size", "progress", "callbacks", "seconds", "checkpoint", "certify")
COMMON += ("checkpoint_every", "resume", "on_failure", "defaults")
MEANT = {
    ("certify", "a bool"),
    ("progress", "a bool"),
    ("resume", "a bool"),
    ("checkpoint", "a nonsense string"),
}
MEANT |= {("resume", "a nonsense string")}
"""Values that are no nonsense for these arguments: a bool, and the name of a file."""
BESIDE = {"smoothing": {"strength": 1.0}, "combine": {"strength": 1.0}}
"""What an option needs to have an effect at all."""


def small() -> oneproj.Problem:
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    x = torch.linspace(0.0, 1.0, 20, dtype=torch.float64).reshape(10, 2)
    objective = oneproj.mean(lambda batch: (batch @ w - 1.0).square(), x)
    cap = oneproj.mean(lambda batch: batch @ w, x, curvature="linear") <= 0.3
    return oneproj.Problem(w, objective, {"cap": cap}, radius=9.0)


OPTIONS = [
    (method, field.name)
    for method, made in METHODS.items()
    for field in dataclasses.fields(made)
]


def test_every_option_is_in_these_tables() -> None:
    assert {name for _, name in OPTIONS} == {*NUMBERS, *WORDS}
    arguments = inspect.getfullargspec(oneproj.solve).kwonlyargs
    assert set(arguments) == {"method", *COMMON}


@pytest.mark.parametrize("given", NONSENSE)
@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_nonsense_is_refused_by_name(method: str, option: str, given: str) -> None:
    arguments = {option: NONSENSE[given]} | BESIDE.get(option, {})
    with pytest.raises(oneproj.InvalidProblemError, match=option):
        oneproj.solve(small(), method=method, steps=10, **arguments)


@pytest.mark.parametrize("given", NONSENSE)
@pytest.mark.parametrize("argument", COMMON)
@pytest.mark.parametrize("method", METHODS)
def test_nonsense_of_common_arguments_is_refused_by_name(
    method: str, argument: str, given: str
) -> None:
    if (argument, given) in MEANT:
        return
    arguments = {"steps": 10, argument: NONSENSE[given]}
    with pytest.raises(oneproj.InvalidProblemError, match=argument.removesuffix("s")):
        oneproj.solve(small(), method=method, **arguments)


# --- options beside each other ------------------------------------------------------

SCHEDULE = convex_schedule(
    ConvexConstants(
        weak_convexity=1.0,
        gradient_bound=2.0,
        constraint_gradient_bound=4.0,
        boundary_slope=3.0,
        radius=9.0,
    ),
    0.1,
)
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # Automatic strengths are one hinge per constraint: nothing to combine, no softplus.
    ("one-projection", {"combine": "banana"}, "combine"),
    ("one-projection", {"combine": "sum"}, "combine.*strength"),
    ("one-projection", {"combine": "max"}, "combine.*strength"),
    ("one-projection", {"combine": "sum", "strength": "auto"}, "combine.*strength"),
    ("one-projection", {"smoothing": 0.1}, "smoothing.*strength"),
    # A schedule sets steps and options, and its oracle is exact.
    ("one-projection", {"schedule": SCHEDULE, "steps": 5}, "steps.*schedule"),
    ("one-projection", {"schedule": SCHEDULE, "lr": 0.1}, "schedule.*lr"),
    ("one-projection", {"schedule": SCHEDULE, "anchor_size": 5}, "anchor_size"),
    ("auto", {"schedule": SCHEDULE, "anchor_size": 5}, "anchor_size"),
    ("one-projection", {"schedule": SCHEDULE, "oracle": "minibatch"}, "oracle"),
    ("penalty-sgd", {"schedule": SCHEDULE}, "schedule"),
    # Nothing would be trained, or nothing would count.
    ("one-projection", {"lr": 0.0}, "lr=0"),
    ("penalty-sgd", {"lr": 0.0}, "lr=0"),
    ("one-projection", {"inner_steps": 1}, "inner_steps"),
    ("one-projection", {"inner_steps": 30, "steps": 20}, "inner_steps"),
    ("one-projection", {"decay": lambda _: None}, "decay"),
    # What other methods have.
    ("penalty-sgd", {"strength": "auto"}, "strength"),
    ("lagrangian", {"select": "random"}, "select"),
    ("one-projection", {"select": "average"}, "select"),
    ("slsqp", {"lr": 0.1}, "lr"),
    ("auto", {"lr": 0.1}, "lr"),
]
HARMLESS: list[tuple[str, dict[str, Any], str]] = [
    ("slsqp", {"oracle": "minibatch"}, "it sees all data at every update"),
    ("slsqp", {"batch_size": 4}, "the same"),
    ("projected-sgd", {"oracle": "minibatch"}, "projections see all data"),
    ("slsqp", {"seed": 3}, "it draws no random number"),
    (
        "one-projection",
        {"combine": "sum", "strength": 1.0},
        "one constraint is its sum",
    ),
    ("one-projection", {"anchor_size": 10**6}, "an anchor sees what there is"),
    ("one-projection", {"batch_size": 10**6}, "a minibatch has what there is"),
    ("one-projection", {"clip": math.inf}, "no limit"),
    ("one-projection", {"prox_weight": 0.0}, "no pull"),
    ("one-projection", {"late_weight": 0.0}, "the mean"),
    ("lagrangian", {"dual_lr": 0.0}, "the multipliers stay 0: the projection does it"),
    ("auto", {"oracle": "exact"}, "for where Algorithm 1 is chosen"),
    ("auto", {"anchor_size": 5}, "the same"),
]


@pytest.mark.parametrize(("method", "arguments", "words"), REFUSED)
def test_what_has_no_effect_is_refused(
    method: str, arguments: dict[str, Any], words: str
) -> None:
    problem = small()
    stop = {"callbacks": lambda _: True}  # a schedule would take days
    with pytest.raises(oneproj.InvalidProblemError, match=words):
        oneproj.solve(problem, method=method, **arguments, **stop)
    assert problem.parameters[0].tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore:The objective was")
@pytest.mark.parametrize(("method", "arguments", "why"), HARMLESS)
def test_what_is_harmless_is_accepted(
    method: str, arguments: dict[str, Any], why: str
) -> None:
    assert oneproj.solve(small(), method=method, **arguments).feasible, why


TAKES_ANCHORS = {
    "one-projection": ("exact", "minibatch", "anchored", "auto"),
    "one-projection, strength=1": ("anchored", "auto"),
    "penalty-sgd": ("anchored", "auto"),
    "lagrangian": ("anchored", "auto"),
    "switching-subgradient": ("anchored", "auto"),
    "projected-sgd": (),  # its updates do not look at the constraints
    "slsqp": (),  # nor are there minibatches here
    "auto": ("exact", "minibatch", "anchored", "auto"),  # before it is known
}
"""The oracles with which a method takes anchors, whose size can be given."""


def test_anchors_of_every_method_are_in_the_table() -> None:
    assert {name.partition(",")[0] for name in TAKES_ANCHORS} == set(METHODS)


@pytest.mark.filterwarnings("ignore:The objective was")
@pytest.mark.parametrize("oracle", ["auto", *ORACLES])
@pytest.mark.parametrize("name", TAKES_ANCHORS)
def test_a_size_of_anchors_is_refused_where_there_are_none(
    name: str, oracle: str
) -> None:
    method, _, fixed = name.partition(", ")
    options = {"strength": 1.0} if fixed else {}
    arguments = {"method": method, "oracle": oracle, "anchor_size": 5, "steps": 60}
    if oracle in TAKES_ANCHORS[name]:
        assert oneproj.solve(small(), **arguments, **options).feasible
    else:
        with pytest.raises(oneproj.InvalidProblemError, match="anchor_size=5"):
            oneproj.solve(small(), **arguments, **options)


# --- lr times prox_weight -----------------------------------------------------------


@pytest.mark.parametrize("base", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("lr", [0.1, None])
def test_a_pull_beyond_the_centre_is_refused(lr: float | None, base: str) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=r"lr=0.1 .*prox_weight=11 "):
        oneproj.solve(small(), lr=lr, prox_weight=11.0, base=base)
    assert oneproj.solve(small(), lr=lr, prox_weight=10.0, base=base).feasible


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_the_optimiser_refuses_a_pull_beyond_the_centre(
    make: type[torch.optim.Optimizer],
) -> None:
    w = torch.zeros(2, requires_grad=True)
    settings = {"prox_weight": 2.0, "inner_steps": 4, "base": make}
    with pytest.raises(oneproj.InvalidProblemError, match=r"lr=0.6 .*prox_weight=2 "):
        oneproj.OneProjection([w], lr=0.6, **settings)
    groups = [{"params": [w], "lr": 0.6}]
    with pytest.raises(oneproj.InvalidProblemError, match=r"lr=0.6 .*prox_weight=2 "):
        oneproj.OneProjection(groups, lr=0.1, **settings)
    optimizer = oneproj.OneProjection([w], lr=0.5, **settings)
    (w - 1.0).square().sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.6  # as a scheduler may do
    with pytest.raises(oneproj.InvalidProblemError, match=r"lr=0.6 .*prox_weight=2 "):
        optimizer.step()


def test_the_steps_of_a_theorem_are_not_refused() -> None:
    w = torch.zeros(2, requires_grad=True)  # its first steps are 1/m, with beta = 2 m
    settings = {"strong_convexity": 1.0, "prox_weight": 2.0, "inner_steps": 4}
    optimizer = oneproj.OneProjection([w], **settings)
    for _ in range(8):
        optimizer.zero_grad()
        (w - 1.0).square().sum().backward()
        optimizer.step()
    optimizer.eval()
    assert bool(torch.isfinite(w).all())


@pytest.mark.parametrize("far", [10.0, 1e4, 1e6])
def test_steps_that_a_far_start_lengthens_do_not_overshoot(far: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    w = torch.zeros(4, dtype=torch.float64, requires_grad=True)

    def predict(batch: torch.Tensor) -> torch.Tensor:
        return batch @ w[:3] + w[3]

    loss = oneproj.mean(lambda batch: (predict(batch) - batch[:, 0]).square(), x)
    level = oneproj.mean(predict, x, curvature="linear") >= far
    solution = oneproj.solve(oneproj.Problem(w, loss, {"level": level}))
    settings = solution.settings
    assert solution.feasible
    assert settings["lr"] > 0.1  # lengthened
    assert settings["lr"] * settings["prox_weight"] == pytest.approx(0.1 * 0.02)
    assert solution.objective <= 1.01 * far**2  # the least is about far^2
