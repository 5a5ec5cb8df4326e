"""A resumed run ends with the same bits, and one of another kind is refused."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.optim.lr_scheduler import LRScheduler

import oneproj
from oneproj import Solution, Status, Update
from oneproj.methods import METHODS
from oneproj.oracles import ORACLES
from oneproj.projection import AbstractProjector
from oneproj.theory import Schedule

# Runs are stopped within their first outer iteration here, which is warned of.
pytestmark = pytest.mark.filterwarnings("ignore:The selected iterate is the start")

Read = Callable[[Path], dict[str, Any]]
RESUMABLE = [name for name in METHODS if name not in ("slsqp", "auto")]
STEPS = 24


def problem(**changes: object) -> oneproj.Problem:
    """Logistic regression with two risks and a halfspace; w is its only parameter."""
    given = {"rows": 60, "bound": 0.5, "name": "source risk", "radius": 10.0} | changes
    rows, generator = given["rows"], torch.Generator().manual_seed(1)
    y = 2.0 * torch.randint(2, (rows,), generator=generator) - 1.0
    x = torch.randn(rows, 4, generator=generator)
    source = torch.randn(rows, 4, generator=generator) + 0.5 * y[:, None]
    w = torch.full((4,), 0.3, requires_grad=True)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * (batch[0] @ w))

    risk = oneproj.mean(loss, data=(source, y), curvature="convex", chunk_size=500)
    half = oneproj.sets.Halfspace(torch.ones(4), offset=2.0)
    return oneproj.Problem(
        w,
        objective=oneproj.mean(loss, data=(x, y)),
        constraints={given["name"]: risk <= given["bound"], "half": half.on(w)},
        radius=given["radius"],
    )


def stop_after(count: int) -> Callable[[Update], bool]:
    return lambda update: update.update >= count


def outcome(built: oneproj.Problem, **arguments: object) -> tuple[Tensor, Solution]:
    arguments = {"steps": STEPS, "batch_size": 8, "seed": 3} | arguments
    solution = oneproj.solve(built, **arguments)
    return built.parameters[0].detach().clone(), solution


def assert_same(a: tuple[Tensor, Solution], b: tuple[Tensor, Solution]) -> None:
    assert torch.equal(a[0], b[0])
    for name, column in a[1].history.items():
        if name != "seconds":
            assert column == pytest.approx(b[1].history[name], abs=0, nan_ok=True), name
    assert a[1].counts == b[1].counts
    assert a[1].residuals == b[1].residuals
    assert a[1].projection == b[1].projection


# --- the same bits --------------------------------------------------------------------

OPTIONS = {
    "one-projection": [{}, {"base": "momentum", "strength": 3.0, "inner_steps": 6}],
    "lagrangian": [{"select": "average", "base": "adam"}],
    "switching-subgradient": [{"select": "random"}],
}
CASES = [
    (method, oracle, options)
    for method, oracle in itertools.product(RESUMABLE, ORACLES)
    for options in OPTIONS.get(method, [{}])
]


@pytest.mark.filterwarnings("ignore:The answer is the start")
@pytest.mark.parametrize(("method", "oracle", "options"), CASES)
def test_stopped_and_resumed_is_not_to_be_told_from_a_whole_run(
    tmp_path: Path, method: str, oracle: str, options: dict[str, object]
) -> None:
    arguments = {"method": method, "oracle": oracle, **options}
    whole = outcome(problem(), **arguments)
    file = tmp_path / "run.pt"
    arguments |= {"checkpoint": oneproj.Checkpoint(file)}
    for stop in (7, 18):  # both inside an outer iteration, the second after a resume
        stopped = outcome(problem(), callbacks=stop_after(stop), **arguments)
        assert stopped[1].status in (Status.INTERRUPTED, Status.START)
        assert stopped[1].feasible
        assert stopped[1].history["update"][-1] == stop
    assert_same(outcome(problem(), **arguments), whole)
    # And once more, from the end: no update is left to make.
    assert_same(outcome(problem(), **arguments), whole)


@pytest.mark.parametrize("stop", [2, 11, 12, 13])
def test_random_selection_resumes_before_and_after_the_draw(
    tmp_path: Path, stop: int
) -> None:
    arguments = {"select": "random", "inner_steps": 4, "seed": 5}
    whole = outcome(problem(), **arguments)
    arguments |= {"checkpoint": oneproj.Checkpoint(tmp_path / "run.pt")}
    outcome(problem(), callbacks=stop_after(stop), **arguments)
    assert_same(outcome(problem(), **arguments), whole)


def test_what_a_projector_learned_is_resumed(tmp_path: Path) -> None:
    # Hinge risks are all kinks: a projector that forgot its cuts takes more gradients.
    def run(**arguments: object) -> tuple[Tensor, Solution]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(50, 20, generator=generator, dtype=torch.float64)
        x[:, 0] += 1.0
        y = 1.0 + 0.3 * torch.randn(80, 20, generator=generator, dtype=torch.float64)
        w = torch.zeros(20, dtype=torch.float64, requires_grad=True)
        risk = oneproj.mean(
            lambda batch: (1.0 - batch @ w).clamp(min=0.0), data=x, curvature="convex"
        )
        built = oneproj.Problem(
            w,
            objective=oneproj.mean(lambda b: (b - w).square().sum(dim=1), data=y),
            constraints={"risk": risk <= 0.2},
            radius=20.0,
        )
        return outcome(built, method="projected-sgd", **arguments)

    whole = run()
    arguments = {"checkpoint": oneproj.Checkpoint(tmp_path / "run.pt")}
    run(callbacks=stop_after(9), **arguments)
    assert_same(run(**arguments), whole)


@pytest.mark.parametrize("curvature", ["convex", None])
@pytest.mark.parametrize("size", [20, 2**14 + 1])
def test_what_a_projector_learned_of_any_constraint_is_resumed(
    tmp_path: Path, size: int, curvature: str | None
) -> None:
    # Vectors beyond 2**14 numbers are kept as tensors, shorter ones in one array.
    def run(**arguments: object) -> tuple[Tensor, Solution]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(30, size, generator=generator) / size**0.5
        w = (0.1 * torch.randn(size, generator=generator)).requires_grad_()
        risk = oneproj.mean(lambda b: softplus(1.0 - b @ w), data=x + 1.0 / size**0.5)
        risk.curvature = curvature
        target = torch.randn(size, generator=generator)
        built = oneproj.Problem(
            w,
            objective=oneproj.function(lambda: (w - target).square().sum()),
            constraints={"risk": risk <= 0.9},
        )
        given = {"lr": 0.02, "steps": 12} | arguments
        return outcome(built, method="projected-sgd", **given)

    whole = run()
    assert whole[1].counts.constraint_gradients > 12, "the constraint binds"
    arguments = {"checkpoint": oneproj.Checkpoint(tmp_path / "run.pt")}
    for stop in (5, 8):
        run(callbacks=stop_after(stop), **arguments)
    assert_same(run(**arguments), whole)


def test_a_run_along_the_edge_of_the_ball_resumes(tmp_path: Path) -> None:
    # There the ball is a constraint as well, made anew for every projection.
    arguments = {"method": "projected-sgd", "lr": 0.5}
    whole = outcome(problem(radius=0.8, bound=0.6), **arguments)
    arguments |= {"checkpoint": oneproj.Checkpoint(tmp_path / "run.pt")}
    outcome(problem(radius=0.8, bound=0.6), callbacks=stop_after(9), **arguments)
    assert_same(outcome(problem(radius=0.8, bound=0.6), **arguments), whole)


class Halving(AbstractProjector):
    """A projector of a user's own that counts its projections."""

    name = "halving"

    def __init__(self) -> None:
        self.used = 0

    def accepts(self, constraints: object) -> None:
        del constraints

    def project(self, *problem: Any) -> oneproj.Projection:  # noqa: ANN401 - of a projector
        self.used += 1
        return oneproj.project(*problem)


