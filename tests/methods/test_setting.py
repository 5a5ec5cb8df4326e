"""The setting of a run: what is chosen where the user chose nothing."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.methods.setting import (
    AFFORDABLE,
    BETWEEN_ANCHORS,
    DEFAULT_STEPS,
    FEW_BATCHES,
    SHARE,
    Setting,
    prepare,
)
from oneproj.oracles import ORACLES, Anchored, Exact
from oneproj.theory import ConvexConstants, convex_schedule


def make(*rows: int | None, width: int = 1) -> oneproj.Problem:
    """One constraint per entry, on so many examples; None for one without data."""
    w = torch.ones(width, requires_grad=True)
    constraints = {
        f"c{j}": oneproj.function(w.sum) <= 1.0
        if n is None
        else oneproj.mean(lambda batch: batch * w.sum(), torch.ones(n)) <= 1.0
        for j, n in enumerate(rows)
    }
    return oneproj.Problem(w, oneproj.function(w.sum), constraints, radius=1e3)


def ready(problem: oneproj.Problem, **arguments: object) -> Setting:
    defaults = {
        "steps": None,
        "seed": 0,
        "schedule": None,
        "projector": "auto",
        "oracle": "auto",
        "batch_size": 64,
        "anchor_size": None,
    }
    return prepare(problem, **(defaults | arguments))


# --- the oracle ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((), "exact"),
        ((None,), "exact"),
        ((FEW_BATCHES * 64,), "exact"),
        ((FEW_BATCHES * 64 + 1,), "anchored"),
        ((None, 10, 9000), "anchored"),
        ((10, 20, 30), "exact"),
    ],
)
def test_the_oracle_follows_the_largest_data(
    rows: tuple[int | None, ...], expected: str
) -> None:
    assert ready(make(*rows)).oracle == expected


def test_small_is_relative_to_the_minibatch() -> None:
    assert ready(make(100), batch_size=8).oracle == "anchored"
    assert ready(make(100), batch_size=25).oracle == "exact"


def test_a_schedule_asks_for_the_exact_oracle() -> None:
    constants = ConvexConstants(
        weak_convexity=1e-3,
        gradient_bound=1e-2,
        constraint_gradient_bound=1.0,
        boundary_slope=1.0,
        initial_gap=1e-3,
    )
    schedule = convex_schedule(constants, epsilon=1.0)
    setting = ready(make(9000), schedule=schedule)
    assert setting.oracle == "exact"
    assert setting.steps == schedule.gradient_calls


@pytest.mark.parametrize("name", ORACLES)
def test_what_was_asked_for_is_taken(name: str) -> None:
    setting = ready(make(9000), oracle=name)
    assert setting.oracle == setting.describe()["oracle"] == name
    assert type(setting.look(None)) is ORACLES[name]


# --- anchors ------------------------------------------------------------------


def test_an_anchor_sees_all_data_where_that_is_affordable() -> None:
    width = 10**5
    rows = AFFORDABLE // width
    assert ready(make(rows, width=width)).anchor_size is None
    assert ready(make(rows + 1, width=width)).anchor_size == rows
    assert ready(make(None)).anchor_size is None
    assert ready(make()).anchor_size is None


def test_a_costly_anchor_costs_half_of_what_is_seen_between_two() -> None:
    problem, width = make(1000), AFFORDABLE
    problem.parameters = [torch.empty(1).expand(width)]  # wide, without the memory
    half = int(SHARE * BETWEEN_ANCHORS * 64)
    assert ready(problem).anchor_size == half == 320
    assert ready(problem, batch_size=200).anchor_size is None


def test_an_anchor_size_that_was_asked_for_is_taken() -> None:
    assert ready(make(9000), anchor_size=7).anchor_size == 7
    assert ready(make(9000), anchor_size=10**6).anchor_size == 10**6


@pytest.mark.parametrize(
    ("arguments", "looks"),
    [({}, [1, 11, 21]), ({"renew_every": 4}, [1, 5, 9, 13, 17, 21, 25])],
)
def test_looking_renews_anchors_unless_the_method_does(
    arguments: dict[str, int], looks: list[int]
) -> None:
    setting = ready(make(300), oracle="anchored")
    oracle = setting.look(oneproj.Hinge(1.0), **arguments)
    assert isinstance(oracle, Anchored)
    found = []
    for k in range(1, 26):
        before = setting.counts.constraint_passes
        oracle.backward()
        if setting.counts.constraint_passes > before:
            found.append(k)
    assert found == looks


def test_the_size_of_the_anchor_reaches_the_oracle() -> None:
    setting = ready(make(300), oracle="anchored", anchor_size=30)
    oracle = setting.look(oneproj.Hinge(1.0), renew_every=None)
    oracle.anchor()
    assert setting.counts.constraint_passes == 0
    assert setting.counts.constraint_gradients == 1


# --- the rest -----------------------------------------------------------------


def test_defaults() -> None:
    setting = ready(make(10))
    assert setting.steps == DEFAULT_STEPS == 500
    assert isinstance(setting.look(None), Exact)
    described = {"steps": 500, "batch_size": 64, "anchor_size": None}
    assert described.items() <= setting.describe().items()


def test_seeds_give_independent_streams() -> None:
    draws = set()
    for seed in (0, 1):
        setting = ready(make(10), seed=seed)
        for generator in (setting.sampling, setting.selection):
            draws.add(int(torch.randint(2**60, (), generator=generator)))
    assert len(draws) == 4


@pytest.mark.parametrize("name", ["steps", "batch_size", "anchor_size"])
@pytest.mark.parametrize("bad", [0, -1, 2.5, "64", float("nan")])
def test_counts_are_whole_numbers(name: str, bad: object) -> None:
    message = f"{name} must be a whole number, at least 1"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        ready(make(9000), **{name: bad})


def test_an_unknown_oracle_is_refused_with_those_there_are() -> None:
    message = "no oracle 'psychic'. Known: auto, exact, minibatch, anchored"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        ready(make(10), oracle="psychic")
