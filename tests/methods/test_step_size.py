"""Steps where nobody says: also for starts that are far from feasible."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.lr_scheduler import ConstantLR

import oneproj
from oneproj.methods.step_size import (
    FARTHEST,
    choose_inner_steps,
    default_lr,
    far_lr,
)
from oneproj.oracles.anchor import Anchor
from oneproj.problem.terms import Curvature

LR, INNER_STEPS = oneproj.Defaults().longest_lr, oneproj.Defaults().inner_steps
OPTIMUM = 0.9129
"""Of ``warm``, by SLSQP from near zero."""


def warm(scale: float, feature_unit: float = 1.0) -> oneproj.Problem:
    """Labels that the start separates; half of the examples are to change theirs."""
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([1.0, -1.0]).repeat(20)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    x[:, 0] = y * (1.0 + x[:, 0].abs())
    x = feature_unit * x.float()
    w = torch.tensor([scale / feature_unit, 0.0, 0.0], requires_grad=True)
    changed = x[:, 1] > 0

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return torch.nn.functional.softplus(-batch[1] * (batch[0] @ w))

    new = oneproj.mean(loss, data=(x[changed], -y[changed]))
    return oneproj.Problem(w, oneproj.mean(loss, data=(x, y)), {"new": new <= 0.5})


def test_the_optimum_is_what_slsqp_finds_from_near_zero() -> None:
    found = oneproj.solve(warm(1.0), method="slsqp").objective
    assert found == pytest.approx(OPTIMUM, abs=1e-4)


@pytest.mark.parametrize("scale", [20.0, 40.0, 60.0, 80.0, 400.0])
def test_a_start_that_separates_its_task_is_left_for_good(scale: float) -> None:
    # f is 1e-10 to 0 there, and so is its gradient; the projection alone finds 2.0.
    solution = oneproj.solve(warm(scale), steps=500)  # a warning would be an error
    assert solution.feasible
    assert solution.objective == pytest.approx(OPTIMUM, rel=0.02)
    assert solution.settings["lr"] > LR


def test_steps_that_are_long_enough_need_a_push_that_is_felt() -> None:
    # In large features the way is short: the strength alone has to do it.
    solution = oneproj.solve(warm(40.0, feature_unit=30.0), steps=500)
    assert solution.settings["lr"] == LR
    assert solution.objective == pytest.approx(OPTIMUM, rel=0.05)


@pytest.mark.parametrize(
    ("scale", "options", "expected"),
    [
        (1.0, {}, LR),  # near
        (60.0, {"lr": 0.2}, 0.2),  # given
        (60.0, {"base": "sgd"}, LR),  # its steps have no such bound
        (60.0, {"decay": lambda optimizer: ConstantLR(optimizer, 1.0)}, LR),
        (60.0, {"strength": 2.0}, LR),  # nothing looks at the start
    ],
)
def test_other_steps_stay_as_they_are(
    scale: float, options: dict[str, Any], expected: float
) -> None:
    solution = oneproj.solve(warm(scale), steps=20, **options)
    assert solution.settings["lr"] == expected


def test_many_parameters_are_not_given_longer_steps() -> None:
    w = torch.full((1001,), 50.0, requires_grad=True)
    size = oneproj.function(lambda: w.square().mean(), curvature="convex")
    problem = oneproj.Problem(w, oneproj.function(lambda: w[0]), {"size": size <= 1.0})
    assert oneproj.solve(problem, steps=4).settings["lr"] == LR


def seen(c: float, slope: float, size: float) -> Anchor:
    w, row = torch.tensor([size, 0.0]), torch.tensor([slope, -slope])
    return Anchor([w], {"met": -1.0, "cap": c}, {"met": [row], "cap": [row]})


def test_a_short_run_does_not_leap() -> None:
    assert far_lr(seen(12.0, 2.0, size=100.0), steps=20) == pytest.approx(3 / 20)


def test_the_sum_of_all_steps_is_a_dozen_ways_to_the_bound() -> None:
    # c / |grad c|_1 = 12 / 4 = 3; with a decay to zero, 500 steps of lr make 250 lr.
    assert far_lr(seen(12.0, 2.0, size=100.0), steps=500) == pytest.approx(36 / 250)


@pytest.mark.parametrize("slope", [0.0, 1e-30, 1e-9])
def test_a_flat_start_is_not_taken_for_one_that_is_far_away(slope: float) -> None:
    assert far_lr(seen(1.0, slope, size=0.5), steps=500) <= 6 / 250
    assert far_lr(seen(-1.0, 1.0, size=100.0), steps=500) == 0.0


def test_a_resumed_run_has_the_longer_steps(tmp_path: Path) -> None:
    whole, halves, file = warm(60.0), warm(60.0), tmp_path / "run"
    expected = oneproj.solve(whole, steps=60)
    oneproj.solve(
        halves, steps=60, checkpoint=file, callbacks=lambda update: update.update == 25
    )
    again = warm(60.0)
    solution = oneproj.solve(again, steps=60, checkpoint=oneproj.Checkpoint(file))
    assert torch.equal(again.parameters[0], whole.parameters[0])
    assert solution.settings["lr"] == expected.settings["lr"] > LR


def test_parameters_that_a_constraint_does_not_see_lengthen_nothing() -> None:
    point = [torch.tensor([290.0, 0.5]), torch.tensor([400.0])]
    slope = [torch.tensor([0.0, 1e-3]), torch.zeros(1)]
    anchor = Anchor(point, {"cap": 1.0}, {"cap": slope})
    assert far_lr(anchor, steps=500) == pytest.approx(0.024)


def priced(curvature: Curvature | None) -> oneproj.Problem:
    """Least absolute errors on targets around 200, from zero; their mean is capped."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 2, generator=generator)
    y = 200.0 + x @ torch.tensor([30.0, -20.0])
    w = torch.zeros(3, requires_grad=True)

    def score(batch: Tensor) -> Tensor:
        return batch @ w[:2] + w[2]

    def error(batch: tuple[Tensor, Tensor]) -> Tensor:
        return (batch[1] - score(batch[0])).abs()

    floor = oneproj.mean(score, data=x, curvature=curvature) >= 205.0
    return oneproj.Problem(w, oneproj.mean(error, data=(x, y)), {"floor": floor})