class Remembering(Halving):
    """One that says what it remembers."""

    def state_dict(self) -> dict[str, Any]:
        return {"used": self.used}

    def load_state_dict(self, state: Any, *problem: Any) -> None:  # noqa: ANN401 - plain
        del problem
        self.used = state["used"]


@pytest.mark.parametrize(("kind", "used"), [(Halving, STEPS - 9), (Remembering, STEPS)])
def test_a_projector_of_ones_own_is_saved_if_it_says_how(
    tmp_path: Path, kind: type[Halving], used: int
) -> None:
    arguments = {"checkpoint": oneproj.Checkpoint(tmp_path / "run.pt")}
    arguments |= {"method": "projected-sgd"}
    first, second = kind(), kind()
    outcome(problem(), callbacks=stop_after(9), projector=first, **arguments)
    outcome(problem(), projector=second, **arguments)
    assert (first.used, second.used) == (9, used)


def cycle(optimizer: torch.optim.Optimizer) -> LRScheduler:
    schedulers = torch.optim.lr_scheduler
    return schedulers.CosineAnnealingWarmRestarts(optimizer, T_0=5, T_mult=2)


def one_cycle(optimizer: torch.optim.Optimizer) -> LRScheduler:
    schedulers = torch.optim.lr_scheduler
    return schedulers.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=STEPS, cycle_momentum=False
    )


