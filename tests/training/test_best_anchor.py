"""A run that ends worse than a feasible anchor that it saw returns that anchor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

import oneproj
from oneproj import Status, Update
from oneproj.projection import AbstractProjector

INNER, STEPS = 5, 60
LATE = 40
"""The update from which the steps are far too long."""
KEPT = "The answer is an earlier point, which is feasible"
WIDE = torch.float64


def explode(optimizer: Optimizer) -> LambdaLR:
    """Steps that are fine at first, and 1e4 times as long later on."""
    return LambdaLR(optimizer, lambda k: 1.0 if k < LATE else 1e4)


SETTINGS: dict[str, Any] = {
    "steps": STEPS,
    "inner_steps": INNER,
    "lr": 0.3,
    "prox_weight": 1e-6,
    "decay": explode,
}


def quadratic(
    start: float, rows: int = 200, **options: object
) -> tuple[oneproj.Problem, Tensor]:
    """The optimum, near 1, is feasible: the mean of x is 0, and the sum is below 9."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 2, generator=generator, dtype=WIDE)
    x -= x.mean(0)
    w = torch.full((2,), start, dtype=WIDE, requires_grad=True)
    loss = oneproj.mean(lambda batch: (w - 1.0 - 0.1 * batch).square().sum(-1), x)
    cap = oneproj.mean(lambda batch: (w + batch).sum(-1), x) <= 9.0
    return oneproj.Problem(w, loss, {"cap": cap}, **options), w


class Centers:
    """Notes the parameters at the centres, where anchors are taken."""

    def __init__(self, w: Tensor) -> None:
        self._w, self.points = w, list[list[float]]()

    def __call__(self, update: Update) -> None:
        if update.at_center:
            self.points.append(self._w.tolist())


@pytest.mark.parametrize("oracle", ["exact", "anchored"])
@pytest.mark.parametrize("start", [5.0, 0.0], ids=["infeasible", "feasible"])
def test_an_infeasible_end_gives_the_best_feasible_anchor(
    gives_up: AbstractProjector, start: float, oracle: str
) -> None:
    problem, w = quadratic(start)
    centers = Centers(w)
    with pytest.warns(oneproj.OneprojWarning, match=KEPT) as said:
        solution = oneproj.solve(
            problem, projector=gives_up, oracle=oracle, callbacks=centers, **SETTINGS
        )
    assert "the residual of 'cap' was still" in str(said[0].message)
    assert solution.status is Status.EARLIER
    assert solution.status.ok
    assert solution.feasible
    assert w.tolist() in centers.points
    assert solution.objective == problem.objective.value()
    assert solution.objective <= 0.3, "near the optimum, not just any"
    assert solution.residuals == problem.residuals()
    assert not solution.projection.status.ok, "it describes what was projected"
    assert solution.to_dict()["status"] == "earlier"
    assert "an earlier point was kept" in str(solution)


def test_an_end_that_is_worse_than_the_start_gives_what_is_best() -> None:
    problem, w = quadratic(0.0)
    before = problem.objective.value()
    with pytest.warns(oneproj.OneprojWarning, match=KEPT) as said:
        solution = oneproj.solve(problem, **SETTINGS)
    assert "the run ended with a higher objective" in str(said[0].message)
    assert solution.status is Status.EARLIER
    assert solution.projection.status.ok
    assert problem.objective.value() == solution.objective < before / 10
    assert w.tolist() != [0.0, 0.0]


def test_a_start_that_is_better_than_all_anchors_stays_the_answer(
    gives_up: AbstractProjector,
) -> None:
    problem, w = quadratic(1.0)
    with pytest.warns(oneproj.OneprojWarning, match="The answer is the start"):
        solution = oneproj.solve(problem, projector=gives_up, **SETTINGS)
    assert solution.status is Status.START
    assert w.tolist() == [1.0, 1.0]


def test_anchors_that_see_a_sample_do_not_count(gives_up: AbstractProjector) -> None:
    problem, _ = quadratic(5.0, rows=4000)
    with pytest.raises(oneproj.InfeasibleError):
        oneproj.solve(problem, projector=gives_up, anchor_size=100, **SETTINGS)


def test_only_a_run_that_ends_worse_pays_for_it(gives_up: AbstractProjector) -> None:
    """The anchor is judged by one look at each constraint, and that is counted."""
    passes = []
    for start in (5.0, 0.0):
        problem, _ = quadratic(start)
        solution = oneproj.solve(
            problem, steps=STEPS, inner_steps=INNER, oracle="exact", lr=0.3
        )
        assert solution.status is Status.FEASIBLE
        passes.append(solution.counts.constraint_passes)
    for start, well in zip((5.0, 0.0), passes, strict=True):
        problem, _ = quadratic(start)
        with pytest.warns(oneproj.OneprojWarning, match="The answer is"):
            solution = oneproj.solve(
                problem,
                projector=gives_up,  # which says that it took one look
                steps=STEPS,
                inner_steps=INNER,
                oracle="exact",
                lr=0.3,
            )
        assert solution.status is Status.EARLIER
        assert solution.counts.constraint_passes == well + 1


