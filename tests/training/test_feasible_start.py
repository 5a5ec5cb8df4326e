"""A run from a feasible start never gives a worse answer than that start."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import oneproj
from oneproj import Status, Update
from oneproj.methods import METHODS
from oneproj.projection import AbstractProjector
from oneproj.theory import Schedule

TOO_LONG = {"lr": 1.0, "decay": "constant"}
SHORT: dict[str, dict[str, Any]] = {
    "slsqp": {},
    "auto": {},
    "switching-subgradient": {"lr": 3.0},
    "penalty-sgd": {"lr": 3.0},
    "lagrangian": {"lr": 3.0},
    "projected-sgd": {"lr": 3.0},
    "one-projection": TOO_LONG,
}
KEPT = "The answer is the start, which is feasible"


def nearly_optimal() -> tuple[oneproj.Problem, Tensor]:
    """A start of objective 0.1 + 2e-6 below a cap that does not bind."""
    w = torch.full((2,), 0.999, dtype=torch.float64, requires_grad=True)
    loss = oneproj.function(lambda: (w - 1.0).square().sum() + 0.1)
    cap = oneproj.function(w.sum, curvature="linear") <= 9.0
    return oneproj.Problem(w, loss, {"cap": cap}), w


def is_start(w: Tensor) -> bool:
    return w.tolist() == [0.999, 0.999]


# --- a higher objective -------------------------------------------------------------


def test_batch_norm_in_training_mode_is_named_where_the_start_is_kept(
    gives_up: AbstractProjector,
) -> None:
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)  # of the initial weights
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.zero_()
    loss = oneproj.mean(lambda batch: model(batch).squeeze(-1).square(), data=x)
    cap = oneproj.function(lambda: model[0].weight.square().sum()) <= 5.0
    for training in (True, False):
        model.train(training)
        problem = oneproj.Problem(model.parameters(), loss, {"cap": cap}, model=model)
        with pytest.warns(oneproj.OneprojWarning, match=KEPT) as said:
            oneproj.solve(problem, steps=6, projector=gives_up)
        assert ("call model.eval() first" in str(said[0].message)) == training


def test_a_higher_objective_gives_the_start_and_says_both_numbers() -> None:
    problem, w = nearly_optimal()
    with pytest.warns(oneproj.OneprojWarning, match=KEPT) as said:
        solution = oneproj.solve(problem, steps=6, **TOO_LONG)
    text = str(said[0].message)
    assert "after 0.1." in text
    assert "smaller lr, such as 0.1 (it was 1)" in text
    assert is_start(w)
    assert solution.status is Status.START
    assert solution.status.ok
    assert solution.feasible
    assert solution.objective == problem.objective.value()
    assert solution.residuals == problem.residuals()
    assert solution.certificate["feasibility"].value == solution.residuals["cap"]
    assert solution.counts.projections == 1
    assert solution.to_dict()["status"] == "start"
    assert Status.START.value in str(solution)
    assert "but the start was kept" in str(solution)


def test_a_start_that_is_infeasible_or_improved_is_not_the_answer() -> None:
    for start, cap in ((1.0, 1.0), (0.0, 2.0)):
        w = torch.full((2,), start, requires_grad=True)
        loss = oneproj.function(lambda w=w: (w - 1.0).square().sum() + 0.1)
        constraint = oneproj.function(w.sum) <= cap
        problem = oneproj.Problem(w, loss, {"cap": constraint})
        solution = oneproj.solve(problem, steps=100)
        assert solution.status is Status.FEASIBLE


def test_a_difference_of_rounding_is_in_the_status_alone() -> None:
    w = torch.full((2,), 1.0, dtype=torch.float64, requires_grad=True)
    loss = oneproj.function(lambda: (w - 1.0 - 1e-9).square().sum() + 0.1)
    problem = oneproj.Problem(w, loss, {"cap": oneproj.function(w.sum) <= 9.0})
    before = problem.objective.value()
    solution = oneproj.solve(problem, steps=20, lr=1e-7, decay="constant")
    assert solution.objective <= before  # and no warning, which would be an error here


def test_a_feasible_start_without_constraints_counts_too() -> None:
    w = torch.full((2,), 0.999, requires_grad=True)
    loss = oneproj.function(lambda: (w - 1.0).square().sum() + 0.1)
    problem = oneproj.Problem(w, loss, {})
    with pytest.warns(oneproj.OneprojWarning, match=KEPT):
        assert oneproj.solve(problem, steps=6, **TOO_LONG).status is Status.START


# --- an end that is infeasible --------------------------------------------------------


@pytest.mark.parametrize("on_failure", ["raise", "return"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:SLSQP stopped early")
@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_a_failed_projection_gives_the_start(
    gives_up: AbstractProjector, method: str, on_failure: Literal["raise", "return"]
) -> None:
    problem, w = nearly_optimal()
    with pytest.warns(oneproj.OneprojWarning, match=KEPT) as said:
        solution = oneproj.solve(
            problem,
            method=method,
            steps=6,
            projector=gives_up,
            on_failure=on_failure,
            **SHORT[method],
        )
    assert "the residual of 'cap' was still" in str(said[0].message)
    assert is_start(w)
    assert solution.status is Status.START
    assert solution.feasible
    assert not solution.projection.status.ok, "it describes what was projected"
    assert solution.objective == problem.objective.value()


def test_a_start_that_is_met_by_chance_is_not_returned() -> None:
    shift = torch.tensor(-1.0)
    w = torch.ones(1, requires_grad=True)
    noisy = oneproj.function(lambda: 0.0 * w.sum() + shift)
    problem = oneproj.Problem(w, oneproj.function(w.sum), {"cap": noisy <= 0.0})

    def move(_: Update) -> None:
        shift.fill_(1.0)  # as a constraint that draws noise may

    with pytest.raises(oneproj.InfeasibleError, match="'cap'"):
        oneproj.solve(problem, steps=6, callbacks=move)
    assert w.item() != 1.0, "the trained point"


# --- other ends ---------------------------------------------------------------------


def nearly_optimal_in_a_ball() -> tuple[oneproj.Problem, Tensor]:
    """A feasible start that a schedule of large steps leaves for a worse point."""
    w = torch.tensor([0.49, 0.0], dtype=torch.float64, requires_grad=True)
    loss = oneproj.function(lambda: (w[0] - 0.5).square() + w[1].square())
    ball = {"size": oneproj.sets.Ball(1.0).on(w)}
    return oneproj.Problem(w, loss, ball, radius=1.0), w


def test_a_schedule_returns_the_projected_iterate_and_names_a_better_start(
    short_schedule: Schedule,
) -> None:
    problem, w = nearly_optimal_in_a_ball()
    before = problem.objective.value()
    solution = oneproj.solve(problem, schedule=short_schedule)
    assert solution.status is Status.FEASIBLE
    assert solution.objective == problem.objective.value() > before
    assert w.tolist() != [0.49, 0.0]
    assert "Moreau residual" in solution.certificate, "the theorem is about this point"
    told = f"the start was feasible and its objective lower, {before:.4g} against"
    assert told in solution.status_text
    assert told in str(solution)


def test_a_schedule_that_improves_on_its_start_says_no_more(
    short_schedule: Schedule,
) -> None:
    problem, w = nearly_optimal_in_a_ball()
    w.data.copy_(torch.tensor([-0.9, 0.0]))
    solution = oneproj.solve(problem, schedule=short_schedule)
    assert solution.status_text == Status.FEASIBLE.value


def test_a_theorem_is_not_claimed_for_a_start_whose_projection_failed(
    short_schedule: Schedule, gives_up: AbstractProjector
) -> None:
    problem, w = nearly_optimal_in_a_ball()
    with pytest.warns(oneproj.OneprojWarning, match=KEPT):
        solution = oneproj.solve(problem, schedule=short_schedule, projector=gives_up)
    assert solution.status is Status.START
    assert "Moreau residual" not in solution.certificate
    assert w.tolist() == [0.49, 0.0]


@pytest.mark.parametrize("stop", ["callback", "seconds", "ctrl-c"])
def test_a_run_that_is_stopped_keeps_its_start(
    stop: str,
) -> None:
    problem, w = nearly_optimal()

    def end(update: Update) -> bool:
        if stop == "ctrl-c" and update.update == 12:
            signal.raise_signal(signal.SIGINT)
        return stop == "callback" and update.update == 12

    seconds = 1e-9 if stop == "seconds" else None
    with pytest.warns(oneproj.OneprojWarning) as said:
        solution = oneproj.solve(
            problem, inner_steps=2, callbacks=end, seconds=seconds, **TOO_LONG
        )
    texts = " ".join(str(warning.message) for warning in said)
    if stop == "seconds":  # a single update: its selected iterate is the start
        assert solution.status in (Status.START, Status.OUT_OF_TIME)
    else:
        assert KEPT in texts
        assert solution.status is Status.START
    assert ("the status of the solution is START" in texts) == (stop == "ctrl-c")
    assert is_start(w)


def test_a_resumed_run_goes_back_to_the_start_of_the_first_call(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    arguments = {"steps": 12, "checkpoint": oneproj.Checkpoint(file), **TOO_LONG}
    problem, _ = nearly_optimal()
    with pytest.warns(oneproj.OneprojWarning, match=KEPT):
        oneproj.solve(problem, callbacks=lambda update: update.update == 7, **arguments)
    problem, w = nearly_optimal()
    w.data.fill_(7.0)  # infeasible: the checkpoint has the start
    with pytest.warns(oneproj.OneprojWarning, match=KEPT):
        solution = oneproj.solve(problem, **arguments)
    assert solution.status is Status.START
    assert is_start(w)


def test_a_resumed_run_from_an_infeasible_start_has_none(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    arguments = {"steps": 60, "checkpoint": oneproj.Checkpoint(file)}
    for callback in (lambda update: update.update == 50, lambda _: None):
        problem, w = nearly_optimal()
        w.data.fill_(7.0)
        solution = oneproj.solve(problem, callbacks=callback, **arguments)
        assert solution.status is not Status.START


# --- a trained network --------------------------------------------------------------


def trained_network() -> tuple[oneproj.Problem, nn.Module]:
    """A CNN with batch norm, trained on old data; new data is brighter."""
    generator = torch.Generator().manual_seed(0)

    def images(n: int, shift: float) -> tuple[Tensor, Tensor]:
        y = torch.randint(0, 2, (n,), generator=generator)
        x = torch.randn(n, 1, 6, 6, generator=generator) * 0.5
        x[:, :, :3] += (2.0 * y - 1.0).reshape(-1, 1, 1, 1) + shift
        return x, y

    old, new = images(120, 0.0), images(120, 1.0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 2),
    )
    with torch.no_grad():
        for p in (*model[0].parameters(), *model[4].parameters()):
            p.copy_(0.2 * torch.randn(p.shape, generator=generator))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        cross_entropy(model(old[0]), old[1]).backward()
        optimizer.step()

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1], reduction="none")

    problem = oneproj.Problem(
        model.parameters(),
        objective=oneproj.mean(losses, new),
        constraints={"old risk": oneproj.mean(losses, old) <= 0.05},
        model=model,
    )
    return problem, model


@pytest.mark.filterwarnings("ignore:The features seem to come in units")
@pytest.mark.filterwarnings("ignore:The objective rose")  # or not, by rounding
def test_a_trained_network_is_returned_with_its_statistics(
    gives_up: AbstractProjector,
) -> None:
    problem, model = trained_network()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    assert problem.residuals()["old risk"] <= 0
    objective = problem.objective.value()
    with pytest.warns(oneproj.OneprojWarning, match=KEPT):
        solution = oneproj.solve(
            problem,
            steps=8,
            lr=3.0,
            decay="constant",
            projector=gives_up,
            batch_size=64,
        )
    assert solution.status is Status.START
    assert solution.feasible
    assert solution.objective == objective
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name]), name  # batch norm's statistics as well


@pytest.mark.filterwarnings("ignore::oneproj.OneprojWarning")
@pytest.mark.parametrize("lr", [0.3, 3.0, 30.0])
def test_a_trained_network_is_no_worse_after_steps_that_are_too_long(lr: float) -> None:
    problem, _ = trained_network()
    before = problem.objective.value()
    solution = oneproj.solve(problem, steps=8, lr=lr, decay="constant")
    assert solution.feasible
    assert solution.objective <= before


# --- always -------------------------------------------------------------------------


def random_problem(seed: int) -> oneproj.Problem:
    """Least squares under caps on other losses, met at the start with room or not."""
    generator = torch.Generator().manual_seed(seed)
    n, d = 40, 3

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, y, other = draw(n, d), draw(n), draw(n, d)
    w = draw(d).requires_grad_()

    def cap() -> Tensor:
        return (other @ w).tanh().mean() + 0.1 * w.square().sum()

    room = [0.0, 0.01, 1.0][seed // 4]
    bound = float(cap().detach()) + room
    return oneproj.Problem(
        w,
        oneproj.mean(lambda batch: (batch[0] @ w - batch[1]).square(), (x, y)),
        {"cap": oneproj.function(cap) <= bound},
        radius=[float("inf"), 10.0][seed % 2],
    )


@pytest.mark.filterwarnings("ignore::oneproj.OneprojWarning")
@pytest.mark.parametrize("method", METHODS)
def test_no_answer_is_worse_than_a_feasible_start(method: str) -> None:
    for seed in range(12):
        problem = random_problem(seed)
        before = problem.objective.value()
        assert max(problem.residuals().values()) <= 0
        options = (
            {} if method in ("slsqp", "auto") else {"lr": [0.001, 0.1, 3.0][seed % 3]}
        )
        steps = 30 if seed % 2 else 4
        solution = oneproj.solve(problem, method=method, steps=steps, **options)
        assert solution.feasible, seed
        assert max(problem.residuals().values()) <= 0, seed
        assert problem.objective.value() <= before, seed
        assert solution.objective == problem.objective.value(), seed


@pytest.mark.parametrize("method", ["one-projection", "projected-sgd", "lagrangian"])
def test_a_run_that_overflows_leaves_the_feasible_start(method: str) -> None:
    problem, w = nearly_optimal()
    own = {"prox_weight": 0.0} if method == "one-projection" else {}
    with pytest.raises(oneproj.NonFiniteError) as caught:
        oneproj.solve(problem, method=method, base="sgd", lr=1e30, steps=50, **own)
    assert "hold the start again" in " ".join(caught.value.__notes__)
    assert is_start(w)