def one_cycle_of_momentum(optimizer: torch.optim.Optimizer) -> LRScheduler:
    schedulers = torch.optim.lr_scheduler
    return schedulers.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS)


@pytest.mark.parametrize(
    ("method", "decay"),
    [
        ("one-projection", cycle),
        ("one-projection", one_cycle),
        ("penalty-sgd", one_cycle_of_momentum),
    ],
)
@pytest.mark.parametrize("base", ["momentum", "adam"])
def test_any_scheduler_resumes(
    tmp_path: Path,
    method: str,
    base: str,
    decay: Callable[[torch.optim.Optimizer], LRScheduler],
) -> None:
    arguments = {"method": method, "base": base, "decay": decay, "batch_size": 64}
    whole = outcome(problem(), **arguments)
    assert whole[1].feasible
    arguments |= {"checkpoint": oneproj.Checkpoint(tmp_path / "run.pt")}
    outcome(problem(), callbacks=stop_after(9), **arguments)
    assert_same(outcome(problem(), **arguments), whole)


def test_a_schedule_resumes_to_the_letter(
    tmp_path: Path, short_schedule: Schedule
) -> None:
    def run(**arguments: object) -> tuple[Tensor, Solution]:
        w = torch.tensor([0.3, -0.2], requires_grad=True)
        term = oneproj.function(lambda: 1e-3 * w.sum())
        ball = oneproj.sets.Ball(0.9).on(w)
        built = oneproj.Problem(w, term, {"size": ball}, radius=1.0)
        solution = oneproj.solve(built, schedule=short_schedule, seed=5, **arguments)
        return w.detach().clone(), solution

    whole = run()
    file = str(tmp_path / "run.pt")
    stopped = run(checkpoint=file, callbacks=stop_after(short_schedule.inner_steps + 2))
    assert "Moreau residual" not in stopped[1].certificate
    resumed = run(checkpoint=oneproj.Checkpoint(file))
    assert_same(resumed, whole)
    assert resumed[1].certificate["Moreau residual"].bound == 1.0


def test_seconds_add_up_over_a_stop(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    _, first = outcome(problem(), checkpoint=file, callbacks=stop_after(9))
    _, second = outcome(problem(), checkpoint=oneproj.Checkpoint(file))
    seconds = second.history["seconds"]
    assert seconds == sorted(seconds)
    assert seconds[:9] == first.history["seconds"]
    assert second.seconds["train"] >= seconds[-1]


# --- when it is saved -----------------------------------------------------------------


def test_it_is_saved_every_n_updates_and_at_the_end(
    tmp_path: Path, read_saved: Read
) -> None:
    file, seen = tmp_path / "deep" / "run.pt", []

    def watch(update: Update) -> None:
        seen.append(read_saved(file)["update"])
        assert update.update == len(seen)

    outcome(problem(), checkpoint=oneproj.Checkpoint(file, every=10), callbacks=watch)
    assert seen == [0] * 10 + [10] * 10 + [20] * 4
    assert read_saved(file)["update"] == STEPS
    assert list(file.parent.iterdir()) == [file], "no draft is left"


def press_in_update_8(built: oneproj.Problem, times: int) -> Callable[[Update], None]:
    """Press Ctrl-C where update 8 evaluates the objective; returns a callback."""
    evaluate, done, left = built.objective.batch_value, [0], [times]

    def press(indices: Tensor | None) -> Tensor:
        while done[-1] == 7 and left[0] > 0:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return evaluate(indices)

    built.objective.batch_value = press
    return lambda update: done.append(update.update)


def test_ctrl_c_inside_an_update_completes_and_saves_it(
    tmp_path: Path, read_saved: Read
) -> None:
    whole = outcome(problem())
    file, built = tmp_path / "run.pt", problem()
    count = press_in_update_8(built, times=1)
    with pytest.warns(oneproj.OneprojWarning, match="after update 8 of 24"):
        _, solution = outcome(built, checkpoint=file, callbacks=count)
    assert solution.status is Status.INTERRUPTED
    assert solution.feasible
    assert read_saved(file)["update"] == 8
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same(outcome(problem(), checkpoint=oneproj.Checkpoint(file)), whole)


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, read_saved: Read) -> None:
    whole = outcome(problem())
    file, built = tmp_path / "run.pt", problem()
    count, saving = press_in_update_8(built, times=2), oneproj.Checkpoint(file, every=5)
    with pytest.warns(oneproj.OneprojWarning, match="after update 7 of 24"):
        _, solution = outcome(built, checkpoint=saving, callbacks=count)
    assert solution.status is Status.INTERRUPTED
    assert read_saved(file)["update"] == 5, "half an update is not saved"
    assert_same(outcome(problem(), checkpoint=oneproj.Checkpoint(file)), whole)


