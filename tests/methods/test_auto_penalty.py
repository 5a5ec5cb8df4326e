"""``AutoPenalty`` in loops of one's own: what it returns, and where they end."""

from __future__ import annotations

import copy
import dataclasses
import gc
import math
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj import AutoPenalty, OneProjection

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
ADAM: MakeOptimizer = partial(torch.optim.Adam, lr=0.1, betas=(0.9, 0.95))
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "one projection": partial(OneProjection, lr=0.1),
    "around AdamW": partial(OneProjection, lr=0.1, base=torch.optim.AdamW),
    "Adam": ADAM,
    "momentum": partial(torch.optim.SGD, lr=0.02, momentum=0.9),
}


class TwoTasks:
    """A new task, and an old one whose risk is capped; linear, so convex."""

    def __init__(self, seed: int = 0, *, rows: int = 3000, cap: float = 0.3) -> None:
        draw = torch.Generator().manual_seed(seed)
        new, old = torch.randn(2, rows, 4, generator=draw)
        self.new = new, torch.sign(new[:, 0] + new[:, 1])
        self.old = old, torch.sign(old[:, 0] - 0.5 * old[:, 1])
        self.model = torch.nn.Linear(4, 1)
        with torch.no_grad():
            for p in self.model.parameters():
                p.zero_()
        self.batches = torch.Generator().manual_seed(seed)
        self.caps = {"old": oneproj.mean(self.losses, self.old) <= cap}

    def losses(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return softplus(-y * self.model(x).squeeze(-1))

    @property
    def objective(self) -> Any:  # noqa: ANN401 - what oneproj.mean returns
        return oneproj.mean(self.losses, self.new)

    def loss(self) -> Tensor:
        x, y = self.new
        i = torch.randint(len(x), (128,), generator=self.batches)
        return self.losses((x[i], y[i])).mean()

    def best(self) -> float:
        problem = oneproj.Problem(self.model.parameters(), self.objective, self.caps)
        solution = oneproj.solve(problem, method="slsqp", progress=False)
        return solution.objective


def train(
    task: TwoTasks,
    optimizer: torch.optim.Optimizer,
    penalty: AutoPenalty,
    steps: int = 300,
    *,
    before_step: Callable[[], object] = lambda: None,
) -> Iterator[int]:
    for k in range(steps):
        optimizer.zero_grad()
        (task.loss() + penalty()).backward()
        before_step()
        optimizer.step()
        yield k


def finished(
    task: TwoTasks,
    make: MakeOptimizer,
    steps: int = 300,
    *,
    clip: float | None = None,
    **options: Any,  # noqa: ANN401 - of AutoPenalty
) -> oneproj.Solution:
    optimizer = make(task.model.parameters())
    penalty = AutoPenalty(optimizer, task.caps, **options)

    def shorten() -> None:
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), clip)

    for _ in train(task, optimizer, penalty, steps, before_step=shorten):
        pass
    return penalty.finish(task.objective, progress=False)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_any_optimizer_ends_feasible_and_near_the_best(make: MakeOptimizer) -> None:
    best = TwoTasks().best()
    solution = finished(TwoTasks(), make)
    assert solution.feasible
    assert solution.counts.projections == 1
    assert max(solution.residuals.values()) <= 0
    assert solution.objective <= 1.02 * best
    assert solution.certificate["feasibility"].holds


def test_it_pushes_where_nothing_else_would() -> None:
    # Without the penalty the old risk ends far above its cap.
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    for _ in range(300):
        optimizer.zero_grad()
        task.loss().backward()
        optimizer.step()
    assert task.caps["old"].value() > 0.1
    solution = finished(TwoTasks(), ADAM)
    assert abs(solution.projection.residuals_before["old"]) < 0.03


