"""One run: the record says what happened, and watching it changes nothing."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from functools import partial

import pytest
import torch

import oneproj
from oneproj.methods import Algorithm1
from oneproj.results import Update
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.records import from_json, to_json
from oneproj_paper.experiments.run import Trace, run
from oneproj_paper.experiments.specs import Spec, make_spec
from oneproj_paper.projectors import PROJECTORS
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian
from oneproj_paper.tasks import build


def short(preset: str, method: str, experiment: str = "abstention-gaussian") -> Spec:
    """Fifty updates of a spec."""
    spec = make_spec(experiment, preset, method)
    return replace(spec, updates=50)


@pytest.fixture(scope="module")
def record() -> Record:
    return run(
        short("paper", "one-projection"), seed=1, command="oneproj-paper reproduce"
    )


def test_a_record_agrees_with_itself(record: Record) -> None:
    assert from_json(to_json(record)) == record
    assert (record.seed, record.task) == (1, "abstention")
    assert record.feasible == (max(record.residuals.values()) <= 0)
    assert record.status == "feasible"
    assert record.complete
    assert record.extrapolated_from is None
    assert record.updates == record.planned_updates == 50
    assert record.counts.objective_gradients == 50
    assert record.counts.projections == 1
    caps = record.settings["caps"]
    assert caps["class 0 error"] == pytest.approx(0.3 + 0.5 / 600**0.5)
    assert record.settings["slack"][0] == pytest.approx(0.5 / 600**0.5)
    for name, risk in record.risks.items():
        assert risk == record.residuals[name] + caps[name]
    assert set(record.metrics) == {"train", "validation", "test"}
    assert record.data.counts["train"] == (600, 600)
    assert (record.data.variables, record.data.parameters) == (8, 18)
    assert record.machine["threads"] == 1
    assert record.versions["torch"] == torch.__version__


def test_the_history_begins_at_the_start_and_ends_after_the_projection(
    record: Record,
) -> None:
    history = record.history
    assert history["update"] == (0.0, 25.0, 50.0)
    assert history["objective"][-1] == record.objective
    assert history["class 1 error"][-1] == record.risks["class 1 error"]
    start = build("abstention-gaussian", seed=1, thresholds="one-projection")
    assert history["objective"][0] == start.problem.objective.value()
    seconds = history["seconds"]
    assert list(seconds) == sorted(seconds)
    assert seconds[-1] == record.seconds["train"] + record.seconds["project"]
    assert record.runtime == pytest.approx(seconds[-1])


@pytest.mark.parametrize("method", ["one-projection", "projected-sgd"])
def test_watching_changes_nothing(method: str) -> None:
    spec = short("oneproj", method)
    found = run(spec, seed=0)
    alone = build(spec.experiment, 0, thresholds=spec.thresholds)
    own = {"steps": 50, "projector": "cuts", "progress": False} | spec.options
    solution = oneproj.solve(alone.problem, method=method, **own)
    assert found.objective == solution.objective
    assert found.residuals == solution.residuals
    assert found.metrics["test"] == alone.measure(alone.data.test)
    assert found.history["update"] == (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)


def test_the_ball_is_that_of_the_spec() -> None:
    spec = replace(short("oneproj", "one-projection"), radius=1.0)
    record = run(spec, seed=1)
    experiment = build(spec.experiment, 1, thresholds=spec.thresholds, radius=1.0)
    own = {"steps": 50, "projector": "cuts", "progress": False} | spec.options
    oneproj.solve(experiment.problem, seed=1, **own)
    assert record.metrics["train"] == experiment.measure(experiment.data.train)
    assert record.settings["radius"] == 1.0
    assert record.metrics != run(replace(spec, radius=2.0), seed=1).metrics


def test_the_defaults_in_force_are_in_the_settings() -> None:
    settings = run(short("oneproj", "one-projection"), seed=0).settings
    default = Algorithm1()
    for name in ("base", "decay", "prox_weight", "late_weight", "strength"):
        assert settings[name] == getattr(default, name)
    assert (settings["lr"], settings["batch_size"]) == (0.1, 1024)
    assert (settings["inner_steps"], settings["outer_steps"]) == (10, 5)
    assert settings["oracle"] == "exact"


def test_the_time_of_looking_is_not_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Trace._values

    def slowly(self: Trace) -> dict[str, float]:
        time.sleep(0.25)
        return look(self)

    monkeypatch.setattr(Trace, "_values", slowly)
    began = time.perf_counter()
    record = run(short("oneproj", "one-projection"), seed=0)  # six looks
    assert record.runtime < time.perf_counter() - began - 1.5
    seconds = record.history["seconds"]
    assert list(seconds) == sorted(seconds)


def test_a_run_that_is_cut_is_extrapolated() -> None:
    record = run(short("paper", "projected-sgd", "transfer-gaussian"), 0, until=10)
    assert not record.complete
    assert record.feasible
    assert (record.updates, record.planned_updates) == (10, 50)
    assert record.extrapolated_from == 10
    assert record.status == "interrupted"
    seconds = record.seconds
    assert seconds["source_fit"] > 0
    assert record.runtime == pytest.approx(
        seconds["source_fit"] + 5 * seconds["train"] + seconds["project"]
    )
    assert record.history["update"] == (0.0, 10.0)
    assert record.history["validation risk"][-1] == record.metrics["validation"]["risk"]


def test_a_cut_beyond_the_end_is_none() -> None:
    assert run(short("paper", "one-projection"), 0, until=50).complete


@pytest.mark.parametrize("method", ["one-projection", "projected-sgd"])
def test_a_projection_that_fails_is_a_result(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No risk is negative, and this projector does not take long to give up.
    hasty = partial(AugmentedLagrangian, rounds=1, inner_steps=5)
    monkeypatch.setitem(PROJECTORS, "augmented-lagrangian", hasty)
    spec = replace(
        short("oneproj", method),
        thresholds=(-1.0, 0.3),
        projector="augmented-lagrangian",
    )
    record = run(spec, seed=0)
    assert not record.feasible
    assert record.status in ("infeasible", "empty")
    assert record.residuals["class 0 error"] > 0
    assert record.extrapolated_from is None
    assert from_json(to_json(record)) == record


def test_ctrl_c_ends_a_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def press(_: Trace, update: Update) -> None:
        seen.append(update.update)
        if update.update == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trace, "__call__", press)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(short("oneproj", "one-projection"), seed=0)
    assert seen == [1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is before


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(short("oneproj", "one-projection"), seed=0, until=5)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
