"""What is said of a run after its end: it rose, or it ended in motion."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj import OneprojWarning
from oneproj.methods.diagnostics import warn_if_falling, warn_if_risen


def test_an_objective_that_diverges_is_told_whatever_the_method() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator) * torch.tensor([1.0, 30.0, 1000.0])
    y = torch.randint(0, 2, (200,), generator=generator) * 2.0 - 1.0
    w = torch.zeros(3, requires_grad=True)

    def risk(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * (batch[0] @ w))

    problem = oneproj.Problem(
        w, oneproj.mean(risk, (x, y)), {"one": oneproj.function(w.sum) <= 1e6}
    )
    with pytest.warns(OneprojWarning, match="start.*higher objective.*unit variance"):
        oneproj.solve(problem, method="lagrangian", steps=50, progress=False)


@pytest.mark.parametrize(
    ("first", "objective", "multiplier", "cap"),
    [
        (0.5, 2.4, 0.0, [-1.0, -1.0]),  # not by much
        (-2.0, 9.0, 0.0, [-1.0, -1.0]),
        (3.0, -99.0, 0.0, [-1.0, -1.0]),
        (1e-9, 0.9, 0.3, [-1.0, -1.0]),  # held by a constraint
        (0.0, 0.9, 0.0, [60.0, 70.0, -0.1]),  # had to leave an infeasible start
    ],
)
def test_a_rise_that_is_small_or_asked_for_is_not(
    first: float, objective: float, multiplier: float, cap: list[float]
) -> None:
    record = {"objective": [first, 1.0], "cap": cap}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_risen(record, objective, {"cap": multiplier})


@pytest.mark.filterwarnings("ignore:The answer is the start")
def test_a_first_minibatch_without_the_rare_losses_is_no_low_start() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 4, generator=generator)
    rare = torch.rand(3000, generator=generator) < 0.01
    y = torch.where(rare, 5.0 + x[:, 0], torch.zeros(3000))
    first = []
    for seed in range(4):
        w = torch.zeros(4, requires_grad=True)
        problem = oneproj.Problem(
            w,
            oneproj.mean(lambda b, w=w: (b[0] @ w - b[1]).square(), (x, y)),
            {"size": oneproj.sets.Ball(5.0).on(w)},
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="The objective rose")
            done = oneproj.solve(
                problem, steps=100, seed=seed, batch_size=64, progress=False
            )
        first.append(done.history["objective"][0])
    assert min(first) < 0.01 * done.objective


def test_a_rise_after_constraints_overshot_is_told() -> None:
    record = {"objective": [3.0, 5e8], "cap": [0.6, 4e4, -0.1]}
    with pytest.warns(OneprojWarning, match="rose from 3 at the first update to 2e"):
        warn_if_risen(record, 2e8, {"cap": 0.0})


def fall(per_update: float) -> list[float]:
    return [1.0 + 0.2 * (k % 3) - per_update * k for k in range(400)]


@pytest.mark.parametrize(
    ("examples", "wanted"),
    [
        (50_000, "have not seen all 50000 once. Try steps=2400"),
        (32_000, "still fell by 11%. Try steps=1000"),  # all was seen
        (None, "still fell by 11%. Try steps=1000"),  # no data
    ],
)
def test_an_end_in_motion_names_more_steps(examples: int | None, wanted: str) -> None:
    with pytest.warns(OneprojWarning, match=wanted):
        warn_if_falling(fall(1e-3), steps=500, batch_size=64, examples=examples)


def test_with_a_checkpoint_more_steps_are_a_new_run() -> None:
    with pytest.warns(OneprojWarning, match="this one cannot be extended"):
        warn_if_falling(fall(1e-3), steps=500, batch_size=64, examples=None, saved=True)


@pytest.mark.parametrize(
    "seen",
    [
        [1.0 - 1e-4 * k for k in range(400)],  # at rest, nearly
        [y + 2.0 * (-1) ** k for k, y in enumerate(fall(1e-3))],  # noise
        [99.0, *fall(1e-3)],  # nearly gone
        [0.5, *fall(1e-3)],  # driven up, and coming back
        fall(1e-3)[:80],  # a trial
    ],
)
def test_other_ends_are_not_warned_of(seen: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_falling(seen, steps=500, batch_size=64, examples=50_000)


def slow_problem(examples: int) -> oneproj.Problem:
    w = torch.zeros(1, requires_grad=True)
    far = torch.full((examples, 1), 30.0)
    mean = oneproj.mean(lambda batch: (batch - w).square().squeeze(1), far)
    return oneproj.Problem(w, mean, {"cap": oneproj.function(w.sum) <= 100.0})


SLOW = {"steps": 200, "batch_size": 2, "lr": 0.01, "base": "sgd", "progress": False}


def test_solve_says_so() -> None:
    with pytest.warns(OneprojWarning, match="Try steps=1500"):
        oneproj.solve(slow_problem(1000), **SLOW)


def test_solve_says_so_after_a_pass_too() -> None:
    with pytest.warns(OneprojWarning, match="Try steps=400"):
        oneproj.solve(slow_problem(400), **SLOW)


def test_solve_says_nothing_of_a_run_at_rest() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oneproj.solve(slow_problem(400), **(SLOW | {"lr": 0.3}))
