"""``oneproj-paper reproduce``: what it prints, and what its exit code says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from oneproj_paper.cli import app
from oneproj_paper.experiments import specs, sweep
from oneproj_paper.experiments.calibration_file import (
    SHIPPED,
    read_calibrations,
    write_calibration,
)
from oneproj_paper.experiments.plan import Job
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.records import read_folder

SMALL = ("abstention-gaussian", "--preset", "oneproj", "--seeds", "2")


@pytest.fixture(autouse=True)
def few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "STEPS", 20)
    monkeypatch.setattr(specs, "SHIPPED", None)


def reproduce(out: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(out)])
    return result.exit_code, result.output


def test_a_line_for_every_run_then_a_table_and_the_folder(tmp_path: Path) -> None:
    code, output = reproduce(tmp_path, *SMALL)
    assert code == 0, output
    assert output.count("feasible, ") == 4  # two methods, two seeds
    assert "ambiguity (%)" in output
    assert "2 of 2" in output
    assert "target error" not in output
    assert f"Records: {tmp_path} (4 new, 0 kept)" in output
    code, output = reproduce(tmp_path, *SMALL)
    assert (code, output.count("feasible, ")) == (0, 0)
    assert f"Records: {tmp_path} (0 new, 4 kept)" in output


def test_method_and_projector_can_be_chosen(tmp_path: Path) -> None:
    chosen = ("--method", "projected-sgd", "--projector", "dual-bisection")
    assert reproduce(tmp_path, *SMALL, *chosen)[0] == 0
    records = read_folder(tmp_path).records
    found = {(record.method, record.projector) for record in records}
    assert found == {("projected-sgd", "dual-bisection")}


def test_both_presets_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def note(jobs: list[Job], *_: object, **__: object) -> int:
        asked.extend(job.key[1:4] for job in jobs)
        return 0

    monkeypatch.setattr("oneproj_paper.experiments.reproduce.sweep", note)
    assert reproduce(tmp_path, "abstention-gaussian", "--seeds", "1")[0] == 0
    assert asked == [
        ("paper", "one-projection", "dual-bisection"),
        ("paper", "projected-sgd", "dual-bisection"),
        ("oneproj", "one-projection", "cuts"),
        ("oneproj", "projected-sgd", "cuts"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("abstention-mars",), "There is no experiment 'abstention-mars'"),
        (("abstention-nasa", "--projector", "dual-bisection"), "convex constraints"),
    ],
)
def test_what_makes_no_sense_is_said_in_words(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, output = reproduce(tmp_path, *arguments)
    assert code == 1
    assert message in output


def test_a_damaged_record_is_named_kept_and_made_again(tmp_path: Path) -> None:
    chosen = (*SMALL, "--method", "one-projection")
    assert reproduce(tmp_path, *chosen)[0] == 0
    path = next(tmp_path.rglob("seed-0001.json"))
    path.write_text("{")
    code, output = reproduce(tmp_path, *chosen)
    assert code == 0, output
    assert f"{path} is truncated or damaged" in output
    assert f"It is now {path}.damaged." in output
    assert f"Records: {tmp_path} (1 new, 1 kept)" in output
    assert path.with_name("seed-0001.json.damaged").read_text() == "{"
    code, output = reproduce(tmp_path, *chosen)
    assert "It is now" not in output


def test_ctrl_c_has_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run", interrupted)
    code, output = reproduce(tmp_path, *SMALL)
    assert code == 130
    assert "The same command continues" in output


def test_a_folder_that_cannot_be_written_is_found_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "run", pytest.fail)
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "deep", Path("/proc/oneproj")):
        code, output = reproduce(place, *SMALL)
        assert code == 1
        assert f"Records cannot be written to {place}" in output


def test_a_disk_that_fills_up_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sweep.write_record

    def full(record: Record, folder: Path) -> Path:
        if record.seed == 1:
            raise OSError(28, "No space left on device")
        return write(record, folder)

    monkeypatch.setattr(sweep, "write_record", full)
    code, output = reproduce(tmp_path, *SMALL, "--method", "one-projection")
    assert code == 1
    assert "No space left on device. Those that are there stay." in output
    assert len(list(tmp_path.rglob("seed-*.json"))) == 1


def test_a_narrow_terminal_gets_a_narrow_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = sys.modules["oneproj_paper.cli.reproduce"]  # the package has its function
    assert reproduce(tmp_path, *SMALL)[0] == 0
    monkeypatch.setattr(command, "console", lambda: Console(width=60))
    code, output = reproduce(tmp_path, *SMALL)
    assert code == 0, output
    for heading in ("class 0 error (%)", "ambiguity (%)", "runtime (s)", "feasible"):
        assert output.count(heading) == 2  # once for each method
    assert output.count("\N{PLUS-MINUS SIGN}") == 8


def calibrated(folder: Path) -> str:
    """A file that holds the library's own thresholds of one experiment and method."""
    file = folder / "mine.json"
    for found in read_calibrations(SHIPPED):
        if found.key == ("abstention-gaussian", "oneproj", "one-projection"):
            write_calibration(file, replace(found, settings={"steps": 20}))
    return str(file)


@pytest.mark.parametrize(
    "arguments",
    [
        ("transfer-gaussian",),
        ("abstention-gaussian", "--preset", "paper"),
        ("abstention-gaussian", "--method", "projected-sgd"),
        ("abstention-nasa",),
    ],
)
def test_thresholds_without_effect_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "run", pytest.fail)
    file = calibrated(tmp_path)
    code, output = reproduce(tmp_path, *arguments, "--thresholds", file)
    assert code == 1
    assert f"The thresholds of {file} have no effect here." in output
    assert "abstention-gaussian oneproj one-projection" in output
    code, output = reproduce(tmp_path, *arguments, "--thresholds", "nowhere.json")
    assert code == 1
    assert "nowhere.json cannot be read as calibrations" in output


def test_it_is_said_which_runs_the_thresholds_are_for(tmp_path: Path) -> None:
    file = calibrated(tmp_path)
    code, output = reproduce(tmp_path, *SMALL, "--thresholds", file)
    assert code == 0, output
    told = f"{file} has thresholds for: abstention-gaussian oneproj one-projection."
    assert told in output
    one = ("--method", "one-projection", "--thresholds", file)
    assert "has thresholds for" not in reproduce(tmp_path, *SMALL, *one)[1]