def test_a_handler_of_the_users_own_stays(tmp_path: Path) -> None:
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:

        def press(update: Update) -> None:
            if update.update == 2:
                signal.raise_signal(signal.SIGINT)

        _, solution = outcome(
            problem(), checkpoint=tmp_path / "run.pt", callbacks=press
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [signal.SIGINT]
    assert solution.status is Status.FEASIBLE


def test_the_time_budget_ends_the_updates_and_the_next_call_has_its_own(
    tmp_path: Path,
) -> None:
    whole = outcome(problem())
    arguments = {"checkpoint": oneproj.Checkpoint(tmp_path / "run.pt"), "seconds": 1e-9}
    for done in range(1, 4):
        _, solution = outcome(problem(), **arguments)
        assert solution.status is Status.OUT_OF_TIME
        assert solution.status.ok
        assert solution.feasible
        assert solution.history["update"] == list(range(1, done + 1))
    arguments["seconds"] = 1e9
    assert_same(outcome(problem(), **arguments), whole)


# --- what is refused ------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "saved.pt"
    outcome(problem(), checkpoint=file, callbacks=stop_after(9))
    return file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.2}, "lr: None then, 0.2 now"),
        ({"seed": 4}, "seed: 3 then, 4 now"),
        ({"steps": 48}, "steps: 24 then, 48 now"),
        ({"batch_size": 9}, "batch_size: 8 then, 9 now"),
        ({"oracle": "exact"}, "oracle: .* then, 'exact' now"),
        ({"method": "penalty-sgd"}, "method: 'one-projection' then, 'penalty-sgd' now"),
        ({"base": torch.optim.SGD}, "base: 'adam' then, SGD now"),
    ],
)
def test_other_settings_are_refused_by_name(
    saved: Path, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(oneproj.CheckpointError, match=message):
        outcome(
            problem(),
            checkpoint=oneproj.Checkpoint(saved),
            **{"oracle": "minibatch"} | arguments,
        )


def test_anchors_that_see_all_data_more_rarely_are_refused(tmp_path: Path) -> None:
    costly = replace(oneproj.Defaults(), anchor_work=1)  # less than one example
    arguments = {"oracle": "anchored", "defaults": costly}
    arguments["checkpoint"] = tmp_path / "run.pt"
    begun = outcome(problem(), callbacks=stop_after(9), **arguments)[1]
    seen = begun.settings["anchor_size"]
    arguments["checkpoint"] = oneproj.Checkpoint(tmp_path / "run.pt")
    with pytest.raises(
        oneproj.CheckpointError, match="reference_every: 4 then, None now"
    ):
        outcome(problem(), anchor_size=seen, **arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 61}, "'source risk': 60 examples, <= 0.5 then, 61 examples"),
        ({"bound": 0.6}, "<= 0.5 then, 60 examples, <= 0.6 now"),
        ({"name": "other"}, "constraint 'source risk': .* then, absent now"),
        ({"radius": 5.0}, "radius: 10.0 then, 5.0 now"),
    ],
)
def test_another_problem_is_refused_by_its_difference(
    saved: Path, changes: dict[str, object], message: str
) -> None:
    built = problem(**changes)
    start = built.parameters[0].detach().clone()
    with pytest.raises(oneproj.CheckpointError, match=message):
        outcome(built, checkpoint=oneproj.Checkpoint(saved))
    assert torch.equal(built.parameters[0].detach(), start), "nothing was loaded"


def test_other_shapes_and_dtypes_are_refused(saved: Path) -> None:
    for w, now in (
        (torch.zeros(5, requires_grad=True), r"\(5,\), float32 now"),
        (torch.zeros(4, dtype=torch.float64, requires_grad=True), r"\(4,\), float64"),
    ):
        built = oneproj.Problem(w, oneproj.function(lambda w=w: w.square().sum()), {})
        with pytest.raises(
            oneproj.CheckpointError, match=rf"parameter 0: \(4,\), float32 then, {now}"
        ):
            outcome(built, checkpoint=oneproj.Checkpoint(saved))


