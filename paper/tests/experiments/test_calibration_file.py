"""Calibrations on disk: kept, replaced, and refused where damaged."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import filelock
import pytest
from typer.testing import CliRunner

from oneproj import files
from oneproj_paper.cli import app
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments import calibration_run
from oneproj_paper.experiments.calibration import FIRST_SEED
from oneproj_paper.experiments.calibration_file import (
    SHIPPED,
    Calibration,
    read_calibrations,
    write_calibration,
)
from oneproj_paper.experiments.calibration_search import Trial

ONE = Calibration(
    experiment="abstention-nasa",
    preset="oneproj",
    method="one-projection",
    thresholds=(0.2, -0.01),
    targets=(0.1, 0.1),
    aim="errors that were asked for",
    errors=(0.09, 0.1),
    ambiguity=0.05,
    note="",
    seeds=(1000, 1001),
    settings={"steps": 500},
    trials=(Trial((0.2, -0.01), (0.09, 0.1), 0.05),),
    versions={"oneproj": "0.1.0"},
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file.json"
    write_calibration(file, ONE)
    assert read_calibrations(file) == [ONE]
    assert {path.name for path in file.parent.iterdir()} == {
        "file.json",
        ".file.json.lock",  # a lock that is removed is no lock to those who wait for it
    }


def test_a_file_keeps_the_others_and_replaces_its_own(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    rival = replace(ONE, method="projected-sgd", thresholds=(0.3, 0.3))
    better = replace(ONE, thresholds=(0.21, 0.0))
    for calibration in (rival, ONE, better):
        write_calibration(file, calibration)
    assert read_calibrations(file) == [better, rival]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"format": "oneproj calibrations 2", "all": []}',
        '{"format": 1}',
    ],
)
def test_another_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(CalibrationError, match=r"file\.json cannot be read"):
        read_calibrations(file)
    with pytest.raises(CalibrationError, match="cannot be read"):
        write_calibration(file, ONE)
    assert file.read_text() == text


def test_nobody_writes_between_reading_and_writing(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    other = tmp_path / "other.json"
    write_calibration(other, replace(ONE, method="projected-sgd"))
    mine = threading.Thread(target=write_calibration, args=(file, ONE))
    with filelock.FileLock(tmp_path / ".file.json.lock"):  # as another process would
        mine.start()
        mine.join(0.3)
        assert mine.is_alive()
        assert not file.exists()
        file.write_bytes(other.read_bytes())
    mine.join()
    methods = [calibration.method for calibration in read_calibrations(file)]
    assert methods == ["one-projection", "projected-sgd"]


def test_many_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    names = [f"abstention-{letter}" for letter in "abcdefgh"]
    begin = threading.Barrier(len(names))

    def write(name: str) -> None:
        begin.wait()
        write_calibration(file, replace(ONE, experiment=name))

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(write, names))
    assert [found.experiment for found in read_calibrations(file)] == names


@pytest.mark.parametrize("settings", [{}, {"steps": "500"}, {"steps": 0}])
def test_a_calibration_says_for_how_many_updates_it_is(
    settings: dict[str, object],
) -> None:
    assert ONE.updates == 500
    with pytest.raises(CalibrationError, match=r"abstention-nasa.* how many updates"):
        _ = replace(ONE, settings=settings).updates


def test_a_calibration_may_have_a_radius() -> None:
    assert ONE.radius is None
    assert replace(ONE, settings={"steps": 500, "radius": 6.5}).radius == 6.5
    for wrong in (0, -1.0, "6", None, float("nan")):
        with pytest.raises(CalibrationError, match=r"abstention-nasa.* for a radius"):
            _ = replace(ONE, settings={"steps": 500, "radius": wrong}).radius


def test_what_is_shipped_kept_its_targets_on_seeds_of_its_own() -> None:
    for calibration in read_calibrations(SHIPPED):
        # To the last digit: they were matched on the same examples.
        pairs = zip(calibration.errors, calibration.targets, strict=True)
        assert all(error <= target for error, target in pairs)
        assert min(calibration.seeds) >= FIRST_SEED
        assert Trial(
            calibration.thresholds, calibration.errors, calibration.ambiguity
        ) in (calibration.trials)


def test_a_disk_that_fills_up_meanwhile_loses_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def made(*_: object, **__: object) -> Calibration:
        monkeypatch.setattr(files, "force", full)
        return ONE

    monkeypatch.setattr(calibration_run, "run_calibration", made)
    file, copy = tmp_path / "file.json", tmp_path / "copy.json"
    arguments = ["calibrate", "abstention-nasa", "--out", str(file)]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert "class 1 error" in result.output
    told, _, content = result.output.partition("--thresholds` reads:\n")
    assert "file.json cannot be written: No space left on device" in told
    copy.write_text(content)
    assert read_calibrations(copy) == [ONE]
    assert not file.exists()