def test_the_way_to_a_bound_that_is_declared_linear_is_believed() -> None:
    solution = oneproj.solve(priced("linear"))  # a warning would be an error
    assert solution.settings["lr"] == pytest.approx(205.0 * 24 / 500, rel=0.05)
    best = oneproj.solve(priced("linear"), method="slsqp").objective
    assert solution.objective == pytest.approx(best, rel=0.05)


def test_the_way_to_any_other_bound_is_not() -> None:
    solution = oneproj.solve(priced(None))
    assert solution.settings["lr"] == LR
    assert "training ended far from feasible" in solution.remark


def test_a_flat_constraint_that_nothing_meets_leaves_steps_finite() -> None:
    flat = Anchor([torch.ones(1)], {"c": 1.0}, {"c": [torch.tensor([1e-30])]})
    assert far_lr(flat, steps=500, convex=["c"]) == FARTHEST * 0.048


def test_the_library_chooses_inner_steps_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = {steps: choose_inner_steps(None, steps) for steps in range(2, 601)}
    for steps, K in chosen.items():
        assert 1 < K <= steps, "with K = 1 the centre never moves"
        assert K == INNER_STEPS or steps < 2 * INNER_STEPS
        assert steps < 4 or steps // K >= 2, "at least two outer iterations"
    assert chosen[500] == chosen[20] == INNER_STEPS


def test_the_defaults_say_how_many_inner_steps() -> None:
    solution = oneproj.solve(
        warm(1.0), steps=60, defaults=replace(oneproj.Defaults(), inner_steps=6)
    )
    assert solution.settings["inner_steps"] == 6


def test_the_defaults_say_how_long_the_longest_step_is() -> None:
    w = torch.zeros(2, requires_grad=True)
    near = oneproj.function(lambda: (w - 3.0).square().sum())
    for lr in (0.01, 0.2):
        problem = oneproj.Problem(w, near, {"size": oneproj.sets.Ball(1.0).on(w)})
        chosen = replace(oneproj.Defaults(), longest_lr=lr)
        solution = oneproj.solve(problem, steps=20, defaults=chosen)
        assert solution.settings["lr"] == lr


def test_inner_steps_that_divide_are_taken_as_they_are() -> None:
    assert choose_inner_steps(25, 50) == 25
    assert choose_inner_steps(2, 8) == 2


def looked_up(*, sparse: bool, rows: int = 3000) -> oneproj.Problem:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 30, (400,), generator=generator)
    first = torch.randn(30, 4, generator=generator)
    table = torch.nn.Embedding(rows, 4, sparse=sparse)
    with torch.no_grad():
        table.weight[:30] = first
    risk = oneproj.mean(lambda i: (3.0 * table(i).sum(1)).square(), data=ids)
    return oneproj.Problem(table.weight, risk, {})


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_no_example_looks_up_do_not_count(*, sparse: bool) -> None:
    few, many = (looked_up(sparse=sparse, rows=rows) for rows in (30, 30_000))
    assert default_lr(few) == default_lr(many)