@pytest.mark.filterwarnings("ignore:solve.checkpoint_every:DeprecationWarning")
def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    absent = tmp_path / "absent.pt"
    with pytest.raises(oneproj.CheckpointError, match=r"no checkpoint at .*absent\.pt"):
        outcome(problem(), resume=absent)
    with pytest.raises(oneproj.CheckpointError, match=r"Pass checkpoint=oneproj\.Che"):
        outcome(problem(), resume=True)


def test_the_old_words_still_work_and_name_the_new_one(
    saved: Path, tmp_path: Path, read_saved: Read
) -> None:
    whole, other = outcome(problem()), tmp_path / "other.pt"
    with pytest.warns(DeprecationWarning, match=r"since 0\.2\.0.*Checkpoint"):
        resumed = outcome(
            problem(),
            checkpoint=other,
            checkpoint_every=5,
            resume=saved,
        )
    assert_same(resumed, whole)
    assert read_saved(other)["update"] == STEPS
    assert read_saved(saved)["update"] == 9
    with pytest.raises(oneproj.InvalidProblemError, match="cannot be given beside"):
        outcome(problem(), checkpoint=oneproj.Checkpoint(saved), resume=True)
    with pytest.raises(oneproj.InvalidProblemError, match="no effect without a file"):
        outcome(problem(), checkpoint_every=20)


def test_a_checkpoint_is_not_overwritten_by_a_run_that_does_not_know_it(
    saved: Path,
) -> None:
    before = saved.read_bytes()
    with pytest.raises(oneproj.CheckpointError, match=r"already.*resume=True"):
        outcome(problem(), checkpoint=saved)
    with pytest.raises(oneproj.CheckpointError, match="already"):
        outcome(problem(), checkpoint=oneproj.Checkpoint(saved, resume=False))
    assert saved.read_bytes() == before


def test_slsqp_says_why_it_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(oneproj.CheckpointError, match="SciPy's loop, which keeps"):
        outcome(problem(), method="slsqp", checkpoint=tmp_path / "run.pt")


def test_bad_budgets_and_intervals_are_refused(tmp_path: Path) -> None:
    for seconds in (0.0, float("nan"), "60", [60]):
        with pytest.raises(oneproj.InvalidProblemError, match="seconds must be one nu"):
            outcome(problem(), seconds=seconds)
    for every in (0, 2.5):
        with pytest.raises(oneproj.InvalidProblemError, match="every must"):
            oneproj.Checkpoint(tmp_path / "a", every=every)


def test_a_method_that_refuses_its_state_leaves_the_parameters(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        message = f"{len(given)} parts do not fit"
        raise oneproj.InvalidProblemError(message)

    monkeypatch.setattr(oneproj.OneProjection, "load_state_dict", refuse)
    built = problem()
    before = built.parameters[0].detach().clone()
    with pytest.raises(oneproj.CheckpointError, match="parts do not fit"):
        outcome(built, checkpoint=oneproj.Checkpoint(saved))
    assert torch.equal(built.parameters[0], before)


def test_the_same_call_resumes_where_the_parameters_have_moved(tmp_path: Path) -> None:
    # The first step is measured where the parameters are: elsewhere it is another one.
    w = torch.zeros(100, requires_grad=True)

    def risk(w: Tensor = w) -> oneproj.Problem:
        goal = oneproj.function(lambda: (0.1 * w.sum() - 3.0) ** 4)
        size = oneproj.function(lambda: w.square().sum())
        return oneproj.Problem(w, goal, {"size": size <= 50.0})

    def measured_lr() -> float:
        copy = w.detach().clone().requires_grad_()
        lr: float = oneproj.solve(risk(copy), steps=60).settings["lr"]
        return lr

    begun = measured_lr()
    run = {"steps": 60, "checkpoint": oneproj.Checkpoint(tmp_path / "run.pt", every=9)}
    oneproj.solve(risk(), callbacks=stop_after(41), **run)
    assert measured_lr() != begun
    resumed = oneproj.solve(risk(), **run)
    assert resumed.settings["lr"] == begun
    answer = w.detach().clone()
    w.data.zero_()
    oneproj.solve(risk(), steps=60)
    assert torch.equal(w, answer)