def test_it_is_an_ordinary_scalar() -> None:
    w = torch.tensor([2.0, 1.0], requires_grad=True)
    size = oneproj.function(lambda: w.square().sum())
    optimizer = torch.optim.SGD([w], lr=1e-3)
    penalty = AutoPenalty(optimizer, {"size": size <= 1.0})
    first = penalty()
    assert first.item() == 0.0, "before the first step nothing says how strong"
    (w.sum() + first).backward()
    optimizer.step()
    second = penalty()
    assert second.shape == ()
    assert second.requires_grad
    [strength] = penalty.strengths().values()
    assert strength > 0
    violation = w.detach().square().sum().item() - 1.0
    assert penalty.residuals() == {"size": pytest.approx(violation)}
    assert second.item() == pytest.approx(strength * violation)
    optimizer.zero_grad()
    second.backward()
    torch.testing.assert_close(w.grad, strength * 2.0 * w.detach())


def test_the_value_is_corrected_by_the_anchor() -> None:
    # At the anchor the estimate is the mean of all rows, whatever the minibatch.
    x = torch.randn(5000, 1, generator=torch.Generator().manual_seed(1))
    w = torch.ones(1, requires_grad=True)
    risk = oneproj.mean(lambda x: (x @ w).square(), data=x)
    optimizer = torch.optim.SGD([w], lr=1e-9)
    penalty = AutoPenalty(optimizer, {"risk": risk <= 0.5}, batch_size=4)
    for _ in range(3):
        penalty()
        assert penalty.residuals()["risk"] == pytest.approx(
            x.double().square().mean().item() - 0.5, abs=1e-5
        )


def test_clipping_does_not_change_the_strengths() -> None:
    # The model hardly moves, so the runs see the same gradients, but for clipping.
    strengths = []
    for limit in (math.inf, 1e-3):
        task = TwoTasks(cap=0.6)
        optimizer = torch.optim.SGD(task.model.parameters(), lr=1e-9)
        penalty = AutoPenalty(optimizer, task.caps)
        shorten = partial(
            torch.nn.utils.clip_grad_norm_, list(task.model.parameters()), limit
        )
        for _ in train(task, optimizer, penalty, 35, before_step=shorten):
            pass
        strengths.append(penalty.strengths()["old"])
    assert strengths[0] > 0
    assert strengths[1] == pytest.approx(strengths[0], rel=1e-3)


def test_a_run_with_clipped_gradients_ends_where_others_do() -> None:
    # Adam's steps are the same whatever the scale of all gradients.
    solution = finished(TwoTasks(), ADAM, clip=1e-3)
    assert solution.objective <= 1.03 * TwoTasks().best()


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaled_loss_is_the_same_run(*, fused: bool) -> None:
    # A power of two scales without rounding. What a fused optimizer finds in .grad is
    # still scaled; what another one finds is not.
    answers = []
    for scale in (1.0, 1024.0):
        task = TwoTasks()
        optimizer = torch.optim.Adam(task.model.parameters(), lr=0.1, fused=fused)
        penalty = AutoPenalty(optimizer, task.caps)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)
        for _ in range(60):
            optimizer.zero_grad()
            scaler.scale(task.loss() + penalty()).backward()
            scaler.step(optimizer)
            scaler.update()
        answers.append((task.model.weight.detach().clone(), penalty.strengths()["old"]))
    torch.testing.assert_close(answers[0][0], answers[1][0], rtol=1e-5, atol=1e-6)
    assert answers[1][1] == pytest.approx(answers[0][1], rel=1e-4)
    assert answers[0][1] > 0


@pytest.mark.parametrize("where", [0, 1])
def test_a_gradient_that_is_not_finite_teaches_nothing(where: int) -> None:
    # A fused optimizer is called by a GradScaler even if the step is to be skipped.
    task = TwoTasks(cap=0.6)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    penalty = AutoPenalty(optimizer, task.caps)
    for k in train(task, optimizer, penalty, 25, before_step=lambda: None):
        if k == 5:
            optimizer.zero_grad()
            (task.loss() + penalty()).backward()
            spoilt = list(task.model.parameters())[where]
            kept = spoilt.detach().clone()
            spoilt.grad = torch.full_like(spoilt, math.inf)
            optimizer.step()
            spoilt.data.copy_(kept)
    assert all(0 <= s < 100 for s in penalty.strengths().values())
    assert all(p.isfinite().all() for p in task.model.parameters())