@pytest.mark.parametrize(("n", "shorter"), [(10, 1), (100, 4), (1600, 64)])
def test_a_score_of_more_weights_takes_shorter_steps(n: int, shorter: int) -> None:
    # A step of s changes the score by n s; the best is 1 / n, and twice that no gain.
    w = torch.zeros(n, requires_grad=True)
    narrow = oneproj.function(lambda: 1e-3 * (w.sum() - 1.0).square())
    assert default_lr(oneproj.Problem(w, narrow, {})) == LR / shorter


@pytest.mark.parametrize(("cap", "unit"), [(0.1, 1.0), (0.1, 1e3), (1e-3, 1.0)])
def test_steps_of_a_trained_model_keep_near_what_is_capped(
    cap: float, unit: float
) -> None:
    # The capped term has no slope at the start; a step of s makes it 100^2 s^2. The
    # mean step of a run is half of the first.
    w = torch.zeros(100, requires_grad=True)
    moved = oneproj.function(lambda: unit * w.sum().square()) <= unit * cap
    problem = oneproj.Problem(w, oneproj.function(lambda: -w.sum()), {"kl": moved})
    reached = (100 * default_lr(problem) / 2) ** 2
    assert 0.25 * cap < reached <= cap


@pytest.mark.parametrize("f_unit", [1.0, 1e3])
@pytest.mark.parametrize("c_unit", [1.0, 1e-3])
def test_a_step_beyond_the_gain_does_not_pay_for_a_cap(
    f_unit: float, c_unit: float
) -> None:
    # The objective is 0 from 0.01 on, and the cap is violated by 0.001 and s more: up
    # to twice 0.011 is allowed, and 0.0125 is tried after 0.025.
    w = torch.zeros(1, requires_grad=True)
    floor = oneproj.function(lambda: f_unit * (0.01 - w).clamp(min=0.0).sum())
    cap = oneproj.function(lambda: c_unit * w.sum()) <= -0.001 * c_unit
    assert default_lr(oneproj.Problem(w, floor, {"cap": cap})) == LR / 4
    assert default_lr(oneproj.Problem(w, floor, {})) == LR
    lenient = replace(oneproj.Defaults(), lr_rise=5.0)
    problem = oneproj.Problem(w, floor, {"cap": cap})
    assert default_lr(problem, defaults=lenient) == LR


def test_a_violated_cap_does_not_allow_the_objective_to_rise() -> None:
    # Along the sum the objective is least at 0.01, and back where it was at 0.02.
    w, u = torch.zeros(100, requires_grad=True), torch.zeros(1, requires_grad=True)
    narrow = oneproj.function(lambda: (1.0 - w.sum()) ** 2)
    far = oneproj.function(u.sum) <= -1.0
    problem = oneproj.Problem([w, u], narrow, {"far": far})
    assert default_lr(problem) == LR / 4


def test_a_linear_cap_at_its_bound_shortens_nothing() -> None:
    w = torch.zeros(100, requires_grad=True)
    spent = oneproj.function(w.sum) <= 0.0
    gain = oneproj.function(lambda: -w.sum())
    assert default_lr(oneproj.Problem(w, gain, {"spent": spent})) == LR