def test_an_anchor_that_was_feasible_by_chance_is_not_returned(
    gives_up: AbstractProjector,
) -> None:
    shift = torch.tensor(-1.0, dtype=WIDE)
    w = torch.zeros(1, dtype=WIDE, requires_grad=True)
    noisy = oneproj.function(lambda: w.sum() * 1e-9 + shift)
    loss = oneproj.function(lambda: (w - 1.0).square().sum())
    problem = oneproj.Problem(w, loss, {"cap": noisy <= 0.0})

    def move(update: Update) -> None:
        if update.update == LATE:
            shift.fill_(1.0)  # as a constraint that draws noise may

    with pytest.raises(oneproj.InfeasibleError, match="'cap'"):
        oneproj.solve(
            problem, projector=gives_up, steps=STEPS, inner_steps=INNER, callbacks=move
        )


# --- resumed ------------------------------------------------------------------------


def at(k: int) -> Callable[[Update], bool]:
    return lambda update: update.update == k


@pytest.mark.parametrize("stop", [INNER, 7, 17, LATE + 1, LATE + 2 * INNER])
@pytest.mark.filterwarnings("ignore:The answer is")
def test_a_resumed_run_has_the_same_best_anchor(
    gives_up: AbstractProjector, stop: int, tmp_path: Path
) -> None:
    """It is seen before the stop, or after it, or both are candidates."""
    problem, w = quadratic(5.0, rows=4000)
    settings = SETTINGS | {"projector": gives_up, "oracle": "anchored"}
    whole = oneproj.solve(problem, **settings)
    assert whole.status is Status.EARLIER
    saved = oneproj.Checkpoint(tmp_path / "run.pt")
    saving = settings | {"checkpoint": saved, "on_failure": "return"}
    first, _ = quadratic(5.0, rows=4000)
    oneproj.solve(first, callbacks=at(stop), **saving)
    second, v = quadratic(3.0, rows=4000)
    resumed = oneproj.solve(second, **saving)
    assert resumed.status is Status.EARLIER
    assert v.tolist() == w.tolist()
    assert resumed.objective == whole.objective
    assert resumed.counts == whole.counts


# --- a model with buffers -----------------------------------------------------------


def test_an_anchor_brings_the_statistics_of_its_time_back(
    gives_up: AbstractProjector,
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 3.0 + 2.0 * torch.randn(200, 3, generator=generator)
    y = (x[:, 0] > 3.0).float()
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    with torch.no_grad():
        model[1].weight.fill_(0.01)
        model[1].bias.fill_(0.0)

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(
            model(batch[0]).squeeze(-1), batch[1], reduction="none"
        )

    problem = oneproj.Problem(
        model.parameters(),
        oneproj.mean(losses, (x, y)),
        {"cap": oneproj.mean(losses, (x, y)) <= 0.6},
        model=model,
    )
    assert problem.residuals()["cap"] > 0, "the start is no answer"
    statistics: list[Tensor] = []

    def note(_: Update) -> None:
        statistics.append(model[0].running_mean.clone())

    with pytest.warns(oneproj.OneprojWarning, match=KEPT):
        solution = oneproj.solve(
            problem,
            steps=STEPS,
            inner_steps=INNER,
            lr=0.1,
            prox_weight=1e-6,
            batch_size=20,
            projector=gives_up,
            callbacks=note,
            decay=lambda optimizer: LambdaLR(
                optimizer, lambda k: 1.0 if k < LATE // 2 else 1e3
            ),
        )
    assert solution.status is Status.EARLIER
    assert solution.objective == problem.objective.value() <= 0.6
    kept = [torch.equal(model[0].running_mean, each) for each in statistics]
    assert any(kept), "they are those of an update"
    assert not kept[-1], "and not of the last"


# --- rates --------------------------------------------------------------------------


def no_alarm(start: float = 0.0) -> tuple[oneproj.Problem, nn.Linear]:
    """Few rows may be accepted, and none of the negatives: no anchor manages that."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2 == 0
    x = torch.randn(400, 2, generator=generator) + 1.5 * y[:, None]
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(start)
        model.bias.fill_(0.0)

    def score(rows: Tensor) -> Tensor:
        scores: Tensor = model(rows).squeeze(-1)
        return scores

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        rows, labels = batch
        return nn.functional.binary_cross_entropy_with_logits(
            score(rows), labels, reduction="none"
        )

    bounds = {
        "alarms": oneproj.rates.false_positive_rate(score, (x, y)) <= 0.0,
        "found": oneproj.rates.true_positive_rate(score, (x, y)) >= 0.1,
    }
    loss = oneproj.mean(losses, (x, y.float()))
    return oneproj.Problem(model.parameters(), loss, bounds), model


def test_an_anchor_with_moved_thresholds_is_an_answer(tmp_path: Path) -> None:
    problem, model = no_alarm()
    solution = oneproj.solve(problem, **SETTINGS)
    assert solution.status is Status.EARLIER
    assert "thresholds were moved there" in str(solution)
    assert max(problem.residuals().values()) <= 0
    assert solution.objective == problem.objective.value() < 1.0  # the end: thousands
    for stop in (30, LATE + 1):
        saved = {"checkpoint": oneproj.Checkpoint(tmp_path / f"{stop}.pt")}
        saving = SETTINGS | saved | {"on_failure": "return"}
        first, _ = no_alarm()
        oneproj.solve(first, callbacks=at(stop), **saving)
        second, resumed = no_alarm(start=1.0)
        assert oneproj.solve(second, **saving).counts == solution.counts
        assert resumed.weight.tolist() == model.weight.tolist()
        assert resumed.bias.tolist() == model.bias.tolist()
