"""A calibration from the command to its file: what is tried, taken and refused."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from oneproj.errors import InvalidProblemError
from oneproj.results import Solution, Update
from oneproj.training.solve import solve
from oneproj_paper.cli import app
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments import calibration_run
from oneproj_paper.experiments.calibration import FIRST_SEED, Search
from oneproj_paper.experiments.calibration_file import (
    check_place,
    read_calibrations,
)
from oneproj_paper.experiments.calibration_run import _note, run_calibration
from oneproj_paper.experiments.calibration_search import Pair, Task, Trial
from oneproj_paper.experiments.record_schema import Method


def test_ctrl_c_ends_the_search_with_nothing_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # `solve` by itself would finish early, and half a run would count as a trial.
    def pressed(*arguments: object, **options: object) -> Solution:
        def press(update: Update) -> None:
            if update.update == 3:
                signal.raise_signal(signal.SIGINT)

        return solve(*arguments, **options, callbacks=press)

    monkeypatch.setattr("oneproj_paper.experiments.calibration.solve", pressed)
    with pytest.raises(KeyboardInterrupt):
        run_calibration("abstention-gaussian", seeds=1, rounds=1)


def test_the_command_writes_a_file_and_shows_the_search(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    arguments = ["abstention-gaussian", "--seeds", "1", "--target", "0.16", "0.17"]
    arguments += ["--start", "0.29", "0.31"]
    result = CliRunner().invoke(app, ["calibrate", *arguments, "--out", str(file)])
    assert result.exit_code == 0, result.output
    assert "class 1 error" in result.output
    (found,) = read_calibrations(file)
    assert found.targets == (0.16, 0.17)
    assert found.trials[0].thresholds == (0.29, 0.31)
    assert found.seeds == (FIRST_SEED,)
    assert found.settings == {"steps": 500, "projector": "cuts"}


@pytest.mark.parametrize("text", ["", "my notes", '{"format": "another"}'])
def test_a_file_of_another_kind_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(calibration_run, "run_calibration", pytest.fail)
    file = tmp_path / "notes.txt"
    file.write_text(text)
    arguments = ["calibrate", "abstention-gaussian", "--out", str(file)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "notes.txt cannot be read as calibrations" in result.output.replace("\n", "")
    assert file.read_text() == text


def test_a_place_without_a_folder_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration_run, "run_calibration", pytest.fail)
    (tmp_path / "notes.txt").write_text("my notes")
    for place in (tmp_path / "notes.txt" / "file.json", tmp_path):
        arguments = ["calibrate", "abstention-gaussian", "--out", str(place)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit), result.exception
    with pytest.raises(CalibrationError, match=r"Not a directory: .*notes\.txt\."):
        check_place(tmp_path / "notes.txt" / "deep" / "file.json")
    check_place(tmp_path / "new" / "file.json")
    assert not (tmp_path / "new").exists()


def test_targets_that_cannot_be_reached_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(_: object, __: object, limits: Pair, **___: object) -> Trial:
        first, second = (0.4 * limit for limit in limits)
        return Trial(limits, (first, second), 0.0)

    monkeypatch.setattr("oneproj_paper.experiments.calibration.attempt", attempt)
    file = tmp_path / "file.json"
    arguments = ["abstention-gaussian", "--seeds", "1", "--target", "0.9", "0.9"]
    result = CliRunner().invoke(app, ["calibrate", *arguments, "--out", str(file)])
    assert result.exit_code == 0, result.output
    told = "The targets were not reached: on validation data class 0 stays at 79.2 %"
    assert told in result.output
    (found,) = read_calibrations(file)
    assert found.note.startswith(told)
    assert len(found.trials) > 1
    assert found.errors == max(trial.errors for trial in found.trials)


def test_targets_that_a_more_ambiguous_trial_reaches_are_told_otherwise() -> None:
    task = Task((0.1, 0.1), (0.0, 0.0), (1e6, 1e6))
    short, near = (Trial((0.2, 0.2), (0.1, e), 1.0 - e) for e in (0.05, 0.0999))
    assert "were not reached" in _note(Search(task, short, (short,)))
    told = _note(Search(task, short, (near, short)))
    assert "were not reached" not in told
    assert "class 1 stays at 5.0 % where 10.0 % are allowed" in told
    assert _note(Search(task, near, (near, short))) == ""


def test_the_command_fails_in_words(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    arguments = ["calibrate", "transfer-gaussian", "--out", str(file)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "abstention-gaussian" in result.output
    assert not file.exists()


def few_or_many(
    _: object, __: object, *, targets: Pair, steps: int, **___: object
) -> Search:
    """Of 50, 100 and 200 updates, the second leaves the least ambiguity."""
    if steps not in (50, 100, 200):
        message = f"No thresholds for {steps}."
        raise CalibrationError(message)
    trial = Trial((0.3, steps / 1000), targets, 0.05 + abs(steps - 100) / 1000)
    return Search(Task(targets, (0.0, 0.0), (200.0, 200.0)), trial, (trial,))


def test_of_several_numbers_of_updates_the_least_ambiguous_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration_run, "calibrate", few_or_many)
    file = tmp_path / "file.json"
    arguments = ["abstention-gaussian", "--seeds", "1", "--target", "0.1", "0.1"]
    numbers = ["7", "50", "100", "200", "100"]
    arguments += [word for number in numbers for word in ("--updates", number)]
    result = CliRunner().invoke(app, ["calibrate", *arguments, "--out", str(file)])
    assert result.exit_code == 0, result.output
    (found,) = read_calibrations(file)
    assert (found.updates, found.thresholds) == (100, (0.3, 0.1))
    assert found.note == (
        "On validation data 7 updates do not keep the targets, 50 updates have an "
        "ambiguity of 10.00 %, 100 updates have an ambiguity of 5.00 %, 200 updates "
        "have an ambiguity of 15.00 %."
    )
    assert "100 updates" in result.output


def test_no_number_of_updates_may_keep_the_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibration_run, "calibrate", few_or_many)
    with pytest.raises(CalibrationError, match="No thresholds for 8"):
        run_calibration("abstention-gaussian", updates=(7, 8), seeds=1)


def large_or_small(
    _: object, __: object, *, targets: Pair, steps: int, radius: float, **___: object
) -> Search:
    """The smaller the ball the better, unless it has few updates."""
    if (steps, radius) == (50, 2.5):
        message = "No thresholds for 50 in 2.5."
        raise CalibrationError(message)
    trial = Trial((0.3, radius / 10), targets, radius / 100 + 5 / steps)
    return Search(Task(targets, (0.0, 0.0), (200.0, 200.0)), trial, (trial,))


def test_of_several_radii_and_updates_the_least_ambiguous_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration_run, "calibrate", large_or_small)
    file = tmp_path / "file.json"
    arguments = ["abstention-gaussian", "--seeds", "1", "--target", "0.1", "0.1"]
    arguments += ["--updates", "50", "--updates", "100"]
    arguments += ["--radius", "4", "--radius", "2.5", "--radius", "4.0"]
    result = CliRunner().invoke(app, ["calibrate", *arguments, "--out", str(file)])
    assert result.exit_code == 0, result.output
    (found,) = read_calibrations(file)
    assert (found.updates, found.radius, found.thresholds) == (100, 2.5, (0.3, 0.25))
    assert found.note == (
        "On validation data 50 updates in radius 4 have an ambiguity of 14.00 %, 50 "
        "updates in radius 2.5 do not keep the targets, 100 updates in radius 4 have "
        "an ambiguity of 9.00 %, 100 updates in radius 2.5 have an ambiguity of 7.50 %."
    )
    assert "100 updates, radius 2.5" in " ".join(result.output.split())


def test_batch_size_and_strength_are_chosen_and_kept_like_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calibrate(
        _: object,
        __: object,
        *,
        targets: Pair,
        batch_size: int,
        strength: float,
        **___: object,
    ) -> Search:
        trial = Trial((0.3, 0.3), targets, 1 / (batch_size * strength))
        return Search(Task(targets, (0.0, 0.0), (200.0, 200.0)), trial, (trial,))

    monkeypatch.setattr(calibration_run, "calibrate", calibrate)
    file = tmp_path / "file.json"
    arguments = ["abstention-gaussian", "--seeds", "1", "--target", "0.1", "0.1"]
    arguments += ["--batch-size", "50", "--batch-size", "200", "--radius", "3"]
    arguments += ["--strength", "2", "--strength", "0.5"]
    result = CliRunner().invoke(app, ["calibrate", *arguments, "--out", str(file)])
    assert result.exit_code == 0, result.output
    (found,) = read_calibrations(file)
    assert (found.updates, found.radius) == (500, 3.0)
    assert found.options == {"batch_size": 200, "strength": 2.0}
    words = "500 updates of 200 examples in radius 3 with strength 2 have an ambig"
    assert words in found.note
    assert "radius 3, batch_size 200, strength 2.0" in " ".join(result.output.split())


@pytest.mark.parametrize(
    "wrong",
    [
        {"radii": [0.0]},
        {"radii": [-1.0]},
        {"radii": [math.inf]},
        {"batch_sizes": [0]},
        {"strengths": [0.0]},
        {"strengths": [math.nan]},
    ],
)
def test_nothing_is_read_or_trained_for_settings_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    monkeypatch.setattr(calibration_run, "attempt", pytest.fail)
    monkeypatch.setattr(calibration_run.Development, "of", pytest.fail)
    with pytest.raises(
        InvalidProblemError, match=r"A (radius|batch size|strength) must"
    ):
        run_calibration("abstention-gaussian", match="projected-sgd", **wrong, seeds=1)


@pytest.mark.parametrize("name", ["updates", "radii", "batch_sizes", "strengths"])
def test_the_paper_s_settings_stay(name: str) -> None:
    given: dict[str, Any] = {name: [50]}
    with pytest.raises(InvalidProblemError, match=rf"{name}=\[50\]"):
        run_calibration("abstention-gaussian", preset="paper", **given, seeds=1)


def test_the_paper_s_settings_can_be_calibrated_too() -> None:
    found = run_calibration(
        "abstention-gaussian", preset="paper", targets=(0.16, 0.16), seeds=1
    )
    assert found.settings["projector"] == "dual-bisection"
    assert found.settings["lr"] == 0.05
    assert max(found.errors) <= 0.167


def test_targets_can_be_what_the_paper_s_settings_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Pair, dict[str, object]]] = []

    def attempt(_: object, __: object, limits: Pair, **options: object) -> Trial:
        asked.append((limits, options))
        return Trial(limits, (0.16, 0.17), 0.1)

    def calibrate(
        _: object, __: object, *, targets: Pair, paired: bool, **___: object
    ) -> Search:
        assert paired
        trial = Trial((0.3, 0.3), targets, 0.1)
        return Search(Task(targets, (0.0, 0.0), (200.0, 200.0)), trial, (trial,))

    monkeypatch.setattr(calibration_run, "attempt", attempt)
    monkeypatch.setattr(calibration_run, "calibrate", calibrate)
    methods: tuple[Method, ...] = get_args(Method)
    for method in methods:
        found = run_calibration("abstention-gaussian", match=method, seeds=1)
        assert found.method == "one-projection"
        assert found.targets == (0.16, 0.17)
        assert f"the paper's own settings for {method}" in found.aim
        assert found.aim.endswith("where its ambiguity is 10.00 %")
    (own, sampled), (rival, plain) = asked
    assert own == rival == (0.3, 0.3)
    assert (sampled["method"], plain["method"]) == methods
    assert sampled["oracle"] == "minibatch"
    assert plain["projector"] == "cuts", "with the paper's, networks would take hours"
    assert "oracle" not in plain
    with pytest.raises(InvalidProblemError, match="not both"):
        run_calibration(
            "abstention-gaussian", match="one-projection", targets=(0.1, 0.1)
        )


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="got 'mnist'"):
        run_calibration("mnist")