def test_a_step_that_a_scaler_skips_leaves_nothing_behind() -> None:
    task = TwoTasks(cap=0.6)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=1e-9)
    penalty = AutoPenalty(optimizer, task.caps)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6)
    strengths = []
    for skips in (False, True):
        penalty = AutoPenalty(optimizer, task.caps)
        for k in range(3):
            optimizer.zero_grad()
            overflows = math.inf if skips and k == 0 else 1.0
            task.batches.manual_seed(0)
            scaler.scale(overflows * task.loss() + penalty()).backward()
            scaler.step(optimizer)
            scaler.update()
            if penalty.strengths()["old"] > 0:
                break
        strengths.append(penalty.strengths()["old"])
    assert strengths[0] > 0
    assert strengths[1] == pytest.approx(strengths[0], rel=0.01)


def test_accumulated_gradients_are_one_update() -> None:
    best = TwoTasks().best()
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    penalty = AutoPenalty(optimizer, task.caps)
    for _ in range(300):
        optimizer.zero_grad()
        for _ in range(2):
            ((task.loss() + penalty()) / 2).backward()
        optimizer.step()
    solution = penalty.finish(task.objective, progress=False)
    assert solution.settings["updates"] == 300
    assert solution.objective <= 1.02 * best


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("named", [False, True])
def test_a_closure_is_the_same_run(make: MakeOptimizer, *, named: bool) -> None:
    # A step that calls a closure has its gradients after the closure, not before.
    runs = []
    for by_closure in (False, True):
        task = TwoTasks()
        optimizer = make(task.model.parameters())
        penalty = AutoPenalty(optimizer, task.caps)

        def closure(
            optimizer: torch.optim.Optimizer = optimizer,
            task: TwoTasks = task,
            penalty: AutoPenalty = penalty,
        ) -> float:
            optimizer.zero_grad()
            (task.loss() + penalty()).backward()
            return 0.0

        for _ in range(60):
            if not by_closure:
                closure()
                optimizer.step()
            elif named:
                optimizer.step(closure=closure)
            else:
                optimizer.step(closure)
        runs.append((task.model.weight.detach().clone(), str(penalty.state_dict())))
    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


