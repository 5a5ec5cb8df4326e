"""The method "one-projection": its updates, its inner steps, its clip, its anchors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import Update
from oneproj.methods import Algorithm1
from oneproj.methods.algorithm1 import Algorithm1Updater
from oneproj.methods.base import prepare
from oneproj.oracles import ORACLES
from oneproj.oracles.plan import AnchorPlan

Solved = dict[str, object]


def steep(slope: float = -100.0, bound: float = 0.0) -> tuple[oneproj.Problem, Tensor]:
    """f = slope * w_1, with w_2 <= bound; from (1, 1)."""
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)
    cap = oneproj.function(lambda: w[1]) <= bound
    objective = oneproj.function(lambda: slope * w[0])
    return oneproj.Problem(w, objective, {"cap": cap}), w


def sampled(rows: int = 1000) -> oneproj.Problem:
    """A constraint on data that cuts the solution off; too much to be seen at once."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    w = torch.full((3,), 0.2, requires_grad=True)
    risk = oneproj.mean(lambda batch: (batch @ w).square(), x, chunk_size=500) <= 0.5
    objective = oneproj.function(lambda: (w - 1.0).square().sum())
    return oneproj.Problem(w, objective, {"risk": risk}, radius=9.0)


def start(
    problem: oneproj.Problem, steps: int = 20, **options: object
) -> Algorithm1Updater:
    context = prepare(
        problem,
        steps=steps,
        seed=0,
        schedule=None,
        projector="auto",
        oracle="auto",
        batch_size=64,
        anchor_size=None,
    )
    return Algorithm1(**options).begin(context)


# --- the update ---------------------------------------------------------------


def plain(**options: object) -> dict[str, object]:
    return {"base": "sgd", "lr": 0.01, "decay": "constant", **options}


@pytest.mark.parametrize(("clip", "pull"), [(None, 100.0), (2.0, 2.0), (1e3, 100.0)])
def test_clip_limits_the_gradient_of_the_objective_only(
    clip: float | None, pull: float
) -> None:
    problem, w = steep()
    start(problem, clip=clip, strength=50.0, **plain()).update()
    # w_1 follows the objective, w_2 the penalty, whose gradient is 50.
    assert w[0].item() == pytest.approx(1.0 + 0.01 * pull, rel=1e-6)
    assert w[1].item() == pytest.approx(1.0 - 0.01 * 50.0, rel=1e-12)


