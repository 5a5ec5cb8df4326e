"""Who runs, what is recorded, and what a stop leaves behind; no assertion on a time."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

import oneproj
from benchmarks import train, train_contestants
from benchmarks.train_contestants import (
    BARE,
    EXTRAPOLATED,
    MINE,
    MINE_PAPER,
    REFERENCE,
    RIVAL,
    TIGHT,
    library_contestants,
)
from benchmarks.train_outcome import Contestant, Outcome, Task
from benchmarks.train_trace import Trace
from oneproj import InvalidProblemError, NonFiniteError, Problem, Solution
from oneproj.vectors import snapshot
from oneproj_paper.data import find
from oneproj_paper.tasks import PAPER, build

PROBLEM = "abstention-gaussian"
QUANTITY = "the value of 'objective'"
OUTCOME = Outcome(0.5, -1e-6, 0.1, 1.0, 0.1, 20, True, 20, 40, 2, 1)  # noqa: FBT003


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return train.train_record([PROBLEM], seeds=1, steps=20, progress=False)


def by_name(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {run["contestant"]: run for run in record["runs"]}


def named(*names: str) -> Callable[..., dict[str, Contestant]]:
    """A field of contestants who do nothing."""

    def field(*, extrapolate: bool = False) -> dict[str, Contestant]:
        del extrapolate
        return {name: Contestant(name, "", lambda _: OUTCOME) for name in names}

    return field


def test_the_record_survives_json(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_everyone_runs_and_everyone_with_an_answer_is_feasible(
    record: dict[str, Any],
) -> None:
    runs = by_name(record)
    assert list(runs) == list(train.all_contestants())
    for name, run in runs.items():
        assert run["reason"] is None, (name, run["reason"])
        assert run["complete"], name
        assert run["seconds"] > 0, name
        if name != BARE:
            assert run["feasible"], name
            assert run["residual"] <= 0, name


def test_projections_are_counted(record: dict[str, Any]) -> None:
    counted = {name: run["projections"] for name, run in by_name(record).items()}
    assert counted.pop(BARE) == 0
    assert [n for n in counted if counted[n] == 20] == [
        RIVAL,
        "projected-sgd, our step",
    ]
    assert {c for n, c in counted.items() if "projected" not in n} == {1}


def test_the_first_seed_is_traced_and_no_other() -> None:
    found = train.train_record(
        [PROBLEM], contestants=[MINE], seeds=2, steps=20, progress=False
    )
    first, second = found["runs"]
    assert [point["update"] for point in first["trace"]] == [1, 2, 5, 10, 20]
    assert second["trace"] == []
    assert first["trace"][-1]["objective"] == pytest.approx(
        first["objective"], rel=1e-5
    )


def test_a_trace_changes_nothing() -> None:
    experiment = build(PROBLEM, seed=3)
    mine = library_contestants()[0]
    answers, judged = [], []
    for due in (lambda _: False, lambda update: update.update in {1, 7, 20}):
        experiment.reset()
        trace = Trace(experiment.problem, due=due)
        mine.run(Task(experiment, 3, 20, trace))
        answers.append(
            torch.cat([p.flatten() for p in snapshot(experiment.problem.parameters)])
        )
        judged.append([point.update for point in trace.points])
    assert judged == [[], [1, 7, 20]]
    assert torch.equal(*answers)


def test_a_trace_subtracts_its_own_time() -> None:
    experiment = build(PROBLEM, seed=3)
    mine = library_contestants()[0]
    trace = Trace(experiment.problem, due=lambda _: True)
    outcome = mine.run(Task(experiment, 3, 20, trace))
    assert trace.own > 0
    assert trace.points[-1].seconds < outcome.seconds
    experiment.reset()
    later = mine.run(Task(experiment, 3, 20, Slow(experiment.problem)))
    assert later.seconds < 0


class Slow(Trace):
    """Claims to have taken an hour."""

    def start(self) -> None:
        super().start()
        self.own = 3600.0


def test_a_run_that_takes_too_long_is_ended_and_does_not_count() -> None:
    found = train.train_record(
        [PROBLEM], contestants=[RIVAL], seeds=1, steps=20, limit=0.0, progress=False
    )
    (run,) = found["runs"]
    assert not run["complete"]
    assert run["updates"] == 1
    assert run["note"] == "ended after 1 of 20 updates"
    assert run["feasible"]


def test_the_papers_settings_are_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = build("transfer-gaussian", seed=0)
    contestants = {c.name: c for c in library_contestants()}
    seen: dict[str, Any] = {}

    def solve(_: object, **given: object) -> object:
        seen.update(given)
        raise NonFiniteError(QUANTITY)

    monkeypatch.setattr(train_contestants, "solve", solve)
    with pytest.raises(NonFiniteError):
        contestants[MINE_PAPER].run(Task(experiment, 0, 500, Trace(experiment.problem)))
    own = PAPER["transfer-gaussian"]
    assert seen["steps"] == 3000
    assert (seen["lr"], seen["base"], seen["decay"]) == (0.5, "sgd", "constant")
    assert (seen["prox_weight"], seen["strength"]) == (own.prox_weight, own.strength)
    assert (seen["oracle"], seen["batch_size"], seen["combine"]) == (
        "minibatch",
        32,
        "max",
    )


def test_a_record_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "deep" / "train.json"
    made: list[tuple[str, int]] = []

    def field(*, extrapolate: bool = False) -> dict[str, Contestant]:
        del extrapolate

        def run(task: Task, name: str) -> Outcome:
            made.append((name, task.seed))
            return OUTCOME

        return {n: Contestant(n, "", partial(run, name=n)) for n in "ab"}

    monkeypatch.setattr(train, "all_contestants", field)
    arguments: dict[str, Any] = {"steps": 20, "out": out, "progress": False}
    train.train_record([PROBLEM], contestants=["b"], seeds=1, **arguments)
    train.train_record([PROBLEM], seeds=2, **arguments)
    assert made == [("b", 0), ("a", 0), ("a", 1), ("b", 1)]
    found = train.train_record([PROBLEM], seeds=2, **arguments)
    assert len(made) == 4
    assert json.loads(out.read_text()) == found
    assert [path.name for path in out.parent.iterdir()] == ["train.json"]


def test_a_record_of_other_conditions_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "train.json"
    arguments: dict[str, Any] = {
        "contestants": [REFERENCE],
        "seeds": 1,
        "out": out,
        "progress": False,
    }
    train.train_record([PROBLEM], steps=2, **arguments)
    kept = out.read_text()
    with pytest.raises(InvalidProblemError, match="side by side they would mislead"):
        train.train_record([PROBLEM], steps=3, **arguments)
    assert out.read_text() == kept
    out.write_text('{"benchmark": "step"}')
    with pytest.raises(InvalidProblemError, match="not a record of bench train"):
        train.train_record([PROBLEM], steps=2, **arguments)
    out.write_text(kept.replace('"contestant"', '"competitor"'))
    with pytest.raises(InvalidProblemError, match="was changed: not all of its runs"):
        train.train_record([PROBLEM], steps=2, **arguments)
    out.write_text(kept[:-20])
    with pytest.raises(InvalidProblemError, match="is no JSON"):
        train.train_record([PROBLEM], steps=2, **arguments)


def test_ctrl_c_keeps_what_was_done_and_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "train.json"
    mine = library_contestants()[0]

    class Interrupting(Trace):
        def __call__(self, update: Any) -> bool:  # noqa: ANN401 - an Update
            if update.update == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return super().__call__(update)

    def interrupted(task: Task) -> Outcome:
        return mine.run(replace(task, trace=Interrupting(task.problem)))

    field = {"whole": mine, "half": Contestant("half", "", interrupted)}
    monkeypatch.setattr(train, "all_contestants", lambda **_: field)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train.train_record([PROBLEM], seeds=1, steps=20, out=out, progress=False)
    assert signal.getsignal(signal.SIGINT) is before
    kept = json.loads(out.read_text())
    assert [run["contestant"] for run in kept["runs"]] == [MINE]


def test_a_failure_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: Task) -> Outcome:
        raise NonFiniteError(QUANTITY, step=task.seed)

    field = {"a": Contestant("a", "fails", fail)} | named("b")()
    monkeypatch.setattr(train, "all_contestants", lambda **_: field)
    found = by_name(train.train_record([PROBLEM], seeds=1, steps=2, progress=False))
    assert found["a"]["reason"].startswith("NonFiniteError: ")
    assert "objective" not in found["a"]
    assert found["b"]["reason"] is None


def test_missing_data_skips_a_problem_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "cache_folder", lambda: tmp_path)
    monkeypatch.setenv(find.VARIABLE, str(tmp_path))
    monkeypatch.setattr(train, "all_contestants", named("a"))
    problems = ["abstention-nasa", PROBLEM]
    found = train.train_record(problems, seeds=1, steps=2, progress=False)
    assert [run["problem"] for run in found["runs"]] == [PROBLEM]
    assert "was not found" in found["skipped"]["abstention-nasa"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"no contestant 'adam'. Known: one-"):
        train.train_record([PROBLEM], contestants=["adam"], progress=False)
    with pytest.raises(
        InvalidProblemError, match=r"no problem 'nasa'. Known: transfer"
    ):
        train.train_record(["nasa"], progress=False)


def test_slsqp_refuses_what_is_too_large() -> None:
    refuses = {c.name: c for c in library_contestants()}[REFERENCE].refuses
    experiment = build(PROBLEM, seed=0)
    assert refuses(experiment) is None
    large = replace(experiment, model=torch.nn.Linear(5000, 1))  # type: ignore[arg-type]
    assert refuses(large) == "5,001 parameters are more than 5,000"


@pytest.mark.parametrize("name", [EXTRAPOLATED, TIGHT])
def test_slower_projectors_are_extrapolated_from_a_few_updates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def solve(problem: Problem, *, projector: Any, **given: Any) -> Solution:  # noqa: ANN401 - as solve
        asked.append(projector)
        return oneproj.solve(problem, projector="cuts", **given)  # a quicker one

    monkeypatch.setattr(train_contestants, "solve", solve)
    contestant = train.all_contestants(extrapolate=True)[name]
    experiment = build(PROBLEM, seed=0)
    assert contestant.refuses(experiment) == "networks only"
    began = time.perf_counter()
    found = contestant.run(Task(experiment, 0, 20_000, Trace(experiment.problem)))
    took = time.perf_counter() - began
    (projector,) = asked
    expected = "augmented-lagrangian" if name == EXTRAPOLATED else "cuts"
    assert projector.name == expected
    assert found.note == "extrapolated from 20 updates"
    assert (found.objective, found.updates, found.projections) == (None, 20, 20)
    assert took < found.seconds < 1000 * took
    assert name not in train.all_contestants()


def test_the_command_prints_tables_and_writes_record_and_figure(
    tmp_path: Path, run_program: Callable[..., Result]
) -> None:
    out = tmp_path / "train.json"
    arguments = ["--problem", PROBLEM, "--seeds", "1"]
    arguments += ["--steps", "10", "--contestant", MINE, "--contestant", REFERENCE]
    run = run_program("train", *arguments, "--out", out)
    assert run.exit_code == 0, run.output
    assert "Only ratios are claims" in " ".join(run.stdout.split())
    assert "objective / SLSQP's" in run.stdout
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"train.json", "train.png", "train.svg"}
    again = run_program("train", *arguments[:-6], "--steps", 9, "--out", out)
    assert again.exit_code == 1
    assert "side by side" in again.output