def noisy_labels(examples: int) -> oneproj.Problem:
    """Least squares on labels that are noise, from zero."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(examples, 400, generator=generator)
    y = torch.randn(examples, generator=generator)
    w = torch.zeros(400, requires_grad=True)
    risk = oneproj.mean(lambda b: (b[0] @ w - b[1]).square(), data=(x, y))
    return oneproj.Problem(w, risk, {})


def test_steps_that_minibatches_disagree_about_are_longer() -> None:
    # Of one minibatch the direction is all noise, and every parameter moves fully.
    assert default_lr(noisy_labels(64 * 2)) > default_lr(noisy_labels(64))


def test_updates_that_follow_their_minibatches_do_not_ruin_the_start() -> None:
    # On average the minibatches of 8 agree about little, and a long mean step gains.
    # Updates follow one after the other, and move every parameter fully.
    problem = noisy_labels(64)
    [w], lr = problem.parameters, default_lr(problem, examples=8)
    draws, adam = torch.Generator().manual_seed(1), torch.optim.Adam([w], lr=lr / 2)
    before = float(problem.objective.value())
    for _ in range(5):
        adam.zero_grad()
        problem.objective.batch_value(problem.objective.draw(8, draws)).backward()
        adam.step()
    assert float(problem.objective.value()) < before


def test_trial_updates_leave_the_gradients_of_the_caller() -> None:
    problem = noisy_labels(64)
    [w] = problem.parameters
    w.grad = torch.ones_like(w)
    default_lr(problem)
    assert torch.equal(w.grad, torch.ones_like(w))


def test_the_gradients_of_the_first_step_are_counted() -> None:
    # Of 40 examples there are 10 minibatches, of which at most 8 are looked at. Then 5
    # updates are tried, with one step that holds at once.
    # Both runs make the same steps, so what differs is the first step's.
    options: dict[str, Any] = {"steps": 40, "batch_size": 4}
    found = oneproj.solve(warm(1.0), **options).counts
    given = oneproj.solve(warm(1.0), **options, lr=LR).counts
    assert (given.objective_gradients, found.objective_gradients) == (40, 53)
    assert found.constraint_gradients == given.constraint_gradients + 1


def test_a_collapse_is_not_taken_for_a_straight_line() -> None:
    # From 1 on the capped term is flat, and a step that only looks there goes through.
    w = torch.zeros(100, requires_grad=True)
    steep = oneproj.function(lambda: torch.tanh(10.0 * w.sum().square())) <= 0.01
    problem = oneproj.Problem(w, oneproj.function(lambda: -w.sum()), {"steep": steep})
    assert default_lr(problem) < 0.01


def layered() -> oneproj.Problem:
    torch.manual_seed(0)  # of the initial weights
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 200),
        torch.nn.BatchNorm1d(200),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(200, 10),
    )
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    risk = oneproj.mean(lambda batch: model(batch).square().sum(1), data=x)
    return oneproj.Problem(model.parameters(), risk, {}, model=model)


def test_steps_that_are_tried_leave_everything_as_it_was() -> None:
    problem = layered()
    model = problem.model
    assert model is not None
    kept = {name: t.clone() for name, t in model.state_dict().items()}
    state = torch.random.get_rng_state()
    assert 0.0 < default_lr(problem) < LR
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(t, kept[name]) for name, t in model.state_dict().items())


def test_a_low_rank_update_that_starts_at_zero_is_trained() -> None:
    # There the distance to the set has no gradient, and no step seemed harmless.
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    W = draw(20, 16) / 4
    target = W + draw(20, 6) @ draw(6, 16) / 12
    x = draw(512, 16)
    y = x @ target.T + 0.1 * draw(512, 20)

    def trained(noise: float) -> float:
        update = (noise * draw(20, 16)).requires_grad_()
        problem = oneproj.Problem(
            update,
            objective=oneproj.mean(
                lambda b: (b[0] @ (W + update).T - b[1]).square().mean(-1), data=(x, y)
            ),
            constraints={"rank": oneproj.sets.Rank(4).on(update)},
        )
        solution = oneproj.solve(problem, seed=0)
        assert solution.feasible
        return solution.objective

    assert trained(0.0) == pytest.approx(trained(1e-3), rel=0.01)


def test_a_start_on_a_plane_through_zero_is_left() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(12, generator=generator)
    A = torch.randn(2, 12, generator=generator)
    w = torch.zeros(12, requires_grad=True)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={"plane": oneproj.sets.Affine(A, torch.zeros(2)).on(w)},
    )
    least = float((torch.linalg.pinv(A) @ A @ target).square().sum())
    assert oneproj.solve(problem, seed=0).objective == pytest.approx(least, rel=1e-3)


def held_by(cap: float, start: float) -> oneproj.Problem:
    """Every step from 0 raises the product, whose gradient is 0 there."""
    w = torch.full((20,), start, requires_grad=True)
    return oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - 1.0).square().sum()),
        constraints={"size": oneproj.function(lambda: w.square().sum()) <= cap},
    )


def test_a_start_that_no_step_may_leave_is_named() -> None:
    with pytest.warns(oneproj.OneprojWarning, match="hardly leave.*'size'"):
        oneproj.solve(held_by(1e-12, 0.0), steps=20, seed=0, method="one-projection")


@pytest.mark.parametrize(("cap", "start"), [(5.0, 0.0), (20.0, 1.0), (5.0, 0.5)])
def test_a_start_that_may_be_left_or_is_the_optimum_is_not(
    cap: float, start: float
) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*hardly leave")
        warnings.filterwarnings("ignore", message="(?!.*hardly leave).*")
        oneproj.solve(held_by(cap, start), steps=20, seed=0, method="one-projection")