class Wrapper(torch.optim.Optimizer):
    """Makes the steps of another optimizer, as those of other libraries do."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def test_the_optimizer_inside_a_wrapper_is_the_one_that_steps() -> None:
    task = TwoTasks()
    optimizer = OneProjection(task.model.parameters(), lr=0.1)
    penalty = AutoPenalty(Wrapper(optimizer), task.caps)
    for _ in train(task, optimizer, penalty, 25):
        pass
    solution = penalty.finish(progress=False)
    assert penalty.strengths()["old"] > 0
    assert solution.settings["optimizer"] == "OneProjection"


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_it_resumes_to_the_same_bits(make: MakeOptimizer) -> None:
    def built() -> tuple[TwoTasks, torch.optim.Optimizer, AutoPenalty]:
        task = TwoTasks()
        optimizer = make(task.model.parameters())
        return task, optimizer, AutoPenalty(optimizer, task.caps, seed=3)

    first = built()
    for _ in train(*first, steps=37):
        pass
    saved = copy.deepcopy([part.state_dict() for part in (first[0].model, *first[1:])])
    batches = first[0].batches.get_state()
    for _ in train(*first, steps=40):
        pass
    second = built()
    for part, state in zip((second[0].model, *second[1:]), saved, strict=True):
        part.load_state_dict(state)
    second[0].batches.set_state(batches)
    for _ in train(*second, steps=40):
        pass
    assert torch.equal(first[0].model.weight, second[0].model.weight)
    assert first[2].strengths() == second[2].strengths()
    assert first[2].residuals() == second[2].residuals()


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    penalty = AutoPenalty(optimizer, task.caps)
    named, longer, tighter = TwoTasks(), TwoTasks(rows=2900), TwoTasks(cap=0.2)
    named.caps = {"another": named.caps["old"]}
    others = [
        AutoPenalty(ADAM(given.model.parameters()), given.caps)
        for given in (named, longer, tighter)
    ]
    for _ in train(task, optimizer, penalty, 15):
        pass
    before = str(penalty.state_dict())
    states = [other.state_dict() for other in others]
    for state in (*states, {}, None, {**penalty.state_dict(), "steps": "x"}):
        with pytest.raises(oneproj.InvalidProblemError, match="does not fit"):
            penalty.load_state_dict(state)  # type: ignore[arg-type]
        assert str(penalty.state_dict()) == before


def kinds() -> Iterator[tuple[str, list[Tensor], Any, dict[str, Any]]]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 3, generator=draw)
    y = x[:, 0] + 0.3 * torch.randn(2000, generator=draw) > 0
    for kind in ("mean", "largest", "rate", "function", "set", "two"):
        w = torch.zeros(3, requires_grad=True)

        def losses(rows: tuple[Tensor, Tensor], w: Tensor = w) -> Tensor:
            return softplus(torch.where(rows[1], -1.0, 1.0) * (rows[0] @ w))

        def scores(rows: Tensor, w: Tensor = w) -> Tensor:
            return rows @ w - 0.1

        size = oneproj.function(lambda w=w: w.square().sum())
        caps = {
            "mean": {"c": oneproj.mean(lambda r, w=w: (r @ w).square(), x) <= 0.5},
            "largest": {"c": oneproj.largest(lambda r, w=w: r @ w, x) <= 2.0},
            "rate": {"c": oneproj.rates.positive_rate(scores, x) <= 0.3},
            "function": {"c": size <= 1.0},
            "set": {"c": oneproj.sets.Ball(0.8).on(w)},
            "two": {"c": size <= 1.0, "d": oneproj.sets.Box(-0.1, 0.5).on(w)},
        }[kind]
        yield kind, [w], oneproj.mean(losses, data=(x, y)), caps


@pytest.mark.filterwarnings("ignore:20 steps in a row")  # of the run without it
@pytest.mark.parametrize(
    ("parameters", "objective", "caps"),
    [case[1:] for case in kinds()],
    ids=[case[0] for case in kinds()],
)
def test_it_takes_every_constraint_that_solve_takes(
    parameters: list[Tensor],
    objective: Any,  # noqa: ANN401 - what oneproj.mean returns
    caps: dict[str, Any],
) -> None:
    problem = oneproj.Problem(parameters, objective, caps)
    reference = oneproj.solve(
        problem, method="one-projection", steps=300, progress=False
    ).objective
    over = []
    for penalized in (False, True):
        with torch.no_grad():
            parameters[0].zero_()
        optimizer = OneProjection(parameters, lr=0.05)
        penalty = AutoPenalty(optimizer, caps)
        for _ in range(300):
            optimizer.zero_grad()
            loss = objective.batch_value(None)
            (loss + penalty() if penalized else loss).backward()
            optimizer.step()
        solution = penalty.finish(objective, progress=False)
        over.append(max(solution.projection.residuals_before.values()))
    assert solution.feasible
    assert solution.objective <= 1.05 * reference
    assert over[1] < 0.2 * over[0], "the projection has little left to do"


def test_groups_with_their_own_rates_and_a_frozen_layer() -> None:
    draw = torch.Generator().manual_seed(0)
    task = TwoTasks()
    body = torch.nn.Linear(4, 4)
    with torch.no_grad():
        body.weight.copy_(torch.randn(4, 4, generator=draw))
    body.requires_grad_(requires_grad=False)
    head = task.model
    task.model = torch.nn.Sequential(body, head)
    groups = [
        {"params": [head.weight], "lr": 0.1},
        {"params": [head.bias, *body.parameters()], "lr": 0.01},
    ]
    optimizer = OneProjection(groups)
    frozen = body.weight.detach().clone()
    penalty = AutoPenalty(optimizer, task.caps)
    for _ in train(task, optimizer, penalty, 200):
        pass
    assert penalty.finish(progress=False).feasible
    assert torch.equal(body.weight, frozen)


def test_a_compiled_network_in_channels_last() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, 6, 6, generator=draw).to(memory_format=torch.channels_last)
    y = x.mean(dim=(1, 2, 3)) > 0
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(64, 1),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    compiled = torch.compile(model, backend="eager")

    def losses(rows: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(torch.where(rows[1], -1.0, 1.0) * compiled(rows[0]).squeeze(-1))

    size = oneproj.function(lambda: sum(p.square().sum() for p in model.parameters()))
    optimizer = OneProjection(model.parameters(), lr=0.03)
    caps = {"size": size <= 2.0, "risk": oneproj.mean(losses, (x[:90], y[:90])) <= 0.6}
    penalty = AutoPenalty(optimizer, caps)
    for _ in range(60):
        optimizer.zero_grad()
        (losses((x[90:], y[90:])).mean() + penalty()).backward()
        optimizer.step()
    assert penalty.finish(progress=False).feasible


def test_dropout_and_batch_norm_are_judged_in_evaluation_mode() -> None:
    task = TwoTasks(cap=0.4)
    head = task.model
    task.model = torch.nn.Sequential(
        torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.2), head
    )
    optimizer = OneProjection(task.model.parameters(), lr=0.1)
    penalty = AutoPenalty(optimizer, task.caps, model=task.model)
    for _ in train(task, optimizer, penalty, 200):
        pass
    solution = penalty.finish(progress=False)
    assert task.model.training
    task.model.eval()
    assert task.losses(task.old).double().mean() <= 0.4
    assert solution.feasible


def test_frozen_statistics_bring_training_and_judgement_together() -> None:
    # Each task has minibatches of its own: what these are normalised by hides it.
    moved = []
    for freezes in (False, True):
        torch.manual_seed(0)
        task = TwoTasks(cap=0.4)
        task.old = task.old[0] + 1.0, task.old[1]
        task.model = torch.nn.Sequential(
            torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
            torch.nn.Linear(16, 1),
        )  # fmt: skip
        optimizer = OneProjection(task.model.parameters(), lr=0.03)
        penalty = AutoPenalty(optimizer, task.caps, model=task.model)
        for k in range(200):
            optimizer.zero_grad()
            late = freezes and k >= 100
            with oneproj.frozen_statistics(task.model if late else None):
                loss = task.loss() + penalty()
            loss.backward()
            optimizer.step()
        solution = penalty.finish(task.objective, progress=False)
        assert solution.feasible
        moved.append(solution.objective)
    assert moved[1] < moved[0]


def test_it_keeps_three_vectors_and_one_per_constraint() -> None:
    wide = torch.nn.Linear(2000, 1)
    x = torch.randn(600, 2000, generator=torch.Generator().manual_seed(0))
    caps = {
        name: oneproj.mean(lambda rows: wide(rows).square().squeeze(1), x) <= bound
        for name, bound in (("a", 0.1), ("b", 0.2))
    }
    optimizer = OneProjection(wide.parameters(), lr=0.01)
    penalty = AutoPenalty(optimizer, caps)
    for _ in range(25):
        optimizer.zero_grad()
        (wide(x[:50]).mean() + penalty()).backward()
        optimizer.step()
    held: dict[int, int] = {}

    def find(value: object) -> None:
        if isinstance(value, Tensor):
            held[value.data_ptr()] = value.numel() * value.is_floating_point()
        for item in value.values() if isinstance(value, dict) else ():
            find(item)
        for item in value if isinstance(value, list | tuple) else ():
            find(item)

    find(penalty._state())
    vectors = sum(n for n in held.values() if n >= 2000) / 2000
    assert 3 <= vectors <= 5


@pytest.mark.filterwarnings("ignore:Dropout in training mode")
def test_without_a_model_what_is_reported_is_that_of_evaluation_mode_too() -> None:
    task = TwoTasks(cap=0.45)
    task.model = torch.nn.Sequential(torch.nn.Dropout(0.5), task.model)
    optimizer = ADAM(task.model.parameters())
    penalty = AutoPenalty(optimizer, task.caps)
    for _ in train(task, optimizer, penalty, 100):
        pass
    solution = penalty.finish(progress=False)
    assert task.model.training
    task.model.eval()
    assert solution.feasible
    assert solution.residuals["old"] == pytest.approx(task.caps["old"].value())


def test_the_answer_stays_in_the_ball_of_the_optimizer() -> None:
    w = torch.tensor([1.0, 0.0], requires_grad=True)
    total = oneproj.function(w.sum) >= 1.3  # the nearest point is outside of the ball
    optimizer = OneProjection([w], lr=0.1, radius=1.0)
    penalty = AutoPenalty(optimizer, {"sum": total})
    solution = penalty.finish(progress=False)
    assert solution.feasible
    assert w.detach().norm() <= 1.0 + 1e-6


def test_a_failed_projection_leaves_what_was_trained() -> None:
    w = torch.ones(2, requires_grad=True)
    never = oneproj.function(lambda: 1.0 + 1.0 / (1.0 + w.square().sum())) <= 0.5
    penalty = AutoPenalty(torch.optim.SGD([w], lr=0.1), {"never": never})
    with pytest.raises(oneproj.InvalidProblemError, match="objective"):
        penalty.finish(w.sum(), progress=False)  # type: ignore[arg-type]
    solution = penalty.finish(on_failure="return", progress=False)
    assert not solution.status.ok
    assert w.tolist() == [1.0, 1.0]


def quadratic() -> tuple[Tensor, Callable[[], Tensor], dict[str, Any]]:
    """Its multiplier is 4, so the right strength is 8."""
    w = torch.zeros(2, requires_grad=True)
    target = torch.tensor([3.0, 4.0])
    size = oneproj.function(lambda: w.square().sum()) <= 1.0
    return w, lambda: (w - target).square().sum(), {"size": size}


@pytest.mark.parametrize(
    "loss",
    [
        lambda f, p: f() + p(),
        lambda f, p: (p().item(), f() + p())[1],
        lambda f, p: (q := p(), p().item(), f() + q)[2],
        lambda f, p: f() + 0.5 * p() + 0.5 * p(),
    ],
    ids=["one", "one before", "one after", "two halves"],
)
def test_calls_beside_the_loss_change_nothing(
    loss: Callable[[Callable[[], Tensor], AutoPenalty], Tensor],
) -> None:
    w, f, caps = quadratic()
    optimizer = torch.optim.Adam([w], lr=0.05)
    penalty = AutoPenalty(optimizer, caps)
    for _ in range(300):
        optimizer.zero_grad()
        loss(f, penalty).backward()
        optimizer.step()
    assert penalty.strengths()["size"] == pytest.approx(8.0, rel=0.15)
    assert w.detach().square().sum() == pytest.approx(1.0, abs=0.1)


def test_a_penalty_at_every_second_step_still_has_anchors() -> None:
    w, f, caps = quadratic()
    optimizer = OneProjection([w], lr=0.05)
    penalty = AutoPenalty(optimizer, caps)
    for k in range(400):
        optimizer.zero_grad()
        (f() + penalty() if k % 2 else f()).backward()
        optimizer.step()
    assert penalty.strengths()["size"] > 4.0


@pytest.mark.parametrize("unused_last", [False, True])
def test_an_unused_parameter_does_not_hide_clipping(*, unused_last: bool) -> None:
    strengths = []
    for limit in (math.inf, 1e-3):
        w, f, caps = quadratic()
        unused = torch.zeros(3, requires_grad=True)
        moving = [w, unused] if unused_last else [unused, w]
        optimizer = torch.optim.SGD(moving, lr=1e-9)
        penalty = AutoPenalty(optimizer, caps)
        with torch.no_grad():
            w.copy_(torch.tensor([1.0, 1.0]))
        for _ in range(25):
            optimizer.zero_grad()
            (f() + penalty()).backward()
            torch.nn.utils.clip_grad_norm_(moving, limit)
            optimizer.step()
        strengths.append(penalty.strengths()["size"])
    assert strengths[0] > 0
    assert strengths[1] == pytest.approx(strengths[0], rel=1e-3)


def test_a_penalty_that_is_dropped_is_gone_with_its_hooks() -> None:
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    gone = weakref.ref(AutoPenalty(optimizer, task.caps))
    gc.collect()
    assert gone() is None
    for _ in range(30):  # which would warn of steps without a penalty
        optimizer.zero_grad()
        task.loss().backward()
        optimizer.step()
    model = weakref.ref(task.model)
    del optimizer, task
    gc.collect()
    assert model() is None


def test_a_newer_penalty_takes_the_place_of_an_older_one() -> None:
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    older = AutoPenalty(optimizer, task.caps)
    newer = AutoPenalty(optimizer, task.caps)
    with pytest.raises(oneproj.InvalidProblemError, match="all constraints into one"):
        older()
    with pytest.raises(oneproj.InvalidProblemError, match="all constraints into one"):
        older.finish(progress=False)
    for _ in train(task, optimizer, newer, 30):
        pass
    assert newer.finish(progress=False).feasible


def test_training_may_go_on_after_finish_without_a_warning() -> None:
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    penalty = AutoPenalty(optimizer, task.caps)
    for _ in train(task, optimizer, penalty, 20):
        pass
    penalty.finish(progress=False)
    for _ in range(30):
        optimizer.zero_grad()
        task.loss().backward()
        optimizer.step()


def test_options_have_an_effect() -> None:
    def residuals(steps: int = 12, **options: Any) -> list[float]:  # noqa: ANN401
        task = TwoTasks()
        optimizer = ADAM(task.model.parameters())
        penalty = AutoPenalty(optimizer, task.caps, **options)
        loop = train(task, optimizer, penalty, steps)
        return [penalty.residuals()["old"] for _ in loop]

    plain = residuals(batch_size=64)
    assert residuals(batch_size=64) == plain
    assert residuals(batch_size=64, seed=1) != plain
    assert residuals(batch_size=65) != plain
    assert residuals(batch_size=64, anchor_every=3) != plain
    strong = dataclasses.replace(oneproj.Defaults(), strength_over_multiplier=9.0)
    assert residuals(batch_size=64, defaults=strong) != plain


def test_without_an_objective_it_is_not_known() -> None:
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    penalty = AutoPenalty(optimizer, task.caps)
    for _ in train(task, optimizer, penalty, 20):
        pass
    assert repr(penalty) == "AutoPenalty of ['old'] after 20 steps of Adam"
    solution = penalty.finish(progress=False)
    assert math.isnan(solution.objective)
    assert "objective" not in str(solution).split("residual")[0]
    assert [m.name for m in solution.certificate.measures] == ["feasibility"]


def test_an_impossible_cap_raises_or_is_returned() -> None:
    w = torch.ones(2, requires_grad=True)
    size = oneproj.function(lambda: w.square().sum())
    penalty = AutoPenalty(OneProjection([w], lr=0.1), {"size": size <= -1.0})
    with pytest.raises(oneproj.InfeasibleError, match="'size'"):
        penalty.finish(progress=False)
    solution = penalty.finish(on_failure="return", progress=False)
    assert not solution.feasible
    assert not solution.status.ok


def test_mistakes_are_named() -> None:
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    with pytest.raises(oneproj.InvalidProblemError, match="needs the optimizer"):
        AutoPenalty(task.model, task.caps)  # type: ignore[arg-type]
    nested = OneProjection(task.model.parameters(), lr=0.1)
    with pytest.raises(oneproj.InvalidProblemError, match="centres are the anchors"):
        AutoPenalty(nested, task.caps, anchor_every=5)
    with pytest.raises(oneproj.InvalidProblemError, match="anchor_every"):
        AutoPenalty(optimizer, task.caps, anchor_every=0)
    with pytest.raises(oneproj.InvalidProblemError, match="Constraints need names"):
        AutoPenalty(optimizer, [task.caps["old"]])  # type: ignore[arg-type]
    penalty = AutoPenalty(optimizer, task.caps)
    with (
        torch.no_grad(),
        pytest.raises(oneproj.InvalidProblemError, match="gradients are switched off"),
    ):
        penalty()


def test_a_penalty_that_is_not_added_is_warned_of() -> None:
    task = TwoTasks()
    optimizer = ADAM(task.model.parameters())
    penalty = AutoPenalty(optimizer, task.caps)

    def forgetful_loop() -> None:
        for _ in range(30):
            penalty()
            optimizer.zero_grad()
            task.loss().backward()
            optimizer.step()

    with pytest.warns(oneproj.OneprojWarning, match="no part of the penalty"):
        forgetful_loop()