def test_the_clip_is_on_the_norm_over_all_parameters() -> None:
    a, b = (torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    objective = oneproj.function(lambda: 3 * a[0] + 4 * b[0])
    problem = oneproj.Problem([a, b], objective, {})
    start(problem, clip=1.0, **plain()).update()
    assert [a.item(), b.item()] == pytest.approx([-0.006, -0.008], rel=1e-5)


def test_automatic_strengths_balance_the_objective_that_the_clip_leaves() -> None:
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    cap = oneproj.function(lambda: 4 * w.sum()) <= 0.0
    problem = oneproj.Problem(w, oneproj.function(lambda: -100 * w.sum()), {"cap": cap})
    start(problem, clip=2.0, **plain()).update()
    # mu = 2 / 4, so the strength is 1 and the penalty's gradient 4.
    assert w.item() == pytest.approx(1.0 - 0.01 * (4.0 - 2.0), rel=1e-6)


def test_the_rate_decays_over_the_planned_steps() -> None:
    problem, w = steep(slope=1.0, bound=9.0)
    linear = {"base": "sgd", "lr": 0.4, "decay": "linear"}
    method = start(problem, steps=4, inner_steps=4, prox_weight=0, **linear)
    places = [w[0].item()]
    for _ in range(3):  # the fourth closes the outer iteration and averages
        method.update()
        places.append(w[0].item())
    steps = [before - after for before, after in pairwise(places)]
    assert steps == pytest.approx([0.4, 0.3, 0.2], rel=1e-12)
    method.update()
    assert method.optimizer.param_groups[0]["lr"] == 0.0


def test_the_penalty_of_a_given_strength_is_the_one_asked_for() -> None:
    for options, push in (
        ({"strength": 3.0}, 3.0),
        ({"strength": 3.0, "smoothing": 1e-3}, 3.0),
        ({"strength": 3.0, "smoothing": 1e6}, 1.5),
    ):
        problem, w = steep()
        start(problem, **options, **plain()).update()
        assert w[1].item() == pytest.approx(1.0 - 0.01 * push, rel=1e-5)


# --- anchors ------------------------------------------------------------------


@pytest.mark.parametrize("inner_steps", [5, 10, 20])
@pytest.mark.parametrize("options", [{}, {"strength": 5.0}])
def test_an_anchor_is_taken_at_every_centre_and_nowhere_else(
    options: Solved, inner_steps: int
) -> None:
    problem = sampled()
    passes: list[int] = []
    method = start(problem, steps=40, inner_steps=inner_steps, **options)
    counts = method._context.counts
    assert method._context.oracle_class.name == "anchored"
    for _ in range(40):
        before = counts.constraint_passes
        method.update()
        passes.append(counts.constraint_passes - before)
    assert passes == [1 if k % inner_steps == 0 else 0 for k in range(40)]


@pytest.mark.parametrize(("oracle", "passes"), [("minibatch", 4), ("exact", None)])
def test_other_oracles_look_at_the_centre_for_automatic_strengths_only(
    oracle: str, passes: int | None
) -> None:
    before = {"oracle": oracle, "steps": 40, "inner_steps": 10, "lr": 0.1}
    counts = [
        oneproj.solve(sampled(), **before, **more).counts
        for more in ({}, {"strength": 5.0})
    ]
    assert all(c.objective_gradients == 40 for c in counts)
    if passes is not None:
        projection = oneproj.solve(sampled(), **before).projection.gradients
        start = 1  # where feasibility of the start is found out
        assert counts[0].constraint_passes == start + passes + projection
    assert counts[0].constraint_passes > 0


@pytest.mark.parametrize(("centers", "anchors"), [(1, 4), (2, 2), (3, 2)])
def test_anchors_may_be_rarer_than_centres(centers: int, anchors: int) -> None:
    method = start(sampled(), steps=40, inner_steps=10)
    plan = AnchorPlan(every=centers)
    context = replace(method._context, oracle_class=ORACLES["minibatch"], anchors=plan)
    method = Algorithm1(inner_steps=10).begin(context)
    for _ in range(40):
        method.update()
    assert context.counts.constraint_passes == anchors


@pytest.mark.parametrize("anchor_size", [None, 100])
def test_sampled_anchors_make_no_pass(anchor_size: int | None) -> None:
    solution = oneproj.solve(
        sampled(), steps=40, inner_steps=10, anchor_size=anchor_size
    )
    counts, last = solution.counts, solution.projection.gradients
    assert solution.settings["anchor_size"] == anchor_size
    anchors = 4 if anchor_size is None else 0
    assert counts.constraint_passes == 1 + anchors + last, "the start is judged first"
    assert solution.feasible


def test_defaults_alone_come_near_the_optimum() -> None:
    # min |w - 1|^2 subject to w'Sw <= 1/2, with S near the identity: f is about
    # (sqrt(3) - sqrt(1/2))^2; SLSQP says it exactly.
    exact = oneproj.solve(sampled(), method="slsqp").objective
    solution = oneproj.solve(sampled(), steps=500)
    # SLSQP stays a hair inside the bound, so ours may be that much lower.
    assert exact * (1 - 1e-5) <= solution.objective <= exact * 1.005
    assert solution.counts.projections == 1


# --- inner steps --------------------------------------------------------------


def test_a_single_step_cannot_move_the_answer_and_says_so_once() -> None:
    problem, w = steep(slope=1.0, bound=9.0)
    with pytest.warns(oneproj.OneprojWarning, match="steps=1 is too few") as said:
        oneproj.solve(problem, steps=1)
    assert len(said) == 1
    assert w[0].item() == 1.0


@pytest.mark.parametrize("steps", [2, 3, 5, 7])
def test_a_few_steps_move_the_answer(steps: int) -> None:
    problem, w = steep(slope=1.0, bound=9.0)
    oneproj.solve(problem, steps=steps)
    assert w[0].item() < 1.0


def test_updates_that_reach_no_answer_are_said_where_the_user_called() -> None:
    problem, _ = steep(slope=1.0)
    with pytest.warns(oneproj.OneprojWarning, match="last 10 updates end") as caught:
        oneproj.solve(problem, steps=60, inner_steps=25)
    assert [warning.filename for warning in caught] == [__file__]


def test_too_few_steps_for_one_outer_iteration_are_refused() -> None:
    message = "steps=20 is less than inner_steps=25: no outer iteration would"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(steep()[0], steps=20, inner_steps=25)


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": "strong"}, 'positive number or "auto", got .strong'),
        ({"strength": 0.0}, "strength must be one finite number > 0"),
        ({"smoothing": 0.1}, "smoothing=0.1 needs a strength of its own"),
        ({"clip": 0.0}, "clip must be one number > 0"),
        ({"clip": -1.0}, "clip must be one number > 0"),
        ({"clip": float("nan")}, "clip must be one number > 0"),
        ({"base": "newton"}, "no base step 'newton'"),
        ({"decay": "fast"}, "decay must be"),
        ({"inner_steps": 2.5}, "inner_steps must be a whole number"),
    ],
)
def test_options_without_meaning_are_refused(options: Solved, message: str) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(steep()[0], **options)


# --- a scheduler of the user's -------------------------------------------------


def test_any_scheduler_of_torch_drives_a_run() -> None:
    rates: list[float] = []

    def halve(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.StepLR:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
        kept.append(scheduler)
        return scheduler

    def note(update: Update) -> None:
        del update
        rates.extend(kept[0].get_last_lr())

    kept: list[torch.optim.lr_scheduler.StepLR] = []
    oneproj.solve(sampled(), steps=20, lr=0.08, decay=halve, callbacks=note)
    assert rates == pytest.approx([0.08 * 0.5 ** (k // 5) for k in range(1, 21)])


@pytest.mark.filterwarnings("ignore:The run may have ended too early")
@pytest.mark.parametrize(("strength", "longer"), [("auto", True), (5.0, False)])
def test_only_automatic_strengths_lengthen_the_steps_of_a_far_start(
    strength: float | str, *, longer: bool
) -> None:
    w = torch.tensor([200.0, 100.0], requires_grad=True)
    x = torch.randn(900, 2, generator=torch.Generator().manual_seed(0))
    far = oneproj.mean(lambda rows: rows.square() @ w.square(), x, curvature="convex")
    problem = oneproj.Problem(w, oneproj.function(lambda: -w.sum()), {"far": far <= 1})
    options = {"strength": strength, "oracle": "anchored", "batch_size": 32}
    solution = oneproj.solve(
        problem, method="one-projection", steps=60, progress=False, **options
    )
    assert (solution.settings["lr"] > 0.1) is longer
