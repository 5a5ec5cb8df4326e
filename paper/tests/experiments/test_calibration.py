"""Calibration sees training and validation data, and nothing else."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
import torch

from oneproj.errors import InfeasibleError, InvalidProblemError
from oneproj.training.solve import solve
from oneproj_paper.data import gaussian_abstention
from oneproj_paper.data.samples import Sample, Splits
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments import calibration
from oneproj_paper.experiments.calibration import Development, attempt, calibrate
from oneproj_paper.experiments.calibration_search import Trial
from oneproj_paper.tasks import PAPER, build

GAUSSIAN = PAPER["abstention-gaussian"]
STEPS = 60


def samples(*seeds: int) -> dict[int, Development]:
    return {seed: Development.of(gaussian_abstention(seed=seed)) for seed in seeds}


class Locked(Splits):
    """Splits whose test part cannot be looked at."""

    def __getattribute__(self, name: str) -> object:
        if name == "test":
            message = "somebody looked at the test part"
            raise AssertionError(message)
        return super().__getattribute__(name)


def test_the_test_part_is_never_looked_at() -> None:
    splits = gaussian_abstention(seed=1)
    locked = Locked(**vars(splits))
    with pytest.raises(AssertionError, match="looked"):
        _ = locked.test
    sample = Development.of(locked)
    assert {field.name for field in dataclasses.fields(sample)} == {
        "train",
        "validation",
    }
    found = calibrate(GAUSSIAN, {1: sample}, steps=STEPS, rounds=3, targets=(0.3, 0.3))
    assert found == calibrate(
        GAUSSIAN, samples(1), steps=STEPS, rounds=3, targets=(0.3, 0.3)
    )


def test_calibrated_errors_are_those_of_the_runs_that_the_thresholds_give() -> None:
    found = calibrate(GAUSSIAN, samples(1, 2), targets=(0.2, 0.2), steps=STEPS)
    errors = []
    for seed in (1, 2):
        experiment = build(
            "abstention-gaussian", seed, thresholds=found.found.thresholds
        )
        solve(experiment.problem, steps=STEPS, seed=seed, progress=False)
        measured = experiment.measure(experiment.data.validation)
        errors.append((measured["class_0_error"], measured["class_1_error"]))
    means = tuple(sum(pair) / 2 for pair in zip(*errors, strict=True))
    assert found.found.errors == pytest.approx(means)
    assert found.task.keeps(found.found)


def test_a_radius_of_its_own_is_that_of_every_training() -> None:
    small = 1.0
    found = calibrate(
        GAUSSIAN, samples(1), targets=(0.4, 0.4), radius=small, steps=STEPS, rounds=8
    ).found
    experiment = build(
        "abstention-gaussian", 1, thresholds=found.thresholds, radius=small
    )
    assert experiment.problem.radius == small
    solve(experiment.problem, steps=STEPS, seed=1, progress=False)
    measured = experiment.measure(experiment.data.validation)
    assert found.errors == (measured["class_0_error"], measured["class_1_error"])
    assert found.ambiguity == measured["ambiguity"]
    weights = torch.cat([p.flatten() for p in experiment.problem.parameters])
    assert weights.norm() <= small * 1.0001
    # It is not what the experiment's own ball gives.
    own = attempt(GAUSSIAN, samples(1), found.thresholds, steps=STEPS)
    assert own.errors != found.errors


def test_larger_targets_give_looser_thresholds_and_less_ambiguity() -> None:
    tight, loose = (
        calibrate(GAUSSIAN, samples(1, 2), targets=(a, a), steps=STEPS).found
        for a in (0.12, 0.25)
    )
    assert all(a < b for a, b in zip(tight.thresholds, loose.thresholds, strict=True))
    assert loose.ambiguity < tight.ambiguity


def test_projected_sgd_is_calibrated_the_same_way() -> None:
    found = calibrate(
        GAUSSIAN, samples(1), method="projected-sgd", targets=(0.2, 0.2), steps=20
    )
    assert found.task.keeps(found.found)


def test_every_run_and_every_trial_is_told() -> None:
    told: list[Trial | None] = []
    search = calibrate(
        GAUSSIAN, samples(1, 2), steps=STEPS, targets=(0.2, 0.2), report=told.append
    )
    assert told[:3] == [None, None, search.trials[0]]
    assert len(told) == 3 * len(search.trials)


def test_the_paper_s_target_is_the_default() -> None:
    sample = samples(1)
    told = calibrate(GAUSSIAN, sample, steps=STEPS, rounds=8).task
    assert told.targets == (0.15, 0.15)
    assert told.examples == (200.0, 200.0)
    assert told.slacks == pytest.approx((0.5 / 600**0.5,) * 2)


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="task 'transfer' and 1 seeds"):
        calibrate(PAPER["transfer-gaussian"], samples(1))
    with pytest.raises(InvalidProblemError, match="0 seeds"):
        calibrate(GAUSSIAN, {})
    with pytest.raises(InvalidProblemError, match="give targets"):
        calibrate(replace(GAUSSIAN, target_error=None), samples(1))
    whole = samples(1)[1]
    lonely = Sample(torch.zeros(3, 8), torch.zeros(3, dtype=torch.long))
    with pytest.raises(InvalidProblemError, match="both classes"):
        calibrate(GAUSSIAN, {1: replace(whole, validation=lonely)})


def test_caps_that_cannot_be_met_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        message = "no feasible point"
        raise InfeasibleError(message)

    monkeypatch.setattr(calibration, "solve", fail)
    with pytest.raises(CalibrationError, match=r"\(0\.3, 0\.3\).*on seed 1"):
        calibrate(GAUSSIAN, samples(1))
